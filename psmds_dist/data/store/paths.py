"""Checks before a run starts: where output may be written, and what may be replaced."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath

from psmds_dist.core.layout import format_bytes
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.data.store.chunkfile import HALF
from psmds_dist.data.store.header import Header, header_at
from psmds_dist.data.store.reading import ARRAY, IDS, LANDMARKS
from psmds_dist.utils.atomic import folder_above, sibling
from psmds_dist.utils.remote import is_url

PathLike = str | os.PathLike[str]

PARTS = re.compile(rf"zarr\.json|c|\d+|c(\.\d+)+|{HALF.pattern}|\.nfs[0-9a-f]+")
"""Names of files and directories in groups and arrays of psmds, and of leftovers of such files."""

NOUNS = {ARRAY: "dissimilarity store"}
"""Names of kinds in messages, where they differ from the header."""


def place_of(target: PathLike) -> Path:
    """Resolve the path where ``target`` is written; symbolic links are followed, also dangling ones.

    Raises
    ------
    InputError
        If no directory can be created or replaced there.
    """
    place = Path(os.path.abspath(target))
    if place.is_symlink():  # otherwise kept: other machines may reach the directory by another link
        place = Path(os.path.realpath(place))
    if place.is_symlink():
        raise _no_place(target, "is a link to itself")
    if os.path.ismount(place):
        raise _no_place(target, "is a mount point")
    if Path(os.path.realpath(os.curdir)).is_relative_to(os.path.realpath(place)):
        raise _no_place(target, "is or holds the working directory")
    return place


def _no_place(target: PathLike, why: str) -> InputError:
    return InputError(f"{os.fspath(target)} {why} and cannot be replaced; choose another path.")


def require_apart(target: PathLike, *others: PathLike | None) -> None:
    """Reject a target that is or contains an input, or lies inside an input, a store or a result.

    Parameters
    ----------
    target : path
        Directory or file to be written.
    *others : path or None
        Inputs and other outputs.
    """
    place = _resolved(target)
    for other in [other for other in others if other is not None]:
        there = _resolved(other)
        if there == place:
            raise InputError(f"{os.fspath(target)} is given twice; choose another path for the output.")
        if there.is_relative_to(place):
            raise InputError(
                f"{os.fspath(target)} cannot be written because it contains {os.fspath(other)}; choose another path."
            )
        if place.is_relative_to(there):
            raise _inside(target, os.fspath(other))
    for folder in place.parents if isinstance(place, Path) else ():
        if (folder / "zarr.json").exists() and header_at(folder):
            raise _inside(target, str(folder))


def _resolved(path: PathLike) -> PurePath:
    """A path without symbolic links, or a URL as a path."""
    return PurePosixPath(path) if is_url(path) else Path(os.path.realpath(path))


def _inside(target: PathLike, folder: str) -> InputError:
    return InputError(
        f"{os.fspath(target)} lies inside {folder}, with which it would be removed; choose a path outside."
    )


def require_writable(place: Path, nbytes: int = 0, freed: int = 0) -> None:
    """Reject a path to which ``nbytes`` cannot be written, after ``freed`` bytes of what it replaces are freed."""
    above = folder_above(place)
    if reason := _unwritable(above, place):
        raise InputError(
            f"{place} cannot be written because {above} is not a writable directory ({reason}); choose another path."
        )
    free = shutil.disk_usage(above).free + freed
    if free < nbytes:
        raise StorageError(
            f"{place} needs about {format_bytes(nbytes)}, but only {format_bytes(free)} are free there; free some "
            "space or choose another path."
        )


def _unwritable(above: Path, place: Path) -> str | None:
    """Why `atomic_directory` would fail, found by a trial, since permissions alone do not tell."""
    if not os.access(above, os.W_OK | os.X_OK):
        return os.strerror(errno.EACCES)
    trial = sibling(above / place.name, "new")
    file = trial / "trial.partial"  # by whose name the next command knows that it may remove both
    try:
        trial.mkdir()
        file.touch()  # a umask may deny access to a new directory even to its owner
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for remove in (file.unlink, trial.rmdir):
            with suppress(OSError):
                remove()
    return None


def require_ours(place: Path, kind: str) -> Header:
    """Return the header of what may be replaced at a path; reject what psmds did not write, or what contains it."""
    header = header_at(place)
    _require_kind(place, header, kind)
    _require_no_others(place, header, kind, _names_in(place))
    return header


def require_ours_at(url: str, kind: str, objects: Iterable[str]) -> Header:
    """Return the header of what may be replaced at a URL, as `require_ours`; empty where it is only begun."""
    header = header_at(url)
    if header or "zarr.json" in objects:  # written last
        _require_kind(url, header, kind)
    _require_no_others(url, header, kind, objects)
    return header


def _require_kind(place: Path | str, header: Header, kind: str) -> None:
    if header.get("kind") != kind:
        raise InputError(
            f"{place} exists and is not a {NOUNS.get(kind, kind)}; it will not be overwritten. Choose another path or "
            "remove it."
        )


def _require_no_others(place: Path | str, header: Header, kind: str, inside: Iterable[str]) -> None:
    """Refuse a store or result among whose files and directories are some that do not belong to it."""
    names = {part for name in header.get("arrays", ()) for part in name.split("/")} | {kind, IDS, LANDMARKS}
    unknown = (path for path in inside if any(p not in names and not PARTS.fullmatch(p) for p in path.split("/")))
    if other := next(unknown, None):
        raise InputError(
            f"{place} contains {other}, which psmds did not write; it will not be overwritten. Move that file away or "
            "choose another path."
        )


def _names_in(place: Path) -> Iterator[str]:
    """Files and directories under a directory, those above before those inside."""
    for folder, folders, files in os.walk(place):
        yield from (Path(folder, name).relative_to(place).as_posix() for name in folders + files)
