"""Full disks, damaged caches and whatever else surrounds a run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from psmds_dist.core.types import InputError, StorageError
from psmds_dist.data.sources import open_npy
from psmds_dist.data.store import create, read_result, write_result
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import connect, write_certificates
from tests.data.test_damage import small_files

KERNEL = """
import logging
import resource
import signal
import sys

from numba import prange

from psmds_dist.kernels.jit import kernel

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)


@kernel
def doubled(x):
    for i in prange(x.shape[0]):
        x[i] *= 2
    return x.sum()


if sys.argv[1:] == ["full"]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

import numpy as np

print(doubled(np.ones(4)), sum(doubled.stats.cache_hits.values()))
"""


@pytest.fixture
def run_kernel(tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(KERNEL)

    def run(*arguments, **environment):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment}
        command = [sys.executable, str(script), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.cache = cache
    return run


def test_a_disk_too_full_for_compiled_kernels_costs_a_note_and_no_run(run_kernel):
    told = run_kernel("full")
    assert told.endswith("8.0 0\n")
    assert told.startswith(f"compiled kernels cannot be saved ({run_kernel.cache}")
    assert "set NUMBA_CACHE_DIR to a writable directory" in told


@pytest.mark.wide
@pytest.mark.parametrize("ending", ["*.nbc", "*.nbi"])
def test_a_damaged_compiled_kernel_is_compiled_again_and_saved(run_kernel, ending):
    assert run_kernel() == "8.0 0\n"
    assert run_kernel() == "8.0 1\n"
    [file] = run_kernel.cache.rglob(ending)
    os.truncate(file, file.stat().st_size // 2)
    told = run_kernel()
    assert "cannot be loaded" in told
    assert told.endswith("8.0 0\n")
    assert run_kernel() == "8.0 1\n"


@pytest.mark.wide
def test_where_no_cache_is_writable_each_run_compiles_and_says_so(run_kernel, tmp_path):
    (tmp_path / "file").touch()  # no directory can be made below it, whoever asks
    (tmp_path / "__pycache__").touch()
    told = run_kernel(NUMBA_CACHE_DIR="", HOME=str(tmp_path / "file"), XDG_CACHE_HOME=str(tmp_path / "file"))
    assert "compiled kernels cannot be saved" in told
    assert told.endswith("8.0 0\n")


def test_a_store_that_cannot_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    free = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("psmds_dist.data.store.paths.shutil.disk_usage", lambda _: free)
    with pytest.raises(StorageError, match=r"matrix\.zarr needs about 15\.3 MiB, but only 976\.6 KiB are free"):
        create(tmp_path / "matrix.zarr", 2_000)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_while_a_store_is_written_is_named(tmp_path):
    target = create(tmp_path / "matrix.zarr", 100)
    with small_files(), pytest.raises(StorageError, match=r"matrix\.zarr cannot be written .* free some space"):
        target.write(0, np.zeros((min(100, target.array.chunks[0]), 100), np.float32))


def test_a_result_that_neither_target_nor_tmpdir_takes_is_kept_elsewhere(tmp_path, monkeypatch):
    from psmds_dist.data.store import results

    full, shelter = tmp_path / "full", tmp_path / "shelter"
    write = results._write

    def write_unless_full(place, **what):
        if not place.is_relative_to(shelter):
            raise OSError(28, "No space left on device")
        write(place, **what)

    for folder in (full, shelter):
        folder.mkdir()
    monkeypatch.setattr(results, "_write", write_unless_full)
    monkeypatch.setattr(results, "_fallback_directories", lambda: [full, shelter])
    with pytest.raises(StorageError, match=f"the result was saved in {shelter}/psmds-[0-9a-f]+ instead") as told:
        write_result(full / "map.zarr", {"embedding": np.ones((3, 2))}, {"n": 3})
    assert "No space left on device" in str(told.value)
    [kept] = shelter.iterdir()
    np.testing.assert_array_equal(results.read_result(kept)[0]["embedding"], np.ones((3, 2)))


def test_fallback_directories_are_found_without_a_writable_directory_for_temporary_files(monkeypatch):
    from psmds_dist.data.store import results

    def none_usable():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(results.tempfile, "gettempdir", none_usable)
    assert results._fallback_directories()[0].is_dir()


HEADERS = {
    "longer than any address": b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**30, 10**30), }",
    "huge numbers": b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d, 1), }" % 10**30,
    "deeply nested": b"(" * 9_000,
    "keys of two kinds": b"{1: 2, 'a': 3}",
    "an unfinished text": b"{'''",
    "an odd indentation": b"  {\n 1",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_npy_header_that_makes_no_sense_is_a_sentence(tmp_path, header):
    path = tmp_path / "matrix.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80))
    with pytest.raises(InputError, match=r"matrix\.npy is a (damaged )?\.npy file"):
        open_npy(path)


def replaced_during_a_read(place, monkeypatch, times):
    """Have a result be replaced by the next one between its attributes and its arrays."""
    from psmds_dist.data.store import results

    numbers, values = iter(range(1, times + 1)), results._values

    def write(number):
        write_result(place, {"embedding": np.full((3, 2), number)}, {"number": number}, overwrite=True)

    def read_late(*given):
        if (number := next(numbers, None)) is not None:
            write(number)
        return values(*given)

    write(0)
    monkeypatch.setattr(results, "_values", read_late)


def test_parts_of_a_result_that_is_replaced_while_it_is_read_belong_together(tmp_path, monkeypatch):
    replaced_during_a_read(tmp_path / "map.zarr", monkeypatch, times=2)
    arrays, attributes, _ = read_result(tmp_path / "map.zarr")
    assert attributes["number"] == 2
    assert (arrays["embedding"] == 2).all()


def test_a_result_that_is_replaced_all_the_time_is_a_sentence(tmp_path, monkeypatch):
    replaced_during_a_read(tmp_path / "map.zarr", monkeypatch, times=100)
    with pytest.raises(InputError, match=r"map\.zarr was replaced 5 times while it was read"):
        read_result(tmp_path / "map.zarr")


UMASK = """
import os
import sys

from psmds_dist.data.store import require_result_place
from psmds_dist.core.types import InputError

if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
os.umask(0o777)
try:
    require_result_place(sys.argv[1], overwrite=False)
except InputError as error:
    print(error)
"""


def test_a_umask_that_takes_all_rights_is_refused_before_a_run(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.geteuid() and path != path.parent:
            path.chmod(path.stat().st_mode | 0o555)
    folder.chmod(0o777)
    command = [sys.executable, "-c", UMASK, str(folder / "map.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "map.zarr cannot be written" in done.stdout, done.stderr
    assert "(Permission denied)" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_working_directory_that_was_removed_is_named(tmp_path):
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", 'rmdir "$PWD"; exec "$0" info map.zarr', Path(sys.executable).with_name("psmds")]
    done = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: the working directory no longer exists; change to another directory and rerun the command.\n"
    )


@pytest.mark.slow
def test_a_scheduler_with_another_certificate_is_a_sentence(tmp_path):
    for name in ("theirs", "ours"):
        write_certificates(str(tmp_path / name))
    with local_client(workers=1, threads=1, tls=str(tmp_path / "theirs")) as client:
        address = client.scheduler.address
        with pytest.raises(
            InputError, match=f"the scheduler at {address} does not have the certificate in .*ours: pass"
        ):
            connect(address, tls=str(tmp_path / "ours"))
