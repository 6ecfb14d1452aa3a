"""Chunks that unpack to more than they stand for, and arrays that claim more than there is."""

import bz2
import gzip
import pickle
import subprocess
import sys
import warnings
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from psmds_dist.core.types import InputError
from psmds_dist.data.store import open_rows

N = 40
FORMAT_2 = [
    numcodecs.GZip(),
    numcodecs.Zlib(),
    numcodecs.BZ2(),
    numcodecs.Blosc(),
    numcodecs.LZ4(),
    numcodecs.Zstd(),
    None,
]
FORMAT_3 = [GzipCodec(), BloscCodec(), ZstdCodec(), ZstdCodec(checksum=True), None]
CASES = [(2, codec) for codec in FORMAT_2] + [(3, codec) for codec in FORMAT_3]


@pytest.fixture
def matrix():
    points = np.random.default_rng(0).normal(size=(N, 3))
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def stored(path, matrix, form, compressor, **how):
    chunks = how.pop("chunks", (16, N))
    return zarr.create_array(
        path, data=matrix, chunks=chunks, compressors=compressor, zarr_format=form, overwrite=True, **how
    )


@pytest.mark.parametrize(("form", "compressor"), CASES)
def test_every_compressor_is_read_to_the_last_bit_here_and_after_pickling(tmp_path, matrix, form, compressor):
    array = stored(tmp_path / "matrix.zarr", matrix, form, compressor)
    rows = open_rows(tmp_path / "matrix.zarr", "float64")
    for source in (rows, pickle.loads(pickle.dumps(rows))):
        out = np.empty((N, N))
        source.read(0, N, out)
        np.testing.assert_array_equal(out, matrix)
    assert rows.array.metadata.to_dict() == array.metadata.to_dict()
    assert not rows.is_stale()


def test_shards_and_filters_are_read_to_the_last_bit(tmp_path, matrix):
    stored(tmp_path / "shards.zarr", matrix, 3, GzipCodec(), chunks=(8, 8), shards=(16, N))
    stored(tmp_path / "filters.zarr", matrix, 2, numcodecs.Zstd(), filters=[numcodecs.Delta("<f8")])
    for name, exact in (("shards", True), ("filters", False)):
        out = np.empty((N, N))
        open_rows(tmp_path / f"{name}.zarr", "float64").read(0, N, out)
        np.testing.assert_allclose(out, matrix, rtol=0, atol=0 if exact else 1e-12)


def streamed_zstd(data):
    """As a program writes that does not know the size beforehand, by hand: a frame of raw and repeated blocks."""
    blocks, largest = [], 1 << 17
    for first in range(0, len(data), largest):
        size = min(largest, len(data) - first)
        header = size << 3 | 1 << 1 | (first + largest >= len(data))  # one byte, to be repeated
        blocks.append(header.to_bytes(3, "little") + data[first : first + 1])
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


PACKERS = {
    "gzip": (3, GzipCodec(), gzip.compress),
    "members": (3, GzipCodec(), lambda data: gzip.compress(data[: N * 8]) + gzip.compress(data)),
    "blosc": (3, BloscCodec(), numcodecs.Blosc().encode),
    "zstd": (3, ZstdCodec(), numcodecs.Zstd().encode),
    "stream": (3, ZstdCodec(), streamed_zstd),
    "gzip2": (2, numcodecs.GZip(), gzip.compress),
    "zlib": (2, numcodecs.Zlib(), zlib.compress),
    "bz2": (2, numcodecs.BZ2(), bz2.compress),
    "blosc2": (2, numcodecs.Blosc(), numcodecs.Blosc().encode),
    "lz4": (2, numcodecs.LZ4(), numcodecs.LZ4().encode),
    "zstd2": (2, numcodecs.Zstd(), numcodecs.Zstd().encode),
}

READ = """
import sys

import numpy as np

from psmds_dist.data.store import open_rows
from psmds_dist.executor.local import process_memory
from psmds_dist.core.types import InputError

out = np.empty((40, 40), np.float32)
before = process_memory().peak
for path in sys.argv[1:]:
    try:
        open_rows(path).read(0, 40, out)
        print("read", path)
    except InputError as error:
        print(error)
print((process_memory().peak - before) >> 20)
"""


@pytest.mark.slow
@pytest.mark.wide
def test_chunks_that_unpack_to_gigabytes_are_refused_without_the_memory(tmp_path, matrix):
    small = tmp_path / "small"  # a frame without its size is read like any other where it fits
    stored(small, np.zeros((N, N)), 3, ZstdCodec(), chunks=(N, N), config={"write_empty_chunks": True})
    (small / "c" / "0" / "0").write_bytes(streamed_zstd(bytes(8 * N * N)))
    zeros, paths = bytes(400_000_000), [small]
    for name, (form, codec, pack) in PACKERS.items():
        paths.append(tmp_path / name)
        stored(paths[-1], matrix, form, codec, chunks=(N, N))
        file = paths[-1] / ("0.0" if form == 2 else "c/0/0")
        file.write_bytes(pack(zeros)[:1_000_000])  # a larger file would be refused for its size
    command = [sys.executable, "-c", READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    first, *told, grown = done.stdout.splitlines()
    assert first == f"read {small}"
    assert len(told) == len(PACKERS)
    for name, line in zip(PACKERS, told, strict=True):
        assert name in line
        assert "damaged" in line, line
        assert "a chunk unpacks to more than" in line, line
    assert int(grown) < 100


def test_a_chunk_file_larger_than_its_chunk_can_be_is_never_read(tmp_path, matrix):
    stored(tmp_path / "matrix.zarr", matrix, 3, ZstdCodec())
    with (tmp_path / "matrix.zarr" / "c" / "1" / "0").open("ab") as file:
        file.truncate(10**12)  # takes no room on disk
    with pytest.raises(
        InputError, match=r"chunk file c/1/0 of .*matrix\.zarr has 1,000,000,000,000 bytes, but at most"
    ):
        open_rows(tmp_path / "matrix.zarr")


@pytest.mark.parametrize("side", [10**7, 10**15])
def test_more_chunks_than_can_be_counted_are_refused_at_once(tmp_path, side):
    zarr.create_array(tmp_path / "matrix.zarr", shape=(side, side), chunks=(10, 10), dtype="f4")
    with pytest.raises(InputError, match=r"is cut into 1e\+\d+ chunks of \(10, 10\), but at most 1e\+08 can be read"):
        open_rows(tmp_path / "matrix.zarr")


def test_a_large_array_of_which_nothing_is_written_is_refused_at_once(tmp_path):
    zarr.create_array(tmp_path / "matrix.zarr", shape=(10**5, 10**5), chunks=(10, 100), dtype="f4")
    with pytest.raises(InputError, match="lacks 10000000 of its 10000000 chunks"):
        open_rows(tmp_path / "matrix.zarr")


def test_compressors_that_cannot_be_bounded_are_read_as_before(tmp_path, matrix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored(tmp_path / "matrix.zarr", matrix, 2, numcodecs.LZMA())
    out = np.empty((N, N))
    open_rows(tmp_path / "matrix.zarr", "float64").read(0, N, out)
    np.testing.assert_array_equal(out, matrix)
