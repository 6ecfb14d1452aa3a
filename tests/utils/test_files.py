"""What appears whole or not at all, and what killed processes have left beside it."""

import pytest

from psmds_dist.utils import atomic
from psmds_dist.utils.atomic import atomic_directory, atomic_file, moved_aside

LEFT = ".map.zarr.new-0123456789ab"
OLD = ".map.zarr.old-ba9876543210"
FOREIGN = ".map.zarr.new-aaaaaaaaaaaa"
OTHERS = [
    FOREIGN,
    ".map.zarr.new-mine",
    ".map.zarr2.new-0123456789ab",
    ".other.old-0123456789ab",
    "map.zarr.checkpoint",
]


def build(path, contents="new"):
    with atomic_directory(path) as fresh:
        fresh.mkdir()
        (fresh / "part").write_text(contents)


@pytest.fixture
def target(tmp_path):
    """A place beside which killed processes have left things, and others have theirs."""
    for name in [LEFT, OLD, *OTHERS]:
        (tmp_path / name).mkdir()
        (tmp_path / name / ("part" if name == FOREIGN else "zarr.json")).write_text("left")
    return tmp_path / "map.zarr"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_killed_processes_left_goes_when_the_work_is_done(target):
    build(target)
    assert names(target.parent) == sorted([*OTHERS, "map.zarr"])
    assert (target / "part").read_text() == "new"


def test_a_directory_that_was_hardly_begun_goes_too(target):
    """Zarr writes the first file of a group under another name."""
    (target.parent / LEFT / "zarr.json").rename(target.parent / LEFT / "zarr.0123.partial")
    build(target)
    assert names(target.parent) == sorted([*OTHERS, "map.zarr"])


def test_nothing_goes_before(target):
    with pytest.raises(FileNotFoundError), atomic_directory(target):
        pass  # nothing has been built
    assert names(target.parent) == sorted([*OTHERS, LEFT, OLD])


@pytest.mark.parametrize("name", ["_sync", "_is_group"])
def test_an_interrupt_after_the_work_is_done_leaves_nothing_either(target, monkeypatch, name):
    """Right after the rename, or while leftovers are removed; the next command finds the work done."""
    function, came = getattr(atomic, name), []

    def interrupt_once(path):
        if target.exists() and not came:
            came.append(path)
            raise KeyboardInterrupt
        return function(path)

    monkeypatch.setattr(atomic, name, interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        build(target)
    assert came
    assert names(target.parent) == sorted([*OTHERS, "map.zarr"])


def test_names_are_no_patterns(tmp_path):
    for name in (".[ab].new-0123456789ab", ".a.new-0123456789ab"):
        (tmp_path / name).mkdir()  # empty, as when a process was killed at once
    build(tmp_path / "[ab]")
    assert names(tmp_path) == [".a.new-0123456789ab", "[ab]"]


def test_an_older_directory_comes_back_when_its_successor_does_not(tmp_path):
    build(tmp_path / "map", "old")
    with pytest.raises(KeyboardInterrupt), moved_aside(tmp_path / "map"):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["map"]
    assert (tmp_path / "map" / "part").read_text() == "old"


def test_a_file_that_is_not_finished_is_not_there(tmp_path):
    with pytest.raises(TypeError), atomic_file(tmp_path / "state") as fresh, fresh.open("wb") as file:
        file.writelines([b"half", None])
    assert names(tmp_path) == []
    with atomic_file(tmp_path / "state") as fresh:
        fresh.write_bytes(b"whole")
    assert (tmp_path / "state").read_bytes() == b"whole"
    with atomic_file(tmp_path / "state") as fresh:
        fresh.write_bytes(b"newer")
        assert (tmp_path / "state").read_bytes() == b"whole"
    assert (tmp_path / "state").read_bytes() == b"newer"
    assert names(tmp_path) == ["state"]
