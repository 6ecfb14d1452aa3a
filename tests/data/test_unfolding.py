"""Tables between two kinds of points as one matrix."""

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS, read_result, unfold
from psmds_dist.cli.app import main

POINTS = np.random.default_rng(0).random((50, 2))
TABLE = cdist(POINTS[:30], POINTS[30:])
JUDGES, DISHES = [f"judge {k}" for k in range(30)], [f"dish {k}" for k in range(20)]


def with_gaps():
    return np.where(np.random.default_rng(1).random(TABLE.shape) < 0.1, np.nan, TABLE)


def whole(table):
    matrix = np.full((50, 50), np.nan)
    matrix[:30, 30:], matrix[30:, :30] = table, table.T
    np.fill_diagonal(matrix, 0)
    return matrix


def rows_of(source):
    return source.take(np.arange(source.n))


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_tables_are_read_from_arrays_frames_and_text(separator, tmp_path):
    table = with_gaps()
    frame = pandas.DataFrame(table, JUDGES, DISHES)
    frame.to_csv(tmp_path / "t.csv", sep=separator)
    np.save(tmp_path / "t.npy", table)
    named, plain = [unfold(frame, dtype="float64"), unfold(tmp_path / "t.csv", dtype="float64")], unfold(table)
    for source in named:
        assert source.ids == [*JUDGES, *DISHES]
        np.testing.assert_array_equal(rows_of(source), whole(table))
    np.testing.assert_array_equal(rows_of(unfold(tmp_path / "t.npy")), rows_of(plain))
    np.testing.assert_array_equal(rows_of(unfold(np.ma.masked_invalid(table))), rows_of(plain))
    assert plain.ids[:2] == ["row 0", "row 1"]
    assert plain.ids[-1] == "column 19"


def test_names_of_both_kinds_are_told_apart():
    frame = pandas.DataFrame([[1.0, 2.0], [3.0, 4.0]], ["a", "b"], ["b", "c"])
    assert unfold(frame).ids == ["row a", "row b", "column b", "column c"]


def test_both_kinds_are_placed_on_one_map(tmp_path, monkeypatch):
    with pytest.warns(DissimilarityWarning, match="are missing"):
        mds = PatternSearchMDS(random_state=0, dtype="float64").fit(unfold(with_gaps(), dtype="float64"))
    assert procrustes(POINTS, mds.embedding_)[2] < 1e-6
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame(TABLE, JUDGES, DISHES).to_csv("t.csv")
    ended = CliRunner().invoke(main, ["fit", "t.csv", "map.zarr", "--format", "unfold", "--dtype", "float64"])
    assert ended.exit_code == 0, ended.output
    result = read_result("map.zarr")
    assert result.ids == [*JUDGES, *DISHES]
    assert procrustes(POINTS, result.embedding)[2] < 1e-6


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('x,a,b\nr,1,"2\n', r"line 2 of .* is no row of cells \("),
        (",x,y\na,1,2\nb,3\n", "has a row of another length, 'b'"),
        (",x,y\na,1,2\nb,3,far\n", "line 3 of .* has 'far' where a number is expected"),
        (",x,y\n", "has no rows of numbers"),
        (",x,y,z\na,1,2\n", "names 4 columns, but its rows have 2 numbers"),
        (",x,x\na,1,2\n", "has the id 'x' twice"),
    ],
)
def test_bad_tables_get_a_sentence(text, sentence, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        unfold(tmp_path / "t.csv")


def test_bad_arrays_get_a_sentence():
    with pytest.raises(InputError, match=r"the table has shape \(3,\), but needs rows and columns"):
        unfold([1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="the table holds"):
        unfold([["a", "b"]])
