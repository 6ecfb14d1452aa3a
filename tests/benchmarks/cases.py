"""The cases by name, and which of them a profile runs."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.alternatives import alternatives
from tests.benchmarks.cluster import out_of_core, overhead, workers
from tests.benchmarks.comparison import compare
from tests.benchmarks.entries import entries
from tests.benchmarks.geodesics import geodesics
from tests.benchmarks.guided import guided
from tests.benchmarks.harness import Record, Settings
from tests.benchmarks.keeping import keeping
from tests.benchmarks.landmark import landmark, million, pcoa
from tests.benchmarks.maps import maps, order
from tests.benchmarks.planning import planning, scheduler
from tests.benchmarks.roofline import roofline
from tests.benchmarks.rules import ordinal, weights
from tests.benchmarks.scaling import scaling
from tests.benchmarks.solver import passes, small, speed
from tests.benchmarks.stores import compressed, distances, half_size
from tests.benchmarks.strings import strings
from tests.benchmarks.text import text
from tests.benchmarks.titres import titres

Case = Callable[[Settings], list[Record]]

CASES: dict[str, Case] = {
    "compare": compare,
    "maps": maps,
    "order": order,
    "speed": speed,
    "passes": passes,
    "small": small,
    "roofline": roofline,
    "scaling": scaling,
    "guided": guided,
    "entries": entries,
    "keeping": keeping,
    "distances": distances,
    "geodesics": geodesics,
    "half-size": half_size,
    "compressed": compressed,
    "text": text,
    "planning": planning,
    "scheduler": scheduler,
    "overhead": overhead,
    "workers": workers,
    "out-of-core": out_of_core,
    "landmark": landmark,
    "pcoa": pcoa,
    "million": million,
    "strings": strings,
    "titres": titres,
    "ordinal": ordinal,
    "weights": weights,
    "alternatives": alternatives,
}

QUICK = ("compare", "maps", "small")
STANDARD = tuple(CASES)
