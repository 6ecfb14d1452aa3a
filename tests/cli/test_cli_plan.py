"""``psmds plan``."""

import re

import numpy as np

from tests.cli.commands import N, refused, run


def test_plan_of_a_store(place):
    run("distances", "points.npy", "d.zarr", "-q")
    out = run("plan", "d.zarr", "--memory-limit", "1 MiB", "--threads", 1)
    lines = out.splitlines()
    assert lines[0] == f"{N} points, rows 56.2 KiB, 1 process with 1.0 MiB each: kept in memory"
    heads = [line.split("  ")[0] for line in lines if line]
    wanted = ["rows", "memory per worker", "least that works", "passes", "time", "bytes moved", "saturates first"]
    assert heads[1:8] == wanted
    assert {"search", "epochs", "measurement"} < set(heads)
    assert "stage" in heads
    assert "check" not in heads  # it is kept with the store
    sentence = refused("plan", "d.zarr", "--memory-limit", "1kB")
    needed = re.search(r"--memory-limit\) to ([0-9.]+ KiB)", sentence)[1]
    assert f"a map of {N} points in 2 dimensions needs {needed}" in sentence
    run("plan", "d.zarr", "--memory-limit", needed)
    run("fit", "d.zarr", "m.zarr", "--memory-limit", needed, "--max-epochs", 1, "-q")


def test_plan_of_a_file(place):
    out = run("plan", "square.npy", "--memory-limit", "1 MiB")
    assert out.startswith(f"{N} points, rows 56.2 KiB, 1 process with 1.0 MiB each: kept in memory")
    assert "\ncheck " in out  # nothing is kept with a file
    np.save("odd.npy", np.ones(4))
    assert "is 1-D with 4 entries" in refused("plan", "odd.npy")
    assert "MATRIX and --points are mutually exclusive" in refused("plan", "square.npy", "--points", 120)
    assert "--landmarks requires --points and cannot be used with MATRIX" in refused("plan", "square.npy", "-S", 40)
    assert "--computed requires --landmarks" in refused("plan", "square.npy", "--computed")
    assert f"n_components must be below the number of points, {N}" in refused("plan", "square.npy", "-L", N)
    np.save("two.npy", np.ones((2, 2)))
    assert "the matrix has 2 points" in refused("plan", "two.npy")


def test_plan_without_data():
    million = ("plan", "--points", "1e6", "--workers", 1000, "--threads", 16, "--disk", "1.5GB/s")
    out = run(*million, "--memory-limit", "8GiB")
    assert out.startswith("1,000,000 points, rows 3.64 TiB, 1000 workers with 8.00 GiB each: kept in memory")
    assert "memory here" in out
    many = run("plan", "-N", "1e8", "-S", 1000, "--workers", 1000, "--memory-limit", "8GiB", "--computed")
    assert "computed, never stored, streamed once" in many
    assert "1 over the panel" in many
    assert "needs" in refused(*million, "--memory-limit", "1MB")
    assert "give MATRIX or --points." in refused("plan")
    assert "--landmarks must be more than the 2 dimensions" in refused("plan", "-N", "100", "-S", 2)
    assert "--disk must be a positive number" in refused("plan", "-N", "100", "--disk", "fast")
    assert "--computed requires --landmarks" in refused("plan", "-N", "100", "--computed")
    for number in ("1000.7", "1e300", "many", "0"):
        assert f"{number} is not a whole number from 1 to 1e+15" in refused("plan", "-N", number)
    assert "disk 4 ms" in run("plan", "-N", "1e4", "-S", "1e2", "--disk", "1.1 GB / s")


def test_plan_tells_one_size_of_the_rows():
    rows = re.findall(r"rows +([0-9.]+ MiB)", run("plan", "-N", 1000, "--memory-limit", "1GB"))
    assert rows == ["3.8 MiB"] * 2
