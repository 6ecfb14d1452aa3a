"""Landmark mode on real Dask workers: the same bits however the panel is spread, and whatever happens to them."""

import os
import re
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from landmarks.panel.build import build_panel
from landmarks.panel.data import PanelData
from landmarks.panel.sources import points_panel
from landmarks.panel.tables import array_panel
from landmarks.solver.fit import fit
from landmarks.solver.types import LandmarkConfig
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import BudgetError, InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import open_panel
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.ingest.build import build
from tests.clusters import wait_for, with_workers

N, S = 900, 60
SETTINGS = {"n_landmarks": S, "random_state": 2}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


def least(run):
    """Run with the smallest memory limit that works, as refusals name it: little is kept, the rest streamed."""
    limit = "1 kB"
    for _ in range(3):
        try:
            return run(limit)
        except BudgetError as refusal:
            limit = re.search(r"memory_limit \(--memory-limit\) to ([0-9.]+ \w+)", str(refusal))[1]
    raise AssertionError(f"{limit} was refused again and again")


def within_least(mds, X):
    return least(lambda limit: mds.set_params(memory_limit=limit).fit(X))


def features():
    return np.random.default_rng(0).normal(size=(N, 5))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The same points as a matrix, a panel and points, all on disk."""
    folder = tmp_path_factory.mktemp("inputs")
    build(ArrayRows(squareform(pdist(features()))), folder / "matrix", InProcessExecutor())
    sites = np.random.default_rng(1).permutation(N)[:80]
    panel = points_panel(array_panel(features(), "float64"), sites)
    build_panel(panel, folder / "panel", InProcessExecutor())
    zarr.create_array(folder / "foreign", data=zarr.open_array(folder / "panel" / "panel")[:], chunks=(77, 13))
    np.save(folder / "points.npy", features())
    np.save(folder / "sites.npy", sites)
    return folder


def given(inputs, form):
    """What to fit, and the parameters that go with it."""
    if form == "points.npy":
        return inputs / form, {"metric": "euclidean"}
    return inputs / form, {"landmarks": np.load(inputs / "sites.npy")} if form == "foreign" else {}


_REFERENCES: dict[Any, LandmarkMDS] = {}


def reference(inputs, form, refine):
    """The same fit in this process, in one thread."""
    form = "panel" if form == "foreign" else form
    if (form, refine) not in _REFERENCES:
        X, more = given(inputs, form)
        _REFERENCES[form, refine] = LandmarkMDS(n_jobs=1, refine=refine, **SETTINGS, **more).fit(X)
    return _REFERENCES[form, refine]


def same(mds, wanted):
    for name in ("embedding_", "landmarks_", "point_stress_", "curve_", "agreement_"):
        assert np.array_equal(getattr(mds, name), getattr(wanted, name)), name
    assert mds.normalized_stress_ == wanted.normalized_stress_
    assert mds.stress_interval_ == wanted.stress_interval_
    assert np.array_equal(mds.model_.frame.pull, wanted.model_.frame.pull)


WAYS = [("matrix", "none"), ("matrix", "full"), ("panel", "panel"), ("foreign", "panel"), ("points.npy", "panel")]


@pytest.mark.parametrize(("form", "refine"), WAYS)
@pytest.mark.parametrize("streamed", [False, True])
def test_same_bits_in_this_process_kept_and_streamed(inputs, form, refine, streamed):
    X, more = given(inputs, form)
    mds = LandmarkMDS(n_jobs=2, refine=refine, **SETTINGS, **more)
    same(within_least(mds, X) if streamed else mds.fit(X), reference(inputs, form, refine))


@pytest.mark.parametrize(("form", "refine"), [("matrix", "full"), ("panel", "panel"), ("points.npy", "none")])
@pytest.mark.parametrize("workers", [2, 4, 1])
def test_same_bits_for_every_number_of_workers(client, inputs, form, refine, workers):
    with_workers(client, workers)
    X, more = given(inputs, form)
    mds = LandmarkMDS(cluster=client, refine=refine, **SETTINGS, **more)
    same(mds.fit(X) if refine == "full" else within_least(mds, X), reference(inputs, form, refine))


@pytest.mark.wide
def test_same_bits_from_arrays_handed_to_workers(client, inputs, tmp_path):
    with_workers(client, 2)
    sites = np.load(inputs / "sites.npy")
    panel = zarr.open_array(inputs / "foreign")[:]
    arrays = {
        "points.npy": (features(), {"metric": "euclidean"}),
        "panel": (panel, {"landmarks": sites}),
        "matrix": (squareform(pdist(features())), {}),
    }
    for form, (X, more) in arrays.items():
        mds = LandmarkMDS(cluster=client, scratch=tmp_path, **SETTINGS, **more).fit(X)
        same(mds, reference(inputs, form, "none"))
        assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Deadly(RowSource):
    """A panel whose next reader among the workers dies in the middle of it, once the place is armed."""

    panel: Any
    place: str
    parent: int

    shape = (N, 80)
    content_id = "deadly"

    @property
    def landmarks(self):
        return self.panel.landmarks

    def read(self, lo, hi, out):
        if os.getpid() != self.parent:
            try:
                os.remove(self.place)
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        self.panel.read(lo, hi, out)


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("refine", ["none", "panel"])
def test_a_worker_killed_while_its_task_runs_changes_nothing(client, inputs, tmp_path, refine):
    with_workers(client, 2)
    place = tmp_path / "armed"
    executor = DaskExecutor(client)
    before = set(client.run(os.getpid).values())
    data = PanelData(Deadly(open_panel(inputs / "panel"), str(place), os.getpid()))
    config = LandmarkConfig(n_landmarks=S, refine=refine, seed=2)

    def arm(stage):
        if stage.startswith("landmarks" if refine == "none" else "placement"):
            place.touch()

    result = least(lambda limit: fit(data, config, executor, memory_limit=limit, tell=arm))
    assert not place.exists()
    wait_for(lambda: not before <= set(client.run(os.getpid, on_error="ignore").values()))
    wanted = reference(inputs, "panel", refine)
    assert np.array_equal(result.embedding, wanted.embedding_)
    assert np.array_equal(result.residual, wanted.point_stress_)


@pytest.mark.slow
@pytest.mark.wide
def test_faults_found_by_workers_are_sentences(client, tmp_path):
    with_workers(client, 2)
    x = features()
    x[500, 2] = np.inf
    with pytest.raises(InputError, match="point 500 has NaN or infinite features"):
        LandmarkMDS(cluster=client, metric="euclidean", scratch=tmp_path, **SETTINGS).fit(x)
    assert list(tmp_path.iterdir()) == []


def _held_bytes():
    from psmds_dist.data import cache as rows

    return sum(cache._data.nbytes for cache in rows._HELD.values())


@pytest.mark.slow
@pytest.mark.wide
def test_rows_are_let_go_after_a_fit(client, inputs):
    with_workers(client, 2)
    held = []
    note = lambda text: held.append(sum(client.run(_held_bytes).values()))  # noqa: E731
    settings = {"metric": "euclidean", "refine": "panel", "on_stage": note, **SETTINGS}
    mds = LandmarkMDS(cluster=client, **settings).fit(inputs / "points.npy")
    assert max(held) >= N * S * 4
    assert sum(client.run(_held_bytes).values()) == 0
    assert mds.embedding_.shape == (N, 2)
