"""Beginning a store, or going on with one that is there."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.sync import sync

from psmds_dist.core.layout import Layout
from psmds_dist.core.types import Floats, InputError, Ints
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.encoding import Encoding
from psmds_dist.data.store.chunkfile import list_chunks, remove_partial
from psmds_dist.data.store.header import FORMAT, KEY, PART_OF_STORE, Header, directory, header_at
from psmds_dist.data.store.integrity import digest_of_list
from psmds_dist.data.store.paths import place_of, require_ours, require_ours_at, require_writable
from psmds_dist.data.store.reading import ARRAY, IDS, LANDMARKS, PANEL
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.data.store.targets import RemoteTarget, Target
from psmds_dist.utils.atomic import atomic_directory, is_free
from psmds_dist.utils.locks import claim_on
from psmds_dist.utils.remote import is_url


def create(
    path: str | os.PathLike[str],
    n: int,
    dtype: str | Encoding = "float32",
    *,
    width: int | None = None,
    landmarks: Sequence[int] | Ints | None = None,
    ids: Sequence[str] | None = None,
    metric: str | None = None,
    source_fingerprint: str = "",
    notes: Sequence[str] = (),
    overwrite: bool = False,
) -> Target:
    """Begin a store or panel, or go on with one of the same source, which an earlier run has left or finished.

    Parameters
    ----------
    path : path or URL
        A directory, or where its objects are.
    n : int
        Number of points.
    dtype : {"float32", "float64"} or Encoding
        Type to hold, or how numbers are written.
    width : int, optional
        Number of landmarks of a panel; by default it is a store of all dissimilarities.
    landmarks : sequence of int, optional
        Rows of the landmarks, when they are among the points.
    ids : sequence of str, optional
        Names of the points.
    metric : str, optional
        Name of the metric the dissimilarities come from.
    source_fingerprint : str
        Identity of what the store is built from: only the same source goes on with a store.
    notes : sequence of str
        What was changed in reading the source, for the record.
    overwrite : bool
        Whether one that is there already, finished or of another source, is removed first. Nothing but a store or
        panel, whichever is to be written, is ever removed.

    Returns
    -------
    Target
    """
    rows = None if landmarks is None or width is None else check_landmarks(landmarks, n, width)
    encoding = dtype if isinstance(dtype, Encoding) else Encoding(np.dtype(dtype))
    layout = Layout(n, width)
    wanted: Header = {"kind": ARRAY, "n": n, **encoding.facts, "metric": metric, "source": source_fingerprint}
    if width is not None:
        wanted |= {"kind": PANEL, "width": width, "landmarks": digest_of_list(rows)}
    wanted |= {"chunk_rows": layout.rows, "ids": digest_of_list(ids), **({"notes": list(notes)} if notes else {})}
    write = partial(_lay_out, wanted=wanted, encoding=encoding, layout=layout, ids=ids, landmarks=rows)
    if is_url(path):
        url = os.fspath(path).rstrip("/")
        begun = _begin_at(RemoteStore(url, read_only=False), wanted, write, overwrite=overwrite)
        return RemoteTarget(url, begun, source_fingerprint, encoding, claim_on(url))
    place, nbytes = place_of(path), layout.n * layout.columns * encoding.dtype.itemsize
    array = _begin(place, wanted, write, nbytes, overwrite=overwrite)
    return Target(str(place), array, source_fingerprint, encoding, claim_on(place))


def is_unfinished(path: str | os.PathLike[str]) -> bool:
    """Whether there is an unfinished store with some chunks, which `create` goes on with."""
    if is_url(path):
        return header_at(os.fspath(path)).get("status") == "building"
    place = Path(os.path.realpath(path))
    header = header_at(place)
    return header.get("status") == "building" and bool(list_chunks(place / header["kind"]))


def is_begun(path: str | os.PathLike[str]) -> bool:
    """Whether there is an unfinished store, perhaps without any chunks yet."""
    place = os.fspath(path) if is_url(path) else os.path.realpath(path)
    return header_at(place).get("status") == "building"


def _begin(
    place: Path, wanted: Header, write: Callable[[Path], None], nbytes: int, *, overwrite: bool
) -> zarr.Array[Any]:
    require_writable(place)
    if not _continues(place, wanted, nbytes, overwrite):
        with new_directory(place) as fresh:
            write(fresh)
    array = zarr.open_array(str(place / wanted["kind"]), mode="r+").with_config({"write_empty_chunks": True})
    remove_partial(directory(array))
    return array


def _begin_at(store: RemoteStore, wanted: Header, write: Callable[[Path], None], *, overwrite: bool) -> zarr.Array[Any]:
    """Begin a store at a URL, or go on with it; nothing is renamed there, so what makes it a store is written last."""
    objects = store.objects()
    header = require_ours_at(store.url, wanted["kind"], objects)
    if not header or not _is_continued(store.url, header, wanted, overwrite):
        store.remove_all()
        with tempfile.TemporaryDirectory(prefix="psmds-") as folder:
            write(Path(folder, "store"))
            store.upload(Path(folder, "store"), last="zarr.json")
    array = zarr.open_array(store, path=wanted["kind"], mode="r+")
    return array.with_config({"write_empty_chunks": True})


def _continues(place: Path, wanted: Header, nbytes: int, overwrite: bool) -> bool:
    """Tell whether the store at ``place`` is to be continued (true) or replaced (false), or refuse."""
    if is_free(place):
        require_writable(place, nbytes)
        return False
    if _is_continued(str(place), require_ours(place, wanted["kind"]), wanted, overwrite):
        return True
    require_writable(place, nbytes, freed=sum(size for size, _ in list_chunks(place).values()))
    return False


def _is_continued(place: str, header: Header, wanted: Header, overwrite: bool) -> bool:
    """Tell whether a store of ours is to be continued (true) or replaced (false), or refuse."""
    status = header.get("status")
    if all(header.get(key) == value for key, value in wanted.items()) and (status == "building" or not overwrite):
        return True
    if overwrite:
        return False
    noun = "store" if header["kind"] == ARRAY else header["kind"]
    state = "a finished" if status == "complete" else "an unfinished"
    raise InputError(
        f"{place} already holds {state} {noun} of another source; give another path, or overwrite=True (--overwrite)."
    )


def _lay_out(
    place: Path,
    wanted: Mapping[str, Any],
    encoding: Encoding,
    layout: Layout,
    ids: Sequence[str] | None,
    landmarks: Ints | None,
) -> None:
    header = {"format": FORMAT, **wanted, "status": "building", "versions": versions()}
    group = zarr.create_group(str(place), zarr_format=3, attributes={KEY: header})
    group.create_array(
        wanted["kind"],
        shape=(layout.n, layout.columns),
        chunks=(layout.rows, layout.columns),
        dtype=encoding.dtype,
        fill_value=encoding.fill_value,
        filters=None,
        compressors=[Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
        attributes={PART_OF_STORE: True, **encoding.attributes},
        dimension_names=("point", "other" if wanted["kind"] == ARRAY else "landmark"),
    )
    if ids is not None:
        write_ids(group, ids)
    if landmarks is not None:
        group.create_array(LANDMARKS, data=landmarks, chunks=landmarks.shape)


@contextmanager
def new_directory(place: Path) -> Iterator[Path]:
    """Yield a directory for Zarr to write, as `atomic_directory` does, which waits for Zarr's threads after an error.

    A thread that an interrupt leaves behind creates the directory of its file again, when that has been removed.
    """
    with atomic_directory(place) as fresh:
        try:
            yield fresh
        except BaseException:
            sync(_finish_tasks())
            raise


async def _finish_tasks() -> None:
    """Wait for the other tasks of Zarr's event loop."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


def create_table(path: Path, shape: tuple[int, int], rows: int) -> None:
    """Begin an array of points in float64, in chunks of whole rows with checksums; what is missing of it is NaN."""
    zarr.create_array(
        str(path),
        shape=shape,
        chunks=(min(rows, shape[0]), shape[1]),
        dtype="float64",
        fill_value=float("nan"),
        compressors=[Crc32cCodec()],
    )


def write_table(path: str, lo: int, features: Floats) -> None:
    """Write whole chunks of an array of points, from row ``lo``."""
    zarr.open_array(path, mode="r+").with_config({"write_empty_chunks": True})[lo : lo + len(features)] = features


def write_ids(group: zarr.Group, ids: Sequence[str]) -> None:
    """Write names of rows as one chunk, with a checksum: damaged lengths would make a reader take all memory."""
    codecs = [ZstdCodec(), Crc32cCodec()]
    array = group.create_array(IDS, shape=(len(ids),), chunks=(max(1, len(ids)),), dtype="string", compressors=codecs)
    array[:] = np.array(ids, dtype=object)


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what is written."""
    found = {"numpy": np.__version__, "zarr": zarr.__version__}
    try:
        found["psmds-dist"] = version("psmds-dist")
    except PackageNotFoundError:
        found["psmds-dist"] = "unknown"
    return found
