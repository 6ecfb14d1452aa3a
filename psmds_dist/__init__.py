"""Distributed pattern search multidimensional scaling.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing would take longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from psmds_dist.compare import classical_mds, smacof
    from psmds_dist.errors import BudgetError, ClusterLost, InputError, PsmdsError, WorkerError
    from psmds_dist.estimator import PatternSearchMDS
    from psmds_dist.events import EpochEvent
    from psmds_dist.quality import Stress, canonical
    from psmds_dist.results import Result, read_result
    from psmds_dist.store import open_rows

__version__ = "0.1.0"

_HOMES = {
    "BudgetError": "errors",
    "ClusterLost": "errors",
    "EpochEvent": "events",
    "InputError": "errors",
    "PatternSearchMDS": "estimator",
    "PsmdsError": "errors",
    "Result": "results",
    "Stress": "quality",
    "WorkerError": "errors",
    "canonical": "quality",
    "classical_mds": "compare",
    "open_rows": "store",
    "read_result": "results",
    "smacof": "compare",
}

__all__ = [
    "BudgetError",
    "ClusterLost",
    "EpochEvent",
    "InputError",
    "PatternSearchMDS",
    "PsmdsError",
    "Result",
    "Stress",
    "WorkerError",
    "canonical",
    "classical_mds",
    "open_rows",
    "read_result",
    "smacof",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"psmds_dist.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
