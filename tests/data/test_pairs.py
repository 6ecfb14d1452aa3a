"""Lists of known pairs as matrices."""

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, open_pairs
from psmds_dist.data.opening import open_matrix

T = squareform(pdist(np.random.default_rng(0).random((20, 2))))
NAMES = ["0101", "NA", "1e5", "é", "with blank", '"quoted"', *(f"p{k}" for k in range(14))]


def rows_of(source):
    return source.take(np.arange(source.n))


def some_pairs(seed=0, share=0.4):
    """Pairs i < j that are known, in any order and with points in any order, and the matrix they stand for."""
    random = np.random.default_rng(seed)
    i, j = np.triu_indices(20, 1)
    kept = random.permutation(np.flatnonzero(random.random(i.size) < share))
    i, j = np.where(random.random(kept.size) < 0.5, [i[kept], j[kept]], [j[kept], i[kept]])
    matrix = np.full((20, 20), np.nan)
    matrix[i, j] = matrix[j, i] = T[i, j]
    np.fill_diagonal(matrix, 0)
    return i, j, T[i, j], matrix


@pytest.mark.parametrize("separator", ["\t", ",", ";"])
@pytest.mark.parametrize("heading", ["", "first{0}second{0}distance\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_is_read_with_its_names(separator, heading, end, tmp_path):
    i, j, t, matrix = some_pairs()
    cells = [pandas.Series(NAMES)[i], pandas.Series(NAMES)[j], t]
    frame = pandas.DataFrame({str(k): list(column) for k, column in enumerate(cells)})
    body = frame.to_csv(sep=separator, header=False, index=False, lineterminator=end)
    text = "# a note" + end + heading.format(separator).replace("\n", end) + body
    (tmp_path / "pairs.txt").write_text(text, encoding="utf-8-sig", newline="")
    source = open_pairs(tmp_path / "pairs.txt", ids=NAMES, dtype="float64")
    assert source.ids == NAMES
    np.testing.assert_array_equal(rows_of(source), matrix)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.5, 1]))
def test_columns_frames_and_sparse_arrays_agree(seed, share):
    i, j, t, matrix = some_pairs(seed, share)
    names = [f"n{k}" for k in range(20)]
    named = [names[k] for k in i], [names[k] for k in j]
    sources = [
        open_pairs((i, j, t), ids=range(20), dtype="float64"),
        open_pairs((*named, t), ids=names, dtype="float64"),
        open_pairs(pandas.DataFrame({"a": named[0], "b": named[1], "t": t}), ids=names, dtype="float64"),
        open_pairs(coo_array((t, (i, j)), shape=(20, 20)), dtype="float64"),
        open_pairs(coo_array((np.append(t, t), (np.append(i, j), np.append(j, i))), shape=(20, 20)), dtype="float64"),
    ]
    for source in sources:
        np.testing.assert_array_equal(rows_of(source), matrix)
        whole = np.empty((20, 20))
        source.read_columns(0, 20, whole)
        np.testing.assert_array_equal(whole, matrix.T)


def test_names_come_in_order_and_whole_numbers_ascend():
    assert open_pairs((["b", "a", "c"], ["a", "d", "b"], [1, 2, 3])).ids == ["b", "a", "d", "c"]
    assert open_pairs(([10, 2, 1], [2, 1, 10], [1, 2, 3])).ids == ["1", "2", "10"]
    assert open_pairs((["01", "1"], ["1", "2"], [1, 2])).ids == ["01", "1", "2"]


def test_names_may_hold_blanks(tmp_path):
    (tmp_path / "p.csv").write_text("Homo sapiens sapiens,Pan troglodytes,1\nPan troglodytes,Gorilla,2\n")
    assert open_pairs(tmp_path / "p.csv").ids == ["Homo sapiens sapiens", "Pan troglodytes", "Gorilla"]


def test_zeros_are_known_and_missing_values_are_not(tmp_path):
    for separator in ",\t":
        (tmp_path / "p.csv").write_text("a,b,0\nb,c,NA\nc,a,\na,c,2\n".replace(",", separator))
        rows = rows_of(open_pairs(tmp_path / "p.csv"))
        np.testing.assert_array_equal(rows, [[0, 0, 2], [0, 0, np.nan], [2, np.nan, 0]])


def test_both_orders_may_differ_and_a_repeated_line_may_not():
    np.testing.assert_array_equal(rows_of(open_pairs((["a", "b", "a"], ["b", "a", "b"], [1, 2, 1]))), [[0, 1], [2, 0]])
    with pytest.raises(InputError, match="gives 'a' and 'b' two dissimilarities, 1 and 3"):
        open_pairs((["a", "b", "a"], ["b", "a", "b"], [1, 2, 3]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b,--\na,c,2\nb,c,1\n", r"begins with 'a', 'b', '--', which names points and no number"),
        ('a,b,1\nb,c,"0\n', r"line 2 of .*p\.csv is 'b,c,\"0', but needs two points"),
        ("a,b,1\nb,c\n", r"line 2 of .*p\.csv is 'b,c', but needs two points"),
        ("x,y,t\na,b,1\nb,c,far\n", r"line 3 of .* is 'b,c,far'"),
        ("a,b,0.5x\nb,c,1\n", r"line 1 of .* is 'a,b,0\.5x'"),
        ("a,b,1_0\nb,c,1\n", r"line 1 of .* is 'a,b,1_0'"),
        ("a\tb\t1.234,5\nb\tc\t2\n", r"line 1 of "),
        ("a\tb\t1,5\nb\tc\t2.5\n", r"line 2 of .* with decimal commas"),
        ("a b\nb c\n", r"line 1 of .* separated by ' '"),
        ("# nothing\n", "has no pairs"),
        ("a,b,1\nb,,2\n", "has an empty id"),
        ("a,z,1\n", r"names the point 'z', which is not among the 3 ids"),
    ],
)
def test_bad_text_gets_a_sentence(text, sentence, tmp_path):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        open_pairs(tmp_path / "p.csv", ids=["a", "b", "c"] if "z" in text else None)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ("missing.csv", "missing.csv does not exist"),
        ((["a"], ["b"]), "has 2 columns"),
        ((["a"], ["b", "c"], [1]), r"lengths \[1, 2, 1\]"),
        ((["a"], ["b"], ["x"]), "third column of the list of pairs must be numbers"),
        (coo_array(np.ones((2, 3))), r"shape \(2, 3\), but pairs of points need a square one"),
    ],
)
def test_bad_columns_get_a_sentence(pairs, sentence):
    with pytest.raises(InputError, match=sentence):
        open_pairs(pairs)


@pytest.mark.parametrize("batch", ["{}", "one"])
def test_a_table_of_properties_is_not_guessed_to_be_pairs(batch, tmp_path):
    """It would be a map of samples and batches in which nearly all pairs are missing."""
    place = tmp_path / "meta.csv"
    place.write_text("sample,batch,depth\n" + "".join(f"s{k},{batch.format(k % 4)}x,{k + 1}.5\n" for k in range(20)))
    with pytest.raises(InputError, match=r"has 20 for 2\d points, .* --color .*meta.csv.* \(--format pairs\)"):
        open_matrix(place)
    assert open_matrix(place, format="pairs").known_pairs == 20
    place.write_text("\n".join(f"s{i},s{j},1.5" for i, j in [(0, 1), (0, 2), (0, 3), (1, 2)]))
    assert open_matrix(place).known_pairs == 4
