"""The experiments with many points: peers that are not installed, R, limits, and what is measured."""

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import ClassicalMDS

PAPER = Path(__file__).parent.parent / "examples" / "paper"
MODULES = ("scaling", "larger", "study", "methods", "manifolds", "measures", "pictures")

FILES = {
    "DESCRIPTION": "Package: smacof\nVersion: 0.1\nTitle: Another Classical Scaling\nDescription: For a test.\n"
    "Author: A\nMaintainer: A <a@example.org>\nLicense: BSD_3_clause + file LICENSE\n",
    "NAMESPACE": "export(mds)\nimportFrom(stats, cmdscale)\n",
    "R/mds.R": "mds <- function(delta, ndim, type, itmax, eps) list(conf = cmdscale(delta, ndim))\n",
    "LICENSE": "YEAR: 2026\nCOPYRIGHT HOLDER: A\n",
}
"""A package with the function of smacof that is called."""


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.syspath_prepend(PAPER)
    yield import_module
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A library of R with a stand-in for smacof."""
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    source, place = tmp_path_factory.mktemp("source") / "smacof", tmp_path_factory.mktemp("library")
    (source / "R").mkdir(parents=True)
    for name, text in FILES.items():
        (source / name).write_text(text)
    command = ["R", "CMD", "INSTALL", "--no-docs", "--no-test-load", f"--library={place}", source]
    subprocess.run(command, check=True, capture_output=True)
    return place


def quick_study(paper, folder):
    return paper("study").Study(folder, quick=True)


def test_what_is_not_installed_is_told_and_asked_again_next_time(paper, tmp_path, monkeypatch):
    scaling, study = paper("scaling"), quick_study(paper, tmp_path)
    monkeypatch.setitem(scaling.MODULES, "s_gd2", "no_such_module")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(scaling, "_draw", lambda *given: None)
    monkeypatch.setattr(scaling, "in_process", lambda *command: {"seconds": 1.0, "peak": 2.0**20, "stress": 0.25})
    section = scaling.run(study)
    assert "| s_gd2 | not installed |  |" in section
    assert "| smacof (R) | R is not installed |  |" in section
    assert "| SMACOF | 0.2500 | 0.2500 |" in section
    assert not any(key.endswith(("| s_gd2", "| smacof (R)")) for key in study.cells)
    study.cells["scaling 500 | s_gd2"] = study.cells["scaling 1000 | s_gd2"] = {"seconds": 2, "peak": 0, "stress": 0.5}
    assert "| s_gd2 | 0.5000 | 0.5000 |" in scaling.run(study)


@pytest.mark.slow
def test_distances_go_to_r_and_coordinates_come_back(paper, library, monkeypatch):
    monkeypatch.setenv("R_LIBS", str(library))
    scaling, given = paper("scaling"), np.random.default_rng(0).normal(size=(40, 4))
    assert scaling.missing("smacof (R)") == ""
    found = scaling.smacof_in_r(given)
    expected = ClassicalMDS(2, metric="precomputed").fit_transform(squareform(pdist(given)))
    assert found.shape == (40, 2)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    with pytest.raises(RuntimeError, match="Error"):
        scaling.smacof_in_r(np.full((3, 2), np.nan))


@pytest.mark.wide
@pytest.mark.slow
def test_a_run_ends_at_its_limits(paper, tmp_path):
    scaling = paper("scaling")

    def run(body):
        script = tmp_path / "child.py"
        script.write_text(
            f"import sys; sys.path.insert(0, {str(PAPER)!r})\nimport scaling, time\nscaling.LIMIT = 0\n{body}\n"
        )
        return scaling.in_process(str(script), "7")

    assert run("scaling.answer(lambda n: {'seconds': 0.5, 'n': n})") == {"seconds": 0.5, "n": 7}
    assert run("scaling.answer(lambda n: scaling.timed(lambda: time.sleep(9))[1])") == scaling.TOO_LONG
    assert run("scaling.answer(lambda n: {'seconds': 121.0})") == scaling.TOO_LONG
    assert run("scaling.answer(lambda n: bytearray(2 ** 40))") == {"failure": "out of memory"}
    assert run("raise ValueError('no map')") == {"failure": "ValueError: no map"}


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others tell no peak without that of the parent")
def test_a_peak_is_that_of_the_run_itself(paper, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(PAPER)!r})\nimport numpy, scaling\n"
        "scaling.answer(lambda n: scaling.timed(lambda: numpy.ones(n << 17))[1])\n"
    )
    held = np.ones(64 << 20)  # 512 MiB here, which a child of this process is said to have held by getrusage
    small, large = (paper("scaling").in_process(str(script), str(n))["peak"] / 2**20 for n in (0, 200))
    assert held.nbytes / 2**20 > small + 200
    assert 180 < large - small < 240


def test_maps_of_sheets_are_compared_with_lengths_along_them(paper):
    larger, shapes = paper("larger"), import_module("psmds_dist.shapes")
    cell = larger.measure("S-curve", "truncated SVD", 300)
    truth = shapes.s_curve(300, random_state=0)
    found = larger.svd(truth.points, 6)
    assert cell["procrustes"] == pytest.approx(procrustes(truth.parameters, found)[2])
    t, d = pdist(truth.parameters), pdist(found)
    assert cell["stress"] == pytest.approx(np.sqrt(1 - (t @ d) ** 2 / (t @ t) / (d @ d)), abs=0.005)


def test_kernels_of_all_sizes_are_compiled_before_anything_is_measured(paper, tmp_path, monkeypatch):
    scaling, asked = paper("scaling"), []

    def in_process(script, method, n):
        asked.append((method, int(n)))
        return {"seconds": 1.0, "peak": 2.0**20, "stress": 0.25}

    monkeypatch.setattr(scaling, "_draw", lambda *given: None)
    monkeypatch.setattr(scaling, "in_process", in_process)
    scaling.run(quick_study(paper, tmp_path))
    ours = ["pattern search, all pairs", "pattern search, landmarks"]
    assert asked[:2] == [(method, scaling.COMPILES) for method in ours]
    assert scaling.COMPILES > 2000  # a larger solve begins with landmarks
    assert scaling.COMPILES not in [n for _, n in asked[2:]]


def test_what_was_stopped_on_one_sheet_is_not_tried_on_the_other(paper, tmp_path, monkeypatch):
    larger, tried = paper("larger"), []

    def in_process(script, name, method, n):
        tried.append((name, method, n))
        slow = method == "Isomap" and n == "600"
        return {"failure": "more than 120 s"} if slow else {"seconds": 1, "peak": 1, "stress": 0, "procrustes": 0.1}

    monkeypatch.setattr(larger, "in_process", in_process)
    monkeypatch.setattr(larger, "compile_kernels", lambda *given: None)
    section = larger.run(quick_study(paper, tmp_path))
    assert ("swiss roll", "Isomap", "600") in tried
    assert ("S-curve", "Isomap", "300") in tried
    assert ("S-curve", "Isomap", "600") not in tried
    assert section.count("| Isomap | 1.0e-01 | more than 120 s |") == 2
