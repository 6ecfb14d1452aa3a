"""Dissimilarities by functions of two objects, compared with RapidFuzz, SciPy and loops."""

import math
import pickle
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from rapidfuzz import fuzz
from rapidfuzz.distance import Hamming, Levenshtein
from rapidfuzz.process import cdist as all_pairs
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from psmds_dist import DaskExecutor, InProcessExecutor, InputError, PatternSearchMDS, build, open_objects, open_rows
from psmds_dist.data.functions import metric_function
from psmds_dist.ingest.halves import half_of
from tests.conformance.sources import SourceSuite

LEVENSHTEIN = "rapidfuzz.distance.Levenshtein.distance"
EVERYWHERE = InProcessExecutor()


@cache
def strings(n=90, seed=0):
    random = np.random.default_rng(seed)
    letters = list("acgtü")
    return ["".join(random.choice(letters, size)) + str(k) for k, size in enumerate(random.integers(3, 30, n))]


def edits(some):
    return all_pairs(some, some, scorer=Levenshtein.distance, dtype=np.int64)


def lengths(a, b):
    """A metric in Python, of a module that can be imported."""
    return abs(len(a) - len(b))


def written(folder, lines, end="\n"):
    (folder / "strings.txt").write_bytes((end.join(lines) + end).encode())
    return folder / "strings.txt"


def rows_of(source):
    return source.take(np.arange(source.n))


class TestStrings(SourceSuite):
    max_pickle_bytes = None

    @pytest.fixture
    def source(self):
        return open_objects(strings(), LEVENSHTEIN)

    @pytest.fixture
    def different(self):
        return open_objects(strings(), "rapidfuzz.distance.Indel.distance")

    @pytest.fixture
    def expected(self):
        return edits(strings())


class TestLines(TestStrings):
    max_pickle_bytes = 1000

    @pytest.fixture
    def source(self, tmp_path):
        return open_objects(written(tmp_path, strings(), "\r\n"), Levenshtein.distance)


class TestPythonFunction(TestStrings):
    @pytest.fixture
    def source(self):
        return open_objects(strings(), lambda a, b: abs(len(a) - len(b)))

    @pytest.fixture
    def expected(self):
        return [[abs(len(a) - len(b)) for b in strings()] for a in strings()]


class TestRowsOfAnArray(TestStrings):
    @pytest.fixture
    def source(self, tmp_path):
        np.save(tmp_path / "x.npy", np.random.default_rng(0).random((70, 3)))
        return open_objects(tmp_path / "x.npy", "scipy.spatial.distance.chebyshev", dtype="float64")

    @pytest.fixture
    def expected(self):
        return squareform(pdist(np.random.default_rng(0).random((70, 3)), "chebyshev"))


def test_tiles_of_any_size_agree(monkeypatch):
    monkeypatch.setattr("psmds_dist.data.objects.SCRATCH_BYTES", 8 * 90 * 7)
    np.testing.assert_array_equal(rows_of(open_objects(strings(), LEVENSHTEIN)), edits(strings()))
    np.testing.assert_array_equal(
        rows_of(open_objects(strings(), lengths)), rows_of(open_objects(strings(), "tests.data.test_objects.lengths"))
    )


def test_strings_name_themselves_if_they_are_different(tmp_path):
    assert open_objects(written(tmp_path, strings()), LEVENSHTEIN).ids == strings()
    assert open_objects([*strings(), "a", "a"], LEVENSHTEIN).ids is None
    assert open_objects(["a", "bb", "ccc"], LEVENSHTEIN, ids=["x", "y", "z"]).ids == ["x", "y", "z"]
    assert open_objects(np.eye(3), "scipy.spatial.distance.cityblock").ids is None
    with pytest.raises(InputError, match="2 ids for 3 points"):
        open_objects(["a", "bb", "ccc"], LEVENSHTEIN, ids=["x", "y"])


def test_a_function_is_known_by_the_name_it_can_be_imported_by():
    assert metric_function(Levenshtein.distance).name == LEVENSHTEIN == metric_function(LEVENSHTEIN).name
    assert metric_function(Hamming.distance).name == "rapidfuzz.distance.Hamming.distance"
    assert metric_function(lengths).identity == metric_function(f"{__name__}:lengths").identity is not None
    assert metric_function(lambda a, b: 0).identity is None
    assert metric_function(LEVENSHTEIN).identity != metric_function("rapidfuzz.distance.Indel.distance").identity


def test_a_function_of_another_constant_default_or_name_is_another_metric(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    bodies = ["2 * abs(a - b)", "3 * abs(a - b)", "2 * max(a - b)", "scale * abs(a - b)", "sum(2 for _ in (a, b))"]
    bodies += ["sum(3 for _ in (a, b))"]
    lines = [f"def f{k}(a, b, scale={k // 4}):\n    return {body}\n" for k, body in enumerate(bodies)]
    Path(tmp_path, "own_bodies.py").write_text(
        "\n".join([*lines, lines[3].replace("f3(a, b, scale=0", "f9(a, b, scale=7")])
    )
    found = [metric_function(f"own_bodies.f{k}").identity.split()[-1] for k in (*range(6), 9)]
    assert len(set(found)) == len(found)


def test_what_is_equal_has_the_same_content_id():
    found = [open_objects(strings(), LEVENSHTEIN).content_id for _ in range(2)]
    others = open_objects(strings(seed=1), LEVENSHTEIN), open_objects(strings(), LEVENSHTEIN, dtype="float64")
    assert len({*found, *(source.content_id for source in others)}) == 3
    assert (
        open_objects(["ab", "c", "d"], LEVENSHTEIN).content_id != open_objects(["a", "bc", "d"], LEVENSHTEIN).content_id
    )
    unknown = [open_objects(strings(), lambda a, b: abs(len(a) - len(b))).content_id for _ in range(2)]
    assert unknown[0] != unknown[1]


def test_a_changed_file_is_stale(tmp_path):
    source = open_objects(written(tmp_path, strings()), LEVENSHTEIN)
    assert not source.is_stale()
    written(tmp_path, strings(91))
    assert source.is_stale()


class Counted:
    """A metric that counts its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, a, b):
        self.calls.append((a, b))
        return abs(len(a) - len(b)) + (a != b)


def test_a_store_needs_each_pair_once(tmp_path):
    metric = Counted()
    source = open_objects(strings(), metric)
    metric.calls.clear()
    check = build(source, tmp_path / "d.zarr", EVERYWHERE)
    pairs = set(metric.calls)
    assert len(metric.calls) == len(pairs) == 90 * 89 // 2
    assert not any((b, a) in pairs for a, b in pairs)
    expected = [[metric(a, b) for b in strings()] for a in strings()]
    np.testing.assert_array_equal(rows_of(open_rows(tmp_path / "d.zarr")), expected)
    assert check.n == 90
    assert open_rows(tmp_path / "d.zarr").ids == strings()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["d.zarr"]


def test_a_finished_store_is_checked_without_computing(tmp_path, monkeypatch):
    build(open_objects(strings(), lengths), tmp_path / "d.zarr", EVERYWHERE)
    source = open_objects(strings(), lengths)
    monkeypatch.setattr("psmds_dist.data.functions.PythonFunction.fill", None)
    build(source, tmp_path / "d.zarr", EVERYWHERE)


FAILING = count()
STOP_AT = 2000


def sometimes(a, b):
    """A metric that fails once."""
    if next(FAILING) == STOP_AT:
        raise RuntimeError("the service is away")
    return abs(len(a) - len(b))


def test_a_failed_run_goes_on_where_it_stopped(tmp_path):
    source = open_objects(strings(), sometimes)
    with pytest.raises(InputError, match=r"sometimes raises RuntimeError: the service is away \(for points \d+, '.*'"):
        build(source, tmp_path / "d.zarr", EVERYWHERE)
    before = next(FAILING)
    build(open_objects(strings(), sometimes), tmp_path / "d.zarr", EVERYWHERE)
    assert next(FAILING) - before < 90 * 89 // 2 - 1000
    np.testing.assert_array_equal(rows_of(open_rows(tmp_path / "d.zarr")), rows_of(open_objects(strings(), lengths)))


def test_the_half_of_another_metric_is_replaced_but_no_store_of_the_user(tmp_path):
    build(open_objects(strings(), LEVENSHTEIN), half_of(tmp_path / "d.zarr"), EVERYWHERE)
    with pytest.raises(InputError, match=r"d.zarr.half already holds a finished store"):
        build(open_objects(strings(), lengths), tmp_path / "d.zarr", EVERYWHERE)
    np.testing.assert_array_equal(rows_of(open_rows(half_of(tmp_path / "d.zarr"))), edits(strings()))


def test_the_map_of_a_source_is_that_of_its_matrix():
    how = {"random_state": 0, "max_epochs": 5}
    mds = PatternSearchMDS(**how).fit(open_objects(strings(), LEVENSHTEIN))
    np.testing.assert_array_equal(mds.embedding_, PatternSearchMDS(**how).fit(edits(strings())).embedding_)
    assert mds.ids_ == strings()


@pytest.mark.parametrize("selection", ["random", "maxmin"])
def test_landmark_mode_computes_pairs_with_landmarks_only(selection):
    metric, n = Counted(), 400
    how = {"n_landmarks": 20, "random_state": 0, "selection": selection}
    fit = LandmarkMDS(metric=metric, **how).fit(strings(n))
    held_out, chosen = 76 * 304, 20 * n * (selection == "maxmin")
    assert len(metric.calls) < 20 * n + held_out + chosen + 500
    matrix = np.array([[metric(a, b) for b in strings(n)] for a in strings(n)])
    expected = LandmarkMDS(**how).fit(matrix)
    np.testing.assert_array_equal(fit.embedding_, expected.embedding_)
    np.testing.assert_array_equal(fit.transform(matrix[:4, fit.landmarks_]), expected.transform(matrix[:4]))
    assert fit.ids_ == strings(n)


def test_landmark_mode_takes_a_name_a_source_and_a_file(tmp_path):
    how = {"n_landmarks": 20, "random_state": 0}
    expected = LandmarkMDS(**how).fit(edits(strings())).embedding_
    for given in (strings(), written(tmp_path, strings())):
        np.testing.assert_array_equal(LandmarkMDS(metric=LEVENSHTEIN, **how).fit(given).embedding_, expected)
    source = open_objects(strings(), LEVENSHTEIN)
    np.testing.assert_array_equal(LandmarkMDS(**how).fit(source).embedding_, expected)
    with pytest.raises(InputError, match="metric is a function: bind them"):
        LandmarkMDS(metric=LEVENSHTEIN, metric_params={"weights": (1, 1, 2)}).fit(strings())


def raises(a, b):
    raise ZeroDivisionError("by zero")


def only_later(value):
    """A metric that is wrong for one pair, which no sample sees."""
    return lambda a, b: value if "here" in (a, b) and a != b else float(a != b)


WRONG = {
    "nowhere": ("no_such_module.metric", "'no_such_module.metric' cannot be imported .*: give package.module.function"),
    "no such name": ("rapidfuzz.distance.levenstein", "has no attribute 'levenstein'"),
    "not callable": ("math.pi", "metric 'math.pi' must be a function of two objects, not float"),
    "a similarity": (fuzz.ratio, "gives 100 between point 0, 'a0' and itself, .* if it is a similarity"),
    "one order": (lambda a, b: float(a < b), "is not symmetric: it gives 1 in one order and 0 in the other"),
    "raises": (raises, r"raises ZeroDivisionError: by zero \(for points 0, 'a0', and 0"),
    "text": (lambda a, b: "far", "gives 'far', which is no number"),
    "nothing": (lambda a, b: None, "gives None, which is no number"),
    "an array": (lambda a, b: np.zeros(2), "which is no number"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_dissimilarity_is_refused_at_once(kind):
    metric, sentence = WRONG[kind]
    with pytest.raises(InputError, match=sentence):
        open_objects([f"a{k}" for k in range(8)], metric)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (math.nan, "gives nan, but"),
        (-1, "gives -1, but"),
        (math.inf, "gives inf, but"),
        ("1", "gives '1', which is no"),
    ],
)
def test_a_wrong_pair_is_named(value, sentence, tmp_path):
    source = open_objects(["a0", "a1", "a2", "here", "a3", "a4", "a5", "a6", "a7"], only_later(value))
    with pytest.raises(InputError, match=rf"{sentence}.* \(for points 0, 'a0', and 3, 'here',\)"):
        build(source, tmp_path / "d.zarr", EVERYWHERE)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\n\nb\nc\n", "line 2 of .* is empty"),
        (b"a\nb\n", "has 2 points"),
        (b"a\n\xff\xfe\nb\n", "is not UTF-8 text"),
        (b"", "has 0 points"),
    ],
)
def test_a_file_that_holds_no_strings_is_refused(tmp_path, content, sentence):
    (tmp_path / "strings.txt").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        open_objects(tmp_path / "strings.txt", LEVENSHTEIN)
    with pytest.raises(InputError, match="does not exist"):
        open_objects(tmp_path / "nothing.txt", LEVENSHTEIN)


def test_objects_that_rapidfuzz_cannot_compare_are_named():
    with pytest.raises(InputError, match="Levenshtein.distance raises TypeError: .* points 0 and 0"):
        open_objects([3, 4, 5], LEVENSHTEIN)


def test_a_pickled_function_of_rapidfuzz_is_the_same():
    metric = pickle.loads(pickle.dumps(metric_function(Levenshtein.distance)))
    assert (metric.name, metric.function("abc", "abd")) == (LEVENSHTEIN, 1)


@pytest.mark.slow
def test_workers_compute_the_same(client, tmp_path):
    for k, metric in enumerate((LEVENSHTEIN, lambda a, b: abs(len(a) - len(b)))):
        source = open_objects(strings(), metric)
        build(source, tmp_path / f"{k}.zarr", DaskExecutor(client))
        np.testing.assert_array_equal(rows_of(open_rows(tmp_path / f"{k}.zarr")), rows_of(source))
