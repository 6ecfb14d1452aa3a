"""Results on disk: read back as written, exported, and never half there."""

import csv
import os

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.api.results import export_stored, write_result
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import InputError

N = 60
IDS = [f'point "{k}", ü' for k in range(N)]


@pytest.fixture(scope="module")
def mds():
    points = np.random.default_rng(0).normal(size=(N, 3))
    fitted = PatternSearchMDS(random_state=2**40, init="random", max_epochs=7).fit(squareform(pdist(points)))
    object.__setattr__(fitted.result_, "ids", IDS)
    return fitted


def test_a_result_reads_back_as_it_was(tmp_path, mds):
    write_result(tmp_path / "new" / "map.zarr", mds.result_, matrix="/data/d.zarr", overwrite=False)
    result = read_result(tmp_path / "new" / "map.zarr")
    assert np.array_equal(result.embedding, mds.embedding_)
    assert np.array_equal(result.raw_embedding, mds.raw_embedding_)
    assert np.array_equal(result.history, mds.history_)
    assert np.array_equal(result.stress.point_stress, mds.point_stress_)
    figures = (
        result.stress.mse,
        result.stress.raw_stress,
        result.stress.stress1,
        result.stress.normalized_stress,
    )
    assert figures == (mds.mse_, mds.raw_stress_, mds.stress1_, mds.normalized_stress_)
    assert result.ids == IDS
    facts = result.attributes
    assert facts["matrix"] == "/data/d.zarr"
    assert (facts["seed"], facts["stop_reason"], facts["n_epochs"]) == (2**40, "max_epochs", 7)
    assert facts["run"]["configuration"]["eps"] == 1e-4
    assert facts["check"]["n"] == N
    assert {"psmds-dist", "numpy", "numba", "zarr", "dask", "scikit-learn", "python"} == set(facts["versions"])
    assert facts["peak_memory"]["in-process"] > 0


def test_a_result_of_no_epochs_and_no_names(tmp_path):
    mds = PatternSearchMDS(max_epochs=0).fit(squareform([3.0, 4.0, 5.0]))
    write_result(tmp_path / "map", mds.result_, matrix=None, overwrite=False)
    result = read_result(tmp_path / "map")
    assert len(result.history) == 0
    assert result.ids is None
    export_stored(tmp_path / "map", tmp_path / "map.csv")
    lines = (tmp_path / "map.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", "0", "1", "2"]


def test_unmeasured_stress_survives(tmp_path, mds):
    """After a second Ctrl-C, the map is kept without its figures."""
    from dataclasses import replace

    solution = replace(mds.result_.solution, stress=Stress.unknown(N))
    write_result(tmp_path / "map", replace(mds.result_, solution=solution), matrix=None, overwrite=False)
    result = read_result(tmp_path / "map")
    assert np.isnan([result.stress.mse, result.stress.normalized_stress, *result.stress.point_stress]).all()
    assert np.array_equal(result.embedding, mds.embedding_)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_tables(tmp_path, mds, ending):
    write_result(tmp_path / "map", mds.result_, matrix=None, overwrite=False)
    export_stored(tmp_path / "map", tmp_path / f"map{ending}")
    with (tmp_path / f"map{ending}").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file, delimiter="," if ending == ".csv" else "\t")
    assert head == ["id", "x1", "x2", "point_stress"]
    assert [row[0] for row in rows] == IDS
    numbers = np.array([row[1:] for row in rows], dtype=float)
    assert np.array_equal(numbers[:, :2], mds.embedding_)  # to the last bit
    assert np.array_equal(numbers[:, 2], mds.point_stress_)


@pytest.mark.parametrize("name", ["map.npy", "MAP.NPY"])
def test_bare_arrays(tmp_path, mds, name):
    write_result(tmp_path / "map", mds.result_, matrix=None, overwrite=False)
    export_stored(tmp_path / "map", tmp_path / name)
    assert np.array_equal(np.load(tmp_path / name), mds.embedding_)
    assert sorted(os.listdir(tmp_path)) == sorted(["map", name])
    with pytest.raises(InputError, match=r"must end in one of \.csv, \.tsv, \.npy, "):
        export_stored(tmp_path / "map", tmp_path / "map.xls")


def test_an_interrupted_write_leaves_what_was_there(tmp_path, mds, monkeypatch):
    write_result(tmp_path / "map", mds.result_, matrix="first", overwrite=False)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("psmds_dist.data.store.results.write_ids", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_result(tmp_path / "map", mds.result_, matrix="second", overwrite=True)
    assert os.listdir(tmp_path) == ["map"]
    assert read_result(tmp_path / "map").attributes["matrix"] == "first"


def test_results_replace_results_only_when_asked(tmp_path, mds):
    write_result(tmp_path / "map", mds.result_, matrix="first", overwrite=False)
    with pytest.raises(InputError, match="already holds a result"):
        write_result(tmp_path / "map", mds.result_, matrix="second", overwrite=False)
    write_result(tmp_path / "map", mds.result_, matrix="second", overwrite=True)
    assert read_result(tmp_path / "map").attributes["matrix"] == "second"
    assert os.listdir(tmp_path) == ["map"]


def test_what_is_no_result_is_told(tmp_path):
    with pytest.raises(InputError, match="does not exist; give the result of a fit"):
        read_result(tmp_path / "nothing")
    with pytest.raises(InputError, match="is not a result; give the result of a fit"):
        read_result(tmp_path)
