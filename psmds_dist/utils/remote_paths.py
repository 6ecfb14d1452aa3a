"""Objects at URLs as paths: the part of `pathlib.Path` that checkpoints need, so that one code serves both.

An object appears at once or not at all, and there are no directories: one exists as long as an object is in it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from psmds_dist.utils.extras import extra
from psmds_dist.utils.remote import is_read_only, is_url, open_objects, parent_of, patiently

UPLOADS = 2
"""Parts of 5 MB that are in memory while a large file is uploaded."""


@dataclass(frozen=True)
class RemotePath:
    """An object at a URL, or all objects under it."""

    url: str

    version: str = field(default="", compare=False)
    """Of an object that was listed: it changes when the object is written anew."""

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """What it lies in."""
        return RemotePath(parent_of(self.url))

    def exists(self) -> bool:
        """Whether there is an object."""
        try:
            self._ask("head")
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects under it; by HTTP nothing is known of that."""
        return any(self.glob("*"))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Objects right under it whose names match."""
        if is_read_only(self.url):
            return
        obstore = extra("obstore", "remote", self.url)
        objects = open_objects(self.url)
        for meta in patiently(self.url, lambda: obstore.list_with_delimiter(objects))["objects"]:
            if fnmatchcase(meta["path"], pattern):
                yield RemotePath(f"{self.url}/{meta['path']}", str(meta["e_tag"] or meta["last_modified"]))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Return a temporary file of what is in the object: it may not fit into memory beside a run."""
        file = tempfile.TemporaryFile(prefix="psmds-")  # noqa: SIM115 - whoever asks closes it
        try:
            patiently(self.url, lambda: self._download(file))
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    def _download(self, file: IO[bytes]) -> None:
        obstore = extra("obstore", "remote", self.url)
        found = obstore.get(open_objects(parent_of(self.url)), self.name)
        file.seek(0)
        file.truncate()
        for part in found.stream():
            file.write(part)

    def edges(self, nbytes: int) -> bytes:
        """First and last bytes of the object, so many of each."""
        return _edges(self, self.version, nbytes) if self.version else _fetch_edges(self, nbytes)

    def modified(self) -> float:
        """Time at which the object was written, in seconds since 1970."""
        return float(self._ask("head")["last_modified"].timestamp())

    def write_bytes(self, content: bytes) -> None:
        """Write the object."""
        self._ask("put", content)

    def upload(self, file: Path) -> None:
        """Write the object, from a file."""
        self._ask("put", file, max_concurrency=UPLOADS)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object, which may be missing."""
        self._ask("delete")

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: what is in a directory makes it."""

    def rmdir(self) -> None:
        """Do nothing: a directory is gone with what was in it."""

    def _ask(self, request: str, *given: Any, **options: Any) -> Any:
        obstore = extra("obstore", "remote", self.url)
        objects = open_objects(parent_of(self.url))
        return patiently(self.url, lambda: getattr(obstore, request)(objects, self.name, *given, **options))


AnyPath: TypeAlias = Path | RemotePath


def path_of(path: str | os.PathLike[str]) -> AnyPath:
    """Path without symbolic links, or a URL as one."""
    place = os.fspath(path)
    return RemotePath(place.rstrip("/")) if is_url(place) else Path(os.path.realpath(place))


@lru_cache(maxsize=64)
def _edges(path: RemotePath, version: str, nbytes: int) -> bytes:
    return _fetch_edges(path, nbytes)


def _fetch_edges(path: RemotePath, nbytes: int) -> bytes:
    size = path._ask("head")["size"]
    if size <= 2 * nbytes:
        return bytes(path._ask("get").bytes())
    parts = path._ask("get_ranges", starts=[0, size - nbytes], ends=[nbytes, size])
    return b"".join(bytes(part) for part in parts)
