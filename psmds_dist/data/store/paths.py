"""Where something may be written and what may give way to it, told before hours are spent."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from psmds_dist.core.layout import format_bytes
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.data.store.chunkfile import HALF
from psmds_dist.data.store.header import Header, header_at
from psmds_dist.data.store.reading import ARRAY, IDS, LANDMARKS
from psmds_dist.utils.atomic import folder_above, sibling

PathLike = str | os.PathLike[str]

PARTS = re.compile(rf"zarr\.json|c|\d+|c(\.\d+)+|{HALF.pattern}|\.nfs[0-9a-f]+")
"""Names of files and directories in our groups and arrays, and of what is left of such files."""

NOUNS = {ARRAY: "dissimilarity store"}
"""Kinds that people call otherwise than their headers do."""


def place_of(target: PathLike) -> Path:
    """Return where something is written that is to be at ``target``: links are followed, also to where nothing is.

    Raises
    ------
    InputError
        Where a directory can neither be put nor give way to another one.
    """
    place = Path(os.path.abspath(target))
    if place.is_symlink():  # only then, as other machines may know a directory by another link
        place = Path(os.path.realpath(place))
    if place.is_symlink():
        raise _no_place(target, "is a link to itself")
    if os.path.ismount(place):
        raise _no_place(target, "is a mount point")
    if Path(os.path.realpath(os.curdir)).is_relative_to(os.path.realpath(place)):
        raise _no_place(target, "is or holds the working directory")
    return place


def _no_place(target: PathLike, why: str) -> InputError:
    return InputError(f"{os.fspath(target)} {why}, so nothing can take its place; give another path.")


def require_apart(target: PathLike, *others: PathLike | None) -> None:
    """Refuse to write over what a command reads, or into it, or into anything that may be replaced as a whole.

    Parameters
    ----------
    target : path
        A directory or file to be written.
    *others : path or None
        What is read, or written too.
    """
    place = Path(os.path.realpath(target))
    for other in [other for other in others if other is not None]:
        there = Path(os.path.realpath(other))
        if there == place:
            raise InputError(f"{os.fspath(target)} is given twice; give another path for what is written.")
        if there.is_relative_to(place):
            raise InputError(
                f"{os.fspath(target)} cannot be written, as {os.fspath(other)} is there; give another path."
            )
        if place.is_relative_to(there):
            raise _inside(target, os.fspath(other))
    for folder in place.parents:
        if (folder / "zarr.json").exists() and header_at(folder):
            raise _inside(target, str(folder))


def _inside(target: PathLike, folder: str) -> InputError:
    return InputError(f"{os.fspath(target)} lies inside {folder}, so it would go with that; give a path outside of it.")


def require_writable(place: Path, nbytes: int = 0, freed: int = 0) -> None:
    """Refuse a place where so many bytes cannot be written, once those of what gives way are free."""
    above = folder_above(place)
    if reason := _unwritable(above, place):
        raise InputError(
            f"{place} cannot be written, as {above} is no directory to write in ({reason}); give another path."
        )
    free = shutil.disk_usage(above).free + freed
    if free < nbytes:
        raise StorageError(
            f"{place} will take about {format_bytes(nbytes)}, but only {format_bytes(free)} are free there: make room, "
            "or give another path."
        )


def _unwritable(above: Path, place: Path) -> str | None:
    """Why what `atomic_directory` makes cannot be made: it is made and removed, since rights do not tell all."""
    if not os.access(above, os.W_OK | os.X_OK):
        return os.strerror(errno.EACCES)
    trial = sibling(above / place.name, "new")
    try:
        trial.mkdir()
        (trial / "file").touch()  # a umask may take all rights to a directory from who makes it
        (trial / "file").unlink()
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with suppress(OSError):
            trial.rmdir()
    return None


def require_ours(place: Path, kind: str) -> Header:
    """Return the header of what is at a place and may give way; refuse what is not ours, or holds what is not ours."""
    header = header_at(place)
    if header.get("kind") != kind:
        raise InputError(
            f"{place} exists and is not a {NOUNS.get(kind, kind)}, so it stays; give another path or remove it."
        )
    names = {part for name in header.get("arrays", ()) for part in name.split("/")} | {kind, IDS, LANDMARKS}
    if other := next(_others(place, names), None):
        raise InputError(
            f"{place} holds {other}, which is none of its parts, so it stays; move it away, or give another path."
        )
    return header


def _others(place: Path, names: set[str]) -> Iterator[Path]:
    """What lies in a store or result without belonging to it."""
    for folder, folders, files in os.walk(place):
        for name in folders + files:
            if name not in names and not PARTS.fullmatch(name):
                yield Path(folder, name).relative_to(place)
