"""Zarr stores at URLs: requests are repeated while a line or server is down, and large objects are fetched ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from psmds_dist.core.errors import InputError
from psmds_dist.utils.extras import extra
from psmds_dist.utils.remote import Outage, failures, is_read_only, open_objects, patiently, patiently_async
from psmds_dist.utils.remote_paths import UPLOADS

T = TypeVar("T")

AHEAD_BYTES = 64_000_000
"""Bytes that are fetched ahead of their reads, or one chunk where that is more: one request at a time leaves a long
line idle."""

REQUESTS = 16
"""Objects that are looked at at the same time where a server cannot list them."""

Objects = dict[str, tuple[int, str]]
"""Size of each object, and what changes when it is written anew."""


class RemoteStore(ObjectStore[Any]):
    """Objects under a URL.

    Parameters
    ----------
    url : str
        Without credentials: each process that unpickles the store takes those of its own environment.
    read_only : bool
        Whether it refuses to write.
    """

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        self.url = url.rstrip("/")
        super().__init__(open_objects(self.url), read_only=read_only)
        self._ahead: dict[str, tuple[int, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._outage = Outage()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (type(self), self.url, self.read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and (self.url, self.read_only) == (other.url, other.read_only)

    def __hash__(self) -> int:
        return hash((self.url, self.read_only))

    def __str__(self) -> str:
        return self.url

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the same store, to read only or to write as well."""
        return type(self)(self.url, read_only=read_only)

    @property
    def supports_listing(self) -> bool:
        """Whether names of objects can be listed."""
        return not is_read_only(self.url)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object, or a part of it; None where there is none."""
        found = None if byte_range else await self._fetched(key)
        if found is not None:
            return prototype.buffer.from_bytes(found)
        get = super().get
        return await self._ask(key, lambda: get(key, prototype, byte_range))

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object, which appears at once or not at all."""
        await self._ask(key, lambda: super(RemoteStore, self).set(key, value))

    async def exists(self, key: str) -> bool:
        """Whether there is an object."""
        return await self._ask(key, lambda: super(RemoteStore, self).exists(key))

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._ask(key, lambda: super(RemoteStore, self).delete(key))

    async def _list(self, prefix: str | None = None) -> AsyncIterator[Any]:  # type: ignore[override]
        for key, (size, _) in (await asyncio.to_thread(self.objects, prefix or "")).items():
            yield {"path": f"{prefix}/{key}" if prefix else key, "size": size}

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:  # type: ignore[override]
        """Yield the names in a directory."""
        self.require_listing()

        async def names() -> list[str]:
            return [name async for name in super(RemoteStore, self).list_dir(prefix)]

        for name in await self._ask(prefix, names):
            yield name

    async def _ask(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return what a request for an object returns, repeated while it fails."""
        return await patiently_async(f"{self.url}/{key}", request, self._outage)

    def objects(self, prefix: str = "") -> Objects:
        """Every object under a path, by its name there.

        Raises
        ------
        InputError
            When the server cannot list them.
        """
        start = prefix and f"{prefix}/"
        return {meta["path"].removeprefix(start): _state(meta) for meta in self._all(prefix)}

    def times(self) -> dict[str, float]:
        """Time at which each object was written, in seconds since 1970."""
        return {meta["path"]: meta["last_modified"].timestamp() for meta in self._all("")}

    def _all(self, prefix: str) -> Sequence[Mapping[str, Any]]:
        self.require_listing()
        obstore = extra("obstore", "remote", self.url)
        found: Sequence[Mapping[str, Any]] = patiently(
            self.url, lambda: obstore.list(self.store, prefix or None).collect()
        )
        return found

    def look_at(self, keys: Iterable[str]) -> Objects:
        """Those of some objects that are there."""
        with ThreadPoolExecutor(REQUESTS) as pool:
            return {key: state for key, state in pool.map(self._head, keys) if state is not None}

    def _head(self, key: str) -> tuple[str, tuple[int, str] | None]:
        obstore = extra("obstore", "remote", self.url)
        with suppress(FileNotFoundError):
            return key, _state(patiently(f"{self.url}/{key}", lambda: obstore.head(self.store, key)))
        return key, None

    def upload(self, folder: Path, last: str) -> None:
        """Write the files in a directory, one of them ``last``."""
        obstore = extra("obstore", "remote", self.url)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for path in sorted(files, key=lambda path: path == folder / last):
            put = partial(obstore.put, self.store, path.relative_to(folder).as_posix(), path, max_concurrency=UPLOADS)
            patiently(self.url, put)

    def remove_all(self) -> None:
        """Remove every object, first what makes them a store."""
        obstore, names = (
            extra("obstore", "remote", self.url),
            sorted(self.objects(), key=lambda name: name != "zarr.json"),
        )
        for some in filter(None, (names[:1], names[1:])):
            patiently(self.url, lambda some=some: obstore.delete(self.store, some))  # type: ignore[misc]

    def require_listing(self) -> None:
        """Refuse to list objects where the server cannot."""
        if not self.supports_listing:
            raise InputError(
                f"{self.url} is read by HTTP, which cannot list what a group holds; give the URL of the array itself, "
                "or a store that psmds wrote."
            )

    def prefetch(self, key: str, nbytes: int) -> None:
        """Begin to fetch an object of about so many bytes that will be read soon, if there is room for it."""
        with self._lock:
            ahead = sum(size for size, _ in self._ahead.values())
            if key in self._ahead or (ahead and ahead + nbytes > AHEAD_BYTES):
                return
            future: Future[Any] = Future()
            self._ahead[key] = nbytes, future
        # not in a pool, for which a process waits at its end
        threading.Thread(target=self._fetch, args=(key, future), name="psmds-fetch", daemon=True).start()

    def _fetch(self, key: str, future: Future[Any]) -> None:
        """Fetch an object once; whoever reads it will try again, and tell what is wrong."""
        try:
            obstore = extra("obstore", "remote", self.url)
            future.set_result(obstore.get(self.store, key).bytes())
        except Exception as error:
            future.set_exception(error)

    async def _fetched(self, key: str) -> Any:
        """Return an object that was fetched ahead; None where it was not."""
        with self._lock:
            _, future = self._ahead.pop(key, (0, None))
        if future is not None:
            with suppress(*failures()):
                return await asyncio.wrap_future(future)
        return None


def _reopened(kind: type[RemoteStore], url: str, read_only: bool) -> RemoteStore:
    return kind(url, read_only=read_only)


def _state(meta: Mapping[str, Any]) -> tuple[int, str]:
    """Size and version of an object."""
    return int(meta["size"]), str(meta["e_tag"] or meta["last_modified"])
