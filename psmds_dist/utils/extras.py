"""Libraries of the optional extras of this package."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from psmds_dist.core.errors import InputError


def extra(module: str, name: str, what: str) -> ModuleType:
    """Import a library of one of the package's extras.

    Raises
    ------
    InputError
        When it is not installed: how to install it.
    """
    try:
        with _interrupts_kept():
            return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs {error.name or module}: pip install 'psmds-dist[{name}]'.") from None


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which dask-jobqueue replaces: a run would end without its map."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
