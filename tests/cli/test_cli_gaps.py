"""Missing pairs, lists of pairs, weights and losses on the command line."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import open_rows, read_result
from psmds_dist.cli.app import main

N = 40
POINTS = np.random.default_rng(0).random((N, 2))
T = squareform(pdist(POINTS))
I, J = np.triu_indices(N, 1)
KNOWN = np.random.default_rng(1).random(I.size) < 0.6


def symmetric(condensed):
    return squareform(condensed)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Matrices of the same points, as files."""
    monkeypatch.chdir(tmp_path)
    gaps = symmetric(np.where(KNOWN, T[I, J], np.nan))
    np.fill_diagonal(gaps, 0)
    np.save("gaps.npy", gaps)
    np.save("whole.npy", T)
    np.save("known.npy", symmetric(KNOWN.astype(float)))
    np.save("upper.npy", 1.1 * T)
    apart = T.copy()
    apart[:30, 30:] = apart[30:, :30] = np.nan
    np.save("apart.npy", apart)
    lines = [f"p{i}\tp{j}\t{float(T[i, j])!r}" for i, j in zip(I[KNOWN], J[KNOWN], strict=True)]
    (tmp_path / "pairs.tsv").write_text("one\tother\tdistance\n" + "\n".join(lines) + "\n")
    return tmp_path


def run(*arguments, code=0):
    ended = CliRunner().invoke(main, list(map(str, arguments)))
    assert ended.exit_code == code, ended.output + repr(ended.exception)
    return ended.output


def disparity(path):
    return procrustes(POINTS, read_result(path).embedding)[2]


def test_a_matrix_with_gaps_is_fitted_described_and_measured(folder):
    told = run("fit", "gaps.npy", "map.zarr", "--dtype", "float64")
    missing = int((~KNOWN).sum())
    assert f"Note: {missing} of the 780 pairs of the matrix are missing" in told
    assert f"known pairs        {KNOWN.sum()} of 780" in told
    assert disparity("map.zarr") < 1e-8
    assert json.loads(run("info", "map.zarr", "--json"))["known_pairs"] == KNOWN.sum()
    assert "normalized stress  0.000000" in run("quality", "map.zarr")


def test_a_store_with_gaps_gives_the_same_map(folder):
    told = run("ingest", "gaps.npy", "gaps.zarr")
    assert f"40 points, {KNOWN.sum()} known pairs" in told
    assert f"{KNOWN.sum()} of 780 pairs are known" in run("plan", "gaps.zarr")
    run("fit", "gaps.zarr", "one.zarr", "-q")
    run("fit", "gaps.npy", "other.zarr", "-q")
    np.testing.assert_array_equal(read_result("one.zarr").embedding, read_result("other.zarr").embedding)


def test_a_list_of_pairs_is_recognized(folder):
    run("fit", "pairs.tsv", "map.zarr", "--dtype", "float64", "-q")
    result = read_result("map.zarr")
    order = [int(name[1:]) for name in result.ids]
    assert procrustes(POINTS[order], result.embedding)[2] < 1e-8
    run("ingest", "pairs.tsv", "pairs.zarr", "--format", "pairs", "-q")
    rows = open_rows("pairs.zarr")
    assert rows.ids == result.ids
    assert np.isnan(rows.take(np.arange(N))).sum() == 2 * (~KNOWN).sum()
    assert "leave --ids out" in run("fit", "pairs.tsv", "x.zarr", "--ids", "pairs.tsv", code=1)


def test_the_largest_component_is_kept_on_request(folder):
    assert "2 components without a known pair between them (of 30, 10 points)" in run(
        "fit", "apart.npy", "a.zarr", code=1
    )
    told = run("fit", "apart.npy", "a.zarr", "--disconnected", "largest")
    assert "Note: 10 of 40 points are left out" in told
    assert read_result("a.zarr").ids == [str(k) for k in range(30)]
    assert "normalized stress" in run("quality", "a.zarr")
    run("ingest", "apart.npy", "a-store.zarr", "--disconnected", "largest", "-q")
    assert open_rows("a-store.zarr").n == 30


def test_weights_and_powers_are_measured_as_they_were_fitted(folder):
    told = run("fit", "whole.npy", "w.zarr", "--weights", "known.npy", "--weight-power", "-1")
    assert "sqrt(sum w (t-d)^2 / sum w t^2)" in told
    assert "All figures are weighted, by t^-1." in told
    figures = [line for line in told.splitlines() if line.startswith(("normalized", "Stress-1"))]
    assert all(line in run("quality", "w.zarr") for line in figures)
    told = run("quality", "w.zarr", "--neighbors", "3")
    assert "All figures are weighted, by t^-1." in told
    assert "bounds or loss):\nafter scaling, strain, Pearson, Spearman, trustworthiness, continuity." in told
    assert read_result("w.zarr").attributes["weights"] == str(folder / "known.npy")


def test_near_pairs_are_an_option_that_is_told_and_measured_as_fitted(folder):
    told = run("fit", "whole.npy", "near.zarr", "--local", "0.5", "--local-neighbors", "4")
    near = "All figures are weighted; the 4 nearest points of each point have 0.5 of the objective."
    assert near in told
    figures = [line for line in told.splitlines() if line.startswith(("normalized", "Stress-1"))]
    told = run("quality", "near.zarr", "--neighbors", "3")
    assert all(line in told for line in [near, *figures])
    assert "trustworthiness" in told
    described = run("info", "near.zarr")
    assert re.search(r"local +0\.5\n +local_neighbors +4\n", described)
    assert "give at most 38" in run("fit", "whole.npy", "x.zarr", "--local", "0.5", "--local-neighbors", "39", code=1)


def test_bounds_and_losses_are_options(folder):
    assert "fits exactly" in run("fit", "whole.npy", "b.zarr", "--upper", "upper.npy")
    assert "bounds are the wrong way round" in run("fit", "upper.npy", "c.zarr", "--upper", "whole.npy", code=1)
    assert "loss must be one of" in run("fit", "whole.npy", "c.zarr", "--loss", "cubic", code=1)
    assert "give one of the same points" in run("fit", "whole.npy", "c.zarr", "--weights", small(folder), code=1)


def small(folder):
    np.save("small.npy", np.ones((5, 5)))
    return "small.npy"
