"""Preload module for the nanny of ``psmds worker``, which is told to end while it still looks for its scheduler."""

from __future__ import annotations

import sys
from typing import Any

from psmds_dist.executor._dask_internals import when_told_to_end


def dask_setup(nanny: Any) -> None:
    """Have a nanny that a signal ends say nothing of the start that it could not finish."""
    when_told_to_end(nanny, _show_no_error)


def _show_no_error() -> None:
    sys.excepthook = lambda *error: None
