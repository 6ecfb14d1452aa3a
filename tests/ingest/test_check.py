import os
import pickle
import warnings
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import get_num_threads, set_num_threads
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS
from psmds_dist.core.errors import DissimilarityWarning
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import ReadProfile
from psmds_dist.core.types import InputCheck, InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import create, open_rows
from psmds_dist.ingest import scan
from psmds_dist.ingest.build import build
from psmds_dist.ingest.check import ROUNDING_TOL, SYMMETRY_TOL, check_source, refuse_similarities
from psmds_dist.ingest.scan import (
    InvalidEntries,
    ScanBlocks,
    Scanner,
    contiguous_runs,
    panel_blocks,
    scan_all,
    sketch_weights,
    total_invalid,
)
from psmds_dist.kernels.scan import scan_rows
from tests.fuzz.judgements import KINDS, table


class Serial:
    """Runs groups in a scrambled order, as a cluster may."""

    n_workers = 2
    in_process = False

    def __init__(self, group=None, seed=0):
        self._group = group
        self._random = np.random.default_rng(seed)

    def map(self, work, blocks, *, group=None):
        size = self._group or group or len(blocks)
        groups = [blocks[k : k + size] for k in range(0, len(blocks), size)]
        for k in self._random.permutation(len(groups)):
            yield groups[k], work(groups[k])

    def warm_up(self, function):
        function()

    def close(self):
        pass


@cache
def condensed(n, seed):
    return pdist(np.random.default_rng(seed).normal(size=(n, 4)))


def distances(n, dtype="float32", seed=0, offset=0.0):
    return squareform(condensed(n, seed) + offset).astype(dtype)


def check(matrix, dtype=None, **options):
    return check_source(ArrayRows(matrix, dtype or matrix.dtype.name), Serial(), **options)


def off_diagonal_rms(matrix):
    values = matrix[~np.eye(len(matrix), dtype=bool)].astype("float64")
    return np.sqrt(np.mean(values**2))


# --- the kernel ---


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 2500), st.sampled_from(["float32", "float64"]), st.integers(0, 99))
def test_scan_agrees_with_numpy(m, n, dtype, seed):
    m = min(m, n)
    random = np.random.default_rng(seed)
    start = int(random.integers(0, n - m + 1))
    rows = random.normal(size=(m, n)).astype(dtype)
    weights = sketch_weights(n)
    columns = random.normal(size=(2, n))
    expected = columns + weights[:, start : start + m] @ rows
    squares, sketch, low, high = scan_rows(rows, start, weights, columns)
    np.testing.assert_allclose(squares, (rows.astype("float64") ** 2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(sketch, rows @ weights.T, atol=1e-10 * n)
    np.testing.assert_allclose(columns, expected, atol=1e-12)
    assert (low, high) == (rows.min(), rows.max())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1023, 1024, 1499])
def test_scan_shows_what_is_not_finite(bad, place):
    rows = np.ones((3, 1500), "float32")
    rows[1, place] = bad
    squares, *_ = scan_rows(rows, 0, sketch_weights(1500), np.zeros((2, 1500)))
    np.testing.assert_array_equal(np.isfinite(squares), [True, False, True])


def test_scan_takes_read_only_rows_and_any_threads():
    rows = np.random.default_rng(0).random((5, 3000), dtype="float32")
    rows.flags.writeable = False
    before, found = get_num_threads(), []
    for threads in (1, before):
        set_num_threads(threads)
        columns = np.zeros((2, 3000))
        squares, sketch, *_ = scan_rows(rows, 7, sketch_weights(3000), columns)
        found.append((squares.tobytes(), sketch.tobytes(), columns.tobytes()))
    assert found[0] == found[-1]


# --- the passes ---


@given(st.sets(st.integers(0, 60)), st.integers(1, 7))
def test_runs_are_consecutive_and_complete(blocks, most):
    found = list(contiguous_runs(blocks, most))
    assert [block for run in found for block in run] == sorted(blocks)
    assert all(1 <= len(run) <= most for run in found)


def test_work_is_picklable():
    matrix = distances(70)
    work = pickle.loads(pickle.dumps(ScanBlocks(ArrayRows(matrix), partial(Scanner, len(matrix), matrix.dtype))))
    group = pickle.loads(pickle.dumps(work([3, 1])))
    assert [scan.block for scan in group.blocks] == [1, 3]


class Stored(ArrayRows):
    """Rows that are read from somewhere."""

    def in_memory(self):
        return None


def test_panels_hold_what_is_stored_together():
    source = Stored(distances(320))
    assert Layout(320).rows == 10
    assert panel_blocks(source) == 1
    source.read_profile = ReadProfile(45)
    assert panel_blocks(source) == 5
    assert panel_blocks(source, limit=2 * 10 * 320 * 4) == 2
    assert panel_blocks(source, limit=1) == 1


@pytest.mark.parametrize("kind", [ArrayRows, Stored])
def test_small_blocks_are_looked_at_together_for_the_same_result(kind, monkeypatch):
    matrix = distances(320)
    matrix[5, 300] = matrix[300, 5] = np.nan
    found = []
    for size in (1, 3 * 10 * 320 * 4, 2**20):  # one block, three of the 32, all
        monkeypatch.setattr(scan, "PIECE_BYTES", size)
        with pytest.warns(DissimilarityWarning, match="1 of the 51,040 pairs"):
            found.append(check_source(kind(matrix), Serial()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_check_tells_scale_and_identity(dtype):
    matrix = distances(200, dtype)
    found = check(matrix)
    assert found.n == 200
    assert found.dtype == dtype
    assert found.highest == matrix.max()
    assert found.rms == pytest.approx(off_diagonal_rms(matrix), rel=1e-12)
    assert found.symmetry_tol == SYMMETRY_TOL
    assert found.asymmetry is None
    assert InputCheck.from_dict(found.as_dict()) == found
    other = matrix.copy()
    other[3, 5] = other[5, 3] = np.nextafter(other[3, 5], other.dtype.type(9))
    assert check(other).digest != found.digest


def test_check_is_the_same_whatever_the_grouping():
    source = ArrayRows(distances(300))
    found = {check_source(source, Serial(group, seed)) for group in (None, 1, 3, 7) for seed in (0, 1)}
    assert len(found) == 1


def test_check_is_the_same_for_tall_bands():
    source = ArrayRows(distances(300))
    plain = check_source(source, Serial())
    source.read_profile = ReadProfile(100)
    assert check_source(source, Serial()) == plain


def test_progress_ends_complete():
    seen = []
    check(distances(100), on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (Layout(100).count,) * 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(("together", "height"), [(1, 1), (45, 5), (320, 16)])
def test_strips_are_stored_together_and_every_worker_has_some(together, height, monkeypatch):
    monkeypatch.setattr(scan, "PIECE_BYTES", 0)  # as of blocks that are larger
    source = ArrayRows(distances(320))  # 32 blocks of 10 rows, for two workers
    source.read_profile = ReadProfile(together)
    seen = []
    found = list(scan_all(source, list, Serial(), on_progress=lambda done, total: seen.append((done, total))))
    step = height * max(1, 32 // height // 16)  # some 16 tasks, where there are so many strips
    assert sorted(found) == [[*range(first, min(first + step, 32))] for first in range(0, 32, step)]
    assert seen == [(done, 32) for done in np.cumsum([len(part) for part in found])]


# --- faults ---


def with_entries(*entries, n=90, symmetric=True):
    matrix = distances(n, "float64")
    for i, j, value in entries:
        matrix[i, j] = value
        if symmetric:
            matrix[j, i] = value
    return matrix


FAULTS = {
    "infinite": (
        with_entries((5, 6, np.inf)),
        r"2 infinite entries as float(32|64), the first in row 5 \(id 'p5'\), column 6",
    ),
    "minus infinite": (with_entries((5, 6, -np.inf)), r"2 infinite entries"),
    "infinite on the diagonal": (with_entries((5, 5, np.inf)), r"1 infinite entry as float(32|64), .* row 5"),
    "all kinds": (
        with_entries((1, 2, np.inf), (3, 4, np.nan), (9, 9, 0.5), (6, 5, -0.25)),
        r"2 infinite entries.* 2 negative entries, the lowest in row 5 .*diagonal is not zero in 1 of",
    ),
    "negative and asymmetric": (
        with_entries((6, 5, -0.25), (7, 8, 90.0), symmetric=False),
        r"1 negative entry, the lowest in row 6 .*Also, the matrix is not symmetric: the worst pair found is (7|8) ",
    ),
    "negative behind a tiny one": (
        with_entries((2, 3, -1e-7), (60, 50, -0.3)),
        r"4 negative entries, the lowest in row 50 \(id 'p50'\), column 60 \(id 'p60'\) \(-0.3\)",
    ),
    "negative": (
        with_entries((60, 50, -0.25)),
        r"2 negative entries, the lowest in row 50 \(id 'p50'\), column 60 \(id 'p60'\) \(-0.25\)",
    ),
    "diagonal": (
        with_entries((4, 4, 0.5), (9, 9, 0.75)),
        r"diagonal is not zero in 2 of 90 rows, the largest 0.75 in row 9 \(id 'p9'\); set it to zero",
    ),
    "negative diagonal": (
        with_entries((4, 4, -1.0)),
        r"1 negative entry, the lowest in row 4 .*Also, the diagonal is not zero in 1 of 90 rows, the largest -1 in",
    ),
    "overflow": (
        with_entries((4, 5, 1e200)),
        r"squares of the dissimilarities overflow .*2 huge entries, the largest 1e\+200 in row 4 \(id 'p4'\), column 5",
    ),
    "exponential similarities": (
        np.exp(-distances(90, "float64")),
        r"looks like similarities: its largest values",
    ),
    "correlations": (
        np.corrcoef(np.random.default_rng(0).normal(size=(90, 5))),
        r"looks like similarities",
    ),
    "linear kernel": (
        (lambda x: x @ x.T)(np.random.default_rng(0).normal(size=(90, 5))),
        r"looks like similarities",
    ),
    "ones": (np.ones((90, 90)), r"looks like similarities"),
    "zeros": (np.zeros((90, 90)), r"all dissimilarities are zero as float"),
    "tiny": (1e-160 * distances(90, "float64"), r"(too small for the digits of float64|are zero as float32)"),
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, dtype) for kind in FAULTS for dtype in ("float32", "float64") if (kind, dtype) != ("overflow", "float32")],
)
def test_faults_are_told(kind, dtype):
    matrix, sentence = FAULTS[kind]
    with pytest.raises(InputError, match=sentence) as error:
        check(matrix.astype(dtype), ids=[f"p{k}" for k in range(90)])
    assert str(error.value).count("\n") == 0


def test_faults_are_told_without_ids():
    with pytest.raises(InputError, match=r"the first in row 7, column 20;"):
        check(with_entries((20, 7, np.inf)))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_points(n):
    with pytest.raises(InputError, match=f"has {n} points?, but a map needs at least 3"):
        check(np.zeros((n, n)))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3), (4,)])
def test_not_a_matrix(shape):
    with pytest.raises(InputError):
        check(np.zeros(shape))


@pytest.mark.parametrize("n", [3, 4, 31, 33])
def test_small_matrices_pass(n):
    assert check(distances(n)).n == n


# --- rounding ---


def told(matrix, **options):
    """What is found, and the text of the warning about it."""
    with pytest.warns(DissimilarityWarning) as notes:
        found = check(matrix, **options)
    (note,) = notes
    return found, str(note.message)


@pytest.mark.parametrize(
    ("entries", "dtype", "counts", "largest"),
    [
        (((2, 3, -1.2e-7), (8, 9, -6e-8)), "float32", (4, 0), 1.2e-7),
        (((2, 3, -2e-16),), "float64", (2, 0), 2e-16),
        (((2, 2, -2e-16), (5, 5, 6e-16)), "float64", (1, 2), 6e-16),
        (((4, 4, 1e-9),), "float64", (0, 1), 1e-9),
    ],
)
def test_what_rounding_moved_from_zero_is_taken_for_zero_and_told(entries, dtype, counts, largest):
    matrix = with_entries(*entries)
    found, note = told(matrix.astype(dtype))
    assert (found.suspicion.rounded_negative, found.suspicion.rounded_diagonal) == counts
    assert found.suspicion.largest_rounded == pytest.approx(largest, rel=1e-6)
    assert note.startswith(f"{counts[0]} negative entries and {counts[1]} diagonal entries of the matrix were taken")
    assert f"the largest is {largest:.3g} from zero" in note


def typical_row(matrix):
    return np.median(np.sqrt((matrix**2).sum(axis=1) / (len(matrix) - 1)))


def test_rounding_ends_at_the_stated_share_of_a_typical_row():
    edge = ROUNDING_TOL * typical_row(distances(90, "float64"))
    assert check_quietly(with_entries((2, 3, -0.99 * edge))).suspicion.rounded_negative == 2
    with pytest.raises(InputError, match="2 negative entries"):
        check(with_entries((2, 3, -1.01 * edge)))
    with pytest.raises(InputError, match="diagonal is not zero"):
        check(with_entries((3, 3, 1.01 * edge)))


def check_quietly(matrix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)
        return check(matrix)


def test_a_few_huge_entries_do_not_make_a_negative_one_look_rounded():
    with pytest.raises(InputError, match=r"negative entries, the lowest .*\(-0.3\)"):
        check(with_entries((1, 2, 1e6), (3, 77, -0.3)))


# --- similarities ---


def fractions(zeroed=0, rows_too=True):
    """Similarities as identity fractions, some of which lack their diagonal entry, or their whole row."""
    s = np.exp(-distances(40, "float64", seed=471))
    s[s < 0.05] = 0
    np.fill_diagonal(s, 1)
    rows = np.random.default_rng(0).permutation(40)[:zeroed]
    s[rows, rows] = 0
    if rows_too:
        s[rows], s[:, rows] = 0, 0
    return s


@pytest.mark.parametrize("rows_too", [False, True])
@pytest.mark.parametrize("zeroed", [0, 1, 2, 5, 20, 39])
def test_similarities_are_seen_however_many_rows_lack_their_diagonal(zeroed, rows_too, tmp_path):
    matrix = fractions(zeroed, rows_too)
    with pytest.raises(InputError, match=r"looks like similarities: its largest values.*for example by 1 - s") as error:
        check(matrix)
    assert "--zero-diagonal" not in str(error.value)
    assert (f"{zeroed} row{'s have' if zeroed > 1 else ' has'} zero there" in str(error.value)) == (zeroed > 0)
    with pytest.raises(InputError, match="looks like similarities"):
        build(ArrayRows(matrix), tmp_path / "t.zarr", Serial(), zero_diagonal=True)
    assert not (tmp_path / "t.zarr").exists()


def test_hollow_similarities_are_told():
    matrix = fractions()
    np.fill_diagonal(matrix, 0)
    found, note = told(matrix)
    assert found.suspicion.entries == "similarities"
    assert "behave like similarities" in note


def identities(n):
    """Percentages of equal letters in random strings, without a diagonal."""
    letters = np.random.default_rng(0).integers(0, 4, (n, 30))
    return 100 - 100 * squareform(pdist(letters, "hamming")) - 100 * np.eye(n)


def few_links(n):
    """Similarities of which 99 % are zero."""
    random = np.random.default_rng(0)
    s = np.where(random.random((n, n)) < 0.01, random.random((n, n)), 0)
    return np.triu(s, 1) + np.triu(s, 1).T


@pytest.mark.parametrize("matrix", [identities(16), few_links(112)], ids=["few", "sparse"])
def test_entries_without_a_structure_are_told_as_they_may_be_similarities(matrix):
    found, note = told(matrix)
    assert found.suspicion.entries == "unclear"
    assert "show no structure beyond chance" in note
    assert "--similarity 'max-s'" in note


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", "correlation", "hamming"])
@pytest.mark.parametrize("n", [20, 150])
def test_dissimilarities_of_points_are_clear(n, metric):
    points = np.random.default_rng(n).normal(size=(n, 8)) + 1
    t = squareform(pdist(points.round() if metric == "hamming" else points, metric))
    assert check(t).suspicion.entries == "dissimilarities"


def test_too_few_points_or_known_pairs_say_nothing():
    t = identities(16)
    assert check(t[:11, :11]).suspicion.entries == "dissimilarities"
    gaps = np.triu(np.random.default_rng(1).random((16, 16)) < 0.6, 1)
    t[gaps | gaps.T] = np.nan
    assert check_quietly(t).suspicion.entries == "dissimilarities"


def test_a_warning_about_a_matrix_points_at_the_line_of_the_user():
    matrix = fractions()
    np.fill_diagonal(matrix, 0)
    with pytest.warns(DissimilarityWarning) as notes:
        PatternSearchMDS(max_epochs=2, random_state=0).fit(matrix)
    assert [note.filename for note in notes if note.category is DissimilarityWarning] == [__file__]


def test_correlations_are_refused_with_their_own_remedy():
    r = np.corrcoef(np.random.default_rng(0).normal(size=(25, 60)))
    with pytest.raises(
        InputError,
        match=r"first, correlations by sqrt\(2 \(1 - r\)\) \(psmds ingest --sim",
    ):
        check(r)
    t = np.sqrt(np.maximum(2 * (1 - r), 0))
    np.fill_diagonal(t, 0)
    assert check(t).suspicion.entries == "dissimilarities"


def test_distances_with_a_spoilt_diagonal_are_no_similarities(tmp_path):
    matrix = distances(90, "float64") + 9999 * np.eye(90)
    with pytest.raises(InputError, match=r"diagonal is not zero in 90 of 90 rows.*--zero-diagonal"):
        check(matrix)
    found = build(ArrayRows(matrix, "float64"), tmp_path / "t.zarr", Serial(), zero_diagonal=True)
    assert found == check(distances(90, "float64"))


def test_every_kind_of_matrix_is_judged_rightly():
    assert {kind: dict(ends) for kind, ends in table(12, seed=5).items()} == {
        kind: {"right": 12} for kind in [*KINDS, "mixtures"]
    }


# --- one triangle ---


@pytest.mark.parametrize("empty", [0.0, np.nan, np.inf, -1.0, 999.0, 1e300])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_lone_triangle_is_told_and_mirrored(side, empty, tmp_path):
    whole = distances(90, "float64")
    other = np.tril_indices(90, -1) if side == "upper" else np.triu_indices(90, 1)
    matrix = whole.copy()
    matrix[other] = empty
    source = ArrayRows(matrix, "float64")
    where, taken = ("above", "triu") if side == "upper" else ("below", "tril")
    words = rf"^only the {side} .* {where} the .*--triangle {side} .*numpy\.{taken}\(t\).*would (halve|mix) all"
    with pytest.raises(InputError, match=words) as told:
        check(matrix)
    assert "Also" not in str(told.value)
    with pytest.raises(InputError, match=f"only the {side} triangle"):
        build(source, tmp_path / "t.zarr", Serial(), symmetrize=True)
    for choice in (side, "auto"):
        target = tmp_path / f"{choice}.zarr"
        assert build(source, target, Serial(), triangle=choice) == check(whole)
        rows = np.empty((90, 90))
        open_rows(target).read(0, 90, rows)
        np.testing.assert_array_equal(rows, whole)


def test_a_triangle_can_be_taken_of_two_and_auto_leaves_both(tmp_path):
    whole = distances(90, "float64")
    matrix = whole.copy()
    matrix[5, 3] = 77
    assert build(ArrayRows(matrix, "float64"), tmp_path / "u.zarr", Serial(), triangle="upper") == check(whole)
    with pytest.raises(InputError, match="not symmetric"):
        build(ArrayRows(matrix, "float64"), tmp_path / "a.zarr", Serial(), triangle="auto")
    with pytest.raises(InputError, match="triangle must be 'upper', 'lower', 'auto' or None, not 'left'"):
        build(ArrayRows(matrix), tmp_path / "b.zarr", Serial(), triangle="left")
    with pytest.raises(InputError, match="give one of the two"):
        build(ArrayRows(matrix), tmp_path / "b.zarr", Serial(), triangle="auto", symmetrize=True)


def test_the_mean_of_both_orders_of_a_lone_triangle_is_refused_in_python():
    with pytest.raises(InputError, match="only the upper triangle"):
        PatternSearchMDS(symmetrize=True).fit(np.triu(distances(50, "float64")))


def test_a_lone_triangle_with_a_whole_diagonal_is_no_similarity():
    for fill in (np.tril, np.triu):
        matrix = fill(distances(90, "float64") / 20)
        np.fill_diagonal(matrix, 1)
        with pytest.raises(InputError, match="only the .* Also, the diagonal is not zero in 90 of 90 rows"):
            check(matrix)


def test_infinite_entries_do_not_hide_small_similarities():
    matrix = squareform(np.random.default_rng(0).random(1770)) * 1e-3 + 1e-2 * np.eye(60)
    matrix[::7, 3::11] = matrix[3::11, ::7].T
    matrix[0, 5] = matrix[5, 0] = matrix[30, 31] = matrix[31, 30] = np.inf
    with pytest.raises(InputError, match="looks like similarities"):
        refuse_similarities(ArrayRows(matrix, "float64"))


@pytest.mark.filterwarnings("ignore:2 negative entries")
@pytest.mark.parametrize(("dtype", "n", "seed"), [("float32", 100, 2), ("float32", 300, 4), ("float64", 300, 6)])
def test_a_rounded_negative_changes_no_sum_of_other_rows(dtype, n, seed, monkeypatch):
    """Of rows that are looked at one by one, and all together."""
    matrix = distances(n, dtype, seed)
    matrix[7, 50] = matrix[50, 7] = -1e-7
    found = []
    for size in (1, 2**30):
        monkeypatch.setattr(scan, "PIECE_BYTES", size)
        found.append(check(matrix, dtype).rms)
    assert found == [check(np.abs(matrix), dtype).rms] * 2


def test_the_worst_of_invalid_entries_is_one_that_is_no_number():
    some = [InvalidEntries(2, 5, 1, -7.0), None, InvalidEntries(1, 9, 2, np.nan), InvalidEntries(3, 4, 0, 1e300)]
    assert total_invalid(some) == InvalidEntries(6, 9, 2, pytest.approx(np.nan, nan_ok=True))
    assert total_invalid(some[:2]) == some[0]
    assert total_invalid([None]) is None


def test_a_bad_entry_does_not_make_a_lone_triangle_of_equal_dissimilarities():
    matrix = 1 - np.eye(60)
    matrix[3, 40] = 2
    with pytest.raises(InputError, match="^the matrix is not symmetric"):
        check(matrix)


def test_a_missing_half_of_some_pairs_is_told_before_the_mean_is_advised():
    for missing in (0, -1):
        matrix = distances(60, "float64", offset=5.0)
        matrix[10:20, 30:40] = missing
        with pytest.raises(InputError, match=r"same best map, but where one of the two is missing fill it in first\.$"):
            check(matrix)
    with pytest.raises(InputError, match=r"100 negative entries|200 negative entries"):
        PatternSearchMDS(symmetrize=True).fit(matrix)


def test_nothing_is_said_of_digits_where_other_faults_explain_the_scale():
    for matrix in (-distances(30, "float32"), np.where(np.eye(30, dtype=bool), 0, np.inf).astype("float32")):
        with pytest.raises(InputError, match="negative|infinite") as told:
            check(matrix)
        assert "all dissimilarities are zero" not in str(told.value)


# --- groups without dissimilarities between them ---


def groups(*sizes, between=np.inf):
    n = sum(sizes)
    matrix, start = np.full((n, n), between), 0
    whole = distances(n, "float64")
    for size in sizes:
        part = slice(start, start + size)
        matrix[part, part] = whole[part, part]
        start += size
    order = np.random.default_rng(1).permutation(n)
    return matrix[np.ix_(order, order)]


@pytest.mark.parametrize(
    ("matrix", "dtype", "sentence"),
    [
        (groups(50, 50), "float64", r"5000 infinite entries as float64.* fall into 2 groups .* \(of 50, 50 points\)"),
        (groups(20, 60, 1), "float32", r"fall into 3 groups .* \(of 60, 20, 1 points\)"),
        (groups(50, 50, between=3.4e38), "float32", r"5000 huge entries, .* fall into 2 groups"),
        (groups(50, 50, between=1e300), "float64", r"5000 huge entries, .* fall into 2 groups"),
        (groups(1200, 300, between=1e153), "float64", r"720000 huge entries, .* fall into 2 groups"),
        (groups(*[10] * 7), "float64", r"7 groups .* \(of 10, 10, 10, 10, 10, \.\.\. points\)"),
        (
            with_entries((5, 6, np.inf)),
            "float64",
            r"2 infinite entries as float64, .* row 5, column 6; replace",
        ),
    ],
)
def test_groups_without_finite_dissimilarities_are_counted(matrix, dtype, sentence):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=sentence):
            check(matrix.astype(dtype))


def test_a_chain_of_finite_entries_is_one_group():
    matrix = np.full((60, 60), np.inf)
    steps = np.arange(59)
    matrix[steps, steps + 1] = matrix[steps + 1, steps] = 1
    np.fill_diagonal(matrix, 0)
    with pytest.raises(InputError) as error:
        check(matrix)
    assert "groups" not in str(error.value)


# --- symmetry ---


def one_bad_pair(n, share, seed, offset=0.0):
    """Matrix in which one entry differs from its mirror image by a share of the root mean square."""
    matrix = distances(n, "float64", seed, offset)
    i, j = np.random.default_rng(seed).choice(n, 2, replace=False)
    matrix[i, j] += share * off_diagonal_rms(matrix)
    return matrix, {int(i), int(j)}


@pytest.mark.parametrize("n", [200, 1500])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_bad_pair_is_found_above_the_tolerance_only(n, offset, seed, dtype):
    above, pair = one_bad_pair(n, 1.05 * SYMMETRY_TOL, seed, offset)
    i, j = sorted(pair)
    with pytest.raises(InputError, match=rf"worst pair found is ({i} and {j}|{j} and {i}), with .*symmetrize=True"):
        check(above.astype(dtype))
    below, _ = one_bad_pair(n, 0.95 * SYMMETRY_TOL, seed, offset)
    found = check(below.astype(dtype)).asymmetry
    assert found is None or found == pytest.approx(0.95 * SYMMETRY_TOL, rel=0.02)


def test_worst_pair_is_named_with_ids_and_values():
    matrix = distances(200, "float64")
    matrix[17, 3], matrix[3, 17], matrix[50, 51] = 2.5, 1.25, matrix[50, 51] + 0.1
    with pytest.raises(
        InputError,
        match=r"(17 \(id 'p17'\) and 3 \(id 'p3'\), with 2.5 in row 17 and 1.25 in row 3)|"
        r"(3 \(id 'p3'\) and 17 \(id 'p17'\), with 1.25 in row 3 and 2.5 in row 17)",
    ):
        check(matrix, ids=[f"p{k}" for k in range(200)])


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_row_and_a_random_matrix_are_found(seed):
    matrix = distances(900, seed=seed)
    matrix[33] += 0.01
    matrix[33, 33] = 0
    with pytest.raises(InputError, match=r"not symmetric: the worst pair found is .*\b33\b"):
        check(matrix)
    matrix = np.random.default_rng(seed).random((900, 900))
    np.fill_diagonal(matrix, 0)
    worst = np.abs(matrix - matrix.T).max() / off_diagonal_rms(matrix)
    with pytest.raises(InputError, match=f"which differ by {worst:.2g} of"):
        check(matrix)


@pytest.mark.parametrize("size", [0.01, 1.0])
def test_equal_faults_in_one_row_do_not_hide(size):
    for seed in range(20):
        matrix = distances(100, "float64", seed)
        columns = np.random.default_rng(seed).choice(np.arange(1, 100), 2, replace=False)
        matrix[0, columns] += size
        with pytest.raises(InputError, match="not symmetric"):
            check(matrix)


def test_float32_rounding_passes():
    from sklearn.metrics.pairwise import euclidean_distances

    points = np.random.default_rng(0).normal(size=(1200, 30)).astype("float32")
    assert check(euclidean_distances(points)).asymmetry is None
    noise = np.random.default_rng(1).normal(size=(1200, 1200))
    noisy = distances(1200, "float64") * (1 + 2e-6 * noise)  # many times worse than rounding
    assert check(noisy).asymmetry is None or check(noisy).asymmetry < SYMMETRY_TOL


def test_false_suspicion_is_settled_by_a_second_look():
    matrix = distances(1500, "float64")
    noise = np.random.default_rng(0).uniform(-1, 1, matrix.shape) * 0.3 * SYMMETRY_TOL * off_diagonal_rms(matrix)
    np.fill_diagonal(noise, 0)
    found = check(np.abs(matrix + noise)).asymmetry
    assert found == pytest.approx(0.6 * SYMMETRY_TOL, rel=0.05)


def test_tolerance_can_be_set():
    matrix, _ = one_bad_pair(100, 0.01, 0)
    with pytest.raises(InputError, match=r"where 0\.001 is tolerated"):
        check(matrix, symmetry_tol=1e-3)
    assert check(matrix, symmetry_tol=0.02).asymmetry in (None, pytest.approx(0.01, rel=0.01))
    assert check(distances(100), symmetry_tol=0.0).asymmetry in (None, 0.0)


# --- over files ---


def test_check_verifies_the_checksums_of_a_store(tmp_path):
    matrix = distances(101)
    target = create(tmp_path / "d.zarr", 101)
    for block in range(Layout(101).count):
        target.write(block, matrix[slice(*Layout(101).bounds(block))])
    target.finish(check(matrix).as_dict())
    rows = open_rows(tmp_path / "d.zarr")
    assert check_source(rows, Serial()) == check(matrix)
    path = os.path.join(rows.location, "dissimilarities", "c.4.0")
    with open(path, "r+b") as file:
        file.seek(50)
        file.write(b"?")
    with pytest.raises(InputError, match="does not match its checksum"):
        check_source(rows, Serial())


def test_scanner_marks_faults_where_they_are():
    rows = np.ones((3, 100), "float32")
    rows[1, 5], rows[2, 7], rows[2, 8] = -1, -2, np.inf
    scanner = Scanner(100, np.dtype("float32"))
    scanner.add(3, rows)
    (scan,) = scanner.result().blocks
    assert (scan.negative.count, scan.negative.row, scan.negative.column, scan.negative.value) == (
        2,
        11,
        7,
        -2,
    )
    assert (scan.infinite.count, scan.infinite.row, scan.infinite.column) == (1, 11, 8)
    assert scan.huge is None


def test_asymmetry_among_entries_whose_squares_are_zero_is_no_fault_of_its_own():
    matrix = np.zeros((6, 6))
    matrix[1, 2], matrix[2, 1], matrix[3, 4], matrix[4, 3] = 1e-200, 3e-200, 1e-200, 1e-200
    with pytest.raises(InputError, match=r"at most 3e-200, are too small for the digits of float64"):
        check_source(ArrayRows(matrix, "float64"), Serial())


@pytest.mark.parametrize("ids", [None, [f"p{k}" for k in range(40)]])
def test_one_entry_that_dwarfs_all_others_is_told(ids):
    matrix = distances(40, "float64")
    usual = np.sqrt(np.median(np.square(matrix).sum(axis=1)) / 39)
    matrix[7, 3] = matrix[3, 7] = 1.2e6 * usual
    with pytest.warns(DissimilarityWarning, match="code for missing pairs, so make them NaN") as told:
        found = check(matrix, ids=ids).suspicion
    where = "row 3, column 7" if ids is None else "row 3 (id 'p3'), column 7 (id 'p7')"
    assert found.outlier_at == where
    assert where in str(told[0].message)
    assert found.outlier == matrix[3, 7]
    assert found.typical == pytest.approx(usual, rel=0.1)
    matrix[7, 3] = matrix[3, 7] = 0.8e6 * usual
    assert not check_quietly(matrix).suspicion.outlier


def test_codes_for_missing_pairs_are_told_beside_pairs_that_are_missing():
    matrix = distances(40, "float64")
    for i, j, value in ((3, 7, 1e15), (5, 9, np.nan)):
        matrix[i, j] = matrix[j, i] = value
    with pytest.warns(DissimilarityWarning) as told:
        assert check(matrix).suspicion.outlier == 1e15
    assert len(told) == 2
