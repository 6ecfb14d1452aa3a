"""Maps of strings: edit distances by RapidFuzz, in a store and through landmarks, and a metric of your own."""

import itertools
import sys
import tempfile
from pathlib import Path

from landmarks import LandmarkMDS
from psmds_dist import InProcessExecutor, PatternSearchMDS, build, open_objects

LEVENSHTEIN = "rapidfuzz.distance.Levenshtein.normalized_distance"


def beginnings(a: str, b: str) -> float:
    """Share of letters after the longest common beginning: any function of two objects is a metric."""
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    return 1 - common / max(len(a), len(b))


def main() -> None:
    names = sorted(name for name in sys.stdlib_module_names if not name.startswith("_"))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "names.zarr"  # each pair is computed once; rerun to continue
        build(open_objects(names, LEVENSHTEIN), store, InProcessExecutor(), metric=LEVENSHTEIN)
        fit = PatternSearchMDS(n_components=2, random_state=0).fit(store)
    print(f"{len(fit.ids_)} module names: Stress-1 {fit.stress1_:.3f}, worst {fit.ids_[fit.point_stress_.argmax()]}")

    through = LandmarkMDS(n_landmarks=60, metric=beginnings, random_state=0).fit(names)  # pairs with landmarks only
    print(f"by their beginnings through 60 landmarks, Stress-1 about {through.stress1_:.3f}")
    print(f"names are those of the input: {through.ids_ == names}")


if __name__ == "__main__":
    main()
