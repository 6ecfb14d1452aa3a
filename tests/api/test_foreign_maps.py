"""The stress of maps that other programs have made."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, measure

pandas = pytest.importorskip("pandas")

rng = np.random.default_rng(5)
POINTS = rng.normal(size=(40, 5))
GIVEN = pdist(POINTS)
X = POINTS[:, :2] + 0.1 * rng.normal(size=(40, 2))
RESIDUALS = GIVEN - pdist(X)
NORMALIZED = np.sqrt((RESIDUALS**2).sum() / (GIVEN**2).sum())
NAMES = [f"sample {k}" for k in range(40)]


@pytest.mark.parametrize("matrix", [GIVEN, squareform(GIVEN), squareform(GIVEN).tolist()])
def test_every_figure_is_its_formula(matrix):
    stress = measure(matrix, X, dtype="float64")
    assert stress.normalized_stress == pytest.approx(NORMALIZED, rel=1e-12)
    assert stress.raw_stress == pytest.approx((RESIDUALS**2).sum(), rel=1e-12)
    assert stress.stress1 == pytest.approx(np.sqrt((RESIDUALS**2).sum() / (pdist(X) ** 2).sum()), rel=1e-12)
    rows = (squareform(RESIDUALS) ** 2).sum(axis=1) / (squareform(GIVEN) ** 2).sum(axis=1)
    assert_allclose(stress.point_stress, np.sqrt(rows), rtol=1e-12)


def test_points_are_matched_by_the_names_of_both(tmp_path):
    matrix = pandas.DataFrame(squareform(GIVEN), NAMES, NAMES)
    order = rng.permutation(40)
    table = pandas.DataFrame(X, NAMES).iloc[order]
    table.to_csv(tmp_path / "map.csv")
    for embedding in (table, tmp_path / "map.csv", X, pandas.DataFrame(X)):
        assert measure(matrix, embedding).normalized_stress == pytest.approx(NORMALIZED, rel=1e-6)
    shuffled = np.sqrt(((GIVEN - pdist(X[order])) ** 2).sum() / (GIVEN**2).sum())
    assert measure(GIVEN, table).normalized_stress == pytest.approx(shuffled, rel=1e-6)  # only the map has names


@pytest.mark.parametrize(
    ("embedding", "words"),
    [
        (X[:39], r"embedding must be finite coordinates of shape \(40, 2\), not float64 of shape \(39, 2\)"),
        (np.where(X > 1, np.nan, X), "embedding must be finite"),
        (np.ma.masked_greater(X, 1), "with masked entries"),
        (pandas.DataFrame(X, [*NAMES[1:], "other"]), "embedding has no coordinates of 1 points .* 'sample 0' in row 0"),
        ("nowhere.csv", "nowhere.csv does not exist"),
        ("nowhere.npy", "nowhere.npy does not exist"),
    ],
)
def test_a_map_that_cannot_be_measured_gets_a_sentence(embedding, words):
    with pytest.raises(InputError, match=words):
        measure(pandas.DataFrame(squareform(GIVEN), NAMES, NAMES), embedding)
