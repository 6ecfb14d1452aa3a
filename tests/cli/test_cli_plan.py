"""``psmds plan``."""

import re

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist.cli.app import main
from tests.cli.commands import IDS, N, refused, run


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


@pytest.fixture
def rules(place):
    """Matrices beside that of the user, and pinned coordinates."""
    square = np.load("square.npy")
    np.save("w.npy", np.ones_like(square))
    np.save("upper.npy", square + 1)
    np.save("few.npy", np.ones((N - 1, N - 1)))
    pinned = np.full((N, 2), np.nan)
    pinned[:5] = 0.25
    np.save("pinned.npy", pinned)
    np.save("all.npy", np.zeros((N, 2)))
    (place / "ids.txt").write_text("\n".join(IDS) + "\n", encoding="utf-8")
    return place


def outcome(*arguments):
    """Exit code, standard output, and the last line of standard error."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    return result.exit_code, result.stdout, (result.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize(
    "options",
    [
        ["--weights", "w.npy"],
        ["--weights", "w.npy", "--upper", "upper.npy"],
        ["--loss", "huber"],
        ["--transformation", "ordinal", "--ties", "secondary"],
        ["--bounds", "0:1", "--bounds", "-1:1"],
        ["--pinned", "pinned.npy", "--weights", "w.npy", "--loss", "absolute"],
        ["--local", 0.5, "--local-neighbors", 5],
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_a_plan_asks_for_as_much_memory_as_a_run(rules, options):
    code, _, sentence = outcome("plan", "square.npy", *options, "--memory-limit", "1 kB")
    assert code == 1
    needed = re.search(r"--memory-limit\) to ([0-9.]+ [KM]iB)", sentence)[1]
    assert outcome("fit", "square.npy", "m.zarr", *options, "--memory-limit", "1 kB", "-q") == (1, "", sentence)
    told = run("plan", "square.npy", *options, "--memory-limit", needed)
    assert f"least that works   {needed} per worker" in told
    run("fit", "square.npy", "m.zarr", *options, "--memory-limit", needed, "--max-epochs", 1, "-q")


@pytest.mark.parametrize(
    "options",
    [
        ["--weights", "few.npy"],
        ["--weights", "no.npy"],
        ["--loss", "cubic"],
        ["--weight-power", 9],
        ["--upper", "upper.npy", "--weight-power", -1],
        ["--local", 1],
        ["--local", 0.5, "--local-neighbors", N - 1],
        ["--transformation", "ordinal", "--weights", "w.npy"],
        ["--transformation", "best"],
        ["--ties", "secondary"],
        ["--transformation", "ratio", "--bounds", "0:"],
        ["--bounds", "1:0"],
        ["--bounds", "0:1", "--bounds", "0:1", "--bounds", "0:1"],
        ["--pinned", "all.npy"],
        ["--pinned", "few.npy"],
        ["--pinned", "pinned.npy", "--bounds", "1:2"],
        ["-L", N],
        ["-L", 0],
        ["--ids", "few.npy"],
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_a_plan_refuses_what_a_run_refuses_in_the_same_sentence(rules, options):
    sentence = refused("plan", "square.npy", *options)
    assert refused("fit", "square.npy", "m.zarr", *options, "-q") == sentence


def test_rules_are_forecast(rules):
    def passes(*options):
        return int(re.search(r"passes +(\d+)", run("plan", *options))[1])

    plain = passes("square.npy")
    assert passes("square.npy", "--loss", "absolute") < plain  # no polish
    assert passes("square.npy", "--pinned", "pinned.npy") > 4 * plain  # eight solves, each from its own start
    many = ("--points", 20_000)
    fitted = run("plan", *many, "--transformation", "ordinal", "--memory-limit", "1 GB")
    assert "fits of disparities" in fitted
    assert "polish at the end" in fitted
    assert passes(*many) < passes(*many, "--bounds", "0:") < passes(*many, "--loss", "huber")


def test_rules_that_need_data_or_exact_mode_are_told(rules):
    assert "are files that belong to MATRIX; give it" in refused("plan", "-N", 100, "--weights", "w.npy")
    assert "--dtype and --ids are about MATRIX" in refused("plan", "-N", 100, "--dtype", "float64")
    assert "or --landmarks" in refused("plan", "-N", 100, "-S", 10, "--loss", "huber")
    assert "or --landmarks" in refused("plan", "-N", 100, "-S", 10, "--bounds", "0:")
    assert "bounds must have the lower one first" in refused("plan", "-N", 100, "--bounds", "1:0")


def test_a_limit_that_is_named_works_where_a_solve_begins_with_landmarks(place):
    """Landmarks need more than the solve after them, also of points with names."""
    n = 2100
    np.save("many.npy", squareform(pdist(np.random.default_rng(0).normal(size=(n, 3)))))
    place.joinpath("many.txt").write_text("".join(f"point {k}\n" for k in range(n)))
    run("ingest", "many.npy", "many.zarr", "--ids", "many.txt", "-q")
    sentence = refused("fit", "many.zarr", "map.zarr", "--memory-limit", "1MB")
    needed = re.search(r"--memory-limit\) to ([0-9.]+ MiB)", sentence)[1]
    assert re.search("least that works +([0-9.]+ MiB)", run("plan", "many.zarr", "--memory-limit", "1GiB"))[1] == needed
    run("fit", "many.zarr", "map.zarr", "--memory-limit", needed, "--max-epochs", 1, "-q")
    assert "begin at random (--init random)" in sentence
