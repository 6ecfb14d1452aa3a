"""Calls that are tried in another process first, since a library in C might loop or crash."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from subprocess import DEVNULL

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


def fault_in(call: Callable[..., object], *given: str, seconds: int) -> str | None:
    """Why a call would not return; None where it would, or where no other process can be started.

    Parameters
    ----------
    call : callable
        A function of a module. What it raises does not matter.
    *given : str
        Its arguments.
    seconds : int
        Time of a processor after which it counts as endless: a busy machine or a slow disk changes nothing.
    """
    names = f"{call.__module__!r}, {call.__qualname__!r}"
    code = f"from {__name__} import _call; _call({names}, {given!r}, {seconds!r})"
    try:
        command = [sys.executable, "-c", code]
        ended = -subprocess.run(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=False).returncode
    except OSError:
        return None
    if ended == signal.SIGXCPU:
        return f"there is no end in {seconds} s"
    return f"a crash, {signal.Signals(ended).name}" if ended in CRASHES else None


def _call(module: str, name: str, given: tuple[str, ...], seconds: int) -> None:
    with suppress(Exception):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        __import__(module)
        getattr(sys.modules[module], name)(*given)
