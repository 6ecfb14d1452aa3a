"""Objects at URLs: opened with the credentials of the environment, and asked for again while a line or server is down.

Credentials are read by obstore from the environment of each process, and are part of no URL, pickle, store or message.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.utils.extras import extra

T = TypeVar("T")

_AZURE = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and perhaps AWS_ENDPOINT_URL (for public data "
    "AWS_SKIP_SIGNATURE=true)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS (for public data GOOGLE_SKIP_SIGNATURE=true)",
    "az": _AZURE,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "http": "",
    "https": "",
}
"""Schemes of URLs that obstore reads, and the variables of the environment that it takes credentials from."""

_ENDPOINT = ("AZURE_STORAGE_ENDPOINT",)
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": _ENDPOINT,
    "abfs": _ENDPOINT,
    "abfss": _ENDPOINT,
}
"""Variables that name another server than that of the provider, as its own tools and obstore call them."""

PATIENCE = 180.0
"""Seconds for which a request that fails is repeated, unless the variable PSMDS_RETRY_SECONDS says otherwise."""

SHORTEST, LONGEST = 0.2, 10.0
"""First and longest pause between two attempts, in seconds."""

TIMEOUT = "600s"
"""Time for one request, with all that it transfers."""

_REFUSED = re.compile(r"status code: (3\d\d|4(?!08|29)\d\d)")
"""Answers of a server that are the same when it is asked again."""


def is_url(path: Any) -> bool:
    """Whether a path is a URL that obstore reads."""
    place = os.fspath(path) if isinstance(path, os.PathLike) else path
    return isinstance(place, str) and place.partition("://")[0] in CREDENTIALS and "://" in place


def is_read_only(url: str) -> bool:
    """Whether a URL is of plain HTTP, which cannot list or write objects."""
    return url.startswith(("http://", "https://"))


def require_local(path: Any, what: str) -> None:
    """Refuse a URL where a directory of this machine is needed.

    Raises
    ------
    InputError
        What to do instead.
    """
    if is_url(os.fspath(path)):
        raise InputError(
            f"{os.fspath(path)} is a URL, but {what} is written to a local directory; give a path on this machine and "
            "copy it there afterwards."
        )


def absolute(path: str | os.PathLike[str]) -> str:
    """Absolute path of a file or directory; a URL without slashes at its end."""
    return os.fspath(path).rstrip("/") if is_url(path) else os.path.abspath(path)


def parent_of(place: str) -> str:
    """Directory, or URL, above a path or URL."""
    return place.rpartition("/")[0] if is_url(place) else os.path.dirname(place)


def open_objects(url: str) -> Any:
    """Return the objects under a URL, as obstore sees them.

    Raises
    ------
    InputError
        If obstore is not installed, or if the URL has credentials in it.
    """
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise InputError(
            f"{parts.scheme}://{parts.hostname}{parts.path} was given with a password or a signature in its URL, which "
            "would be written into stores and logs; leave it out, and set the variables of the environment: "
            f"{CREDENTIALS[parts.scheme] or 'none, since HTTP is read without credentials'}."
        )
    obstore = extra("obstore.store", "remote", url)
    endpoint = next(filter(None, map(os.environ.get, ENDPOINTS.get(parts.scheme, ()))), url)
    options = {"allow_http": endpoint.startswith("http://"), "timeout": TIMEOUT}
    config = _of_emulator(endpoint) if parts.scheme == "gs" and endpoint != url else None
    try:
        return obstore.from_url(url, config=config, client_options=options, retry_config={"max_retries": 0})
    except failures() as error:
        raise InputError(f"{url} cannot be opened ({told(error)}); check the URL{_variables(url)}.") from None


def _of_emulator(address: str) -> dict[str, str]:
    """Settings for a server that speaks like that of Google, and asks for no credentials."""
    nobody = {"client_email": "", "private_key": "", "private_key_id": ""}
    return {"service_account_key": json.dumps({"gcs_base_url": address, "disable_oauth": True, **nobody})}


def failures() -> tuple[type[Exception], ...]:
    """Errors that requests end in."""
    return (extra("obstore.exceptions", "remote", "a URL").BaseError, OSError)


class Outage:
    """Since when requests fail; shared by those that go on at the same time, so that they give up together."""

    since: float | None = None


class Attempts:
    """Pauses between attempts at one request, which become longer, until there is no hope left."""

    def __init__(self, url: str, outage: Outage | None = None) -> None:
        self.url = url
        self._outage = outage or Outage()
        self._pause = SHORTEST

    def succeeded(self) -> None:
        """Note that the line and server work."""
        self._outage.since = None

    def pause_after(self, error: Exception) -> float:
        """Return the seconds until the next attempt.

        Raises
        ------
        StorageError
            When another attempt would fail, too, or when it has been tried for long enough.
        """
        if isinstance(error, StorageError | FileNotFoundError | FileExistsError) or _is_about_state(error):
            self.succeeded()  # the server has answered
            raise error
        patience = float(os.environ.get("PSMDS_RETRY_SECONDS", PATIENCE))
        if _REFUSED.search(str(error)) or isinstance(error, PermissionError) or "Permission" in type(error).__name__:
            raise StorageError(
                f"{self.url} was refused ({told(error)}); check the URL{_variables(self.url)}."
            ) from None
        now = time.monotonic()
        self._outage.since = began = self._outage.since or now
        tried = now - began
        if tried >= patience:
            raise StorageError(
                f"{self.url} could not be reached for {tried:.0f} s ({told(error)}); check the network, the "
                f"URL{_variables(self.url)}, and rerun the same command."
            ) from None
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return min(pause, patience - tried)


def patiently(url: str, attempt: Callable[[], T]) -> T:
    """Return what a request returns, repeated while it fails; see `Attempts`."""
    attempts, expected = Attempts(url), failures()
    while True:
        try:
            found = attempt()
        except expected as error:
            pause = attempts.pause_after(error)
        else:
            attempts.succeeded()
            return found
        time.sleep(pause)


async def patiently_async(url: str, attempt: Callable[[], Awaitable[T]], outage: Outage) -> T:
    """Return what a request returns, as `patiently`, in an event loop."""
    import asyncio  # late: commands that need no URL begin sooner

    attempts = Attempts(url, outage)
    expected = failures()  # now: a request that is dropped as the process ends cannot import any more
    while True:
        try:
            found = await attempt()
        except expected as error:
            pause = attempts.pause_after(error)
        else:
            attempts.succeeded()
            return found
        await asyncio.sleep(pause)


def told(error: Exception) -> str:
    """Reason of an error in one line: its text may go on with the answer of a server, which is no use to people."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")


def _is_about_state(error: Exception) -> bool:
    """Whether an error says that an object is, or is not, as it was expected to be."""
    return type(error).__name__ in ("NotFoundError", "AlreadyExistsError", "PreconditionError", "NotModifiedError")


def _variables(url: str) -> str:
    names = CREDENTIALS[url.partition("://")[0]]
    return f" and the variables {names}" if names else ""
