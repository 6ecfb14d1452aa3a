"""Decoding with a bound: a chunk that unpacks to more bytes than it stands for is refused before they are in memory.

A few megabytes of zeros can unpack to hundreds of gigabytes, by damage or on purpose, while memory is planned for
chunks of the size that the metadata tells.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from bz2 import BZ2File
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from gzip import GzipFile
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import zarr
from numcodecs.abc import Codec as Numcodec
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer.cpu import as_numpy_array_wrapper
from zarr.core.metadata import ArrayV3Metadata

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

SLACK_BYTES = 1 << 20
"""Bytes beyond the numbers of a chunk that may be in it, such as checksums or the index of a shard."""

FILTERED = 8
"""How many times larger a chunk of format 2 may be between its filters and its compressor."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def bounded(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return the same array, whose chunks are decoded within the size that its metadata tells."""
    metadata: Any = array.metadata
    if isinstance(metadata, ArrayV3Metadata):
        changed = replace(metadata, codecs=tuple(map(_bounded_codec, metadata.codecs)))
    elif metadata.compressor is not None and metadata.compressor.codec_id in _DECODERS:
        most = _chunk_bytes(array) * (FILTERED if metadata.filters else 1) + SLACK_BYTES
        changed = replace(metadata, compressor=_BoundedCompressor(metadata.compressor, most))
    else:
        return array
    kind = type(array.async_array)
    return zarr.Array(kind(metadata=changed, store_path=array.store_path, config=array.config))


def most_stored(array: zarr.Array[Any]) -> int:
    """Bytes that the file of a chunk, or of a shard, may have: what is larger is never read."""
    unit = math.prod(array.shards or array.chunks)
    return 2 * unit * array.dtype.itemsize + 16 * (unit // math.prod(array.chunks)) + SLACK_BYTES


def _chunk_bytes(array: zarr.Array[Any]) -> int:
    return math.prod(array.chunks) * array.dtype.itemsize


def _bounded_codec(codec: Codec) -> Codec:
    if isinstance(codec, ShardingCodec):
        return replace(codec, codecs=tuple(map(_bounded_codec, codec.codecs)))
    if isinstance(codec, BytesBytesCodec) and _name(codec) in _DECODERS:
        return _BoundedCodec(codec)
    return codec


def _name(codec: Codec) -> str:
    return str(codec.to_dict()["name"]).removeprefix("numcodecs.")


@dataclass(frozen=True)
class _BoundedCodec(BytesBytesCodec):
    """A compressor of Zarr format 3."""

    codec: BytesBytesCodec

    is_fixed_size = False

    def to_dict(self) -> Any:
        """Describe the compressor as the metadata does."""
        return self.codec.to_dict()

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        most = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize + SLACK_BYTES
        decode = partial(_decoded, numcodecs.get_codec({"id": _name(self.codec)}), most=most)
        return await asyncio.to_thread(as_numpy_array_wrapper, decode, chunk_bytes, chunk_spec.prototype)

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await self.codec._encode_single(chunk_bytes, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Size of an encoded chunk, which compressors cannot tell."""
        return self.codec.compute_encoded_size(input_byte_length, chunk_spec)


class _BoundedCompressor(Numcodec):  # type: ignore[misc]
    """A compressor of Zarr format 2."""

    codec_id = ""  # Zarr looks for it in the class; each object has its own

    def __init__(self, codec: Numcodec, most: int) -> None:
        self.codec = codec
        self.codec_id = codec.codec_id
        self.most = most

    def encode(self, buf: Any) -> Any:
        """Compress a chunk."""
        return self.codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decompress a chunk."""
        return _decoded(self.codec, buf, self.most)

    def get_config(self) -> Any:
        """Describe the compressor as the metadata does."""
        return self.codec.get_config()


def _decoded(codec: Numcodec, data: Any, most: int) -> Any:
    """Decompress at most so many bytes.

    Raises
    ------
    ValueError
        When there are more of them.
    """
    return _DECODERS[codec.codec_id](codec, data, most)


def _require_within(size: int, most: int) -> None:
    if size > most:
        raise _too_large(most)


def _too_large(most: int) -> ValueError:
    return ValueError(f"a chunk unpacks to more than {most:,} bytes, which is more than it stands for")


def _streamed(codec: Numcodec, data: Any, most: int, opened: Callable[[BytesIO], Any]) -> bytes:
    with opened(BytesIO(memoryview(data))) as file:
        found: bytes = file.read(most + 1)
    _require_within(len(found), most)
    return found


def _inflated(codec: Numcodec, data: Any, most: int) -> bytes:
    found = zlib.decompressobj().decompress(memoryview(data), most + 1)
    _require_within(len(found), most)
    return found


def _sized(codec: Numcodec, data: Any, most: int, size_of: Callable[[memoryview], int]) -> Any:
    """Decompress what says how large it is, and is held to that by its library."""
    _require_within(size_of(memoryview(data).cast("B")), most)
    return codec.decode(data)


def _unzstd(codec: Numcodec, data: Any, most: int) -> Any:
    size = _zstd_size(memoryview(data).cast("B"))
    if size is None:
        _try_zstd(codec, data, most)
    else:
        _require_within(size, most)
    return codec.decode(data)


def _try_zstd(codec: Numcodec, data: Any, most: int) -> None:
    """Decompress a stream of unknown size into a given buffer; without one the library enlarges its own to the end."""
    try:
        codec.decode(data, np.empty(most, np.uint8))
    except RuntimeError as error:  # also where the buffer is larger than needed
        if "too small" in str(error):
            raise _too_large(most) from None


def _zstd_size(data: memoryview) -> int | None:
    """Size of the content of a frame, by its header (RFC 8878, 3.1.1); None where that does not tell."""
    if data[:4] != _ZSTD_MAGIC or len(data) < 5:
        return None
    flag, single, dictionary = data[4] >> 6, data[4] >> 5 & 1, data[4] & 3
    length = (single, 2, 4, 8)[flag]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    return int.from_bytes(data[start : start + length], "little") + 256 * (flag == 1) if length else None


_DECODERS: dict[str, Callable[[Numcodec, Any, int], Any]] = {
    "gzip": partial(_streamed, opened=lambda file: GzipFile(fileobj=file)),
    "bz2": partial(_streamed, opened=BZ2File),
    "zlib": _inflated,
    "blosc": partial(_sized, size_of=lambda data: int.from_bytes(data[4:8], "little")),
    "lz4": partial(_sized, size_of=lambda data: int.from_bytes(data[:4], "little")),
    "zstd": _unzstd,
}
"""How each compressor is kept within a bound, by its name in numcodecs."""
