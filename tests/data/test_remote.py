"""Stores at URLs: on a server of S3 and one of HTTP, both on this machine."""

import pickle
import threading
import time
from types import coroutine

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, StorageError, build, open_points, open_rows
from psmds_dist.api.watch import RunState, read_status
from psmds_dist.cli.session import require_output
from psmds_dist.data.store import create, describe, read_result, results, unfinished_at, write_result
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.executor.local import InProcessExecutor
from psmds_dist.solver.checkpoint import DirectoryCheckpoint, describe_run
from psmds_dist.solver.state_file import read_state
from psmds_dist.utils import lease
from psmds_dist.utils.locks import exclusive_lock
from psmds_dist.utils.remote import Attempts, Outage, open_objects, patiently_async
from tests.servers import BUCKET, KEY, SECRET, file_server, line_to, s3_environment, s3_server

obstore = pytest.importorskip("obstore")

N = 12
IDS = [f"é {k}" for k in range(N)]


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """A file of points."""
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(5).normal(size=(N, 3)))
    return path


@pytest.fixture(scope="module")
def values(points):
    """Distances between the points."""
    return squareform(pdist(np.load(points))).astype("float32")


@pytest.fixture
def few(tmp_path):
    """Another file of points."""
    np.save(tmp_path / "few.npy", np.eye(4))
    return tmp_path / "few.npy"


@pytest.fixture(scope="module")
def s3():
    with s3_server() as port:
        yield port


@pytest.fixture
def bucket(s3, request):
    """A URL of its own for each test."""
    return f"s3://{BUCKET}/{request.node.name.partition('[')[0]}"


@pytest.fixture(scope="module")
def url(s3, points):
    """A store in the bucket that nobody changes."""
    place = f"s3://{BUCKET}/shared/matrix.zarr"
    build(open_points(points), place, InProcessExecutor(1), ids=IDS, metric="euclidean")
    return place


def all_rows(source):
    out = np.empty(source.shape, source.dtype)
    source.read(0, source.n, out)
    return out


def objects(url):
    return {meta["path"]: meta for meta in obstore.list(open_objects(url)).collect()}


def test_a_store_at_a_url_holds_what_one_in_a_directory_does(url, points, values, tmp_path):
    build(open_points(points), tmp_path / "local.zarr", InProcessExecutor(1), ids=IDS, metric="euclidean")
    here, there = open_rows(tmp_path / "local.zarr"), open_rows(url)
    assert there.location == url
    assert there.ids == IDS
    assert not there.is_stale()
    assert (all_rows(there) == all_rows(here)).all()
    np.testing.assert_allclose(all_rows(there), values, rtol=1e-6, atol=1e-7)
    assert there.load_check()["digest"] == here.load_check()["digest"]
    assert describe(url)["points"] == N
    some = np.array([7, 3])
    assert (open_rows(f"{url}/dissimilarities").take(some) == here.take(some)).all()
    assert not [name for name in objects(f"s3://{BUCKET}/shared") if name.endswith(".lock")]


def test_credentials_are_in_no_pickle_and_no_object(url):
    rows = open_rows(url)
    written = b"".join(obstore.get(open_objects(url), name).bytes().to_bytes() for name in objects(url))
    for text in (pickle.dumps(rows), pickle.dumps(rows.array.store), repr(rows).encode(), written):
        assert KEY.encode() not in text
        assert SECRET.encode() not in text
    assert (pickle.loads(pickle.dumps(rows)).take(np.arange(3)) == rows.take(np.arange(3))).all()


@pytest.mark.parametrize("url", ["s3://key:secret@b/m.zarr", "https://h/m.zarr?X-Amz-Signature=secret"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url):
    with pytest.raises(InputError, match="variables of the environment") as refusal:
        open_rows(url)
    assert "secret@" not in str(refusal.value)
    assert "Signature=" not in str(refusal.value)


def test_chunks_are_fetched_ahead_of_their_reads_and_once(s3, values, monkeypatch):
    store = RemoteStore(f"s3://{BUCKET}/tall.zarr", read_only=False)
    zarr.create_array(store, data=values, chunks=(2, N), compressors=None)
    rows = open_rows(f"s3://{BUCKET}/tall.zarr")
    asked = []
    get = obstore.get
    monkeypatch.setattr(obstore, "get", lambda store, key: asked.append(key) or get(store, key))
    monkeypatch.setattr(obstore, "get_async", lambda store, key: pytest.fail(f"{key} was fetched again"))
    rows.prefetch(4, 8)
    out = np.empty((4, N), "float32")
    rows.read(4, 8, out)
    assert asked == ["c/2/0", "c/3/0"]
    assert (out == values[4:8]).all()


@pytest.mark.wide
def test_a_store_that_is_not_finished_is_continued_and_another_is_refused(bucket, points, few):
    url = f"{bucket}/m.zarr"
    source = open_points(points)
    target = create(url, N, "float32", source_fingerprint=source.content_id)
    rows = np.empty((N, N), "float32")
    source.read(0, N, rows)
    lo, hi = target.layout.bounds(0)
    target.write(0, rows[lo:hi])
    assert unfinished_at(url).blocks == 1
    with pytest.raises(InputError, match="is unfinished"):
        open_rows(url)
    with pytest.raises(InputError, match="already holds an unfinished store of another source"):
        create(url, N, "float32", source_fingerprint="another")
    before = objects(url)["dissimilarities/c.0.0"]["last_modified"]
    time.sleep(1.1)
    build(source, url, InProcessExecutor(1))
    assert objects(url)["dissimilarities/c.0.0"]["last_modified"] == before  # not written again
    assert (all_rows(open_rows(url)) == rows).all()
    build(open_points(few), url, InProcessExecutor(1), overwrite=True)
    assert open_rows(url).n == 4


@pytest.mark.wide
def test_a_refused_matrix_leaves_nothing_and_foreign_objects_stay(bucket, few):
    values = np.ones((9, 9), "float32") - np.eye(9, dtype="float32")
    values[2, 5] = 7
    store = RemoteStore(f"{bucket}/asymmetric", read_only=False)
    zarr.create_array(store, data=values)
    with pytest.raises(InputError, match="symmetric"):
        build(open_rows(store.url), f"{bucket}/m.zarr", InProcessExecutor(1))
    assert not objects(f"{bucket}/m.zarr")
    with pytest.raises(InputError, match="exists and is not a dissimilarity store"):
        build(open_points(few), store.url, InProcessExecutor(1), overwrite=True)
    obstore.put(open_objects(f"{bucket}/mine"), "notes.txt", b"mine")
    with pytest.raises(InputError, match=r"contains notes\.txt"):
        build(open_points(few), f"{bucket}/mine", InProcessExecutor(1), overwrite=True)
    assert list(objects(f"{bucket}/mine")) == ["notes.txt"]


@pytest.mark.wide
def test_a_damaged_object_is_told(bucket, points):
    url = f"{bucket}/m.zarr"
    build(open_points(points), url, InProcessExecutor(1))
    inside, (chunk,) = open_objects(url), [name for name in objects(url) if name.startswith("dissimilarities/c.0")]
    content = bytearray(obstore.get(inside, chunk).bytes().to_bytes())
    content[10] ^= 1
    rows = open_rows(url)
    obstore.put(inside, chunk, bytes(content))
    assert rows.is_stale()
    with pytest.raises(InputError, match="damaged"):
        all_rows(open_rows(url))
    obstore.delete(inside, chunk)
    with pytest.raises(InputError, match="lacks 1 of its 12 chunks"):
        open_rows(url)


@pytest.mark.wide
def test_one_process_writes_to_a_url_at_a_time(bucket, monkeypatch):
    url = f"{bucket}/m.zarr"
    monkeypatch.setattr(lease, "LEASE", 0.5)
    monkeypatch.setattr(lease, "INTERVAL", 0.1)
    told = []

    def other():
        try:
            with exclusive_lock(url):
                told.append("taken")
        except StorageError as error:
            told.append(str(error))

    with exclusive_lock(url), exclusive_lock(url):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "is being written by process" in told.pop()
    other()
    assert told == ["taken"]
    assert not objects(bucket)


@pytest.mark.wide
def test_the_lock_of_a_process_that_was_killed_is_taken_over_and_its_claim_is_lost(bucket, monkeypatch):
    from psmds_dist.core.errors import OwnershipLost
    from psmds_dist.utils.remote_locks import RemoteClaim, _take

    monkeypatch.setattr(lease, "LEASE", 0.2)
    file = f"{bucket}/.m.zarr.lock"
    killed = _take(f"{bucket}/m.zarr", file)  # without a heartbeat
    assert isinstance(killed, RemoteClaim)
    with exclusive_lock(f"{bucket}/m.zarr"):
        assert not killed.holds()
        killed.beat(1)  # writes nothing
        with pytest.raises(OwnershipLost, match="was taken over by process"):
            killed.require()


@pytest.mark.wide
def test_a_line_that_is_cut_for_a_while_delays_a_read(url, s3):
    with line_to(s3) as line, s3_environment(line.port):
        rows = open_rows(url)
        line.cut()
        threading.Timer(1.0, line.restore).start()
        began = time.monotonic()
        found = all_rows(rows)
        assert time.monotonic() - began > 0.9
    assert (found == all_rows(open_rows(url))).all()


@pytest.mark.wide
def test_an_end_is_told_where_repeating_does_not_help(url, s3, few, monkeypatch):
    monkeypatch.setenv("PSMDS_RETRY_SECONDS", "0.5")
    with line_to(s3) as line, s3_environment(line.port):
        rows = open_rows(url)
        line.cut()
        with pytest.raises(StorageError, match=r"could not be reached for 1 s .*; check the network.* AWS_ACC"):
            all_rows(rows)
        with pytest.raises(StorageError, match="could not be reached"):
            open_rows(url)
        with pytest.raises(StorageError, match="could not be reached") as end:
            build(open_points(few), f"s3://{BUCKET}/other.zarr", InProcessExecutor(1))
    assert SECRET not in str(end.value)


def test_what_is_not_there_is_told_at_once(s3, few):
    with pytest.raises(InputError, match="does not exist"):
        open_rows(f"s3://{BUCKET}/nothing.zarr")
    with pytest.raises(InputError, match="does not exist"):
        open_rows("s3://no-such-bucket/m.zarr")
    with pytest.raises(InputError, match="is a whole bucket"):
        build(open_points(few), f"s3://{BUCKET}", InProcessExecutor(1))


def test_files_are_written_to_local_directories():
    with pytest.raises(InputError, match="^s3://b/map.csv is a URL, but a file is written to a local directory"):
        require_output("s3://b/map.csv", overwrite=True)


def test_an_outage_ends_with_any_answer(monkeypatch):
    monkeypatch.setenv("PSMDS_RETRY_SECONDS", "0.05")
    outage = Outage()
    attempts = Attempts("s3://b/m.zarr", outage)
    attempts.pause_after(OSError("no route"))
    with pytest.raises(FileNotFoundError):
        attempts.pause_after(FileNotFoundError("m.zarr"))
    time.sleep(0.1)
    assert Attempts("s3://b/n.zarr", outage).pause_after(OSError("no route")) <= 0.05


def test_a_request_that_is_dropped_imports_nothing(monkeypatch):
    @coroutine
    def unanswered():
        yield

    waiting = patiently_async("s3://b/m.zarr", unanswered, Outage())
    waiting.send(None)
    monkeypatch.setattr("psmds_dist.utils.remote.failures", lambda: pytest.fail("imported"))
    waiting.close()


def test_a_missing_library_is_told_with_its_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(InputError, match=r"s3://b/m\.zarr needs obstore.*: pip install 'psmds-dist\[remote\]'"):
        open_rows("s3://b/m.zarr")


@pytest.mark.wide
def test_stores_and_arrays_are_read_by_plain_http(tmp_path, points, values):
    build(open_points(points), tmp_path / "m.zarr", InProcessExecutor(1), ids=IDS)
    zarr.create_array(tmp_path / "tiles.zarr", data=values, chunks=(3, 4))
    with file_server(tmp_path) as root:
        rows = open_rows(f"{root}/m.zarr")
        assert rows.ids == IDS
        assert (all_rows(rows) == all_rows(open_rows(tmp_path / "m.zarr"))).all()
        assert (all_rows(open_rows(f"{root}/tiles.zarr")) == values).all()
        with pytest.raises(InputError, match="cannot be written by HTTP"):
            build(open_points(points), f"{root}/new.zarr", InProcessExecutor(1))
        (tmp_path / "tiles.zarr" / "c" / "1" / "1").unlink()
        with pytest.raises(InputError, match="lacks 1 of its 12 chunks"):
            open_rows(f"{root}/tiles.zarr")
        zarr.create_group(tmp_path / "group.zarr").create_array("a", data=values)
        with pytest.raises(InputError, match="cannot list what a group holds"):
            open_rows(f"{root}/group.zarr")


ARRAYS = {"embedding": np.arange(6.0).reshape(3, 2)}


def test_a_map_is_written_at_a_url_and_replaced_on_request_alone(bucket):
    write_result(f"{bucket}/map", ARRAYS, {"a": 1}, ["x", "y", "z"])
    arrays, attributes, ids = read_result(f"{bucket}/map/")
    assert (arrays["embedding"] == ARRAYS["embedding"]).all()
    assert (attributes["a"], ids) == (1, ["x", "y", "z"])
    with pytest.raises(InputError, match="already holds a result; choose another path or use overwrite=True"):
        write_result(f"{bucket}/map", ARRAYS, {"a": 2})
    write_result(f"{bucket}/map", ARRAYS, {"a": 3}, overwrite=True)
    assert read_result(f"{bucket}/map")[1:] == ({"a": 3}, None)
    obstore.put(open_objects(bucket), "map/notes.txt", b"mine")
    with pytest.raises(InputError, match="contains notes.txt, which psmds did not write"):
        write_result(f"{bucket}/map", ARRAYS, {}, overwrite=True)
    assert sorted(objects(bucket)) == [
        "map/embedding/c/0/0",
        "map/embedding/zarr.json",
        "map/notes.txt",
        "map/zarr.json",
    ]


def test_a_map_that_was_copied_to_a_url_is_read_there(s3, bucket, tmp_path):
    write_result(tmp_path / "map", ARRAYS, {"a": 1})
    RemoteStore(f"{bucket}/map", read_only=False).upload(tmp_path / "map", last="zarr.json")
    assert read_result(f"{bucket}/map")[1] == {"a": 1}


def test_a_map_whose_server_is_gone_is_saved_on_this_machine(s3, bucket, monkeypatch, tmp_path):
    monkeypatch.setenv("PSMDS_RETRY_SECONDS", "0.1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with line_to(s3) as line, s3_environment(line.port):
        monkeypatch.setattr(RemoteStore, "remove_all", lambda store: line.cut())  # after all that is checked before
        with pytest.raises(StorageError, match=r"could not be reached for .*; the result was saved in .*psmds-"):
            write_result(f"{bucket}/map", ARRAYS, {"a": 1})
        line.restore()
    (saved,) = tmp_path.glob("psmds-*")
    assert read_result(saved)[1] == {"a": 1}


def test_a_map_that_is_replaced_while_it_is_read_is_read_again(bucket, monkeypatch):
    write_result(f"{bucket}/map", ARRAYS, {"a": 1})
    read, seen = results._read, []

    def replaced(place):
        found = read(place)
        if not seen:
            write_result(place, ARRAYS, {"a": 2}, overwrite=True)
        seen.append(found[1])
        return found

    monkeypatch.setattr(results, "_read", replaced)
    assert read_result(f"{bucket}/map")[1] == {"a": 2}
    assert seen == [{"a": 1}, {"a": 2}]


def test_an_interrupted_fit_goes_on_from_a_url_to_the_same_bits(bucket, values, monkeypatch):
    monkeypatch.setitem(DirectoryCheckpoint.__init__.__kwdefaults__, "every", 0.0)
    folder = f"{bucket}/run.checkpoint"

    def stop(event):
        if event.epoch == 4:
            raise RuntimeError("enough")

    whole = PatternSearchMDS(random_state=3).fit(values)
    cut = PatternSearchMDS(random_state=3, checkpoint=folder, on_epoch=stop)
    with pytest.raises(RuntimeError, match="enough"):
        cut.fit(values)
    assert any(name.endswith(".npz") for name in objects(folder))
    assert describe_run(folder)["newest states"]
    status = read_status(folder)
    assert (status.state, status.facts["epoch"]) == (RunState.FAILED, 4)
    with pytest.raises(InputError, match=f"{folder} holds the checkpoint of an unfinished run"):
        cut.fit(values)
    resumed = cut.set_params(on_epoch=None, resume=True).fit(values)
    np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)
    assert not objects(folder)


def test_a_damaged_state_at_a_url_is_skipped_and_removed(bucket):
    said = []
    kept = DirectoryCheckpoint(f"{bucket}/kept", every=0, say=said.append)
    kept.attach({"a": 1})
    for number in (1, 2):
        kept.stream("solve").save(number, lambda number=number: {"x": np.full(3, number)})
    newest = kept.folder / "solve.000000002.npz"
    with newest.open() as file:
        newest.write_bytes(file.read()[:-1] + b"?")
    assert (kept.stream("solve").last()["x"] == 1).all()
    assert "solve.000000002.npz is damaged" in said[0]
    kept.remove()
    assert not objects(kept.folder.url)


def test_a_server_that_is_gone_is_not_taken_for_damage(s3, bucket, monkeypatch):
    kept = DirectoryCheckpoint(f"{bucket}/kept", every=0)
    kept.attach({"a": 1})
    kept.stream("solve").save(1, lambda: {"x": np.arange(3)})
    obstore.put(open_objects(bucket), "kept/other.000000001.npz", b"PK\x03\x04 of somebody else")
    monkeypatch.setenv("PSMDS_RETRY_SECONDS", "0.1")
    with line_to(s3) as line, s3_environment(line.port):
        line.cut()
        with pytest.raises(StorageError, match="could not be reached"):
            DirectoryCheckpoint(f"{bucket}/kept", resume=True)
        with pytest.raises(StorageError, match="could not be reached"):
            read_state(kept.folder / "solve.000000001.npz")
        with pytest.raises(StorageError, match="could not be reached"):
            read_status(f"{bucket}/kept")
    assert (kept.stream("solve").last()["x"] == np.arange(3)).all()
    kept.remove()
    assert sorted(objects(f"{bucket}/kept")) == ["other.000000001.npz"]
