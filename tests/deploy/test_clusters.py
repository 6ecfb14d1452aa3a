"""Clusters by name, and clusters and clients that exist: opened, used, and closed by who opened them."""

import pickle
import sys
import types

import numpy as np
import pytest
from distributed import Client, LocalCluster

import psmds_dist
from landmarks import LandmarkMDS
from psmds_dist import InputError, PatternSearchMDS, WorkerError, measure, open_client, open_executor
from psmds_dist.deploy import clusters
from psmds_dist.deploy.settings import LOOPBACK, exported
from tests.reference import distances

HOW = {"random_state": 0, "max_epochs": 5, "init": "random"}


@pytest.fixture(scope="module")
def matrix():
    return distances(np.random.default_rng(0).normal(size=(60, 3)))


def new_cluster():
    """A scheduler in this process, without workers."""
    here = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "protocol": "tcp"}
    return LocalCluster(n_workers=0, processes=False, silence_logs=50, **here)


@pytest.fixture(scope="module")
def cluster():
    with new_cluster() as cluster:
        yield cluster


@pytest.fixture
def makers(tmp_path, monkeypatch, cluster):
    """A module in the working directory whose functions return clusters, clients and other things."""
    (tmp_path / "makers_of_clusters.py").write_text("made = []\nvalue = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "makers_of_clusters", raising=False)
    with clusters.working_directory_importable():
        import makers_of_clusters as module
    module.cluster = lambda: cluster
    module.nothing = lambda: None
    yield module
    del sys.modules["makers_of_clusters"]


# what exists


def test_a_client_is_used_and_stays_open(cluster):
    with Client(cluster, set_as_default=False) as client:
        with open_client(client) as found:
            assert found is client
        assert client.status == "running"


def test_a_cluster_is_used_and_stays_open(cluster):
    with open_client(cluster) as client:
        assert client.scheduler.address == cluster.scheduler_address
    assert (client.status, cluster.status.name) == ("closed", "running")


@pytest.mark.parametrize("form", ["address", "file"])
def test_a_running_scheduler(cluster, tmp_path, form):
    with Client(cluster, set_as_default=False) as client:
        client.write_scheduler_file(str(tmp_path / "scheduler.json"))
    name = {"address": cluster.scheduler_address, "file": str(tmp_path / "scheduler.json")}[form]
    with open_client(name) as client:
        assert client.scheduler.address == cluster.scheduler_address
    assert (client.status, cluster.status.name) == ("closed", "running")


@pytest.mark.parametrize("given", [3, object(), ["local"], b"local"])
def test_anything_else_is_explained(given):
    with pytest.raises(InputError, match=r"cluster must be the name of a cluster such as 'local:4', a distributed"):
        open_client(given).__enter__()


# functions


def test_a_function_that_returns_a_client(makers, cluster):
    with Client(cluster, set_as_default=False) as mine:
        makers.client = lambda: mine
        with open_client("makers_of_clusters:client") as client:
            assert client is mine
        assert mine.status == "running"


def test_a_cluster_of_a_function_is_closed(makers):
    made = []

    def own():
        made.append(new_cluster())
        return made[0]

    makers.own = own
    with open_client("makers_of_clusters.own") as client:
        assert client.scheduler.address == made[0].scheduler_address
    assert (client.status, made[0].status.name) == ("closed", "closed")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("makers_of_clusters:nowhere", "is no function that can be imported"),
        ("no.such.package:function", "is no function that can be imported (No module named 'no')"),
        ("makers_of_clusters:value", "must be a function that returns a cluster or a client, not 3"),
        ("makers_of_clusters:nothing", "or a Dask cluster, not NoneType"),
    ],
)
def test_functions_that_cannot_be_used_are_explained(makers, name, sentence):
    with pytest.raises(InputError) as error:
        open_client(name).__enter__()
    assert sentence in str(error.value)


def test_an_error_of_a_function_is_a_sentence_that_keeps_its_cause(makers):
    def broken():
        raise KeyError("quota")

    makers.broken = broken
    with pytest.raises(
        WorkerError, match="cluster 'makers_of_clusters:broken' did not start: KeyError 'quota'"
    ) as error:
        open_client("makers_of_clusters:broken").__enter__()
    assert isinstance(error.value.__cause__, KeyError)


def test_an_error_of_the_work_stays_as_it_is(cluster):
    with pytest.raises(KeyError, match="mine"), open_client(cluster.scheduler_address):
        raise KeyError("mine")


# Kubernetes, by a stand-in of Dask's operator


@pytest.fixture
def operator(cluster, monkeypatch):
    calls = []

    class KubeCluster:
        scheduler_address = cluster.scheduler_address
        security = cluster.security

        def __init__(self, **arguments):
            calls.append(arguments)

        def __enter__(self):
            return cluster

        def __exit__(self, *_):
            calls.append("closed")

    monkeypatch.setitem(sys.modules, "dask_kubernetes", types.ModuleType("dask_kubernetes"))
    module = types.ModuleType("dask_kubernetes.operator")
    module.KubeCluster = KubeCluster
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", module)
    monkeypatch.setattr(clusters, "wait_for_worker", lambda client, name: None)
    return calls


def test_kubernetes_by_arguments(operator, tmp_path):
    (tmp_path / "c.yaml").write_text("name: maps\nn-workers: 3\nenv: {EXTRA: a}\n")
    with open_client(f"kubernetes:{tmp_path / 'c.yaml'}"):
        pass
    assert operator == [{"name": "maps", "n_workers": 3, "env": {**exported(), "EXTRA": "a"}}, "closed"]


def test_kubernetes_refuses_tls_which_it_could_not_use(operator, tmp_path):
    (tmp_path / "c.yaml").write_text("image: psmds\n")
    with pytest.raises(InputError, match="cluster 'kubernetes' cannot use TLS"):
        open_client(f"kubernetes:{tmp_path / 'c.yaml'}", tls=str(tmp_path)).__enter__()


def test_kubernetes_by_a_whole_resource(operator, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("apiVersion: kubernetes.dask.org/v1\nkind: DaskCluster\n")
    with open_client(f"kubernetes:{path}"):
        pass
    assert operator == [{"custom_cluster_spec": str(path)}, "closed"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read from {}: No such file or directory"),
        ("a: [1", "{} is not valid YAML"),
        ("- a", "{} must hold names and values"),
        ("a: 1", "cluster 'kubernetes' needs dask_kubernetes: pip install 'psmds-dist[kubernetes]'"),
    ],
)
def test_files_that_cannot_be_used_are_explained(tmp_path, monkeypatch, text, sentence):
    monkeypatch.setitem(sys.modules, "dask_kubernetes", None)
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as error:
        open_client(f"kubernetes:{path}").__enter__()
    assert sentence.replace("{}", str(path)) in str(error.value).replace("dask_kubernetes.operator", "dask_kubernetes")


# estimators


def test_no_cluster_is_this_process():
    with open_executor(threads=1) as executor:
        assert executor.in_process


@pytest.mark.slow
def test_everything_takes_the_name_of_a_cluster_or_a_client(client, matrix, tmp_path):
    path = tmp_path / "matrix.npy"
    np.save(path, matrix)
    here = PatternSearchMDS(**HOW).fit(path)
    there = PatternSearchMDS(cluster="local:1", n_jobs=1, **HOW).fit(path)
    np.testing.assert_array_equal(there.embedding_, here.embedding_)
    assert len(there.result_.peak_memory) == 1
    with open_client(client) as found:
        assert measure(path, here.embedding_, cluster=found).raw_stress == here.raw_stress_
        through = LandmarkMDS(cluster=found, n_landmarks=20, random_state=0).fit(path)
    np.testing.assert_array_equal(through.embedding_, LandmarkMDS(n_landmarks=20, random_state=0).fit(path).embedding_)


@pytest.mark.parametrize("kind", [PatternSearchMDS, LandmarkMDS])
def test_names_survive_pickling_and_connections_do_not(kind, cluster):
    assert pickle.loads(pickle.dumps(kind(cluster="slurm:a.yaml"))).cluster == "slurm:a.yaml"
    with Client(cluster, set_as_default=False) as client:
        assert pickle.loads(pickle.dumps(kind(cluster=client))).cluster is None


def test_public_names():
    assert {"open_client", "open_executor"} <= set(psmds_dist.__all__)
