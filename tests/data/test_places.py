"""No command loses what a user has: targets that must not be, and those that are not what they seem."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from landmarks import LandmarkMDS
from landmarks.run import LandmarkRun
from psmds_dist import PatternSearchMDS
from psmds_dist.api import embed as run
from psmds_dist.api.results import read_result
from psmds_dist.cli.app import main
from psmds_dist.cli.exits import INTERRUPTED, TRY_AGAIN
from psmds_dist.core.errors import ClusterLost
from psmds_dist.data.store import open_panel, open_rows
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.utils.atomic import moved_aside

SMALL = ["--max-epochs", "3", "-q"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with points, a store, a map, a map through landmarks and a panel."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "points.npy", np.random.default_rng(0).random((60, 5)))
    np.save(folder / "new.npy", np.ones((2, 20)))
    for words in (
        "distances {0}/points.npy {0}/d.zarr",
        "fit {0}/d.zarr {0}/map.zarr --max-epochs 3",
        "landmarks fit {0}/d.zarr {0}/model.zarr -S 20",
        "landmarks panel {0}/d.zarr {0}/panel.zarr -S 20",
    ):
        well([*words.format(folder).split(), "-q"])
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A directory of one's own with the same, to be in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def well(words):
    """What a command says that ends well."""
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found.stdout


def contents(folder):
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def refused(words, folder):
    """The sentence with which a command refuses, after a test that it has changed nothing."""
    before = contents(folder)
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == 1, found.output
    assert contents(folder) == before
    (sentence,) = found.stderr.strip().splitlines()
    return sentence


# --- what is read, and what may be replaced ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "distances points.npy {}",
        "ingest d.zarr {}",
        "fit d.zarr {}",
        "landmarks fit d.zarr {} -S 20",
        "landmarks panel d.zarr {} -S 20",
        "fit d.zarr new.zarr --plot {}.png",
        "landmarks fit d.zarr new.zarr -S 20 --plot {}.png",
        "export map.zarr {}.csv",
        "landmarks transform model.zarr new.npy {}.csv",
    ],
)
def test_nothing_is_written_into_a_store_or_result(place, command):
    Path("link").symlink_to("map.zarr")
    Path("panel.zarr/deep").mkdir()
    for target in ("d.zarr/x", "d.zarr/dissimilarities/x", "map.zarr/x", "panel.zarr/deep/x", "link/x"):
        words = command.format(target).split()
        (given,) = [word for word in words if target in word]
        assert f"{given} lies inside" in refused(words, place)


@pytest.mark.parametrize(
    "command",
    [
        "fit map.zarr/d.zarr map.zarr --overwrite",
        "fit map.zarr/d.zarr/dissimilarities map.zarr --overwrite",
        "landmarks fit map.zarr/d.zarr map.zarr -S 20 --overwrite",
        "landmarks fit map.zarr/points.npy map.zarr -S 20 --metric euclidean --overwrite",
        "distances map.zarr/points.npy map.zarr --overwrite",
        "landmarks panel map.zarr/d.zarr map.zarr -S 20 --overwrite",
    ],
)
def test_a_target_is_not_what_holds_the_input(place, command):
    os.rename("d.zarr", "map.zarr/d.zarr")
    os.rename("points.npy", "map.zarr/points.npy")
    assert "cannot be written because it contains" in refused(command.split(), place)


def test_an_input_is_not_written_over(place):
    Path("same.npy").symlink_to("new.npy")
    for output in ("new.npy", "same.npy"):
        assert "is given twice" in refused(["landmarks", "transform", "model.zarr", "new.npy", output], place)
    os.rename("new.npy", "other.npy")
    for words in (["export", "map.zarr"], ["landmarks", "transform", "model.zarr", "other.npy"]):
        assert "points.npy already exists; choose another path or use --overwrite" in refused(
            [*words, "points.npy"], place
        )
        well([*words, "points.npy", "--overwrite"])
    assert "is given twice" in refused(["fit", "d.zarr", "new.png", "--plot", "new.png"], place)


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("map.zarr", "fit d.zarr map.zarr"),
        ("model.zarr", "landmarks fit d.zarr model.zarr -S 20"),
        ("d.zarr", "distances points.npy d.zarr"),
        ("panel.zarr", "landmarks panel points.npy panel.zarr --metric euclidean -S 20"),
    ],
)
def test_overwriting_spares_what_psmds_did_not_write(place, target, command):
    deeper = next(path.relative_to(target) for path in Path(target).iterdir() if path.is_dir())
    for name in ("notes.txt", f"{deeper}/notes.txt"):
        (place / target / name).write_text("mine")
        assert f"{target} contains {name}, which psmds did not write" in refused(
            [*command.split(), "--overwrite"], place
        )
        os.remove(place / target / name)
    well([*command.split(), "--overwrite", "-q"])


def test_an_older_store_stays_where_there_is_no_room_for_the_next(place, monkeypatch):
    np.save("many.npy", np.random.default_rng(0).random((200, 5)))
    room = {"free": 4 * (200**2 - 60**2) - 1000}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(**room))
    sentence = refused(["distances", "many.npy", "d.zarr", "--overwrite"], place)
    assert "needs about 156.2 KiB, but only" in sentence
    room["free"] += 1000
    well(["distances", "many.npy", "d.zarr", "--overwrite", "-q"])
    assert open_rows("d.zarr").n == 200


# --- targets that are not what they seem ------------------------------------------------------------------------


@pytest.mark.parametrize("points_to", ["real", "nothing", "deep/down"])
def test_links_are_followed(place, points_to):
    """To a directory, to nothing, and to nothing in a directory that is not there."""
    for command, opened in {
        "distances points.npy": open_rows,
        "landmarks panel d.zarr -S 20": open_panel,
        "fit d.zarr --max-epochs 3": read_result,
    }.items():
        if points_to == "real":
            Path(points_to).mkdir()
        Path("link").symlink_to(points_to)
        for again in ([], ["--overwrite"]):
            well([*command.split(), "link", "-q", *again])
        assert os.readlink("link") == points_to
        assert not Path(points_to).is_symlink()
        opened(points_to)
        shutil.rmtree(points_to)
        os.remove("link")
    assert not list(place.rglob(".*"))


@pytest.mark.parametrize(
    "command", ["fit ../../d.zarr", "distances ../../points.npy", "landmarks panel ../../d.zarr -S 20"]
)
def test_what_can_be_no_target(place, monkeypatch, command):
    (place / "empty/inner").mkdir(parents=True)
    monkeypatch.chdir(place / "empty/inner")
    for target in (".", "", ".."):
        assert "is or holds the working directory" in refused([*command.split(), target], place)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    for target, sentence in {
        "loop": "is a link to itself",
        "/proc": "is a mount point",
        "file/x": "file is not a writable directory",
        "n" * 240: "is not a writable directory (File name too long)",
    }.items():
        assert sentence in refused([*command.split(), target], place)


def test_a_slash_at_the_end_is_no_part_of_a_name(place):
    kept = DirectoryCheckpoint("new.zarr.checkpoint", every=0)
    kept.attach({"a": 1})
    kept.stream("solve").save(1, lambda: {"x": np.ones(3)})
    assert "new.zarr.checkpoint holds the checkpoint of an unfinished run" in refused(
        ["fit", "d.zarr", "new.zarr/"], place
    )
    well(["fit", "d.zarr", "other.zarr/", *SMALL])
    assert sorted(os.listdir("other.zarr")) == sorted(os.listdir("map.zarr"))


def test_a_demo_takes_no_directory_of_somebody_else(place):
    assert "is not empty and not from an earlier demo" in refused(["demo", "--output", "."], place)


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [PatternSearchMDS, LandmarkMDS])
def test_a_checkpoint_leaves_what_others_have_put_there(place, make):
    """Even archives that are named like those of a run, and the input itself."""
    kept = place / "kept"
    kept.mkdir()
    (kept / "notes").write_text("mine")
    (kept / "notes.000000001.npz").write_text("mine")
    np.savez(kept / "mine.npz", a=np.ones(3))
    np.savez(kept / "solve-0.000000001.npz", a=np.ones(3))
    os.rename("d.zarr", kept / "d.zarr")
    before = contents(kept)
    (kept / ".0123456789ab-solve-0.000000002.npz").write_bytes(bytes(100))  # left by a killed process
    DirectoryCheckpoint(kept, every=0).stream("solve-0").save(3, lambda: {"x": np.ones(3)})
    assert len(contents(kept)) == len(before) + 2
    DirectoryCheckpoint(kept, resume=True).remove()
    make(checkpoint=kept).fit(kept / "d.zarr")
    assert contents(kept) == before


def test_a_command_leaves_what_others_have_put_into_its_checkpoint(place):
    kept = place / "new.zarr.checkpoint"
    kept.mkdir()
    np.savez(kept / "mine.npz", a=np.ones(3))
    before = contents(kept)
    well(["fit", "d.zarr", "new.zarr", "-q"])
    well(["fit", "d.zarr", "new.zarr", "-q", "--overwrite"])
    assert contents(kept) == before


def test_going_on_replaces_no_map_of_another_run(place, monkeypatch):
    """A checkpoint of one run, and at its target the finished map of another."""
    monkeypatch.setattr(
        DirectoryCheckpoint.__init__, "__kwdefaults__", {**DirectoryCheckpoint.__init__.__kwdefaults__, "every": 0.0}
    )

    def cut(*given, **how):
        raise OSError("cut short")

    with monkeypatch.context() as patch:
        patch.setattr("psmds_dist.api.results.write_result", cut)
        assert CliRunner().invoke(main, ["fit", "d.zarr", "new.zarr", "--seed", "1", "-q"]).exit_code == 1
    assert Path("new.zarr.checkpoint").exists()
    mds = PatternSearchMDS(random_state=2).fit("d.zarr")
    mds.save("new.zarr")
    resume = ["fit", "d.zarr", "new.zarr", "--seed", "1", "--resume", "-q"]
    assert "is the finished map of another run (configuration.seed was 2, is 1)" in refused(resume, place)
    PatternSearchMDS(random_state=1).fit("d.zarr").save("new.zarr", overwrite=True)
    well(resume)
    assert not Path("new.zarr.checkpoint").exists()


# --- what comes in between ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fit d.zarr", "landmarks fit d.zarr -S 20"])
def test_a_finished_map_is_not_lost_to_what_has_come_to_its_place(place, monkeypatch, command):
    (place / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))

    def meanwhile(real):
        def then(*given, **how):
            found = real(*given, **how)
            Path("new.zarr").mkdir()
            Path("new.zarr/notes").write_text("mine")
            return found

        return then

    monkeypatch.setattr(run, "embed", meanwhile(run.embed))
    monkeypatch.setattr(LandmarkRun, "fit_on", meanwhile(LandmarkRun.fit_on))
    found = CliRunner().invoke(main, [*command.split(), "new.zarr", "-q"])
    assert found.exit_code == 1
    (saved,) = (place / "tmp").iterdir()
    assert "new.zarr exists and is not a result; it will not be overwritten." in found.stderr
    assert f"the result was saved in {saved} instead" in found.stderr
    assert os.listdir("new.zarr") == ["notes"]
    well(["export", saved, "new.csv"])
    assert len(Path("new.csv").read_text().splitlines()) == 61


def test_an_interrupt_after_a_successor_is_there_leaves_one_of_them(tmp_path):
    for name in ("map", "next"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()

    def replaced():
        with moved_aside(tmp_path / "map"):
            os.rename(tmp_path / "next", tmp_path / "map")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replaced()
    assert os.listdir(tmp_path) == ["map"]
    assert os.listdir(tmp_path / "map") == ["next"]


INTERRUPTING = """
import os, signal, sys
import importlib
from psmds_dist.cli import app

module = importlib.import_module("psmds_dist.{module}")

def interrupted(*given, **how):
    os.kill(os.getpid(), signal.SIGINT)

module.{name} = interrupted
app.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        ("api.embed", "warm_up", "fit d.zarr"),
        ("data.store", "create", "distances points.npy"),
        ("data.store", "describe", "info"),
    ],
)
def test_an_interrupt_promises_only_what_is_kept(place, module, name, command):
    script = INTERRUPTING.format(module=module, name=name)
    words = [*command.split(), "new.zarr"]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == INTERRUPTED
    assert done.stderr == "Error: interrupted.\n"
    assert not Path("new.zarr").exists()


def test_what_is_written_is_said(place):
    assert well(["export", "map.zarr", "map.csv"]) == "map.csv: coordinates of map.zarr\n"
    assert (
        well(["landmarks", "transform", "model.zarr", "new.npy", "new.csv"])
        == "new.csv: 2 points placed into model.zarr\n"
    )


@pytest.mark.parametrize(
    ("kept", "how"),
    [
        (False, "no checkpoint was saved; rerun the same command"),
        (True, "rerun the same command with --resume to continue"),
    ],
)
def test_a_lost_cluster_promises_only_what_is_kept(place, monkeypatch, kept, how):
    def lost(*given, checkpoint, **options):
        if kept:
            checkpoint.stream("solve-0").save(1, lambda: {"x": np.ones(3)}, now=True)
        raise ClusterLost("the cluster is gone.")

    monkeypatch.setattr(run, "embed", lost)
    found = CliRunner().invoke(main, ["fit", "d.zarr", "new.zarr", "-q"])
    assert (found.exit_code, found.stderr) == (TRY_AGAIN, f"Error: the cluster is gone; {how}.\n")
    assert Path("new.zarr.checkpoint").exists() == kept
