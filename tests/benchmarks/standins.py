"""Simulated workers of a large cluster: ``python -m tests.benchmarks.standins ADDRESS NAME COUNT``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

import dask
from distributed import Worker

from psmds_dist.executor import tasks

QUIET = {
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "1h",
    "distributed.worker.profile.enabled": False,
}
"""What each worker does twice a second or more beside its work: on two cores, a thousand do nothing else."""

tasks.KEEP_ALIVE_STEP = 3600.0


async def serve(address: str, name: str, count: int) -> None:
    """Run a number of workers of one thread each in this process, until it is killed."""
    workers = [Worker(address, nthreads=1, name=f"{name}-{k}", memory_limit=0) for k in range(count)]
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with contextlib.suppress(KeyboardInterrupt):  # the parent process receives it as well
        dask.config.set(QUIET)
        asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
