"""The scikit-learn estimator: its conventions, its figures against SciPy's, and its sentences."""

import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.api.arguments import seed_from
from psmds_dist.core.types import BudgetError, InputError
from psmds_dist.data import sources
from psmds_dist.data.sources import ArrayRows

N = 130


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(4).normal(size=(N, 4))


@pytest.fixture(scope="module")
def matrix(points):
    return squareform(pdist(points))


@pytest.fixture(scope="module")
def fitted(matrix):
    return PatternSearchMDS(random_state=0).fit(matrix)


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_fits_side_by_side_read_as_many_rows_as_in_turn_and_give_the_same_maps(matrix, n_jobs, monkeypatch):
    read, rows_read = ArrayRows.read, []

    def counted(self, lo, hi, out):
        rows_read.append(hi - lo)  # of float64, so that float32 rows are copied
        read(self, lo, hi, out)

    def fitted(seed):
        return PatternSearchMDS(random_state=seed, n_jobs=n_jobs).fit(matrix).embedding_

    monkeypatch.setattr(ArrayRows, "read", counted)
    in_turn, alone = [fitted(seed) for seed in range(6)], sum(rows_read)
    rows_read.clear()
    with ThreadPoolExecutor(3) as pool:
        side_by_side = list(pool.map(fitted, range(6)))
    np.testing.assert_array_equal(in_turn, side_by_side)
    assert sum(rows_read) == alone > 0


def test_parameters_are_those_of_the_constructor():
    mds = PatternSearchMDS(3, bad_moves=False, eps=1e-3, random_state=5, memory_limit="1 GB")
    params = mds.get_params()
    assert params["n_components"] == 3
    assert params["bad_moves"] is False
    assert {"n_components", "bad_moves", "eps", "radius_tol", "max_epochs", "random_state", "cluster"} <= set(params)
    assert PatternSearchMDS(**params).get_params() == params
    assert mds.set_params(eps=0.5).eps == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'epsilon'"):
        mds.set_params(epsilon=1)
    with pytest.raises(TypeError):
        PatternSearchMDS(2, False)  # keywords only, but for the number of dimensions
    assert repr(mds) == (
        "PatternSearchMDS(bad_moves=False, eps=0.5, memory_limit='1 GB', n_components=3,\n"
        "                 random_state=5)"
    )


class Connection:
    """Like a client: it can be neither copied nor pickled."""

    def __reduce__(self):
        raise TypeError("cannot pickle a connection")


def test_clones_share_the_client_and_nothing_fitted(fitted):
    twin = clone(PatternSearchMDS(3, cluster=(client := Connection()), eps=0.25))
    assert twin.cluster is client
    assert (twin.n_components, twin.eps) == (3, 0.25)
    assert not hasattr(clone(fitted), "embedding_")


def test_pickling_keeps_the_map_and_leaves_the_client(matrix):
    mds = PatternSearchMDS(random_state=0, max_epochs=3).fit(matrix)
    mds.cluster = Connection()
    again = pickle.loads(pickle.dumps(mds))
    assert again.cluster is None
    assert np.array_equal(again.embedding_, mds.embedding_)


def test_it_ends_a_pipeline(points, fitted):
    pipeline = make_pipeline(FunctionTransformer(lambda x: squareform(pdist(x))), PatternSearchMDS(random_state=0))
    assert np.array_equal(pipeline.fit_transform(points), fitted.embedding_)
    assert get_tags(fitted).input_tags.pairwise
    assert clone(pipeline).get_params()["patternsearchmds__random_state"] == 0


def test_attributes_agree_with_scipy(matrix, fitted):
    x = fitted.embedding_
    t, d = matrix.astype(np.float32).astype(float), squareform(pdist(x))
    assert x.shape == (N, 2)
    assert x.dtype == np.float64
    assert fitted.mse_ == pytest.approx(((t - d) ** 2).mean(), rel=1e-9)
    assert fitted.raw_stress_ == pytest.approx(((t - d) ** 2).sum() / 2, rel=1e-9)
    assert fitted.stress1_ == pytest.approx(np.sqrt(((t - d) ** 2).sum() / (d**2).sum()), rel=1e-9)
    assert fitted.normalized_stress_ == pytest.approx(np.sqrt(((t - d) ** 2).sum() / (t**2).sum()), rel=1e-9)
    point_stress = np.sqrt(((t - d) ** 2).sum(axis=1) / (t**2).sum(axis=1))
    np.testing.assert_allclose(fitted.point_stress_, point_stress, rtol=1e-9)
    np.testing.assert_allclose(pdist(fitted.raw_embedding_), pdist(x), rtol=1e-9, atol=1e-12)


def test_the_map_is_in_canonical_position(fitted):
    x = fitted.embedding_
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    covariance = x.T @ x
    assert covariance[0, 0] >= covariance[1, 1]
    assert abs(covariance[0, 1]) < 1e-9 * covariance[0, 0]
    assert (x[np.abs(x).argmax(axis=0), [0, 1]] > 0).all()


def test_history_and_reasons(matrix, fitted):
    history = fitted.history_
    assert history.dtype.names == ("epoch", "radius", "mse", "seconds", "moved")
    assert fitted.n_epochs_ == len(history) == history["epoch"][-1]
    assert (np.diff(history["radius"]) <= 0).all()
    assert (np.diff(history["seconds"]) > 0).all()
    assert fitted.radius_ == history["radius"][-1]
    assert fitted.stop_reason_ == "radius_tol"
    assert fitted.n_features_in_ == N
    assert fitted.seed_ == 0
    assert fitted.ids_ is None
    with pytest.warns(ConvergenceWarning, match="ended at max_epochs before it converged.*: raise max_epochs"):
        short = PatternSearchMDS(random_state=0, init="random", max_epochs=4).fit(matrix)
    assert (short.stop_reason_, short.n_epochs_) == ("max_epochs", 4)
    told = []
    called = PatternSearchMDS(random_state=0, on_epoch=lambda event: told.append(event) or len(told) == 3).fit(matrix)
    assert (called.stop_reason_, called.n_epochs_) == ("callback", 3)
    assert [event.epoch for event in told] == [1, 2, 3]
    assert PatternSearchMDS(max_epochs=0).fit(matrix).n_epochs_ == 0
    exact = squareform(pdist(np.array([[0.0], [1.0], [3.0]])))
    start = np.array([[0.0], [1.0], [3.0]])
    assert PatternSearchMDS(1, radius=1.0).fit(exact, init=start).normalized_stress_ < 1e-15  # rounding of a moved map


def test_a_monotone_solve_never_rises(matrix):
    with pytest.warns(ConvergenceWarning, match="certificate is missing: raise max_epochs"):
        mds = PatternSearchMDS(bad_moves=False, init="random", random_state=1, max_epochs=60).fit(matrix)
    assert (np.diff(mds.history_["mse"]) <= 0).all()


@pytest.mark.parametrize("random_state", [7, np.int64(7), np.random.RandomState(7), np.random.default_rng(7)])
def test_kinds_of_random_state(matrix, random_state):
    mds = PatternSearchMDS(random_state=random_state, max_epochs=3).fit(matrix)
    again = PatternSearchMDS(random_state=mds.seed_, max_epochs=3).fit(matrix)
    assert np.array_equal(again.embedding_, mds.embedding_)


def test_no_random_state_draws_a_seed_and_tells_it(matrix):
    one, two = (PatternSearchMDS(max_epochs=3).fit(matrix) for _ in range(2))
    assert one.seed_ != two.seed_
    assert np.array_equal(PatternSearchMDS(random_state=one.seed_, max_epochs=3).fit(matrix).embedding_, one.embedding_)


@pytest.mark.parametrize("wrong", [-1, 1.5, "seed", True])
def test_wrong_random_states(wrong):
    with pytest.raises(InputError, match="random_state must be a whole number"):
        seed_from(wrong)


def test_forms_of_the_same_input(points, fitted):
    exact = np.rint(squareform(pdist(points)) * 100)
    reference = PatternSearchMDS(random_state=0, max_epochs=5).fit(exact).embedding_
    forms = {
        "float32": exact.astype(np.float32),
        "int64": exact.astype(np.int64),
        "uint16": exact.astype(np.uint16),
        "Fortran": np.asfortranarray(exact),
        "list": exact.tolist(),
        "condensed": squareform(exact),
        "view": np.repeat(np.repeat(exact, 2, 0), 2, 1)[::2, ::2],
        "big endian": exact.astype(">f8"),
        "read only": np.frombuffer(exact.astype(np.float32).tobytes(), np.float32).reshape(N, N),
    }
    for name, form in forms.items():
        assert np.array_equal(PatternSearchMDS(random_state=0, max_epochs=5).fit(form).embedding_, reference), name
    assert np.array_equal(fitted.embedding_, PatternSearchMDS(random_state=0).fit_transform(squareform(pdist(points))))


def test_float64_rows_give_a_finer_map(matrix, fitted):
    fine = PatternSearchMDS(random_state=0, dtype="float64").fit(matrix)
    assert fine.result_.check.dtype == "float64"
    d = squareform(pdist(fine.embedding_))
    assert fine.mse_ == pytest.approx(((matrix - d) ** 2).mean(), rel=1e-12)
    assert fine.normalized_stress_ == pytest.approx(fitted.normalized_stress_, rel=0.05)
    assert np.array_equal(
        PatternSearchMDS(random_state=0, dtype=np.float64, max_epochs=3).fit_transform(matrix),
        PatternSearchMDS(random_state=0, dtype="float64", max_epochs=3).fit_transform(matrix),
    )


def test_init_is_where_it_starts(matrix, fitted):
    mds = PatternSearchMDS(max_epochs=0).fit(matrix, init=fitted.embedding_)
    np.testing.assert_allclose(mds.raw_embedding_, fitted.embedding_)
    assert mds.mse_ == pytest.approx(fitted.mse_)
    on = PatternSearchMDS(radius=fitted.radius_).fit_transform(matrix, init=fitted.embedding_.tolist())
    assert on.shape == (N, 2)


def test_asymmetry_names_the_pair_and_symmetrize_takes_the_mean(matrix):
    skew = matrix.copy()
    skew[17, 42] += 1
    with pytest.raises(InputError, match=r"not symmetric: the worst pair found is (17 and 42|42 and 17)"):
        PatternSearchMDS().fit(skew)
    mean = (skew + skew.T) / 2
    settings = {"random_state": 0, "dtype": "float64", "max_epochs": 5}
    np.testing.assert_array_equal(
        PatternSearchMDS(symmetrize=True, **settings).fit_transform(skew),
        PatternSearchMDS(**settings).fit_transform(mean),
    )


def test_memory_limit_decides_what_is_kept(matrix, fitted, monkeypatch):
    monkeypatch.setattr(sources, "CONVERTED_BYTES", 0)  # as of arrays that are larger
    free = PatternSearchMDS(random_state=0, init="random", polish=False).fit(matrix)
    mds = PatternSearchMDS(random_state=0, init="random", polish=False, memory_limit="0.05 MiB").fit(matrix)
    assert mds.result_.plan.limit == int(0.05 * 2**20)
    assert mds.result_.plan.cached_share < 1
    assert np.array_equal(mds.embedding_, free.embedding_)


def test_too_small_a_budget_is_refused_with_numbers(matrix):
    with pytest.raises(
        BudgetError, match=r"memory_limit is 5\.0 KiB per process, but a map of 130 points .* needs"
    ) as no:
        PatternSearchMDS(memory_limit=5120).fit(matrix)
    named = re.search(r"raise memory_limit \(--memory-limit\) to ([0-9.]+ KiB)", str(no.value))
    PatternSearchMDS(memory_limit=named[1], max_epochs=1).fit(matrix)
    with pytest.raises(MemoryError):
        PatternSearchMDS(memory_limit=100).fit(matrix)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_components": 0}, "n_components must be a whole number of at least 1, not 0"),
        ({"n_components": 2.5}, "n_components must be a whole number"),
        ({"n_components": N}, f"n_components must be below the number of points, {N}"),
        ({"bad_moves": "yes"}, "bad_moves must be True or False"),
        ({"eps": -1}, "eps must be a finite number at least 0"),
        ({"eps": np.nan}, "eps must be a finite number"),
        ({"radius": 0}, "radius must be a finite number greater than 0"),
        ({"radius_tol": "small"}, "radius_tol must be a finite number"),
        ({"max_epochs": -1}, "max_epochs must be a whole number"),
        ({"direction_share": 0}, "direction_share must be a finite number greater than 0"),
        ({"direction_share": 2}, "direction_share is a share"),
        ({"random_state": "x"}, "random_state must be"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', not 'float16'"),
        ({"dtype": "nonsense"}, "dtype must be"),
        ({"cluster": 3}, r"cluster must be the name of a cluster such as .* or a Dask cluster, not int"),
        ({"cluster": "nonsense"}, "cluster .nonsense. is not known: use one of local, local:4"),
        ({"memory_limit": "lots"}, "memory_limit must be a positive number of bytes, or text such as"),
        ({"memory_limit": -1}, "memory_limit must be"),
        ({"n_jobs": 0}, "n_jobs must be None, -1 or a positive number"),
        ({"n_jobs": 1.5}, "n_jobs must be"),
        ({"n_jobs": True}, "n_jobs must be"),
    ],
)
def test_wrong_parameters_are_a_sentence(matrix, wrong, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        PatternSearchMDS(**wrong).fit(matrix)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "init", [np.zeros((3, 2)), np.full((N, 2), np.nan), [["a", "b"]] * N, [[1], [2, 3]]], ids=range(4)
)
def test_wrong_starts_are_a_sentence(matrix, init):
    wanted = re.escape(f"init must be finite coordinates of shape ({N}, 2)")
    with pytest.raises(InputError, match=f"{wanted}|init cannot be made an array"):
        PatternSearchMDS().fit(matrix, init=init)


def test_few_points():
    assert PatternSearchMDS(1).fit(squareform([3.0, 4.0, 5.0])).embedding_.shape == (3, 1)
    with pytest.raises(InputError, match="2 points, but a map needs at least 3"):
        PatternSearchMDS(1).fit(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_the_best_of_several_starts_is_kept(matrix):
    apart = [PatternSearchMDS(random_state=seed, init="random").fit(matrix) for seed in (4, 5, 6)]
    best = min(apart, key=lambda mds: mds.mse_)
    together = PatternSearchMDS(random_state=4, init="random", n_init=3).fit(matrix)
    assert together.seed_ == best.seed_
    assert np.array_equal(together.embedding_, best.embedding_)
    with pytest.raises(InputError, match="n_init must be 'auto' or a whole number of at least 1, not 0"):
        PatternSearchMDS(n_init=0).fit(matrix)


@pytest.mark.parametrize("settings", [{}, {"max_epochs": 0}, {"on_epoch": lambda event: event.epoch == 3}])
def test_a_solve_that_did_what_it_was_asked_for_warns_of_nothing(matrix, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PatternSearchMDS(random_state=0, **settings).fit(matrix)


@pytest.mark.parametrize("seed", range(5))
def test_classical_scaling_leads_to_the_best_map_of_iris(seed):
    mds = PatternSearchMDS(init="classical", random_state=seed).fit(squareform(pdist(load_iris().data)))
    assert mds.start_ == "classical"
    assert mds.normalized_stress_ <= 0.0331


def test_rows_are_read_once_for_classical_scaling_and_the_solve(matrix, monkeypatch):
    read, rows_read = ArrayRows.read, []

    def counted(self, lo, hi, out):
        rows_read.append(hi - lo)  # of float64, so that float32 rows are copied
        read(self, lo, hi, out)

    monkeypatch.setattr(sources, "CONVERTED_BYTES", 0)  # as of arrays that are larger
    monkeypatch.setattr(ArrayRows, "read", counted)
    PatternSearchMDS(init="classical", random_state=0).fit(matrix)
    assert sum(rows_read) == 2 * N  # the other time for the check


def test_a_radius_that_is_given_holds_for_classical_scaling_too(matrix):
    mds = PatternSearchMDS(init="classical", radius=0.5, max_epochs=3, random_state=0).fit(matrix)
    assert mds.history_["radius"][0] == 0.5


def test_classical_scaling_that_does_not_fit_is_refused_in_a_sentence(matrix):
    settings = {"random_state": 0, "max_epochs": 2}
    wanted = r"for the vectors of the start.*, or begin at random \(--init random\)"
    with pytest.raises(BudgetError, match=wanted) as refusal:
        PatternSearchMDS(init="classical", n_components=3, memory_limit="1 kB", **settings).fit(matrix)
    least = re.search(r"\(--memory-limit\) to ([0-9.]+ \w+)", str(refusal.value))[1]
    PatternSearchMDS(init="classical", n_components=3, memory_limit=least, **settings).fit(matrix)


@pytest.mark.parametrize("init", ["landmarks", "auto", "given"])
def test_the_start_that_init_says_counts_as_the_first_of_several(matrix, monkeypatch, init):
    """The others are random; 'auto' takes landmarks where there are many points."""
    monkeypatch.setattr("psmds_dist.api.init.SMALL_POINTS", 50)
    where = np.random.default_rng(5).normal(size=(N, 2)) if init == "given" else init
    apart = [
        PatternSearchMDS(random_state=4, init=where).fit(matrix),
        *(PatternSearchMDS(random_state=seed, init="random").fit(matrix) for seed in (5, 6, 7, 8)),
    ]
    assert apart[0].start_ == ("given" if init == "given" else "landmarks")
    for count in (1, 2, 5):
        best = min(apart[:count], key=lambda mds: mds.mse_)
        together = PatternSearchMDS(random_state=4, init=where, n_init=count).fit(matrix)
        assert np.array_equal(together.embedding_, best.embedding_)
        assert (together.seed_, together.start_) == (best.seed_, best.start_)


def test_save_writes_what_the_command_line_reads(matrix, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet: call fit before save"):
        PatternSearchMDS().save(tmp_path / "map.zarr")
    mds = PatternSearchMDS(random_state=0).fit(matrix)
    mds.save(tmp_path / "map.zarr")
    stored = read_result(tmp_path / "map.zarr")
    assert np.array_equal(stored.embedding, mds.embedding_)
    assert stored.stress.normalized_stress == mds.normalized_stress_
    with pytest.raises(InputError, match="already holds a result"):
        mds.save(tmp_path / "map.zarr")
    mds.save(tmp_path / "map.zarr", overwrite=True)


def test_a_saved_map_knows_where_its_matrix_is(matrix, tmp_path):
    there = tmp_path / "matrix.zarr"
    array = zarr.create_array(there, data=matrix)
    np.save(tmp_path / "matrix.npy", matrix)
    file = tmp_path / "matrix.npy"
    for X, place in [(array, there), (there, there), (file, file), (matrix, None)]:
        mds = PatternSearchMDS(max_epochs=1, random_state=0).fit(X)
        mds.save(tmp_path / "map.zarr", overwrite=True)
        assert read_result(tmp_path / "map.zarr").attributes["matrix"] == (None if place is None else str(place))


def test_names_of_the_columns_of_a_map(matrix):
    names = PatternSearchMDS(3, max_epochs=1, random_state=0).fit(matrix).get_feature_names_out()
    assert names.tolist() == ["patternsearchmds0", "patternsearchmds1", "patternsearchmds2"]


def test_starts_far_beyond_the_data_are_a_sentence(matrix):
    x = np.random.default_rng(0).normal(size=(N, 2))
    for init in (x * 1e200, x * 1e6, x + 1e30):
        with pytest.raises(InputError, match="init reaches out to .*(centre it|scale it down)"):
            PatternSearchMDS().fit(matrix, init=init)
    with pytest.raises(InputError, match="radius is 1e.19, more than 10000 times the root mean square"):
        PatternSearchMDS(radius=1e19).fit(matrix)
    for init in (x * 1j, np.ma.array(x, mask=x > 0)):
        with pytest.raises(InputError, match="init must be finite coordinates"):
            PatternSearchMDS().fit(matrix, init=init)


def test_where_a_start_lies_does_not_matter(matrix):
    x = np.round(np.random.default_rng(0).normal(size=(N, 2)), 2)
    near = PatternSearchMDS(random_state=0).fit(matrix, init=x)
    far = PatternSearchMDS(random_state=0).fit(matrix, init=x + 2.0**10)
    assert far.normalized_stress_ == pytest.approx(near.normalized_stress_, rel=0.02)
