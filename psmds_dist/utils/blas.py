"""Linear algebra whose bits do not depend on the threads of BLAS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_CHANGE = threading.Lock()
"""Around a change of the number of callers."""

_callers = 0
_limited = ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: the order of their sums depends on how many there are.

    Callers share the limit, which ends with the last of them: one may wait for another in a thread that reads.
    """
    global _callers
    with _CHANGE:
        if _callers == 0:
            _limited.enter_context(_threads().limit(limits=1, user_api="blas"))
        _callers += 1
    try:
        yield
    finally:
        with _CHANGE:
            _callers -= 1
            if _callers == 0:
                _limited.close()


@cache
def _threads() -> ThreadpoolController:
    """Who sets the threads of BLAS: looking for its libraries takes a while."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
