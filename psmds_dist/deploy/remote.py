"""One process of a cluster on a host that is reached by SSH, as Dask's SpecCluster takes schedulers and workers.

Dask's SSHCluster names no host in its errors, drops what the remote process wrote, and ends a process by a signal of
SSH, which servers refuse for root: a worker that has not found its scheduler yet would run forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import Generator
from typing import Any

from distributed import Status

from psmds_dist.core.errors import WorkerError

PID = "psmds-pid "
"""What precedes the number of a process, the first line that it writes."""

CONNECT_TIMEOUT = 30.0
"""Seconds that a host has to accept a connection; the system's own limit is two minutes."""

START_TIMEOUT = 150.0
"""Seconds that a process has to listen; a worker gives up earlier by its own death timeout."""

END_TIMEOUT = 4.0
"""Seconds that a process has to end after each of two signals, SIGTERM and SIGKILL."""

STARTED = {"scheduler": "Scheduler at:", "worker": "worker at:"}
"""What each process logs when it listens."""

CLASSES = {"scheduler": "distributed.Scheduler", "worker": "distributed.Nanny"}


class RemoteProcess:
    """A scheduler, or a worker where the address of one is given."""

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        host: str,
        path: str,
        connection: dict[str, Any],
        options: dict[str, Any],
        python: str | None,
        name: object = None,
    ) -> None:
        self.status = Status.created
        self.address = self.host = host
        self.name = name
        self._scheduler, self._path, self._options = scheduler, path, options
        self._arguments, self._python = connection, python or sys.executable
        self._connection: Any = None
        self._process: Any = None
        self._pid: int | None = None

    @property
    def role(self) -> str:
        """``"scheduler"`` or ``"worker"``."""
        return "scheduler" if self._scheduler is None else "worker"

    def __await__(self) -> Generator[Any, None, RemoteProcess]:
        return self._started().__await__()

    async def _started(self) -> RemoteProcess:
        if self.status == Status.created:
            self.status = Status.starting
            await self._connect()
            await self._run()
            self.status = Status.running
        return self

    async def _connect(self) -> None:
        import asyncssh

        try:
            self._connection = await asyncssh.connect(self.host, connect_timeout=CONNECT_TIMEOUT, **self._arguments)
        except (OSError, ValueError, asyncssh.Error) as error:  # ValueError: a file that is no key
            raise self._failed("cannot be reached", _reason(error), self._remedy(error)) from error

    def _remedy(self, error: Exception) -> str:
        import asyncssh

        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return f"log in to it once with ssh, or set known_hosts = in {self._path} to a file with its key"
        if isinstance(error, asyncssh.PermissionDenied | FileNotFoundError | ValueError):
            return f"set client_keys = in {self._path} to a key that logs in without a password, and list user@host"
        return f"correct the host or its port in {self._path}, or name its address in ~/.ssh/config"

    async def _run(self) -> None:
        """Start the process, and wait until it listens."""
        import asyncssh

        try:
            async with asyncio.timeout(START_TIMEOUT):
                self._process = await self._connection.create_process(self.command())
                last = await self._listens()
        except TimeoutError:
            last = f"not within {START_TIMEOUT:g} seconds"
        except (OSError, asyncssh.Error) as error:
            last = _reason(error)
        if last is None:
            return
        remedy = f"check python = (now {self._python}) and interface = in {self._path}, with psmds-dist on that host"
        raise self._failed(f"did not start its {self.role}", last or "it wrote nothing", remedy)

    async def _listens(self) -> str | None:
        """Wait until the process listens; the last line that it wrote where it ends before."""
        last = ""
        async for line in self._process.stderr:
            if line.startswith(PID):
                self._pid = int(line.removeprefix(PID))
            elif STARTED[self.role] in line:
                self.address = line.partition("at:")[2].strip()
                return None
            else:
                last = line.strip() or last
        return last

    def _failed(self, what: str, said: str, remedy: str) -> WorkerError:
        said = " ".join(said.split()).rstrip(".")
        return WorkerError(f"cluster 'ssh:{self._path}' did not start: host {self.host} {what} ({said}): {remedy}.")

    def command(self) -> str:
        """Command for the shell of any user, which tells the number of the process first."""
        import dask

        inherited = dask.config.serialize(dask.config.global_config)
        one = {"cls": CLASSES[self.role], "opts": self._options}
        spec = json.dumps(one if self._scheduler is None else {"0": one})
        words = shlex.join([*([] if self._scheduler is None else [self._scheduler]), "--spec", spec])
        dask_spec = f"{self._python} -m distributed.cli.dask_spec {words}"
        script = f"echo {PID}$$ >&2; exec env DASK_INTERNAL_INHERIT_CONFIG={inherited} {dask_spec}"
        return f"sh -c {shlex.quote(script)}"

    async def close(self) -> None:
        """End the process, also one that has not found its scheduler and hears of nothing else."""
        self.status = Status.closing
        if self._process is not None and self._pid is not None:
            await self._end()
        if self._connection is not None:
            self._connection.close()
        self.status = Status.closed

    async def _end(self) -> None:
        import asyncssh

        for signal in ("TERM", "KILL"):
            if self._process.returncode is None:
                with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
                    async with asyncio.timeout(END_TIMEOUT):
                        await self._connection.run(f"kill -{signal} {self._pid}")
                        await self._process.wait()


def _reason(error: Exception) -> str:
    """What an error says, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(filter(None, [error.strerror, error.filename]))
    return str(error) or type(error).__name__
