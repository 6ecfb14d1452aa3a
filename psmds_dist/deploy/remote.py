"""One process of a cluster on a host that is reached by SSH, as Dask's SpecCluster takes schedulers and workers.

Dask's SSHCluster names no host in its errors, drops what the remote process wrote, and ends a process by a signal of
SSH, which servers refuse for root: a worker that has not found its scheduler yet would run forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Generator
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

POLL = 0.2
"""Seconds between two looks for an interrupt while a process starts."""

KEEPALIVE_INTERVAL = 30.0
"""Seconds between messages on a connection, which firewalls drop when it is idle for long."""

STARTED = {"scheduler": "Scheduler at:", "worker": "Registered to:"}
"""What each process logs when it is ready, before the address of the scheduler."""

LOGGING = {"distributed": "info"}
"""Levels of loggers with which processes log that."""

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
        interrupted: Callable[[], bool] = lambda: False,
        name: object = None,
    ) -> None:
        self.status = Status.created
        self.address = self.host = host
        self.name = name
        self._scheduler, self._path, self._options = scheduler, path, options
        self._arguments, self._python = connection, python or sys.executable
        self._interrupted = interrupted
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
            start = asyncio.ensure_future(self._start())
            while not (await asyncio.wait([start], timeout=POLL))[0]:
                if self._interrupted():
                    start.cancel()
            if start.cancelled():
                raise self._failed("is not waited for", "interrupted", "rerun the same command")
            await start
            self.status = Status.running
        return self

    async def _start(self) -> None:
        await self._connect()
        await self._run()

    async def _connect(self) -> None:
        import asyncssh

        try:
            self._connection = await asyncssh.connect(
                self.host, connect_timeout=CONNECT_TIMEOUT, keepalive_interval=KEEPALIVE_INTERVAL, **self._arguments
            )
        except (OSError, ValueError, asyncssh.Error) as error:  # ValueError: a file that is no key
            raise self._failed("cannot be reached", _reason(error), self._remedy(error)) from error

    def _remedy(self, error: Exception) -> str:
        import asyncssh

        if self._about_known_hosts(error):
            return f"log in to it once with ssh, or set known_hosts = in {self._path} to a file with its key"
        if isinstance(error, asyncssh.ConfigParseError):
            return "correct ~/.ssh/config"
        of_host = (isinstance(error, OSError) and error.filename is None) or isinstance(error, UnicodeError)
        if isinstance(error, asyncssh.PermissionDenied) or not (of_host or isinstance(error, asyncssh.Error)):
            return f"set client_keys = in {self._path} to a key that logs in without a password, and list user@host"
        return f"correct the host or its port in {self._path}, or name its address in ~/.ssh/config"

    def _about_known_hosts(self, error: Exception) -> bool:
        """Whether a host is not known, or the file of those that are is of no use."""
        import asyncssh

        if isinstance(error, OSError):
            return bool(error.filename == os.path.expanduser(self._arguments.get("known_hosts", "")))
        unknown = isinstance(error, asyncssh.HostKeyNotVerifiable | UnicodeDecodeError)
        return unknown or "known hosts" in str(error)

    async def _run(self) -> None:
        """Start the process, and wait until it listens."""
        import asyncssh

        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self._create()
                last = await self._listens()
        except TimeoutError:
            last = f"not within {START_TIMEOUT:g} seconds"
        except (OSError, asyncssh.Error) as error:
            last = _reason(error)
        if last is None:
            # what nobody reads fills the window of the connection, and then the process cannot write and waits forever
            await self._process.redirect(stdout=asyncssh.DEVNULL)
            return
        remedy = f"check python = (now {self._python}) and interface = in {self._path}, with psmds-dist on that host"
        raise self._failed(f"did not start its {self.role}", last or "it wrote nothing", remedy)

    async def _create(self) -> None:
        """Start the process; a shell may write anything before, in any encoding."""
        import asyncssh

        self._process = await self._connection.create_process(
            self.command(), stderr=asyncssh.STDOUT, encoding="utf-8", errors="replace"
        )
        self._process.stdin.write("\n")  # it ends when this connection does

    async def _listens(self) -> str | None:
        """Wait until the process is ready; the last line that it wrote where it ends before."""
        last = ""
        async for line in self._process.stdout:
            if found := re.search(rf"{PID}(\d+)", line):
                self._pid = int(found[1])
            elif STARTED[self.role] in line:
                if self._scheduler is None:
                    self.address = line.partition("at:")[2].strip()
                return None
            else:
                last = line.strip() or last
        return last

    def _failed(self, what: str, said: str, remedy: str) -> WorkerError:
        said = " ".join(said.split()).rstrip(".")
        return WorkerError(f"cluster 'ssh:{self._path}' did not start: host {self.host} {what} ({said}): {remedy}.")

    def command(self) -> str:
        """Command for the shell of any user, which tells the number of the process first.

        Servers leave a process alone whose connection is lost, such as when psmds is killed: another one ends it then.
        """
        import dask

        distributed = {k: v for k, v in dask.config.get("distributed").items() if k != "logging-file-config"}
        told = {**dask.config.global_config, "distributed": {**distributed, "logging": LOGGING}}
        inherited = dask.config.serialize(told)
        one = {"cls": CLASSES[self.role], "opts": self._options}
        spec = json.dumps(one if self._scheduler is None else {"0": one})
        words = shlex.join([*([] if self._scheduler is None else [self._scheduler]), "--spec", spec])
        dask_spec = f"{_quoted(self._python)} -m distributed.cli.dask_spec {words}"
        end = f"read line && {{ cat; kill $$ && sleep {END_TIMEOUT:g} && kill -KILL $$; }}"
        watch = f"exec 3<&0; ({end}) <&3 >/dev/null 2>&1 &"
        run = f"exec env DASK_INTERNAL_INHERIT_CONFIG={inherited} {dask_spec} </dev/null 3<&-"
        return f"sh -c {shlex.quote(f'echo {PID}$$ >&2; {watch} {run}')}"

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
                        await self._connection.run(f"kill -{signal} {self._pid}", errors="replace")
                        await self._process.wait()


def _quoted(path: str) -> str:
    """Path for a shell, which completes a ``~`` at its beginning."""
    home, slash, rest = path.partition("/")
    return f"{home}/{shlex.quote(rest)}" if slash and re.fullmatch(r"~\w*", home) else shlex.quote(path)


def _reason(error: Exception) -> str:
    """What an error says, without its number."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {CONNECT_TIMEOUT:g} seconds"
    if isinstance(error, OSError) and error.errno and error.strerror:
        what = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
        return ": ".join(filter(None, [what, error.filename]))
    return re.sub(r"\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
