"""What may not happen whatever a file holds, and what others on the machine or network may not do."""

import ast
import json
import os
import pickle
import ssl
import stat
from pathlib import Path

import numcodecs
import numpy as np
import psutil
import pytest
import zarr
from click.testing import CliRunner

from psmds_dist import open_rows, read_result
from psmds_dist.cli.app import main
from psmds_dist.core.types import InputError
from psmds_dist.data.ids import read_ids
from psmds_dist.data.sources import load_npy
from psmds_dist.data.store import open_panel
from psmds_dist.data.store.header import KEY
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import tls_security, write_certificates

SOURCES = [path for name in ("psmds_dist", "landmarks") for path in (Path(__file__).parents[2] / name).rglob("*.py")]


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A pickle that must not be read; numcodecs, which refuses to by itself, is told to trust it."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    place = tmp_path / "sprung"
    yield pickle.dumps(Trap(str(place)))
    assert not place.exists()


def test_the_trap_works(tmp_path):
    pickle.loads(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    assert (tmp_path / "sprung").exists()


def calls(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield (
                f"{node.func.value.id}.{node.func.attr}",
                {word.arg: ast.unparse(word.value) for word in node.keywords},
            )


def test_no_code_of_ours_reads_pickles():
    """But for parcels, which lie within a message that Dask has read as a pickle before."""
    loads = [words for path in SOURCES for name, words in calls(path) if name in ("np.load", "numpy.load")]
    assert len(loads) >= 2
    assert all(words["allow_pickle"] == "False" for words in loads)
    imported = {
        alias.name
        for path in SOURCES
        if path.name != "pickling.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in [*node.names, ast.alias(getattr(node, "module", None) or "")]
    }
    assert "numpy" in imported
    assert not imported & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def test_pickles_in_npy_files_stay_unread(tmp_path, trap):
    np.save(tmp_path / "a.npy", np.array([Trap(str(tmp_path / "sprung"))], dtype=object), allow_pickle=True)
    for read in (load_npy, lambda path: read_ids(path, 1)):
        with pytest.raises(InputError):
            read(str(tmp_path / "a.npy"))


PICKLE = {"id": "pickle"}
WAYS = {
    "compressor": {"compressor": PICKLE},
    "filter": {"filters": [PICKLE, {"id": "delta", "dtype": "<f4"}]},
    "objects": {"dtype": "|O", "filters": [PICKLE], "fill_value": None},
    "text": {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, PICKLE], "fill_value": None},
}


def plant(place, trap, **changes):
    """Turn a Zarr array of format 2 into one whose only chunk is a pickle."""
    array = zarr.create_array(place, shape=(4, 4), chunks=(4, 4), dtype="f4", zarr_format=2, compressors=None)
    array[:] = 1 - np.eye(4)
    described = json.loads((place / ".zarray").read_text())
    (place / ".zarray").write_text(json.dumps(described | changes))
    (place / "0.0").write_bytes(trap)


@pytest.mark.parametrize("way", WAYS)
def test_pickles_in_zarr_arrays_stay_unread(tmp_path, trap, way):
    plant(tmp_path / "array", trap, **WAYS[way])
    for read in (open_rows, open_panel, read_result):
        with pytest.raises(InputError):
            read(tmp_path / "array")


@pytest.mark.parametrize("kind", ["dissimilarities", "panel", "result"])
def test_a_group_that_pretends_to_be_ours_cannot_hide_pickles(tmp_path, trap, kind):
    header = {"format": 1, "kind": kind, "status": "complete"}
    group = zarr.create_group(tmp_path / "group", zarr_format=2, attributes={KEY: header})
    group.create_array(kind, data=(1 - np.eye(4)).astype("f4"))
    for name in ("ids", "embedding"):
        plant(tmp_path / "group" / name, trap, **WAYS["text"])
    for read in (lambda path: open_rows(path).ids, lambda path: open_panel(path).ids, read_result):
        try:
            assert read(tmp_path / "group") is None
        except InputError:
            continue


def test_certificates_are_for_their_owner_alone(tmp_path):
    folder = tmp_path / "new" / "tls"
    result = CliRunner().invoke(main, ["certificates", str(folder)])
    assert result.exit_code == 0, result.output
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "certificate.pem": 0o600,
        "key.pem": 0o600,
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    arguments = tls_security(str(folder)).get_connection_args("client")
    assert arguments["require_encryption"]
    assert arguments["ssl_context"].verify_mode == ssl.CERT_REQUIRED
    before = (folder / "key.pem").read_bytes()
    result = CliRunner().invoke(main, ["certificates", str(folder)])
    assert result.exit_code == 1
    assert "certificate.pem exists: choose another directory" in result.stderr
    assert (folder / "key.pem").read_bytes() == before


def test_certificates_that_are_of_no_use_are_told(tmp_path):
    with pytest.raises(InputError, match=r"certificate\.pem cannot be read \(No such file .*\): give the directory"):
        tls_security(str(tmp_path / "nowhere"))
    for name in ("one", "two"):
        write_certificates(str(tmp_path / name))
    os.replace(tmp_path / "two" / "key.pem", tmp_path / "one" / "key.pem")
    with pytest.raises(InputError, match=r"are no certificate and its key \(KEY_VALUES_MISMATCH\): make new ones"):
        tls_security(str(tmp_path / "one"))
    (tmp_path / "two" / "key.pem").mkdir()
    with pytest.raises(InputError, match=r"key\.pem cannot be read \(Is a directory\)"):
        tls_security(str(tmp_path / "two"))
    (tmp_path / "one" / "certificate.pem").write_text("nothing of use")
    with pytest.raises(InputError, match="are no certificate and its key"):
        tls_security(str(tmp_path / "one"))


def test_tls_needs_a_cluster(tmp_path):
    np.save(tmp_path / "points.npy", np.eye(5))
    result = CliRunner().invoke(main, ["distances", str(tmp_path / "points.npy"), str(tmp_path / "m"), "--tls", "x"])
    assert result.exit_code == 2
    assert "--tls requires --cluster or --workers." in result.stderr


@pytest.mark.slow
def test_a_cluster_of_ours_with_tls_listens_on_loopback_and_speaks_nothing_else(tmp_path):
    write_certificates(str(tmp_path / "tls"))
    with local_client(workers=1, threads=1, tls=str(tmp_path / "tls")) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        assert all(address.startswith("tls://127.0.0.1:") for address in client.run(os.getpid))
        here = psutil.Process()
        processes = [here, *here.children(recursive=True)]
        listening = [c.laddr.ip for p in processes for c in p.net_connections("tcp") if c.status == "LISTEN"]
        assert len(listening) >= 4  # scheduler, its dashboard, nanny, worker
        assert set(listening) == {"127.0.0.1"}
