"""Labels from arrays and files."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from psmds_dist import InputError
from psmds_dist.data.labels import labels_for

IDS = ["x", "y", "z"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([3, 1, 2], "i"),
        (np.array([3, 1, 2], np.uint8), "u"),
        ([0.5, 1, 2], "f"),
        (["b", "a", "NA"], "U"),
        ([True, False, True], "b"),
        (np.array(["b", 1, 2.5], object), "U"),
        (np.array([1, 2, 3], object), "i"),
        (np.array([1.0, 2.5, 3.0], object), "f"),
        (np.array([b"a", b"b", b"c"]), "U"),
    ],
)
def test_arrays_are_taken_as_they_are(given, kind):
    labels = labels_for(given, 3)
    assert labels.dtype.kind == kind
    assert labels.astype(str).tolist() == np.asarray(given).astype(str).tolist()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "b\na\n b c \n", ["b", "a", "b c"]),
        ("a.txt", "3\n1\n2", [3, 1, 2]),
        ("a.txt", "3\n1e0\n2.5\n", [3, 1, 2.5]),
        ("a.txt", "one, two\na\nb\n", ["one, two", "a", "b"]),
        ("a.csv", "kind\nb\na\nc\n", ["b", "a", "c"]),
        ("a.csv", "x,1,b\ny,2,a\nz,3,c\n", ["b", "a", "c"]),
        ("a.csv", 'id,kind\nz,"c, d"\ny,a\nx,b\n', ["b", "a", "c, d"]),
        ("a.tsv", "z\t9\ny\t8\nx\t7\n", [7, 8, 9]),
        ("a.csv", "x,'=b\ny,a\nz,c\n", ["=b", "a", "c"]),
    ],
)
def test_files_are_read_and_matched_by_names(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    labels = labels_for(tmp_path / name, 3, IDS)
    assert labels.tolist() == expected
    assert labels.dtype.kind == np.array(expected).dtype.kind


def test_row_numbers_tell_the_order_where_the_points_have_no_names(tmp_path):
    (tmp_path / "a.csv").write_text("id,kind\n2,c\n0,a\n1,b\n")
    assert labels_for(tmp_path / "a.csv", 3).tolist() == ["a", "b", "c"]
    np.save(tmp_path / "a.npy", ["u", "v", "w"])
    assert_array_equal(labels_for(tmp_path / "a.npy", 3), ["u", "v", "w"])


def test_names_need_points_with_names(tmp_path):
    """The order may be another one, and the map would be colored wrongly in silence."""
    place = tmp_path / "a.csv"
    place.write_text("id,kind\nz,c\nx,a\ny,b\n")
    with pytest.raises(InputError, match=r"a.csv names its points, first 'z', but the map has no names .* \(--ids\)"):
        labels_for(place, 3)
    place.write_text("height,kind\n1.5,c\n0.5,a\n2.5,b\n")  # no names, though
    assert labels_for(place, 3).tolist() == ["c", "a", "b"]


@pytest.mark.parametrize("heading", ["id,kind\n", ""])
def test_labels_of_other_points_are_ignored(tmp_path, heading):
    place = tmp_path / "a.csv"
    place.write_text(f"{heading}v,5\nz,9\nw,\ny,8\nx,7\n")
    assert labels_for(place, 3, IDS).tolist() == [7, 8, 9]
    place.write_text(f"{heading}v,5\nz,9\nw,6\nu,8\nt,1\n")
    with pytest.raises(InputError, match=r"a.csv has no labels of 2 of 3 points, first 'x'; add them to the file"):
        labels_for(place, 3, IDS)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "a\nb\n", "a.txt has 2 labels for 3 points"),
        ("a.txt", "a\n\nb\n", "a.txt has no label for 1 points, first for point 1"),
        ("a.txt", "1\nnan\n2\n", "a.txt has no label for 1 points, first for point 1"),
        ("a.csv", "x,a\ny,b\nw,c\n", r"a.csv has no labels of 1 points of the matrix, first 'z' in row 2"),
        ("a.csv", "x,a\ny,b\ny,c\n", "a.csv has the id 'y' twice"),
        ("a.npy", "no array", "a.npy"),
    ],
)
def test_labels_that_cannot_be_used_get_a_sentence(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words):
        labels_for(tmp_path / name, 3, IDS)


@pytest.mark.parametrize("given", [[1, 2], [[1, 2, 3]], 5, [[1], [2, 3]], [None, "a", "b"], [np.nan, 1, 2]])
def test_arrays_that_cannot_be_used_get_a_sentence(given):
    with pytest.raises(InputError, match="labels"):
        labels_for(given, 3)


def test_a_binary_file_is_no_list_of_labels(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"a.txt cannot be read .*; save it as UTF-8 text"):
        labels_for(tmp_path / "a.txt", 3)


def test_an_empty_label_at_the_end_of_a_table_is_missing(tmp_path):
    place = tmp_path / "labels.tsv"
    place.write_text("id\tkind\nb\tx\na\ty\nc\t\n")
    with pytest.raises(InputError, match=r"labels\.tsv has no label for 1 points"):
        labels_for(place, 3, ["a", "b", "c"])
