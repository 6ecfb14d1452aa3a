"""Near pairs of a matrix: one pass finds how far each point reaches."""

from __future__ import annotations

from psmds_dist.core.nearness import NOWHERE, Nearness
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Executor
from psmds_dist.core.validation import require_neighbors
from psmds_dist.kernels.pairs import RuleKernels
from psmds_dist.solver.tasks import CachedRows, FindReach, gather


def find_nearness(rows: CachedRows, rule: PairRule, executor: Executor, scale: float) -> Nearness:
    """What near pairs of a matrix weigh by a rule; `NOWHERE` without a pass where all weigh as they are.

    Raises
    ------
    InputError
        When near pairs cost nothing, see `psmds_dist.core.nearness.Nearness.of`, or there are too few points.
    """
    if not rule.local:
        return NOWHERE
    layout = rows.layout
    require_neighbors(rule, layout.n)
    work = FindReach(rows, RuleKernels(rule, scale))
    return Nearness.of(rule, *gather(executor, work, layout, range(layout.count)))
