"""Linear algebra whose bits do not depend on the threads of BLAS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_ONE_AT_A_TIME = threading.Lock()
"""Around a change of the number of threads: of two callers, the first to end would restore it under the other."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: the order of their sums depends on how many there are."""
    with _ONE_AT_A_TIME, _threads().limit(limits=1, user_api="blas"):
        yield


@cache
def _threads() -> ThreadpoolController:
    """Who sets the threads of BLAS: looking for its libraries takes a while."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
