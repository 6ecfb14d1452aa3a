"""A performance report of Dask: what each worker did when, as a page to open in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.core.executor import Executor
from psmds_dist.executor.dask import DaskExecutor


@contextmanager
def performance_report(executor: Executor, path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Record the work of an executor for the length of a with block, and write the report.

    All work goes by tasks meanwhile, which cost more than direct calls: Dask records nothing else. Where the block ends
    with an error, a report that cannot be written does not hide it.

    Parameters
    ----------
    executor : Executor
        A `DaskExecutor`.
    path : path or None
        File to write, or to replace; None records nothing.

    Raises
    ------
    InputError
        When there are no workers, or Bokeh is missing, which draws the report.
    StorageError
        When the file cannot be written.
    """
    if path is None:
        yield
        return
    if not isinstance(executor, DaskExecutor):
        raise InputError("a performance report needs Dask workers: choose some with --workers or --cluster, too.")
    with executor.by_tasks(), _recorded(os.fspath(path)):
        yield


@contextmanager
def _recorded(path: str) -> Iterator[None]:
    """Record what the current client does."""
    from distributed import performance_report

    record, failed = performance_report(path), True
    record.__enter__()
    try:
        yield
        failed = False
    finally:
        with suppress(Exception) if failed else _explained(path):
            record.__exit__(None, None, None)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn an error of writing into a sentence."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror or error}).") from None
