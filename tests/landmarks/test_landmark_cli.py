"""``psmds landmarks``: real files through its commands, and every fault a sentence."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import cdist, pdist, squareform

from landmarks import LandmarkMDS
from landmarks.cli import _verdict
from landmarks.run import CURVE
from psmds_dist import read_result
from psmds_dist.cli.app import main
from psmds_dist.data.store import open_panel

N = 150
PSMDS = str(Path(sys.executable).parent / "psmds")


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(2).normal(size=(N, 4))


@pytest.fixture
def place(tmp_path, monkeypatch, points):
    """A directory with the files of a user, and in it."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", points)
    np.save("matrix.npy", squareform(pdist(points)))
    np.save("new.npy", points[:20] + 0.01)
    Path("mine.txt").write_text("\n".join(map(str, range(5, 35))) + "\n")
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, ["landmarks", *map(str, arguments)])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def psmds(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def test_landmarks_are_listed_in_the_order_of_transform_also_where_all_points_are(place):
    run("fit", "matrix.npy", "map.zarr", "--no-evaluation")
    rows = np.load("matrix.npy")
    mds = LandmarkMDS.load("map.zarr")
    listed = [int(line) for line in run("list", "map.zarr").splitlines()]
    np.testing.assert_array_equal(mds.transform(rows[:, listed]), mds.transform(rows[:, mds.landmarks_]))


def refused(*arguments, group=("landmarks",)):
    """The sentence in which a command refuses."""
    result = CliRunner().invoke(main, [*group, *map(str, arguments)])
    assert result.exit_code in (1, 2), result.output + repr(result.exception)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    *_, sentence = result.stderr.strip().splitlines()
    assert sentence.startswith("Error: ")
    assert sentence.endswith("."), sentence
    return sentence


def test_from_points_to_a_table_and_new_points(place, points):
    out = run("fit", "points.npy", "map.zarr", "--metric", "euclidean", "-S", 40, "--seed", 3, "--plot", "map.png")
    wanted = LandmarkMDS(n_landmarks=40, metric="euclidean", random_state=3).fit(points)
    lines = out.splitlines()
    assert lines[0].startswith(f"{N} points by 40 landmarks, panel 23.4 KiB, 1 process with ")
    assert lines[0].endswith("each: computed as they are needed, in one pass")
    assert [line.split(":")[0] for line in lines[1:5]] == ["panel", "landmarks", "placement", "evaluation"]
    assert f"{N} points by 40 landmarks; map in map.zarr" in lines
    low, high = wanted.stress_interval_
    assert (
        f"normalized stress  {wanted.normalized_stress_:.6f}   on held-out pairs, 95 % interval {low:.6f} to {high:.6f}"
        in lines
    )
    assert any(line.startswith(f"landmarks alone    {wanted.landmark_stress_:.6f}") for line in lines)
    assert "Held-out stress by number of landmarks, before refinement and from one start each:" in lines
    last = wanted.curve_[-1]
    assert last["high"] - last["low"] > last["normalized_stress"] / 5
    assert lines[-1] == "The interval is too wide to tell whether more landmarks would help."
    assert [line.split()[0] for line in lines[-len(wanted.curve_) - 1 : -1]] == [
        str(k) for k in wanted.curve_["n_landmarks"]
    ]
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    saved = LandmarkMDS.load("map.zarr")
    assert np.array_equal(saved.embedding_, wanted.embedding_)

    assert run("transform", "map.zarr", "new.npy", "new.csv") == "new.csv: 20 points placed into map.zarr\n"
    with open("new.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "x1", "x2"]
    assert [row[0] for row in rows] == [str(k) for k in range(20)]
    assert np.array_equal(np.array([row[1:] for row in rows], float), wanted.transform(points[:20] + 0.01))
    run("transform", "map.zarr", "new.npy", "placed.npy")
    assert np.array_equal(np.load("placed.npy"), wanted.transform(points[:20] + 0.01))

    psmds("export", "map.zarr", "map.csv")
    with open("map.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "x1", "x2", "point_stress"]
    table = np.array([row[1:] for row in rows], float)
    assert np.array_equal(table, np.column_stack((wanted.embedding_, wanted.point_stress_)))
    facts = json.loads(psmds("info", "map.zarr", "--json"))
    assert (facts["n_landmarks"], facts["seed"], facts["metric"]) == (40, 3, "euclidean")
    assert facts["normalized_stress"] == wanted.normalized_stress_


def test_from_a_matrix_with_every_refinement(place, points):
    psmds("ingest", "matrix.npy", "matrix.zarr", "-q")
    for refine in ("none", "panel", "full"):
        wanted = LandmarkMDS(n_landmarks=40, refine=refine, random_state=0).fit(squareform(pdist(points)))
        for source in ("matrix.npy", "matrix.zarr"):
            out = run("fit", source, "map.zarr", "-S", 40, "--refine", refine, "--overwrite")
            assert np.array_equal(LandmarkMDS.load("map.zarr").embedding_, wanted.embedding_)
            assert ("over all pairs" in out) == (refine == "full")
    dissimilarities = cdist(points[:20] + 0.01, points[wanted.landmarks_])
    np.save("near.npy", dissimilarities)
    run("transform", "map.zarr", "near.npy", "near-placed.npy")
    assert np.array_equal(np.load("near-placed.npy"), wanted.transform(dissimilarities))


def test_a_map_that_does_not_know_its_run_is_not_taken_for_finished(place):
    LandmarkMDS(n_landmarks=30, random_state=0).fit("matrix.npy").save("m.zarr")
    assert "already holds a result" in refused("fit", "matrix.npy", "m.zarr", "-S", 30, "--resume")


def test_options_reach_the_fit(place, points):
    options = [
        "-L",
        3,
        "--landmarks",
        "mine.txt",
        "--starts",
        2,
        "--dtype",
        "float64",
        "--no-evaluation",
        "--threads",
        1,
    ]
    out = run("fit", "points.npy", "map.zarr", "--metric", "cityblock", "--memory-limit", "1 MB", *options)
    wanted = LandmarkMDS(
        3, landmarks=range(5, 35), n_init=2, dtype="float64", evaluate=False, metric="cityblock", random_state=0
    ).fit(points)
    saved = LandmarkMDS.load("map.zarr")
    assert np.array_equal(saved.embedding_, wanted.embedding_)
    assert saved.model_.dtype == "float64"
    assert "normalized stress  not measured: no pairs were held out" in out
    assert "nan" not in out
    assert (
        run("fit", "points.npy", "quiet.zarr", "--metric", "cityblock", "-S", 30, "--selection", "maxmin", "-q") == ""
    )
    assert LandmarkMDS.load("quiet.zarr").model_.facts["selection"] == "maxmin"


@pytest.mark.parametrize("selection", ["random", "maxmin"])
def test_a_panel_is_written_and_embedded(place, points, selection):
    out = run("panel", "points.npy", "panel.zarr", "--metric", "euclidean", "-S", 40, "--selection", selection)
    assert out == f"panel.zarr: {N} points x 40 landmarks, 23.4 KiB; checked.\n"
    panel = open_panel("panel.zarr")
    np.testing.assert_allclose(panel.array[:], cdist(points, points[panel.landmarks]), rtol=1e-6, atol=1e-7)
    assert json.loads(psmds("info", "panel.zarr", "--json"))["landmarks"].startswith("40, ")
    psmds("ingest", "matrix.npy", "matrix.zarr", "-q")
    run("panel", "matrix.zarr", "other.zarr", "-S", 40, "--selection", selection, "-q")
    assert np.array_equal(open_panel("other.zarr").landmarks, panel.landmarks)
    np.testing.assert_allclose(open_panel("other.zarr").array[:], panel.array[:], atol=1e-6)
    run("fit", "panel.zarr", "map.zarr", "--no-evaluation", "-q")
    wanted = LandmarkMDS(landmarks=panel.landmarks.tolist(), metric="euclidean", evaluate=False, random_state=0).fit(
        points
    )
    assert np.array_equal(LandmarkMDS.load("map.zarr").embedding_, wanted.embedding_)
    assert run("panel", "points.npy", "mine.zarr", "--metric", "euclidean", "--landmarks", "mine.txt", "-q") == ""
    assert open_panel("mine.zarr").landmarks.tolist() == list(range(5, 35))
    assert "already holds" in refused("panel", "points.npy", "mine.zarr", "--metric", "euclidean", "-S", 40)


@pytest.mark.slow
@pytest.mark.wide
def test_on_workers(place, points):
    run("fit", "points.npy", "map.zarr", "--metric", "euclidean", "-S", 40, "--workers", 2, "-q")
    wanted = LandmarkMDS(n_landmarks=40, metric="euclidean", random_state=0).fit(points)
    assert np.array_equal(LandmarkMDS.load("map.zarr").embedding_, wanted.embedding_)


def test_faults_are_sentences(place, points):
    run("fit", "points.npy", "map.zarr", "--metric", "euclidean", "-S", 40, "-q")
    psmds("ingest", "matrix.npy", "matrix.zarr", "-q")
    psmds("fit", "matrix.zarr", "plain.zarr", "--max-epochs", 1, "-q")
    np.save("panel.npy", cdist(points, points[:30]))
    np.save("narrow.npy", points[:, :3])
    spoiled = points.copy()
    spoiled[7] = np.nan
    np.save("spoiled.npy", spoiled)
    Path("words.txt").write_text("one\ntwo\n")
    Path("twice.txt").write_text("1 2 3 2")
    Path("text.npy").write_text("no array")
    Path("binary.txt").write_bytes(b"1\n\xff\xfe\n")
    Path("huge.txt").write_text("1\n" + "9" * 400)
    Path("empty.txt").write_text("\n")
    Path("short.txt").write_text("a\nb\n")
    euclidean = ("--metric", "euclidean")
    cases = [
        (("fit", "points.npy", "map.zarr", *euclidean), "already holds a result"),
        (("fit", "points.npy", "points.npy", *euclidean), "points.npy is given twice"),
        (("fit", "points.npy", "m.zarr"), "in order (--landmarks rows.txt)"),
        (("fit", "panel.npy", "m.zarr", "--landmarks", "binary.txt"), "binary.txt is not a text file"),
        (("fit", "panel.npy", "m.zarr", "--landmarks", "huge.txt"), "'999999999999999999999999999999' is not one"),
        (("panel", "panel.npy", "m.zarr", "--landmarks", "empty.txt"), "empty.txt is empty"),
        (("fit", "points.npy", "m.zarr", *euclidean, "--ids", "short.txt"), "has 2 ids for 150 points"),
        (("panel", "matrix.zarr", "matrix.zarr", "-S", 20, "--overwrite"), "matrix.zarr is given twice"),
        (("fit", "panel.npy", "m.zarr", "--landmarks", "mine.txt"), "instead of 0 from landmark"),
        (("fit", "points.npy", "m.zarr", "--metric", "nearness"), "metric 'nearness' cannot be used"),
        (("fit", "points.npy", "m.zarr", *euclidean, "--refine", "full"), "refine='full' needs the whole matrix"),
        (
            ("fit", "points.npy", "m.zarr", *euclidean, "-S", 151),
            "n_landmarks must be at most the number of points, 150",
        ),
        (("fit", "points.npy", "m.zarr", *euclidean, "-S", 2), "2 landmarks cannot place points in 2 dimensions"),
        (("fit", "points.npy", "m.zarr", *euclidean, "-L", 0), "n_components must be a whole number"),
        (
            ("fit", "points.npy", "m.zarr", *euclidean, "--landmarks", "words.txt"),
            "must list row numbers, one per line",
        ),
        (("fit", "points.npy", "m.zarr", *euclidean, "--landmarks", "twice.txt"), "lists 2 more than once"),
        (("fit", "points.npy", "m.zarr", *euclidean, "--memory-limit", "lots"), "must be a positive number of bytes"),
        (
            ("fit", "points.npy", "m.zarr", *euclidean, "--memory-limit", "9 kB"),
            "a map of 150 points by 150 landmarks needs",
        ),
        (("fit", "points.npy", "m.zarr", *euclidean, "--plot", "map.xyz"), "cannot save a picture"),
        (("fit", "points.npy", "m.zarr", *euclidean, "--plot", "no/map.png"), "its directory does not exist"),
        (("fit", "points.npy", "m.zarr", *euclidean, "--workers", 1, "--cluster", "x"), "are mutually exclusive"),
        (("fit", "spoiled.npy", "m.zarr", *euclidean), "has NaN or infinite features"),
        (("fit", "text.npy", "m.zarr"), "text.npy"),
        (("fit", "missing.npy", "m.zarr"), "'missing.npy' does not exist"),
        (
            ("transform", "plain.zarr", "new.npy", "x.npy"),
            "is the result of 'psmds fit', no landmark map: it has no landmarks",
        ),
        (("transform", "matrix.zarr", "new.npy", "x.npy"), "holds dissimilarities; give the result of a fit"),
        (("transform", "map.zarr", "narrow.npy", "x.npy"), "X has 3 features, but LandmarkMDS is expecting 4 features"),
        (("transform", "map.zarr", "new.npy", "x.xls"), "must end in one of .csv, .tsv, .npy, .parquet"),
        (("transform", "map.zarr", "text.npy", "x.npy"), "text.npy"),
        (("panel", "points.npy", "p.zarr", *euclidean, "-S", 151), "at most the number of points, 150, not 151"),
        (("panel", "points.npy", "map.zarr", *euclidean, "-S", 40), "map.zarr"),
    ]
    for arguments, sentence in cases:
        assert sentence in refused(*arguments), arguments
        assert not Path("m.zarr").exists()
    assert not [path.name for path in place.iterdir() if path.name.startswith(".")]


def test_quality_of_a_landmark_map(place, points):
    run("fit", "matrix.npy", "map.zarr", "-S", 40, "-q")
    psmds("ingest", "matrix.npy", "matrix.zarr", "-q")
    out = psmds("quality", "map.zarr", "--matrix", "matrix.zarr", "--compare", "classical")
    t, d = squareform(pdist(points)), squareform(pdist(LandmarkMDS.load("map.zarr").embedding_))
    assert f"normalized stress  {np.sqrt(((t - d) ** 2).sum() / (t**2).sum()):.6f}" in out


def test_the_map_of_a_matrix_knows_where_that_is(place, points):
    run("fit", "matrix.npy", "map.zarr", "-S", 40, "-q")
    estimated = LandmarkMDS(n_landmarks=40, random_state=0).fit("matrix.npy")
    estimated.save("estimated.zarr")
    said = [psmds("quality", found, "--worst", 0) for found in ("map.zarr", "estimated.zarr")]
    assert said[0] == said[1]
    assert said[0].startswith("normalized stress")


@pytest.mark.parametrize("refine", ["none", "panel"])
def test_an_own_panel(place, points, refine):
    rows = list(range(60, 0, -2))
    panel = cdist(points, points[rows])
    np.save("panel.npy", panel)
    Path("rows.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(map(str, rows)).encode())
    Path("names.txt").write_text("\n".join(f"p{k}" for k in range(N)))
    own = ("panel.npy", "--landmarks", "rows.txt", "--ids", "names.txt")
    out = run("fit", own[0], "map.zarr", *own[1:], "--refine", refine)
    assert out.startswith("7 of the 30 landmarks of the panel are left out of")
    assert ("on pairs of 7 landmarks set aside" in out) == (refine == "none")
    used = [int(line) for line in run("list", "map.zarr").splitlines()]
    assert used == (rows if refine == "none" else [row for row in rows if row in used])
    assert run("list", "map.zarr", "--ids").splitlines() == [f"p{row}" for row in used]
    run("transform", "map.zarr", "panel.npy", "again.npy")
    others = np.setdiff1d(np.arange(N), rows)
    assert np.array_equal(np.load("again.npy")[others], LandmarkMDS.load("map.zarr").embedding_[others])
    run("panel", own[0], "panel.zarr", *own[1:], "-q")
    assert open_panel("panel.zarr").ids[3] == "p3"
    run("fit", "panel.zarr", "other.zarr", "--refine", refine, "-q")
    assert np.array_equal(LandmarkMDS.load("other.zarr").embedding_, LandmarkMDS.load("map.zarr").embedding_)
    assert "the whole matrix" in refused("quality", "map.zarr", group=())


def test_the_command_enters_by_an_entry_point():
    listed = subprocess.run([PSMDS, "--help"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"landmarks +Embed landmarks and place all other points", listed)
    own = subprocess.run([PSMDS, "landmarks", "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("fit", "transform", "panel"):
        assert f"\n  {name}" in own


def test_quality_of_a_map_with_missing_pairs_is_of_the_others(place):
    points = np.random.default_rng(0).random((60, 2))
    matrix = squareform(pdist(points))
    matrix[3, 50] = matrix[50, 3] = np.nan
    np.save("gaps.npy", matrix)
    run("fit", "gaps.npy", "gaps.zarr", "-S", 10, "--selection", "kmeans++", "-q")
    told = psmds("quality", "gaps.zarr")
    residuals = matrix - squareform(pdist(read_result("gaps.zarr").embedding))
    stress = np.sqrt(np.nansum(residuals**2) / np.nansum(matrix**2))
    assert f"normalized stress  {stress:.6f}" in told
    assert "need every pair" in refused("quality", "gaps.zarr", "--compare", "smacof", group=())


@pytest.mark.parametrize("count", [6, 40])
def test_a_map_that_fits_exactly_is_not_told_to_take_more_landmarks(place, count):
    """Also where it takes all of its landmarks to fit."""
    np.save("plane.npy", np.random.default_rng(3).uniform(size=(N, 2)))
    out = run("fit", "plane.npy", "map.zarr", "--metric", "euclidean", "-S", count, "--dtype", "float64")
    assert "normalized stress  0.000000   on held-out pairs" in out
    assert "more may help" not in out


@pytest.mark.parametrize("stress", [0.0, 2e-6, 0.1])
def test_the_advice_about_landmarks_follows_the_curve(stress):
    """Stress that falls with the last landmarks asks for more of them, unless nothing is left of it."""
    curve = np.array([(20, 0.3, 0.28, 0.32), (40, stress, stress, stress)], dtype=CURVE)
    told = _verdict(SimpleNamespace(curve_=curve, stress_is_exact_=False))
    assert told == (
        "Stress still decreases with the number of landmarks: more may help."
        if stress == 0.1
        else "Held-out stress is zero: more landmarks would not help."
    )


@pytest.mark.parametrize(("high", "told"), [(0.52, "too wide"), (0.255, "36 landmarks are as good")])
def test_a_wide_interval_gives_no_advice_about_landmarks(high, told):
    curve = np.array([(36, 0.25, 0.0, 0.6), (72, 0.24, 0.48 - high, high)], dtype=CURVE)
    assert told in _verdict(SimpleNamespace(curve_=curve, stress_is_exact_=False))


@pytest.mark.parametrize(("data", "metric", "changed"), [("points", "euclidean", False), ("plane", "cityblock", True)])
def test_a_refinement_that_changes_nothing_says_so(place, data, metric, changed):
    np.save("plane.npy", np.random.default_rng(3).uniform(size=(N, 2)))
    told = "the refinement left the map as it was: no pass lowered its stress on pairs that it is judged by"
    fit = ("fit", f"{data}.npy", "map.zarr", "--metric", metric, "-S", 20, "--seed", 1)
    out = run(*fit, "--refine", "panel")
    placed = LandmarkMDS(n_landmarks=20, metric=metric, random_state=1).fit(np.load(f"{data}.npy")).embedding_
    assert np.allclose(LandmarkMDS.load("map.zarr").embedding_, placed, rtol=0, atol=1e-4) != changed
    assert (told in out.splitlines()) != changed
    assert json.loads(psmds("info", "map.zarr", "--json"))["refined"] == changed
