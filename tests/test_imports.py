"""Importing costs next to nothing; everything else comes when it is used."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import psmds_dist

HEAVY = ["numpy", "scipy", "numba", "zarr", "dask", "distributed", "sklearn", "matplotlib", "rich", "pandas"]
PSMDS = str(Path(sys.executable).parent / "psmds")

COMMAND = "from click.testing import CliRunner; from psmds_dist.cli.app import main; CliRunner().invoke(main, "


def loaded_after(code):
    report = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    out = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import psmds_dist",
        "from psmds_dist import InputError, __version__",
        "import psmds_dist.cli.app",
        f"{COMMAND}['--help'])",
        f"{COMMAND}['fit', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded_early(code):
    assert loaded_after(code) == []


def test_small_input_never_waits_for_what_it_does_not_need():
    code = "import numpy as np, psmds_dist, landmarks\n" + "".join(
        f"{estimator}.fit(1 - np.eye(5))\n"
        for estimator in ("psmds_dist.PatternSearchMDS()", "landmarks.LandmarkMDS(refine='full')")
    )
    assert not {"zarr", "dask", "distributed", "matplotlib", "rich"} & set(loaded_after(code))


def test_commands_leave_out_scikit_learn_which_brings_pandas(tmp_path):
    points = np.random.default_rng(0).random((40, 3))
    np.save(tmp_path / "points.npy", points)
    np.save(tmp_path / "d.npy", cdist(points, points))
    limit = "'--memory-limit', '1KiB'"  # refused after all is imported, before kernels are compiled
    code = (
        "import os; from click.testing import CliRunner; from psmds_dist.cli.app import main\n"
        f"os.chdir({str(tmp_path)!r})\n"
        f"fit = ['landmarks', 'fit', 'points.npy', 'map', '--metric', 'euclidean', '-S', '10', {limit}]\n"
        f"for args in (fit, ['quality', 'points.npy', '--matrix', 'd.npy', '--json', {limit}]):\n"
        "    assert 'memory limit' in CliRunner().invoke(main, args).output.replace('_', ' ').replace('-', ' ')"
    )
    loaded = loaded_after(code)
    assert "numba" in loaded
    assert not {"sklearn", "pandas"} & set(loaded)


@pytest.mark.parametrize(("code", "most"), [("import psmds_dist", 10), (f"{COMMAND}['--help'])", 250)])
def test_importing_loads_few_modules(code, most):
    """Seconds of it are measured by the benchmarks; on a busy machine they would say nothing here."""
    count = "import sys; before = len(sys.modules)\n{}\nprint(len(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", count.format(code)], capture_output=True, text=True, check=True).stdout
    assert int(out.splitlines()[-1]) <= most


def test_every_public_name_is_there():
    for name in psmds_dist.__all__:
        assert getattr(psmds_dist, name).__module__.startswith("psmds_dist")
    assert dir(psmds_dist) == sorted(psmds_dist.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = psmds_dist.nonsense
