"""Nothing undocumented of Dask is used outside one module, and the installed Dask has what that module uses."""

import ast
import asyncio
import inspect
import logging
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import dask
import distributed
import numpy as np
import pytest
from distributed import Client, Nanny

from psmds_dist import ArrayRows, DaskExecutor, InProcessExecutor, deploy, executor
from psmds_dist.api.embed import embed
from psmds_dist.core.config import SolverConfig
from psmds_dist.deploy.settings import dask_settings
from psmds_dist.executor import _dask_internals as internals
from psmds_dist.executor import dispatch, tls_configuration, workers
from tests.clusters import all_blocks, wait_for, with_workers

FOLDERS = [Path(package.__file__).parent for package in (executor, deploy)]
FENCE = Path(internals.__file__).name
MODULES = sorted(path for folder in FOLDERS for path in folder.glob("*.py") if path.name != FENCE)

DOCUMENTED = {"distributed", "dask", "dask.array", "dask.config"}
UNDOCUMENTED = {"loop", "handlers", "scheduler", "rpc", "state", "executors", "direct_to_workers", "comm", "executor"}
"""Attributes of clients and workers that Dask's documentation does not describe."""


@contextmanager
def explained(name):
    """Fail in one sentence where Dask lacks what a function of the fence uses."""
    try:
        yield
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        use = inspect.getdoc(getattr(internals, name)).split("Why: ")[1].replace("\n", " ")
        pytest.fail(f"Dask {distributed.__version__} lacks what {FENCE[:-3]}.{name} uses ({error!r}). Why: {use}")


# the fence


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_nothing_undocumented_is_used_outside_the_fence(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("dask", "distributed"):
            # types of annotations are not loaded
            if node.module not in DOCUMENTED and node.module != "distributed.protocol.serialize":
                found.append(node.module)
            if node.module == "distributed":
                found += [alias.name for alias in node.names if alias.name not in distributed.__all__]
        if isinstance(node, ast.Import):
            found += [
                a.name for a in node.names if a.name.startswith(("dask", "distributed")) and a.name not in DOCUMENTED
            ]
        if isinstance(node, ast.Attribute) and node.attr in UNDOCUMENTED:
            found.append(ast.unparse(node))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value).endswith("client"):
            found.append(ast.unparse(node))
    assert found == []


def test_serialized_messages_are_imported_for_annotations_only():
    code = "import sys, psmds_dist.executor; print('dask' in sys.modules, 'distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def public(module):
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
    }


def test_each_use_says_why_and_what_is_lost_without_it():
    for function in public(internals).values():
        assert re.search(r"Why: .*\. Lost without it: .*\.$", inspect.getdoc(function), re.DOTALL), function.__name__


def test_dask_has_every_setting_that_is_made():
    text = "".join(path.read_text(encoding="utf-8") for path in MODULES)
    settings = {*re.findall(r'"(distributed(?:\.[a-z-]+){2,})[".]', text), *dask_settings(), *tls_configuration("tls")}
    assert len(settings) > 9
    settings -= {name for name in settings if "pre-spawn-environ." in name}  # names of variables
    for setting in settings:
        assert dask.config.get(setting, "missing") != "missing", f"Dask {dask.__version__} lacks the setting {setting}"


# each use, against the Dask that is installed


def check_client_status(client):
    with Client(client.scheduler.address, set_as_default=False) as other:
        assert internals.client_status(other) == "running"
    assert internals.client_status(other) == "closed"


def check_scheduler_address(client):
    assert internals.scheduler_address(client) == client.cluster.scheduler_address


def check_identify_workers(client):
    found = client.sync(internals.identify_workers, client)
    assert len(found) == 2
    for address, facts in found.items():
        worker = workers._worker(address, facts)
        assert address.startswith("tcp://127.0.0.1:")
        assert (worker.threads, worker.status) == (1, "running")
        assert worker.memory_limit > 2**20
        assert abs(time.time() - worker.last_seen) < 60


def check_call_in_loop(client):
    ran, here = threading.Event(), []

    async def run():
        here.append(client.asynchronous)
        here.append(inspect.isawaitable(reply := client.run(int, workers=[], on_error="return")))
        await reply
        ran.set()

    internals.call_in_loop(client, run)
    assert ran.wait(20)
    assert here == [True, True]  # in the loop, calls of a client are awaited


def check_schedule(client):
    async def seven():
        return 7

    assert internals.schedule(client, seven()).result(20) == 7


def echo(dask_worker):
    async def reply(work, blocks):
        return {"status": "OK", "result": internals.reply_with((work, blocks))}

    internals.add_handler(dask_worker, "psmds-echo", reply)


def check_call_worker(client):
    client.run(echo)
    x = np.arange(5.0)
    for direct in (True, False):
        client.direct_to_workers = direct
        for address in client.scheduler_info(n_workers=-1)["workers"]:
            call = internals.call_worker(client, address, "psmds-echo", work=internals.serialize(x), blocks=[1, 2])
            reply = internals.schedule(client, call).result(20)
            work, blocks = reply["result"]
            assert (reply["status"], list(blocks)) == ("OK", [1, 2])
            np.testing.assert_array_equal(work, x)


def meet(dask_worker):
    barrier = asyncio.Barrier(5)

    async def reply():
        await barrier.wait()
        return {"status": "OK"}

    internals.add_handler(dask_worker, "psmds-meet", reply)


def check_allow_connections(client):
    """Five calls at a time, by a client that may have two, of a worker that answers none before the fifth."""
    client.run(meet)
    address = min(client.scheduler_info(n_workers=-1)["workers"])
    with Client(client.scheduler.address, set_as_default=False, connection_limit=2) as other:
        other.sync(allow, other, 5)
        calls = [internals.schedule(other, internals.call_worker(other, address, "psmds-meet")) for _ in range(5)]
        assert [call.result(20)["status"] for call in calls] == ["OK"] * 5
        other.sync(allow, other, 3)
        assert other.rpc.limit == 5


async def allow(client, number):
    internals.allow_connections(client, number)


def check_worker_thread_pool(client):
    assert set(client.run(thread_of_pool).values()) == {True}


def thread_of_pool(dask_worker):
    return internals.worker_thread_pool(dask_worker).submit(threading.get_ident).result(20) != threading.get_ident()


def check_worker_threads(client):
    assert set(client.run(lambda dask_worker: internals.worker_threads(dask_worker)).values()) == {1}


def is_cancelled(key, dask_worker):
    return internals.is_cancelled(dask_worker, key)


def check_is_cancelled(client):
    future = client.submit(time.sleep, 3, pure=False)
    wait_for(lambda: sorted(client.run(is_cancelled, future.key).values()) == [False, True])  # one worker has it
    client.cancel([future], force=True)
    wait_for(lambda: all(client.run(is_cancelled, future.key).values()), seconds=2.5)


def fail(dask_worker):
    async def reply():
        return internals.error_reply(OSError(28, "the disk is full"))

    internals.add_handler(dask_worker, "psmds-fail", reply)


def check_error_reply(client):
    client.run(fail)
    address = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    reply = internals.schedule(client, internals.call_worker(client, address, "psmds-fail")).result(20)
    assert reply["status"] == "error"
    with pytest.raises(OSError, match="the disk is full") as caught:
        raise internals.error_from(reply)
    assert caught.value.errno == 28


def check_serialized_bytes(client):
    assert 8000 <= internals.serialized_bytes(internals.serialize(np.ones(1000))) < 12_000


def check_comm_closed_error(client):
    assert issubclass(internals.comm_closed_error(), OSError)
    assert internals.comm_closed_error() is not OSError  # workers that die in a direct call raise it: test_direct.py


def check_heartbeat_interval(client):
    assert 0 < internals.heartbeat_interval(1) <= internals.heartbeat_interval(100) < internals.heartbeat_interval(2000)


def check_check_address(client):
    internals.check_address("tcp://127.0.0.1:8786")
    for address in ("nonsense://127.0.0.1:1", "tcp://127.0.0.1:door"):
        with pytest.raises(ValueError, match=r"."):
            internals.check_address(address)


def check_host_of(client):
    assert internals.host_of("tls://10.0.0.5:8786") == "10.0.0.5"
    assert internals.host_of("tcp://[::1]:8786") == "::1"


def check_add_metric(client):
    def install(dask_worker):
        internals.add_metric(dask_worker, "psmds-seven", lambda worker: 7)

    def told(dask_scheduler):
        return {worker.metrics.get("psmds-seven") for worker in dask_scheduler.workers.values()}

    client.run(install)
    wait_for(lambda: client.run_on_scheduler(told) == {7})


def check_when_told_to_end(client):
    async def calls(reason):
        called, nanny = [], Nanny("tcp://127.0.0.1:9")
        internals.when_told_to_end(nanny, lambda: called.append(reason))
        await nanny.close(reason=reason)
        return called

    assert client.sync(calls, "signal-15") == ["signal-15"]
    assert client.sync(calls, "nanny-close") == []


def check_open_jobs(client):
    cluster = client.cluster
    cluster.scale, scale = lambda jobs: scale(jobs), cluster.scale  # clusters of dask-jobqueue count jobs
    try:
        internals.open_jobs(cluster, 2, 60)
        assert len(cluster.workers) == 2
        assert cluster.periodic_callbacks["psmds-jobs"].is_running()
    finally:
        del cluster.scale
        cluster.loop.add_callback(cluster.periodic_callbacks.pop("psmds-jobs").stop)


def check_silence_logging(client):
    logger, handler = logging.getLogger("distributed"), logging.StreamHandler()
    logger.addHandler(handler)
    try:
        with internals.silence_logging():
            assert handler.level == logging.CRITICAL
        assert handler.level == logging.NOTSET
    finally:
        logger.removeHandler(handler)


CHECKS = {
    **{name[len("check_") :]: check for name, check in list(globals().items()) if name.startswith("check_")},
    "add_handler": check_call_worker,
    "serialize": check_call_worker,
    "reply_with": check_call_worker,
    "error_from": check_error_reply,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", public(internals))
def test_dask_has_it(name, client, monkeypatch):
    monkeypatch.setattr(client, "direct_to_workers", True)
    with explained(name):
        CHECKS[name](with_workers(client, 2))


def test_what_dask_lacks_is_named(client, monkeypatch):
    monkeypatch.delattr("distributed.scheduler.heartbeat_interval")
    with pytest.raises(pytest.fail.Exception) as caught, explained("heartbeat_interval"):
        check_heartbeat_interval(client)
    assert re.search(
        r"Dask 20.* lacks what _dask_internals.heartbeat_interval uses .* Why: .* Lost without", str(caught.value)
    )


# without a handler


def close_handlers(dask_worker):
    dask_worker.handlers = MappingProxyType(dask_worker.handlers)


def open_handlers(dask_worker):
    dask_worker.handlers = dict(dask_worker.handlers)


@pytest.mark.wide
def test_rounds_go_by_tasks_where_no_handler_can_be_installed(client, monkeypatch, caplog):
    caplog.set_level("INFO", "psmds_dist")
    monkeypatch.setattr(workers, "TASK_INTERVAL", 600.0)
    called, asked = [], []
    install = workers.WorkerPool._install_handlers
    monkeypatch.setattr(dispatch.MapCall, "_call", lambda *given: called.append(given))
    monkeypatch.setattr(workers.WorkerPool, "_install_handlers", lambda self: (asked.append(self), install(self)))
    x = np.random.default_rng(0).normal(size=(150, 4))
    matrix = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2)).astype(np.float32)
    config = SolverConfig(seed=1, max_epochs=6)
    reference = embed(ArrayRows(matrix), config, InProcessExecutor(), init="random")
    on_workers = DaskExecutor(with_workers(client, 2))
    client.run(close_handlers)
    try:
        found = embed(ArrayRows(matrix), config, on_workers, init="random")
        assert all_blocks(on_workers.map(sum, range(9))) == list(range(9))
    finally:
        client.run(open_handlers)
    np.testing.assert_array_equal(found.solution.raw_embedding, reference.solution.raw_embedding)
    assert (called, len(asked)) == ([], 1)  # it is tried once, not every round
    told = [message for message in caplog.messages if "cannot be called directly" in message]
    assert len(told) == 2
