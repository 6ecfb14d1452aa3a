"""What is planned is never negative, grows with the data, and a refusal names a limit that works."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landmarks.panel.memory import panel_pass
from landmarks.solver.memory import fit_memory
from psmds_dist.core.layout import Layout, parse_bytes
from psmds_dist.core.types import BudgetError
from psmds_dist.planning import memory as plan
from psmds_dist.planning.memory import (
    KERNELS,
    RESERVED_BYTES,
    SLACK_BYTES,
    MemoryRequirement,
    RowBuffers,
    RowStorage,
    exceeded,
)

MIB = 2**20

SQUARE = st.builds(
    RowStorage,
    layout=st.builds(Layout, st.integers(3, 2_000_000)),
    itemsize=st.sampled_from([4, 8]),
    band=st.integers(1, 5000),
    scratch=st.sampled_from([0, 10**5, 10**8]),
    copies=st.integers(1, 3),
)
RESIDENT = st.builds(
    RowStorage, layout=st.builds(Layout, st.integers(3, 50_000)), itemsize=st.just(4), resident=st.just(True)
)
PANELS = st.builds(replace, SQUARE, layout=st.builds(Layout, st.integers(3, 10**8), st.integers(3, 20_000)))
DIMS = st.integers(1, 50)
WORKERS = st.integers(1, 1000)
HERE = st.booleans()

NEEDS = st.one_of(
    st.builds(plan.checking, SQUARE | RESIDENT, WORKERS, here=HERE),
    st.builds(plan.building, SQUARE | RESIDENT, WORKERS, here=HERE),
    st.builds(plan.exact, SQUARE | RESIDENT, DIMS, st.none(), WORKERS, here=HERE),
    st.builds(
        plan.with_multiplication,
        st.builds(plan.exact, SQUARE | RESIDENT, DIMS),
        st.integers(1, 50),
        st.integers(1, 16),
        WORKERS,
        here=HERE,
    ),
    st.builds(
        lambda rows, dims, k: plan.sampled(rows, min(rows.layout.n, 1000), dims)[k], SQUARE, DIMS, st.integers(0, 2)
    ),
    st.builds(panel_pass, PANELS),
    st.builds(
        fit_memory,
        PANELS,
        DIMS,
        st.sampled_from(["none", "panel", "full"]),
        WORKERS,
        here=HERE,
        named=HERE,
        of_matrix=HERE,
    ),
)


@given(st.integers(3, 60_000), st.sampled_from([4, 8]), st.integers(1, 5000), st.integers(1, 3), st.floats(0.0, 1.5))
def test_rows_stay_inside_their_budget(n, itemsize, band, copies, part):
    rows = RowStorage(Layout(n), itemsize, band, copies=copies)
    block, count, tall = rows.block_bytes, rows.layout.count, rows.run_blocks
    budget = int(part * count * block)
    if budget < min(rows.min_limit, count * block + (copies - 1) * tall * block):
        with pytest.raises(BudgetError, match=r"two blocks of .* rows of .* points"):
            RowBuffers.plan(rows, budget)
        return
    memory = RowBuffers.plan(rows, budget)
    assert memory.nbytes == memory.cached_blocks * block + memory.buffer_bytes <= budget
    if budget >= (count + (copies - 1) * tall) * block:
        assert (memory.cached_blocks, memory.buffer_bytes, memory.run_blocks) == (count, 0, tall)
    else:
        assert memory.buffer_bytes == (1 + copies) * memory.run_blocks * block
        assert memory.run_blocks == (tall if (3 + copies) * tall * block <= budget else 1)
        assert budget - memory.nbytes < block


@given(NEEDS)
def test_a_refusal_names_a_limit_that_works_and_is_the_smallest(needs):
    assert all(count >= 0 for count in needs.parts.values())
    least = needs.min_limit
    budget = needs.budget(least)
    assert budget >= needs.rows.min_limit >= 0
    assert needs.room(least) >= 0
    RowBuffers.plan(needs.rows, budget)
    if least > 0:
        with pytest.raises(BudgetError) as refusal:
            needs.budget(least - 1)
        named = re.search(r"\(--memory-limit\) to ([0-9.]+ \w+)", str(refusal.value))
        assert least <= parse_bytes(named[1]) <= 1.1 * least + 103
        needs.budget(parse_bytes(named[1]))
        assert "\n" not in str(refusal.value)


@given(NEEDS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_more_memory_never_leaves_less_for_rows(needs, more, still_more):
    one, other = needs.min_limit + more, needs.min_limit + more + still_more
    assert needs.budget(one) <= needs.budget(other) <= other - needs.total
    assert needs.budget(other) >= other - needs.total - SLACK_BYTES
    assert needs.room(one) <= needs.room(other)
    if not needs.rows.resident:
        kept = [RowBuffers.plan(needs.rows, needs.budget(limit)).cached_blocks for limit in (one, other)]
        tall = needs.rows.run_blocks
        assert kept[0] <= kept[1] + 2 * (1 + needs.rows.copies) * tall  # taller bands take larger buffers


@given(st.integers(3, 10**6), st.integers(0, 10**6), DIMS, WORKERS, HERE)
def test_more_points_never_need_less(n, more, dims, workers, here):
    for kind in (
        lambda m: plan.exact(RowStorage(Layout(m), 4), dims, None, workers, here=here),
        lambda m: plan.checking(RowStorage(Layout(m), 4), workers, here=here),
        lambda m: fit_memory(RowStorage(Layout(m, 500), 4), dims, "panel", workers, here=here),
    ):
        assert kind(n).total <= kind(n + more).total


@given(PANELS, DIMS, st.integers(1, 500), st.integers(0, 500))
def test_more_workers_never_need_more_each(panel, dims, workers, more):
    one, other = (fit_memory(panel, dims, workers=w, here=False).min_limit for w in (workers, workers + more))
    assert other <= one


def test_a_refusal_says_what_for_and_what_else_could_be_done():
    needs = plan.exact(RowStorage(Layout(20_000), 8, scratch=10**9), 2)
    with pytest.raises(BudgetError) as refusal:
        needs.budget(10 * MIB)
    assert str(refusal.value) == (
        "memory_limit is 10.0 MiB per process, but a map of 20,000 points in 2 dimensions needs 990.7 MiB "
        "(2.7 MiB for coordinates, 1.5 MiB for answers, 2.1 MiB for scratch of the kernel, 30.5 MiB for rows to read "
        "ahead, 953.7 MiB for reading): raise memory_limit (--memory-limit) to 990.7 MiB, or use float32 "
        "(--dtype float32), or turn it into chunks of whole rows once (psmds ingest), or embed landmarks instead of "
        "the whole matrix (psmds landmarks fit)."
    )


def test_the_stage_that_needs_most_refuses():
    rows = RowStorage(Layout(5000), 4)
    small, large = plan.checking(rows), plan.exact(rows, 50)
    with pytest.raises(BudgetError, match="a map of 5,000 points"):
        plan.require(small.min_limit - 1, small, large)
    plan.require(large.min_limit, small, large)


def test_a_process_may_have_its_limit_and_an_interpreter():
    limit = 400 * MIB
    fresh = {"a": (50 * MIB, 60 * MIB), "b": (150 * MIB, 150 * MIB)}
    assert exceeded(limit, fresh, {"a": limit + RESERVED_BYTES + SLACK_BYTES, "b": limit + 150 * MIB + KERNELS}) == {}
    assert exceeded(limit, fresh, {"a": limit + RESERVED_BYTES + SLACK_BYTES + 1, "b": limit}) == {"a": SLACK_BYTES + 1}
    assert "1 process took more memory" in plan.describe_exceeded({"a": 1})
    assert "the most b by 2.0 MiB" in plan.describe_exceeded({"a": MIB, "b": 2 * MIB})


def test_what_a_session_held_before_is_not_the_fault_of_a_run():
    limit = 400 * MIB
    before = {"in-process": (5000 * MIB, 9000 * MIB)}
    assert exceeded(limit, before, {"in-process": 9000 * MIB}) == {}  # the peak is an old one
    assert exceeded(limit, before, {"in-process": 9001 * MIB}) == {"in-process": (9001 - 5480) * MIB}
    assert exceeded(limit, {}, {"new worker": limit + RESERVED_BYTES + 20 * MIB}) == {"new worker": 20 * MIB}


def test_a_pass_that_reads_both_orders_reads_fewer_rows_together():
    once, thrice = (plan.building(RowStorage(Layout(20_000), 4, 20_000, copies=copies)) for copies in (1, 3))
    assert once.room(100 * MIB) > 2.9 * thrice.room(100 * MIB) > 0
    assert isinstance(once, MemoryRequirement)
