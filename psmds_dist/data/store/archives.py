"""Zarr stores in .zip archives, which are read where they lie."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path, PurePosixPath

from zarr.storage import ZipStore

from psmds_dist.core.types import InputError
from psmds_dist.data.formats import ZIP, begins_with

_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup"})


def archive_of(place: str) -> tuple[Path, str] | None:
    """Return the archive that a path is or leads into, and the path inside it; None where there is no archive."""
    path = Path(place)
    for file in (path, *path.parents):
        if file.is_file():
            return (file, path.relative_to(file).as_posix().removeprefix(".")) if begins_with(file, ZIP) else None
    return None


def open_archive(file: Path, inside: str) -> tuple[ZipStore, str]:
    """Return an archive as a store to read, and the path of a node in it.

    Archives hold a store's files, or the one folder in which they lie.
    """
    return ZipStore(file, mode="r"), inside or _root_of(file)


def _root_of(file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        folders = {PurePosixPath(name).parent for name in archive.namelist() if os.path.basename(name) in _METADATA}
    tops = sorted(str(folder) for folder in folders if not folders.intersection(folder.parents))
    if len(tops) > 1:
        raise InputError(
            f"{file} holds {len(tops)} Zarr stores instead of one; give the path of one, such as {file}/{tops[0]}."
        )
    return tops[0].removeprefix(".") if tops else ""
