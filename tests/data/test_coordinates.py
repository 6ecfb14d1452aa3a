"""Coordinates of maps from files of any program."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from psmds_dist import InputError
from psmds_dist.api.results import write_coordinates
from psmds_dist.data.coordinates import holds_coordinates, read_coordinates

X = np.array([[0.5, -1.25], [1e-300, 3.0], [2.0, 1 / 3]])
ROWS = ["0.5,-1.25", "1e-300,3.0", "2.0,0.3333333333333333"]
IDS = ["a", "b", "c"]
NAMED = [f"{name},{row}" for name, row in zip(IDS, ROWS, strict=True)]
NUMBERED = [f"{name},{row}" for name, row in zip((7, 8, 9), ROWS, strict=True)]


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        (ROWS, None),
        (["x,y", *ROWS], None),
        (["0,1", *ROWS], None),  # a heading of numbers
        (NAMED, IDS),
        (["sample,x,y", *NAMED], IDS),
        ([",0,1", *NAMED], IDS),  # to_csv of pandas
        (["V1,V2", *NAMED], IDS),  # write.table of R
        ([",0,1", *NUMBERED], ["7", "8", "9"]),
        (["ID,x,y", *NUMBERED], ["7", "8", "9"]),
        (["id,x1,x2,point_stress", *(f"{row},0.7" for row in NAMED)], IDS),
        (["", "x,y", *ROWS, " , ", ""], None),
    ],
)
def test_heading_and_names_are_told_from_coordinates(tmp_path, lines, ids):
    for name, separator in (("x.csv", ","), ("x.TSV", "\t")):
        (tmp_path / name).write_text("\n".join(lines).replace(",", separator), encoding="utf-8-sig")
        found = read_coordinates(tmp_path / name, 3)
        assert_array_equal(found.values, X)
        assert found.ids == ids


def test_names_that_are_numbers_are_known_from_the_matrix(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(NUMBERED))
    assert read_coordinates(path, 3).values.shape == (3, 3)
    assert_array_equal(read_coordinates(path, 3, ["9", "7", "8"]).values, X[[2, 0, 1]])


def test_points_are_matched_by_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(NAMED))
    found = read_coordinates(path, 3, ["c", "a", "b"])
    assert_array_equal(found.values, X[[2, 0, 1]])
    assert found.ids == ["c", "a", "b"]
    path.write_text("\n".join(ROWS))
    assert_array_equal(read_coordinates(path, 3, ["c", "a", "b"]).values, X)


AWKWARD = ["=1+1", "-x", "-1", "''=a", "tab\there", "line\nend", 'quote",', " edge ", "\x1b[31m", "é", "0101"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_any_name_survives_an_export(tmp_path, suffix):
    x = np.random.default_rng(0).normal(size=(len(AWKWARD), 3))
    path = tmp_path / f"x.{suffix}"
    write_coordinates(path, x, AWKWARD, x[:, 0] ** 2)
    order = np.random.default_rng(1).permutation(len(AWKWARD))
    assert_array_equal(read_coordinates(path, len(x), [AWKWARD[k] for k in order]).values, x[order])


def test_npy_files_hold_coordinates_alone(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert_array_equal(read_coordinates(tmp_path / "x.npy", 3, IDS).values, X)
    np.save(tmp_path / "line.npy", X[:, 0])
    assert_array_equal(read_coordinates(tmp_path / "line.npy", 3).values, X[:, :1])
    assert holds_coordinates(tmp_path / "line.npy")
    assert not holds_coordinates(tmp_path)
    assert not holds_coordinates(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (NAMED[:2], "has 2 lines for 3 points"),
        (["id,x,y", *NAMED[:2]], "'id' twice|is no number"),
        (["a,1,2", "b,1", "c,1,2"], "has 2 columns for point 1 and 3 for the first"),
        (["a,1,2", "b,1,x", "c,1,2"], "has 'x' in column 3 for point 1, which is no number"),
        (["a;1;2", "b;1;2", "c;1;2"], "holds no coordinates beside names; separate columns by commas"),
        (["a,1", "b,1", "a,1"], "has the id 'a' twice, for points 0 and 2"),
        (
            ["a,1", "b,1", "x,1"],
            "no coordinates of 1 points of the matrix, first 'c' in row 2, but of others, first 'x'",
        ),
    ],
)
def test_a_table_that_cannot_be_used_gets_a_sentence(tmp_path, lines, words):
    (tmp_path / "x.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=words):
        read_coordinates(tmp_path / "x.csv", 3, IDS)


def test_a_file_that_cannot_be_read_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv does not exist"):
        read_coordinates(tmp_path / "nowhere.csv", 3)
    with pytest.raises(InputError, match=r"from .csv, .tsv and .npy files, not from '.*x.txt'"):
        read_coordinates(tmp_path / "x.txt", 3)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="save it as UTF-8 text"):
        read_coordinates(tmp_path / "x.csv", 3)
    np.save(tmp_path / "x.npy", np.array(["a", "b"]))
    with pytest.raises(InputError, match="text"):
        read_coordinates(tmp_path / "x.npy", 3)
