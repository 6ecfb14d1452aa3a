"""Stores of two bytes a number."""

import math
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import make_swiss_roll

from psmds_dist import ArrayRows, InProcessExecutor, InputError, PatternSearchMDS, build, open_rows
from psmds_dist.api.embed import embed
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.layout import Layout
from psmds_dist.data.cache import stored
from psmds_dist.data.encoding import HALF_SIZES, Halves, Units
from psmds_dist.data.store import create, describe
from tests.digits import digit_distances

N = 150


def distances(n=N, scale=1.0):
    return scale * squareform(pdist(np.random.default_rng(0).normal(size=(n, 4)))).astype("float32")


def built(folder, matrix, dtype):
    path = folder / f"{dtype}.zarr"
    return path, build(ArrayRows(matrix), path, InProcessExecutor(), dtype=dtype)


def rows_of(path, dtype=None):
    source = open_rows(path, dtype)
    return source.take(np.arange(source.n))


def nearest(matrix, dtype):
    """What a store of these entries should hold, by NumPy in float64."""
    if dtype == "float16":
        return matrix.astype("f2").astype("f4")
    unit = 2.0 ** math.ceil(math.log2(np.nanmax(matrix) / 65534))
    return (np.rint(matrix.astype("f8") / unit) * unit).astype("f4")


def test_all_halves_are_decoded_as_numpy_does():
    bits = np.arange(65536).astype("u2")
    out = np.empty(65536, "f4")
    Halves().decode(bits.view("f2"), out)
    np.testing.assert_array_equal(out, bits.view("f2").astype("f4"))


@pytest.mark.parametrize("unit", [1.0, 2.0**-20, 2.0**40])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_units_are_decoded_exactly_and_the_last_is_missing(unit, dtype):
    codes = np.arange(65536).astype("u2").reshape(256, 256)
    out = np.empty((256, 300), dtype)
    Units(unit).decode(codes, out[:, :256])
    expected = codes.astype("f8") * unit
    expected[-1, -1] = np.nan
    np.testing.assert_array_equal(out[:, :256], expected)
    np.testing.assert_array_equal(Units(unit).encode(out[:, :256]), codes)


@pytest.mark.parametrize("largest", [1.0, 65534.0, 65535.0, 2.0**-30 * 65534, np.nextafter(65534, 1e9), 3e30, 1e-30])
def test_the_unit_is_the_smallest_power_of_two_that_reaches_the_largest(largest):
    unit = Units.up_to(largest).scale
    assert math.frexp(unit)[0] == 0.5
    assert 65534 * unit >= largest > 65534 * unit / 2


@pytest.mark.parametrize("dtype", HALF_SIZES)
def test_stores_hold_the_nearest_numbers_and_missing_pairs(tmp_path, dtype):
    matrix = distances()
    matrix[3, 5] = matrix[5, 3] = np.nan
    with pytest.warns(UserWarning, match="1 of the 11,175 pairs"):
        path, check = built(tmp_path, matrix, dtype)
    source = open_rows(path)
    assert (source.array.dtype, source.dtype, source.direct) == (np.dtype(dtype), np.dtype("f4"), True)
    assert Path(path, "dissimilarities", "c.0.0").stat().st_size == 2 * Layout(N).rows * N + 4
    found = rows_of(path)
    np.testing.assert_array_equal(found, nearest(matrix, dtype))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(rows_of(path, "float64"), found)
    assert check.missing == 1
    assert source.load_check() == check.as_dict() | {"poorest": [list(pair) for pair in check.poorest]}
    source.__dict__["direct"] = False
    np.testing.assert_array_equal(source.take(np.arange(N)), found)  # through Zarr


def test_errors_are_within_what_is_told(tmp_path):
    matrix = distances(400)
    for encoding, dtype in ((Units.up_to(float(matrix.max())), "uint16"), (Halves(), "float16")):
        path, check = built(tmp_path, matrix, dtype)
        error = np.abs(rows_of(path).astype("f8") - matrix)
        assert 0.4 * encoding.largest_error(check.highest) < error.max() <= encoding.largest_error(check.highest)
        typical = math.sqrt((error**2).sum() / (400 * 399))
        assert 0.5 * encoding.typical_error(check.rms) < typical < 1.02 * encoding.typical_error(check.rms)
        assert f"{encoding.largest_error(check.highest):.3g}" in describe(path)["rounded"]


def test_integers_up_to_65534_stay_exact(tmp_path):
    matrix = np.random.default_rng(0).integers(1, 65535, (N, N))
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    matrix[0, 1] = matrix[1, 0] = 65534
    path, _ = built(tmp_path, matrix, "uint16")
    np.testing.assert_array_equal(rows_of(path), matrix)
    assert describe(path)["unit"] == 1


def test_another_reader_gets_the_same_numbers_by_the_conventions_of_cf(tmp_path):
    path, _ = built(tmp_path, distances(), "uint16")
    array = zarr.open_array(path / "dissimilarities", mode="r")
    assert array.attrs["missing_value"] == array.fill_value == 65535
    np.testing.assert_array_equal(array[:] * array.attrs["scale_factor"], rows_of(path))


@pytest.mark.parametrize("dtype", HALF_SIZES)
def test_maps_are_those_of_the_decoded_matrix_to_the_bit(tmp_path, dtype):
    path, _ = built(tmp_path, distances(), dtype)
    maps = [PatternSearchMDS(2, random_state=0).fit_transform(x) for x in (str(path), nearest(distances(), dtype))]
    np.testing.assert_array_equal(*maps)


SAMPLE = np.arange(0, 1200, 3)


@pytest.mark.parametrize("dtype", HALF_SIZES)
@pytest.mark.parametrize("data", ["digits", "swiss roll"])
def test_stress_of_the_final_map_hardly_changes(tmp_path, data, dtype):
    if data == "digits":
        matrix = digit_distances("shuffled")[np.ix_(SAMPLE, SAMPLE)]
    else:
        matrix = squareform(pdist(make_swiss_roll(400, random_state=0)[0])).astype("f4")
    path, _ = built(tmp_path, matrix, dtype)
    full, half = (PatternSearchMDS(2, random_state=0).fit(x).normalized_stress_ for x in (matrix, str(path)))
    assert half == pytest.approx(full, rel=1e-3)


def test_what_float16_cannot_hold_is_refused_with_what_can(tmp_path):
    with pytest.raises(InputError, match=r"holds [67]\d+.*float16 ends at 65504: use dtype='uint16'"):
        built(tmp_path, np.minimum(distances(scale=65000), 70000), "float16")
    assert not (tmp_path / "float16.zarr").exists()
    with pytest.raises(InputError, match=r"float16 would round .* on average, more than 0.001 of .*uint16"):
        built(tmp_path, distances(scale=1e-6), "float16")
    built(tmp_path, distances(scale=1e-6), "uint16")


def test_a_unit_too_coarse_for_most_is_refused(tmp_path):
    matrix = distances()
    matrix[0, 1] = matrix[1, 0] = 1e6
    with pytest.raises(InputError, match="uint16 would round.* by 4.6 on average.*a few are much larger.*use float32"):
        built(tmp_path, matrix, "uint16")


@pytest.mark.parametrize("dtype", HALF_SIZES)
@pytest.mark.parametrize(("value", "sentence"), [(-1, "negative"), (np.inf, "1 infinite entry|2 infinite entries")])
def test_bad_entries_are_refused_as_ever(tmp_path, dtype, value, sentence):
    matrix = distances()
    matrix[0, 1] = matrix[1, 0] = value
    with pytest.raises(InputError, match=sentence):
        built(tmp_path, matrix, dtype)


def test_a_matrix_that_grows_between_the_passes_is_refused(tmp_path):
    rows = distances(20)
    with pytest.raises(InputError, match="nothing above 1.99.* it has changed meanwhile"):
        Units.up_to(1.99).round(rows)


@pytest.mark.parametrize("dtype", HALF_SIZES)
def test_damage_is_noticed(tmp_path, dtype):
    path, _ = built(tmp_path, distances(), dtype)
    file = path / "dissimilarities" / "c.1.0"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedDataError, match="checksum"):
        open_rows(path).verified().take(np.arange(N))


@pytest.mark.parametrize("dtype", HALF_SIZES)
def test_an_interrupted_build_continues(tmp_path, dtype, monkeypatch):
    source, path = ArrayRows(distances()), tmp_path / "m.zarr"

    def stop(done, total):
        if done > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(source, path, InProcessExecutor(), dtype=dtype, on_progress=stop)
    with pytest.raises(InputError, match="unfinished"):
        open_rows(path)
    build(source, path, InProcessExecutor(), dtype=dtype)
    np.testing.assert_array_equal(rows_of(path), nearest(distances(), dtype))


def test_half_of_the_bytes_are_read_and_planned(tmp_path):
    path, _ = built(tmp_path, distances(), "uint16")
    storage = stored(open_rows(path))
    assert (storage.itemsize, storage.stored_share) == (4, 0.5)
    executor = InProcessExecutor()
    config = SolverConfig(max_epochs=4, radius=1.0, polish=False)
    embed(open_rows(path), config, executor, init="random", memory_limit="1 GiB")
    assert executor.cluster_state().bytes_read == 2 * N**2  # kept in memory after the first epoch


def test_a_store_of_another_type_is_not_continued(tmp_path):
    create(tmp_path / "m.zarr", N, Halves(), source_fingerprint="same").write(0, distances()[: Layout(N).rows])
    with pytest.raises(InputError, match="unfinished store of another source"):
        create(tmp_path / "m.zarr", N, Units(1.0), source_fingerprint="same")
