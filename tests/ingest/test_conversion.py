"""Similarities become dissimilarities by the rule that is named, and by no other."""

import numpy as np
import pytest

from psmds_dist import ArrayRows, DissimilarityWarning, InputError, build, open_rows
from psmds_dist.data.similarities import RULES
from psmds_dist.executor import InProcessExecutor

N = 45
X = np.random.default_rng(0).normal(size=(N, 60))
R = np.corrcoef(X)
S = np.abs(R) ** 0.5  # positive, 1 on the diagonal
OFF = 1 - np.eye(N)

EXPECTED = {
    "1-s": (R, 1 - R),
    "sqrt(1-s)": (R, np.sqrt(1 - R) * OFF),
    "sqrt(2(1-s))": (R, np.sqrt(2 * (1 - R)) * OFF),
    "-log s": (S, -np.log(S)),
    "max-s": (100 * S, 100 - 100 * S),
    "1/s": (S, 1 / S * OFF),
}


def stored(folder, similarities, rule, **how):
    build(ArrayRows(similarities, "float64"), folder / "m.zarr", InProcessExecutor(), similarity=rule, **how)
    return open_rows(folder / "m.zarr")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.filterwarnings("ignore::psmds_dist.DissimilarityWarning")
def test_every_rule_is_its_formula(tmp_path, rule):
    similarities, expected = EXPECTED[rule]
    rows = stored(tmp_path, similarities, rule)
    np.testing.assert_allclose(rows.array[:], expected * OFF, rtol=1e-13, atol=1e-13)
    assert rule in rows.header["source"]


def test_formulas_are_computed_in_float64_for_float32_stores(tmp_path):
    near = 1 - 1e-9 * (2 - np.eye(N)) * OFF  # lost in float32
    np.fill_diagonal(near, 1)
    near[0, 1:] = near[1:, 0] = 0.5
    rows = stored(tmp_path, near, "1-s", dtype="float32")
    assert rows.array.dtype == np.float32
    np.testing.assert_allclose(rows.array[2, 3], 1 - near[2, 3], rtol=1e-7)


def test_a_rounded_self_similarity_is_the_largest(tmp_path):
    rounded = R * (1 - 1e-7 * np.eye(N))
    assert (np.diagonal(stored(tmp_path, rounded, "sqrt(2(1-s))").array[:]) == 0).all()


def test_a_lone_triangle_is_mirrored_before_it_is_converted(tmp_path):
    rows = stored(tmp_path, np.tril(R), "1-s", triangle="lower")
    np.testing.assert_allclose(rows.array[:], (1 - R) * OFF, atol=1e-13)


@pytest.mark.parametrize(
    ("similarities", "rule", "told"),
    [
        (100 * S, "1-s", r"'1-s' \(--similarity\) is for values up to 1, but row 0 has 100 in column 0; use 'max-s'"),
        (R, "-log s", r"is for values of 0 or more up to 1, but row \d+ has -0\.\d+ in column"),
        (R, "1/s", r"is for values of 0 or more, but row \d+ has -0\.\d+ in column"),
        (R, "1-r", r"similarity must be one of '1-s', 'sqrt\(1-s\)', .*, not '1-r'"),
    ],
)
def test_similarities_that_a_rule_is_not_for_are_told(tmp_path, similarities, rule, told):
    with pytest.raises(InputError, match=told):
        stored(tmp_path, similarities, rule)
    assert not (tmp_path / "m.zarr").exists()


def test_no_similarity_at_all_is_infinitely_far(tmp_path):
    apart = S.copy()
    apart[3, 7] = apart[7, 3] = 0
    with pytest.raises(InputError, match="infinite"):
        stored(tmp_path, apart, "-log s")


def test_without_a_rule_similarities_are_refused_with_its_name(tmp_path):
    for similarities, rule in ((R, r"'sqrt\(2\(1-s\)\)'"), (R**2, "'1-s'"), (100 * R**2, "'max-s'")):
        with pytest.raises(InputError, match=rf"looks like similarities: .*psmds ingest --similarity {rule}"):
            stored(tmp_path, similarities, None)
    groups = np.arange(N) % 3
    hollow = (0.1 + 0.8 * np.equal.outer(groups, groups)) * OFF
    with pytest.warns(DissimilarityWarning, match="psmds ingest --similarity 'max-s' --zero-diagonal"):
        stored(tmp_path, hollow, None)
