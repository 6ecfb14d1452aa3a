"""The cost model: counts of work are exact, and every resource can be what holds a run up."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psmds_dist.api import probe
from psmds_dist.api.forecast import estimate, forecast_of, job_of, plan_of, report, rows_of
from psmds_dist.core.layout import parse_bytes
from psmds_dist.core.types import BudgetError, InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.planning.cost import HANDED, RESOURCES, TOUCHED, Job, Rates
from psmds_dist.planning.memory import AFTERWARDS

RATES = Rates(roots=5e9)
JOBS = st.builds(
    Job,
    n=st.integers(3, 10**8),
    dims=st.integers(1, 50),
    workers=st.integers(1, 2000),
    threads=st.integers(1, 128),
    width=st.integers(0, 10_000),
    itemsize=st.sampled_from([4, 8]),
    kept=st.floats(0, 1),
    read_cost=st.floats(1, 10),
    epochs=st.integers(0, 500),
    start=st.sampled_from(["", "classical", "landmarks"]),
    checked=st.booleans(),
    computed=st.booleans(),
    local=st.booleans(),
)


def stage(found, name):
    return next(stage for stage in found.stages if stage.name == name)


def test_an_epoch_takes_its_roots_and_its_bytes():
    job = Job(n=100_000, dims=3, workers=4, threads=8, kept=0.25, epochs=11, checked=True, local=False)
    rates = Rates(roots=7e9, disk=2e9, network=1e9, round_base=0.5, round_worker=0.25, point=0.0)
    epochs = stage(estimate(job, rates), "epochs")
    assert epochs.kernel == pytest.approx(10 * 1e10 / (1e9 * 8 * 4))
    assert epochs.disk == pytest.approx(10 * 0.75 * 4e10 / (2e9 * 4))
    assert epochs.disk_bytes == pytest.approx(10 * 0.75 * 4e10)
    assert epochs.scheduler == pytest.approx(10 * 2 * (0.5 + 4 * 0.25))
    sent = 2 * 100_000 * (2 * 9 + 4 * 3 * 5)  # answers twice on their way, a snapshot to the scheduler and each worker
    assert epochs.network_bytes == pytest.approx(10 * sent)
    assert epochs.seconds == pytest.approx(max(epochs.kernel, epochs.disk) + epochs.network + epochs.scheduler)
    assert stage(estimate(job, rates), "first epoch").disk_bytes == pytest.approx(4e10)


def test_reading_that_keeps_a_core_busy_holds_the_kernel_up():
    job = Job(n=100_000, workers=4, threads=8, epochs=11, checked=True)
    epochs = stage(estimate(job, Rates(roots=5e9, disk=2e9, reading=0.4)), "epochs")
    assert epochs.busy == pytest.approx(0.4 * epochs.disk + HANDED * epochs.disk_bytes / 4)
    assert epochs.seconds == pytest.approx(max(epochs.kernel + epochs.busy, epochs.disk) + epochs.here)


@pytest.mark.parametrize(
    ("threads", "made", "seconds"), [(1, 0.25, 1.25), (8, 0.25, 1.25), (8, 0.75, 1.5), (8, 4.0, 4.0)]
)
def test_computing_distances_holds_one_thread_of_the_kernel_up(threads, made, seconds):
    """For a kernel of one second: until the other threads are done, which then make room."""
    job = Job(n=10**6, workers=4, threads=threads, epochs=1, checked=True, computed=True)
    pairs = 10**12
    rates = Rates(roots=5 * pairs / (4 * threads), distances=pairs / 4 / made)
    epochs = stage(estimate(job, rates), "epochs")
    assert (epochs.kernel, epochs.disk, epochs.distances) == (pytest.approx(1), 0, pytest.approx(made))
    assert epochs.seconds - epochs.here == pytest.approx(seconds)


def test_what_is_kept_takes_the_first_epoch_longer():
    job = Job(n=100_000, workers=4, kept=0.5, epochs=2, checked=True)
    first, second = (stage(estimate(job, Rates(roots=5e9)), name) for name in ("first epoch", "epochs"))
    assert first.busy == pytest.approx(2 * second.busy + TOUCHED * 0.5 * 4e10 / 4)


def test_passes_of_the_start_come_before_the_epochs_and_leave_rows_to_them():
    n, roots, disk = 20_000, 5e9, 1e9
    job = Job(n, epochs=10, start="classical", kept=1.0)
    found = estimate(job, Rates(roots, disk=disk))
    assert [stage.name for stage in found.stages][1:3] == ["classical scaling, first pass", "classical scaling"]
    assert found.disk_bytes == 2 * job.nbytes  # the check, and the first pass of the start
    streamed = estimate(replace(job, kept=0.0), Rates(roots, disk=disk))
    assert streamed.disk_bytes == (1 + 3 + 10 + 1) * job.nbytes
    assert forecast_of(False).passes(job) == "15 over the matrix (a guess)"


def test_without_epochs_nothing_is_read_but_to_measure():
    found = estimate(Job(n=100_000, kept=0.5, epochs=0, checked=True), RATES)
    assert [stage.name for stage in found.stages] == ["epochs", "measurement"]
    assert [stage.disk_bytes for stage in found.stages] == [0, 4e10]


@pytest.mark.parametrize(("n", "seconds"), [(20_000, 0.1 + 4 * 0.01), (200_000, 1.0 + 4 * 0.1)])
def test_workers_that_are_sent_little_are_asked_directly(n, seconds):
    rates = Rates(roots=5e9, round_base=1.0, round_worker=0.1, ask_base=0.1, ask_worker=0.01)
    job = Job(n=n, workers=4, epochs=1, checked=True, local=False)
    assert stage(estimate(job, rates), "epochs").scheduler == pytest.approx(2 * seconds)


@given(JOBS)
def test_nothing_is_negative_and_the_whole_is_between_its_parts(job):
    found = estimate(job, RATES)
    parts = found.parts
    assert set(parts) == set(RESOURCES)
    assert all(seconds >= 0 for seconds in parts.values())
    assert max(parts.values()) <= found.seconds * (1 + 1e-9)
    assert found.seconds <= sum(parts.values()) * (1 + 1e-9)
    assert found.network_bytes == 0 or not job.local
    assert found.bottleneck in RESOURCES.values()


@given(JOBS, st.integers(1, 10))
def test_faster_threads_never_take_longer(job, times):
    assert estimate(job, Rates(roots=5e9 * times)).seconds <= estimate(job, RATES).seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("slow", "what"),
    [
        ({"roots": 1e3}, "the kernel"),
        ({"disk": 1e3}, "the disk"),
        ({"network": 1.0}, "the network"),
        ({"round_base": 1e6, "ask_base": 1e6}, "the scheduler"),
        ({"point": 10.0}, "the process that starts the run"),
    ],
)
def test_what_is_slow_saturates_first(slow, what):
    job = Job(n=50_000, workers=10, threads=2, epochs=20, checked=True, local=False)
    assert estimate(job, Rates(**{"roots": 5e9, **slow})).bottleneck == what


def test_a_plan_without_data_is_refused_like_a_run():
    rows = rows_of(1_000_000, None, 2)
    with pytest.raises(BudgetError, match=r"a map of 1,000,000 points in 10 dimensions needs .* MiB .*landmarks"):
        plan_of(rows, 10, 1000, 10**6)
    plan = plan_of(rows, 2, 1000, 2**33)
    job = job_of(plan, 2, 16)
    assert (job.n, job.workers, job.threads, job.start, job.local) == (1_000_000, 1000, 16, "landmarks", False)
    assert "saturates first    the " in report(plan, job, RATES)
    for n, size in ((2, None), (100, 2), (100, 101)):
        with pytest.raises(InputError, match=r"^--(points|landmarks) must be"):
            rows_of(n, size, 2)


def test_a_run_that_waits_for_a_disk_is_told_how_to_read_less():
    plan = plan_of(rows_of(50_000, None, 2), 2, 1, 2**31)
    told = {disk: report(plan, job_of(plan, 2, 8), Rates(roots=5e10, disk=disk)) for disk in (1e8, 4e8, 1e13)}
    assert "halves it (psmds ingest --dtype uint16); a Zarr array compressed by Blosc" in told[1e8]
    assert "halves it (psmds ingest --dtype uint16)\n" in told[4e8]
    assert "to read less" not in told[1e13]
    half = replace(rows_of(50_000, None, 2), stored_share=0.5)
    plan = plan_of(half, 2, 1, 2**31)
    assert "to read less" not in report(plan, job_of(plan, 2, 8), Rates(roots=5e10, disk=1e8))


def test_probes_measure_something(digits):
    for dims in (2, 7):
        assert 1e6 < probe.roots(dims, 1) < 1e12
    read = probe.reading(ArrayRows(digits))
    assert 1e6 < read.speed < 1e13
    assert 0 <= read.busy <= 1
    assert 1e5 < probe.distances(16) < 1e12
    assert 0 < probe.memory_share(4) < probe.memory_share(2)


def test_memory_told_is_no_less_than_what_is_needed():
    """An evaluation of very many points takes more than the pass whose rows it follows."""
    plan = plan_of(rows_of(300_000, 2000, 2), 2, 1, 2**34)
    text = report(plan, job_of(plan, 2, 2), RATES)
    told = parse_bytes(re.search(r"memory per worker +([\d.]+ MiB)", text)[1])
    assert AFTERWARDS in text
    assert told == pytest.approx(plan.needs.min_limit, rel=0.01)
