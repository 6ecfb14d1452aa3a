"""Matrices that are unpacked into a temporary file before they are read: triangles of text, and arrays in archives."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.sources import WrappedSource
from psmds_dist.core.types import Rows
from psmds_dist.data.readers.cells import release_memory
from psmds_dist.data.readers.matrix import TextMatrix
from psmds_dist.data.readers.triangle import panels_of, write_triangle
from psmds_dist.data.sources import open_npy

log = logging.getLogger(__name__)


class ScratchFolder:
    """A temporary directory that is removed when nobody refers to this object any more, or the process ends.

    Parameters
    ----------
    nbytes : int
        Bytes that will be written to it.
    what : str
        What for, in messages.

    Raises
    ------
    StorageError
        When there is no room.
    """

    def __init__(self, nbytes: int, what: str) -> None:
        above = tempfile.gettempdir()
        free = shutil.disk_usage(above).free
        if free < nbytes:
            raise StorageError(
                f"{what} is unpacked into {format_bytes(nbytes)}, but {above} has {format_bytes(free)} left; set the "
                "environment variable TMPDIR to a directory with more room."
            )
        if nbytes > 100_000_000:
            log.info("%s is unpacked into %s in %s first", what, format_bytes(nbytes), above)
        self.path = Path(tempfile.mkdtemp(prefix="psmds-", dir=above))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Unpacked(WrappedSource):
    """Rows in a temporary file, which stand for those of the file that they come from.

    Other processes of this machine read the same temporary file; only this one removes it.
    """

    folder: ScratchFolder | None
    content: str
    origin: str
    names: Sequence[str] | None = None

    @property
    def content_id(self) -> str:
        """Identity of the content: that of the original file."""
        return self.content

    @property
    def location(self) -> str:
        """Path of the original file."""
        return self.origin

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.names

    def __getstate__(self) -> object:
        """Pickle what is needed to read, without names."""
        return {**vars(self), "folder": None, "names": None}

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        self.source.read_columns(lo, hi, out)  # type: ignore[attr-defined]


def unpack_triangle(text: TextMatrix, dtype: np.dtype[Any], content: str) -> Unpacked:
    """Write a triangle in text to a temporary file, in one pass.

    Parameters
    ----------
    text : TextMatrix
        The triangle.
    dtype : dtype
        Type of the numbers.
    content : str
        Identity of the file.

    Raises
    ------
    InputError
        When it has one point only, or a cell is no number.
    StorageError
        When there is no room for somewhat more than ``n * n / 2`` numbers.
    """
    n, path = text.index.n, text.file.path
    if n < 2:
        raise InputError(f"{path} has {n} point{'s' * (n != 1)}, but a map needs two at least.")
    folder = ScratchFolder(panels_of(text.index, dtype).nbytes, path)
    rows = write_triangle(text, folder.path / "triangle", dtype, content)
    release_memory()
    return Unpacked(rows, folder, content, path, text.index.names)


def unpack_array(
    member: IO[bytes], nbytes: int, path: str, dtype: str, content: str, ids: Sequence[str] | None
) -> Unpacked:
    """Copy an array out of an archive, and open it.

    Parameters
    ----------
    member : binary file
        A ``.npy`` file.
    nbytes : int
        Its size.
    path : str
        Where the archive is, and which of its arrays this is, for messages.
    dtype : {"float32", "float64"}
        Type of the rows.
    content : str
        Identity of the array.
    ids : sequence of str, optional
        Names of the points.
    """
    folder = ScratchFolder(nbytes, path)
    place = folder.path / "array.npy"
    with place.open("wb") as file:
        shutil.copyfileobj(member, file, 1 << 20)
    try:
        rows = open_npy(place, dtype)
    except InputError as error:
        raise type(error)(str(error).replace(str(place), path)) from None
    return Unpacked(rows, folder, content, path, ids)
