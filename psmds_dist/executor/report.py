"""A performance report of Dask: what each worker did when, as a page to open in a browser."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.core.executor import Executor
from psmds_dist.executor.dask import DaskExecutor
from psmds_dist.utils.atomic import atomic_file

log = logging.getLogger(__name__)


@contextmanager
def performance_report(executor: Executor, path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Record the work of an executor for the length of a with block, and write the report.

    All work goes by tasks meanwhile, which cost more than direct calls: Dask records nothing else. There is no report
    of a block that ends with an error, or of a cluster that is lost; one that cannot be written is logged.

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
        When the directory of the file is missing.
    """
    if path is None:
        yield
        return
    if not isinstance(executor, DaskExecutor):
        raise InputError("a performance report needs Dask workers: choose some with --workers or --cluster, too.")
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise StorageError(f"{os.fspath(path)} cannot be written; create its directory first or choose another path.")
    from distributed import performance_report as record

    with executor.by_tasks():
        recorded = record()
        recorded.__enter__()
        yield
        if executor.is_connected:
            _write(recorded, os.fspath(path))


def _write(recorded: Any, path: str) -> None:
    try:
        with atomic_file(path) as fresh:
            recorded.filename = os.fspath(fresh)
            recorded.__exit__(None, None, None)
    except Exception as error:  # the result of the block is worth more
        log.info("the performance report %s was not written: %s", path, error)
