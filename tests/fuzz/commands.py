"""Entries of the command line, run in this process and sometimes in a subprocess."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import open_rows, read_result
from psmds_dist.cli.app import main
from tests.fuzz import matrices
from tests.fuzz.choosing import Chooser, seldom
from tests.fuzz.judging import FuzzFailure
from tests.fuzz.library import ids_of, snapshot
from tests.fuzz.oracle import Verdict, on_matrix, require_right_map, require_sentence, worse

REAL_PROCESSES = 150
"""One in this many commands runs in a subprocess."""


@dataclass(frozen=True)
class Ended:
    """Outcome of a command."""

    code: int
    out: str
    err: str


def called(arguments: list[str], folder: Path, *, process: bool) -> Ended:
    """Run a command; any exception other than an exit is a failure."""
    if process:
        done = subprocess.run(
            [sys.executable, "-m", "psmds_dist", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise FuzzFailure(f"psmds {' '.join(arguments)}: leaked {result.exception!r}") from result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def judged(
    choose: Chooser, arguments: list[Any], verdict: Verdict, story: str, folder: Path, right: Callable[[Ended], None]
) -> str:
    """Run a command and compare the outcome with the verdict."""
    words = [str(argument) for argument in arguments]
    story = f"psmds {' '.join(words)} ({story})"
    end = called(words, folder, process=choose.number(1, REAL_PROCESSES) == REAL_PROCESSES)
    try:
        if end.code == 0:
            right(end)
        else:
            _require_refusal(end)
    except FuzzFailure:
        raise
    except Exception as error:
        raise FuzzFailure(f"{story}: {type(error).__name__}: {error}") from error
    if end.code == 0 and verdict is Verdict.REFUSED:
        raise FuzzFailure(f"{story}: accepted in silence")
    if end.code and verdict is Verdict.RIGHT:
        raise FuzzFailure(f"{story}: refused, though valid: {end.err}")
    return "refused" if end.code else "right"


def _require_refusal(end: Ended) -> None:
    assert end.code in (1, 2), f"exit code {end.code}"
    assert "Traceback" not in end.out + end.err
    assert "Warning" not in end.err, end.err
    *before, sentence = [line for line in end.err.strip().splitlines() if not line.startswith("Note: ")]
    assert sentence.startswith("Error: "), end.err
    require_sentence(sentence)
    assert end.code == 2 or not before, f"more than a sentence: {end.err}"


Table = dict[str, tuple[list[Any], list[Any]]]

RUNNING: Table = {
    "--threads": ([1, 2], [0, -1, "x", 1.5]),
    "--memory-limit": (["1 GiB", "500MB"], ["x", -1, "1 B", "nan", ""]),
    "--cluster": (
        [],
        ["nowhere.json", "nonsense", "local:0", "slurm:nowhere.yaml", "ssh:", "no.such:function", "a.yaml"],
    ),
    "--workers": ([], [0, -1, "x"]),
}
FIT: Table = {
    **RUNNING,
    "--components": ([1, 2, 3], [0, -1, "x", 1.5, 10**6, 10**30]),
    "--seed": ([0, 5, 2**64], [-1, "x", 2**128]),
    "--eps": ([0, 0.5, 1e-4], [-1, "nan", "inf", "x"]),
    "--radius": ([0.5, 2], [0, -1, "nan", "inf", 1e19, "x"]),
    "--radius-tol": ([0.1, 1e-3], [0, -1, "nan", "inf", "x"]),
    "--max-epochs": ([0, 3, 500], [-1, "x", 2.5]),
    "--direction-share": ([1, 0.5], [0, 2, "nan", -1]),
    "--starts": ([1, 2], [0, -1, "x"]),
    "--loss": (["squared"], ["cubic", "", 1]),
    "--weight-power": ([0], ["x", 99, "nan"]),
    "--sample": ([50], [0, "x", 5]),
    "--local": ([0], ["x", 1, -0.5, "nan"]),
    "--weights": ([], ["nowhere.npy", "bad.txt"]),
    "--disconnected": (["refuse", "largest"], ["bridge", ""]),
    "--init": (["random", "auto", "classical", "landmarks"], ["foo", "", "1"]),
    "--dtype": (["float32", "float64"], ["float16", "int", ""]),
    "--plot": ([], ["map.xyz", "no/such/map.png", "map"]),
    "--monotone": ([None], []),
    "--nonsense": ([], [1]),
}
LANDMARKS: Table = {
    **RUNNING,
    "-S": ([8, 10], [0, 1, -1, "x", 10**6]),
    "--landmarks": ([], ["nowhere.txt", "bad.txt", "."]),
    "--selection": (["random", "maxmin", "kmeans++"], ["x", ""]),
    "--components": ([1, 2], [0, -1, "x", 10**6]),
    "--refine": (["none", "full"], ["x", ""]),
    "--starts": ([1, 2], [0, -1, "x"]),
    "--seed": ([0, 5], [-1, "x", 2**128]),
    "--dtype": (["float32", "float64"], ["float16"]),
    "--no-evaluation": ([None], []),
    "--metric": ([], ["nonsense", ""]),
}


def options(choose: Chooser, table: Table) -> tuple[list[Any], Verdict]:
    """Choose up to three options; in one of three cases one of them is wrong."""
    names = sorted({choose.pick(list(table)) for _ in range(choose.number(0, 3))})
    wrong = choose.pick(names) if names and choose.number(1, 4) == 4 else None
    words: list[Any] = []
    verdict = Verdict.RIGHT
    for name in names:
        good, bad = table[name]
        values = bad if name == wrong else good
        if values:
            value = choose.pick(values)
            words += [name] if value is None else [f"{name}={value}" if name.startswith("--") else name]
            words += [] if name.startswith("--") else [value]
            verdict = Verdict.REFUSED if name == wrong else verdict
    return words, verdict


def file_of(choose: Chooser, folder: Path) -> tuple[Path, np.ndarray | None, Verdict, str]:
    """Write a matrix to a file or directory; return the path and the matrix."""
    (folder / "bad.txt").write_text("0\n1\nx\n")
    kind = seldom(
        choose,
        "npy",
        ["text", "empty", "cut short", "pickle", "directory", "nothing", "zip", "store of another", "huge header"],
        8,
    )
    given = matrices.matrix(choose, folder, [])
    a = given.array
    place = folder / "given.npy"
    np.save(place, a, allow_pickle=True)
    content = place.read_bytes()
    if kind == "npy":
        return place, a, Verdict.RIGHT, given.story
    if kind == "text":
        place.write_text("a,b\n0,1\n")
    elif kind == "empty":
        place.write_bytes(b"")
    elif kind == "cut short":
        place.write_bytes(content[: choose.number(0, max(0, len(content) - 1))])
    elif kind == "pickle":
        np.save(place, np.array([{}]), allow_pickle=True)
    elif kind == "directory":
        place.unlink()
        place.mkdir()
    elif kind == "nothing":
        place.unlink()
    elif kind == "zip":
        np.savez(folder / "given.npz", a=np.zeros(3))
        place = folder / "given.npz"
    elif kind == "store of another":
        import zarr

        place.unlink()
        zarr.create_array(place, data=np.zeros((4, 3, 2)))
    elif kind == "huge header":
        place.write_bytes(content.replace(b"'shape': (", b"'shape': (9999999, ", 1))
    return place, None, Verdict.REFUSED, kind


def fit(choose: Chooser, folder: Path) -> str:
    """``psmds fit``."""
    place, a, verdict, story = file_of(choose, folder)
    words, options_verdict = options(choose, FIT)
    rows = "float64" if "--dtype=float64" in words else "float32"
    dims = next((int(w.partition("=")[2]) for w in words if str(w).startswith("--components=") and w[13:].isdigit()), 2)
    own = on_matrix(a, rows, min(dims, 99)) if a is not None else Verdict.REFUSED
    if any(str(word).startswith(("--radius", "--init=landmarks")) for word in words):
        own = worse(own, Verdict.EITHER)  # a radius is in units of the data

    def right(end: Ended) -> None:
        assert a is not None
        found = read_result(folder / "map.zarr")
        require_right_map(
            a,
            rows,
            found.embedding,
            {"normalized_stress": found.stress.normalized_stress, "mse": found.stress.mse},
            bound=np.inf,
        )
        assert "normalized stress" in end.out

    return judged(
        choose, ["fit", place, "map.zarr", *words], worse(verdict, own, options_verdict), story, folder, right
    )


def ingest(choose: Chooser, folder: Path) -> str:
    """``psmds ingest``."""
    place, a, verdict, story = file_of(choose, folder)
    words, options_verdict = options(choose, {**RUNNING, "--dtype": FIT["--dtype"], "--nonsense": FIT["--nonsense"]})
    rows = "float64" if "--dtype=float64" in words else "float32"
    own = on_matrix(a, rows, 0) if a is not None else Verdict.REFUSED
    n = len(a) if a is not None and a.ndim else 0
    names, good = ids_of(choose, n)
    if names is not None:
        (folder / "ids.txt").write_text("\n".join(map(str, names)), encoding="utf-8")
        words += ["--ids", "ids.txt"]
        own = worse(own, Verdict.RIGHT if good else Verdict.REFUSED)
        own = worse(own, Verdict.EITHER) if a is not None and a.ndim == 1 else own

    def right(end: Ended) -> None:
        assert a is not None
        stored = open_rows(folder / "store")
        assert stored.ids == (None if names is None else [" ".join(str(name).split("\n")).strip() for name in names])
        info = called(["info", "store"], folder, process=False)
        assert info.code == 0
        assert f"points               {stored.n}" in info.out

    return judged(
        choose, ["ingest", place, "store", *words], worse(verdict, own, options_verdict), story, folder, right
    )


def distances(choose: Chooser, folder: Path) -> str:
    """``psmds distances``."""
    n = choose.pick([20, 8, 3, 2, 0])
    x = matrices.points(choose, n)
    spoil = seldom(choose, "none", ["nan", "flat", "text", "complex", "square"], 4)
    x = {
        "nan": x * np.nan,
        "flat": x.ravel(),
        "text": x.astype(str),
        "complex": x * 1j,
        "square": squareform(pdist(x)) if n > 1 else x,
    }.get(spoil, x)
    np.save(folder / "x.npy", x)
    words, options_verdict = options(
        choose,
        {
            **RUNNING,
            "--metric": (["euclidean", "cityblock"], ["nonsense", "", "Euclidean!"]),
            "--dtype": FIT["--dtype"],
        },
    )
    good = spoil in ("none", "square") and n >= 3 and len(np.unique(x, axis=0)) > 1

    def right(end: Ended) -> None:
        assert len(np.unique(x, axis=0)) > 1
        metric = "cityblock" if "--metric=cityblock" in words else "euclidean"
        stored = open_rows(folder / "store", "float64")
        found = np.empty((n, n))
        stored.read(0, n, found)
        np.testing.assert_allclose(found, squareform(pdist(x, metric)), rtol=1e-6)
        assert ("looks like a dissimilarity matrix" in end.err) == (spoil == "square")

    return judged(
        choose,
        ["distances", "x.npy", "store", *words],
        worse(Verdict.RIGHT if good else Verdict.REFUSED, options_verdict),
        spoil,
        folder,
        right,
    )


def landmarks(choose: Chooser, folder: Path) -> str:
    """``psmds landmarks fit | panel``, then ``transform``."""
    (folder / "bad.txt").write_text("0\n1\nx\n")
    x = np.random.default_rng(choose.number(0, 99)).normal(size=(30, 3))
    np.save(folder / "x.npy", x)
    np.save(folder / "d.npy", squareform(pdist(x)))
    np.save(folder / "bad.npy", x * np.nan)
    np.save(folder / "new.npy", x[:4])
    kind, command = choose.pick(["x.npy", "d.npy", "bad.npy", "nowhere.npy"]), choose.pick(["fit", "panel"])
    table = {
        k: v
        for k, v in LANDMARKS.items()
        if command == "fit" or k not in ("--components", "--refine", "--starts", "--no-evaluation")
    }
    words, options_verdict = options(choose, table)
    if "-S" not in words:
        words += ["-S", 12]
    if kind != "d.npy" and not any(str(word).startswith("--metric") for word in words):
        words.append("--metric=euclidean")
    good = kind in ("x.npy", "d.npy") and not (kind == "x.npy" and "--refine=full" in words and command == "fit")

    def right(end: Ended) -> None:
        if command == "panel":
            assert called(["info", "out"], folder, process=False).code == 0
            return
        dims = 1 if "--components=1" in words else 2
        assert np.isfinite(read_result(folder / "out").embedding).all()
        assert read_result(folder / "out").embedding.shape == (30, dims)
        new = called(["landmarks", "transform", "out", "new.npy", "new.csv"], folder, process=False)
        assert new.code == (0 if kind == "x.npy" else 1), new
        assert (folder / "new.csv").exists() == (kind == "x.npy")

    return judged(
        choose,
        ["landmarks", command, kind, "out", *words],
        worse(Verdict.RIGHT if good else Verdict.REFUSED, options_verdict),
        kind,
        folder,
        right,
    )


@cache
def workplace() -> Path:
    """Directory with one of everything that commands accept; created once."""
    folder = Path(tempfile.mkdtemp(prefix="psmds-fuzz-workplace-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.save(folder / "x.npy", x)
    np.save(folder / "d.npy", squareform(pdist(x)))
    for words in (
        ["fit", "d.npy", "map"],
        ["ingest", "d.npy", "store"],
        ["landmarks", "fit", "d.npy", "model", "-S", "20"],
        ["export", "map", "out.csv"],
    ):
        assert called(words, folder, process=False).code == 0
    return folder


def others(choose: Chooser, folder: Path) -> str:
    """``psmds info | quality | plot | dimensions | export | landmarks transform`` with any input."""
    shutil.copytree(workplace(), folder, dirs_exist_ok=True)
    np.save(folder / "other.npy", np.zeros((5, 5)))
    (folder / "text.txt").write_text("mine")
    (folder / "empty").mkdir()
    thing = choose.pick(
        [
            "map",
            "store",
            "model",
            "d.npy",
            "out.csv",
            "text.txt",
            "empty",
            "nowhere",
            "",
            ".",
            "map/embedding",
            "store/dissimilarities",
        ]
    )
    command = choose.pick(["info", "quality", "plot", "dimensions", "export", "transform"])
    output = choose.pick(
        ["out.csv", "out.tsv", "out.npy", "OUT.NPY", "out", "out.xlsx", "no/such/out.csv", "empty", "text.txt", ""]
    )
    matrix = choose.pick(
        [
            [],
            ["--matrix", "d.npy"],
            ["--matrix", "store"],
            ["--matrix", "other.npy"],
            ["--matrix", "nowhere"],
            ["--matrix", "map"],
        ]
    )
    extra = choose.pick([[], ["--worst", "3"], ["--worst", "-1"], ["--worst", "x"], ["--nonsense"]])
    measures = choose.pick([[], ["--json"], ["--neighbors", "0"], ["--labels", "nowhere"], ["--truth", "d.npy"]])
    kind = choose.pick([[], ["--kind", "stress"], ["--kind", "pie"], ["--color", "text.txt"], ["--sample", "0"]])
    picture = choose.pick(["out.png", "out.xyz", "no/such/out.png", "empty", "text.txt", ""])
    curve = choose.pick([[], ["--max", "2"], ["--max", "0"], ["--starts", "2"], ["--seed", "-1"]])
    drawn = {"map": [[], ["--kind", "stress"]], "model": [[], ["--kind", "stress"]], "out.csv": [[]], "d.npy": [[]]}
    found = {
        "info": (["info", thing], thing in ("map", "store", "model", "store/dissimilarities")),
        "quality": (
            ["quality", thing, *matrix, *extra, *measures],
            (thing in ("map", "model", "out.csv")[: 3 if matrix else 2])
            and measures in ([], ["--json"], ["--truth", "d.npy"])
            and matrix[1:] not in (["other.npy"], ["nowhere"], ["map"])
            and extra in ([], ["--worst", "3"]),
        ),
        "plot": (
            ["plot", thing, picture, *kind],
            picture == "out.png" and kind in drawn.get(thing, []),
        ),
        "dimensions": (
            ["dimensions", thing, "--starts", "3", "--sample", "6", *curve],
            thing in ("store", "d.npy", "store/dissimilarities") and curve in ([], ["--max", "2"]),
        ),
        "export": (
            ["export", thing, output],
            thing in ("map", "model")
            and output.lower() in ("out.csv", "out.tsv", "out.npy")
            and not (folder / output).exists(),
        ),
        "transform": (
            ["landmarks", "transform", thing, choose.pick(["other.npy", "d.npy", "nowhere", "text.txt"]), output],
            False,
        ),
    }
    words, good = found[command]
    before = snapshot(folder)
    verdict = Verdict.RIGHT if good else Verdict.REFUSED
    verdict = Verdict.EITHER if command == "info" and thing == "map/embedding" else verdict

    def right(end: Ended) -> None:
        if command == "export":
            assert (folder / output).stat().st_size > 0
        else:
            assert end.out.strip()

    how = judged(choose, words, verdict, "", folder, right)
    if how == "refused" and snapshot(folder) != before:
        raise FuzzFailure(f"psmds {words}: refused, but files have changed")
    return how


def full_disk(choose: Chooser, folder: Path) -> str:
    """Commands that write while the file size is limited: one sentence, and existing files stay."""
    import resource

    shutil.copytree(workplace(), folder, dirs_exist_ok=True)
    if choose.number(0, 1):
        (folder / "out.csv").unlink()
    words = choose.pick(
        [
            ["fit", "d.npy", "map2"],
            ["fit", "store", "map", "--overwrite"],
            ["fit", "d.npy", "map2", "--plot", "out.png"],
            ["ingest", "d.npy", "store2"],
            ["distances", "x.npy", "store2"],
            ["export", "map", "out.csv", "--overwrite"],
            ["export", "map", "out.npy"],
            ["landmarks", "fit", "d.npy", "model", "-S", "20"],
            ["landmarks", "panel", "d.npy", "panel", "-S", "20"],
        ]
    )
    most = choose.pick([0, 100, 400, 1000, 3000])
    before = snapshot(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    waste, tempfile.tempdir = tempfile.tempdir, str(folder / "tmp")
    os.mkdir(folder / "tmp")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        end = called([*words, "-q"] if words[0] != "export" else words, folder, process=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        tempfile.tempdir = waste
    try:
        if end.code:
            _require_refusal(end)
            after = snapshot(folder)
            lost = [name for name in before if after.get(name) != before[name]]
            assert not lost, f"lost {lost}"
            assert not [p for p in after if Path(p).name.startswith(".")], f"left {after.keys() - before.keys()}"
        if words[0] == "fit" and words[2] == "map":
            read_result(folder / "map")
    except Exception as error:
        raise FuzzFailure(f"psmds {' '.join(words)} with at most {most} bytes a file: {error}") from error
    return "refused" if end.code else "right"


ENTRIES = {
    "psmds fit": fit,
    "psmds ingest": ingest,
    "psmds distances": distances,
    "psmds landmarks": landmarks,
    "psmds info, quality, export": others,
    "psmds on a full disk": full_disk,
}
