"""Servers of objects on this machine, and a line to them that can be cut."""

import asyncio
import math
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from psmds_dist.data.store.remote import RemoteStore
from tests.clusters import wait_for

KEY, SECRET = "AKIATESTOFPSMDS", "secret-of-a-test-of-psmds"
BUCKET = "psmds-test"


def free_port():
    """A port of loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def http_server(*command):
    """Run a server of HTTP that takes its port last, and yield the port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: process.poll() is not None or answers(port))
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port):
    """Whether a server of HTTP is at a port."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def file_server(folder: Path):
    """Serve a directory by plain HTTP, and yield its URL."""
    with http_server("-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def s3_server():
    """Serve an empty bucket as S3 does, and yield the port; the environment names credentials and address."""
    with http_server("-m", "moto.server", "-H", "127.0.0.1", "-p") as port, s3_environment(port):
        _make_bucket(port)
        yield port


def _make_bucket(port):
    signature = f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{BUCKET}", method="PUT", headers={"Authorization": signature}
    )
    urllib.request.urlopen(request).close()


def s3_environment(port):
    """Set the variables by which S3 is found at a port of this machine."""
    return with_environment(
        AWS_ACCESS_KEY_ID=KEY,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )


@contextmanager
def with_environment(**values):
    """Set variables of the environment for the length of a with block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


class Line(threading.Thread):
    """A port that leads to another one, until it is cut: then it closes what is open and refuses what comes."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.port = target, free_port()
        self.left = math.inf
        self.was_cut = threading.Event()
        self._open = set()
        self._lines = set()
        self._loop = asyncio.new_event_loop()
        self._server = None
        self.start()
        self.restore()

    def run(self):
        self._loop.run_forever()

    def cut(self):
        """Refuse connections, and drop those that are open."""
        self._call(self._cut())

    def cut_after(self, nbytes):
        """Cut the line once so many bytes more have passed, in whatever direction."""
        self.was_cut.clear()
        self.left = nbytes

    def restore(self):
        """Let connections through."""
        self._call(self._restore())

    def end(self):
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()
        self._loop.close()

    def _call(self, coroutine):
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _restore(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _copy(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                self.left -= len(data)
                if self.left < 0:
                    self._cutting = asyncio.create_task(self._cut())
                    return
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()

    async def _cut(self):
        self.left = math.inf
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._lines, return_exceptions=True)
        self.was_cut.set()

    async def _serve(self, reader, writer):
        self._lines.add(asyncio.current_task())
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._open -= {writer, back}


@contextmanager
def line_to(port):
    """Yield a `Line` to a port."""
    line = Line(port)
    try:
        yield line
    finally:
        line.end()


def restored_after(line, seconds):
    """Wait until a line is cut, and restore it after some seconds."""
    assert line.was_cut.wait(240)
    time.sleep(seconds)
    line.restore()


SAVING_OFTEN = """import sys, time
from psmds_dist.__main__ import main
from psmds_dist.solver.checkpoint import DirectoryCheckpoint

def slowly(checkpoint, name, arrays, write=DirectoryCheckpoint.write):
    write(checkpoint, name, arrays)
    time.sleep(pause)

pause = float(sys.argv.pop(1))
DirectoryCheckpoint.write = slowly
DirectoryCheckpoint.__init__.__kwdefaults__["every"] = 0.0
main()"""


def started_often_saving(*command, pause=0.3):
    """The command psmds in a process of its own, which saves every state and waits for some seconds after each."""
    return subprocess.Popen([sys.executable, "-c", SAVING_OFTEN, str(pause), *command], stdout=subprocess.DEVNULL)


def states_at(target):
    """Names of the states of a run whose map is to be at a URL."""
    return [name for name in RemoteStore(f"{target}.checkpoint").objects() if name.startswith("solve")]
