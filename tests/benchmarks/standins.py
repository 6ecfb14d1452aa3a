"""Simulated workers of a large cluster: ``python -m tests.benchmarks.standins ADDRESS NAME COUNT``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

from distributed import Worker


async def serve(address: str, name: str, count: int) -> None:
    """Run a number of workers of one thread each in this process, until it is killed."""
    workers = [Worker(address, nthreads=1, name=f"{name}-{k}", memory_limit=0) for k in range(count)]
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with contextlib.suppress(KeyboardInterrupt):  # the parent process receives it as well
        asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
