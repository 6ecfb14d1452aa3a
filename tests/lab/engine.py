"""A Docker engine of the tests' own, on a host of a network of namespaces: its base image is made of this machine's
files, its files are in memory, and pip finds its wheels on a local index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.clusters import wait_for

PACKAGES = """base-files base-passwd bash coreutils dash findutils grep libc6 libc-bin libgcc-s1 libstdc++6 login passwd
sed"""
"""What a base image has besides Python; all of it is part of every Debian."""

OMITTED = re.compile(r"__pycache__|/site-packages/(?!pip|setuptools)|/(test|idlelib|turtledemo|config-[^/]*)(/|$)")
"""Parts of a Python installation that an image does not need."""

LINKED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr."""


START = """
mount -t tmpfs -o size=4g,mode=711 psmds "$0" && exec dockerd --data-root "$0" "$@"
"""
"""A disk takes twice the time of the build to write layers, and a minute to remove them."""

SECONDS = 120
"""An engine that does not answer for so long cannot be started; it takes one second."""


class Unavailable(Exception):
    """An engine cannot be started here, or has nothing to build from; the message says why."""


def which(program: str) -> str | None:
    """Path of a program, also where the path of a user lacks /usr/sbin."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class Engine:
    """A running engine."""

    folder: Path
    namespace: str

    @property
    def environment(self) -> dict[str, str]:
        """Environment of its clients, with a configuration of their own."""
        own = {"DOCKER_HOST": f"unix://{self.folder}/docker.sock", "DOCKER_CONFIG": str(self.folder / "client")}
        return {**os.environ, **own, "DOCKER_BUILDKIT": "0"}

    def docker(self, *command: str, **how: Any) -> str:
        """Run ``docker`` and return what it prints."""
        return run("docker", *command, env=self.environment, **how)

    def inside(self, *command: str) -> list[str]:
        """A command line that runs in the network namespace of the engine."""
        # `ip netns exec` would mount a /sys without the control groups
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]

    @contextmanager
    def package_index(self, folder: Path, requirements: Path) -> Iterator[str]:
        """Serve wheels of this project's dependencies to pip in a build with ``--network host``; yields the address."""
        _download_wheels(folder, requirements)
        server = self.inside(
            sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", str(folder)
        )
        with subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield "http://127.0.0.1:8000"
            finally:
                process.kill()

    def import_base(self, name: str) -> None:
        """Make an image of Debian's essential files and the Python of these tests, in /usr/local as in Docker's."""
        command = ["docker", "import", "--change", "ENV LD_LIBRARY_PATH=/usr/local/lib", "-", name]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.environment
        ) as process:
            assert process.stdin is not None
            _write_base(process.stdin)
        assert process.returncode == 0


@contextmanager
def engine(folder: Path, namespace: str) -> Iterator[Engine]:
    """Start an engine in a network namespace for the length of a with block.

    It has process ids and mounts of its own: whatever ends it, nothing of its containers and files stays.

    Raises
    ------
    Unavailable
        If no engine can be started here.
    """
    programs = ("dockerd", "docker", "iptables", "nsenter", "unshare", "dpkg-query", "ldd")
    if absent := [name for name in programs if which(name) is None]:
        raise Unavailable(f"not installed: {', '.join(absent)}")
    one = Engine(folder, namespace)
    folder.joinpath("data").mkdir(parents=True)
    folder.joinpath("daemon.json").write_text("{}")
    with folder.joinpath("log").open("wb") as log:
        process = subprocess.Popen(_dockerd(one), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_for_answer(one, process)
        yield one
    finally:
        with suppress(AssertionError):  # control groups of containers stay unless they are removed
            if containers := one.docker("ps", "-aq").split():
                one.docker("rm", "-f", *containers)
        process.kill()
        process.wait(60)
        shutil.rmtree(folder)


def _dockerd(one: Engine) -> list[str]:
    places = {"host": f"unix://{one.folder}/docker.sock", "pidfile": one.folder / "pid"}
    places |= {"config-file": one.folder / "daemon.json", "exec-root": one.folder / "exec"}
    apart = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    options = [f"--{name}={value}" for name, value in places.items()]
    return one.inside(*apart, "sh", "-c", START, str(one.folder / "data"), *options)


def _wait_for_answer(one: Engine, process: subprocess.Popen[bytes]) -> None:
    try:
        wait_for(lambda: _answers(one) or process.poll() is not None, SECONDS)
        ended = process.poll() is not None
    except AssertionError:
        ended = True
    if ended:
        raise Unavailable(f"no container engine can be started: {(one.folder / 'log').read_text()[-1000:]}")


def _download_wheels(folder: Path, requirements: Path) -> None:
    """Wheels of everything an image contains, and of what builds this project, in a folder for each name."""
    pip = [f"{sys.base_prefix}/bin/python3", "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    try:
        # the requirements are complete, so nothing is resolved; pip's cache has what .venv was made of
        run(*pip, "--dest", str(folder), "--no-deps", "--requirement", str(requirements))
        run(*pip, "--dest", str(folder), "hatchling")
    except AssertionError as error:
        raise Unavailable(f"no wheels for the image: {error}") from error
    for wheel in folder.glob("*.whl"):
        place = folder / wheel.name.partition("-")[0].lower().replace("_", "-")
        place.mkdir(exist_ok=True)
        wheel.rename(place / wheel.name)


def _answers(one: Engine) -> bool:
    return subprocess.run(["docker", "version"], env=one.environment, capture_output=True, check=False).returncode == 0


def run(program: str, *arguments: str, **how: Any) -> str:
    """Run a program, and show all it printed when it fails."""
    path = which(program)
    assert path is not None, program
    done = subprocess.run(
        [path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how
    )
    assert done.returncode == 0, f"{program} {' '.join(arguments)}\n{done.stdout[-6000:]}"
    return done.stdout


def _write_base(stream: IO[bytes]) -> None:
    files = {_merged(path): path for path in _debian_files()} | dict(_python_files())
    files |= {_merged(path): path for path in _libraries(files.values()) if not path.startswith(sys.base_prefix)}
    files |= {f"etc/{name}": f"/usr/share/base-passwd/{name}.master" for name in ("passwd", "group")}
    with tarfile.open(fileobj=stream, mode="w|") as tar:
        for name in LINKED:
            _add_link(tar, name, f"usr/{name}")
        _add_link(tar, "usr/local/bin/python", "python3")
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar.addfile(link)


def _debian_files() -> list[str]:
    listed = run("dpkg-query", "--listfiles", *PACKAGES.split()).splitlines()
    return [path for path in listed if os.path.lexists(path) and path.strip("/.") not in ("", *LINKED)]


def _merged(path: str) -> str:
    """Name of a file in an image in which /bin, /lib and the like are links into /usr."""
    return re.sub(rf"^/({'|'.join(LINKED)})/", r"/usr/\1/", path).strip("/")


def _python_files() -> Iterator[tuple[str, str]]:
    root = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for top in (root / "lib" / version, *root.glob("lib/libpython3*so*")):
        for path in (top, *top.rglob("*")):
            if not OMITTED.search(str(path)):
                yield f"usr/local/{path.relative_to(root)}", str(path)
    yield "usr/local/bin/python3", os.path.realpath(sys.executable)
    yield f"usr/local/bin/{version}", os.path.realpath(sys.executable)


def _libraries(paths: Iterable[str]) -> set[str]:
    """Shared libraries that programs and extensions load, by the names they load them by."""
    binaries = [path for path in paths if os.path.isfile(path) and _is_elf(path)]
    found = subprocess.run([which("ldd") or "ldd", *binaries], capture_output=True, text=True, check=False).stdout
    named = set(re.findall(r"(/\S+) \(0x", found))
    return {path for name in named for path in (name, os.path.realpath(name))}


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
