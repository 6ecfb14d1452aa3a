"""What is planned is never negative, grows with the data, and a refusal names a limit that works."""

import re
from dataclasses import replace
from functools import partial

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


N, SHARE = 10_000, 5_000
ROWS = RowStorage(Layout(N), 4)


def numbers(needs, *names):
    """Numbers of eight bytes that parts are made of."""
    return [needs.parts[name] / 8 for name in names]


def test_a_solve_holds_nine_maps_here_and_three_snapshots_on_a_worker():
    names = ("coordinates", "answers", "scratch of the kernel")
    solve = partial(plan.exact, ROWS, 3, workers=4)  # a worker may have twice its quarter
    assert numbers(solve(here=True), *names) == [9 * 3 * N, 10 * N, (6 + 10) * N]
    assert numbers(solve(here=False), *names) == [3 * 3 * N, 7 * SHARE, (6 + 10) * N]
    assert numbers(solve(here=True, guided=True), *names) == [9 * 3 * N, (10 + 3) * N, (6 + 10) * N]
    assert numbers(solve(here=False, guided=True, axes=2), *names) == [3 * 3 * N, (7 + 4) * SHARE, (4 + 10) * N]
    wide = plan.exact(RowStorage(Layout(100_000), 4), 3)
    assert numbers(wide, "scratch of the kernel") == [2**15 * 16]  # a call has at most so many points


def test_what_comes_before_and_after_a_solve_is_added_where_it_is_more():
    solve, worker = plan.exact(ROWS, 3), plan.exact(ROWS, 3, workers=4, here=False)
    for needs, here, held in ((solve, True, (6 + 7) * N), (worker, False, 3 * N + 2 * SHARE)):
        larger = plan.with_multiplication(needs, 20, 6, 4, here=here)
        assert larger.total == 8 * 20 * held
        assert larger.remedies[-1] == "begin at random (--init random)"
        assert plan.with_multiplication(needs, 1, 1, 4, here=here).total == needs.total
    assert numbers(plan.with_polish(solve, 3, 4, here=True), "the polish") == [38 * 3 * N]
    assert numbers(plan.with_polish(worker, 3, 4, here=False), "the polish") == [2 * 3 * SHARE]
    region = "pinned coordinates and bounds"
    assert numbers(plan.with_region(solve, 3, here=True), region) == [4 * 3 * N]
    assert plan.with_region(worker, 3, here=False).parts[region] == 3 * 6 * N
    reach = "the reach of near pairs"
    assert numbers(plan.with_nearness(solve, 4, here=True), reach) == [2 * 3 * N]
    assert numbers(plan.with_nearness(worker, 4, here=False), reach) == [3 * N + 2 * 3 * SHARE]


def test_a_search_holds_all_pairs_as_float32_beside_rows_of_another_type():
    maps = 8 * N * (150 + 120 * 3)
    for rows, pair in ((ROWS, 4), (replace(ROWS, itemsize=8), 12)):
        assert plan.with_search(plan.exact(rows, 3), 3).apart == rows.min_limit + pair * N * N + maps


def test_a_check_notes_seven_numbers_a_point_and_a_sample_has_two_copies():
    names = ("the sketch of the check", "missing pairs", "what it finds")
    assert numbers(plan.checking(ROWS, 4), *names) == [4 * N, 6 * N, 7 * SHARE + 16 * N]
    assert numbers(plan.checking(ROWS, 4, here=False), *names) == [4 * N, 6 * N, 14 * SHARE]
    assert plan.building(ROWS).parts["rows being written"] == 2 * ROWS.block_bytes
    reading, *_ = sampled = plan.sampled(replace(ROWS, resident=True), 100, 3)
    assert {needs.parts["the sample"] for needs in sampled} == {3 * 100 * 100 * 4 + 100 * 100 * 2}
    assert reading.rows == ROWS  # chunks are read, wherever the rows lie


def test_measures_hold_four_maps_and_the_ranks_of_pairs():
    needs = plan.rated(ROWS, 1000, 3, n_neighbors=5, between=200, threads=2)
    names = ("coordinates", "totals of the rows", "scratch of the kernel", "ranks of the dissimilarities")
    assert numbers(needs, *names) == [4 * 3 * N, 70 * 1000, 4 * N + 15 * N, 7 * 200 * 200]


def test_an_interpreter_takes_240_mib_and_a_run_80_more_in_a_session():
    assert plan.most_expected(MIB, 0) == 241 * MIB
    assert plan.most_expected(MIB, 1000 * MIB) == 1081 * MIB


@given(SQUARE)
def test_rows_that_are_read_once_need_no_more_than_buffers_for_a_band(rows):
    assert RowBuffers.plan(rows, rows.once).run_blocks == rows.run_blocks
    if rows.run_blocks > 1 and rows.once - rows.scratch <= rows.layout.count * rows.block_bytes:
        assert RowBuffers.plan(rows, rows.once - 1).run_blocks == 1


def test_a_pass_that_is_not_repeated_keeps_no_more_rows_than_it_needs():
    needs = plan.checking(ROWS)
    again, once = (plan.Plan.of(10**9, needs, 4, again=again) for again in (True, False))
    assert (again.budget, once.budget) == (needs.budget(10**9), 4 * ROWS.block_bytes)
    assert again.cached_share == 1
    assert plan.Plan.of(needs.min_limit, needs, 4).cached_share == 0
    partly = plan.Plan.of(needs.min_limit + 12 * ROWS.block_bytes, needs, 2)  # of which a sixteenth stays unspent
    assert partly.cached_share == 2 * 11 / 50
    tall = replace(needs, rows=replace(ROWS, band=ROWS.layout.rows + 1))
    assert [plan.Plan.of(10**8, kind, 1, 1.5).read_cost for kind in (needs, tall)] == [1.5, 2.0]


@given(SQUARE)
def test_all_rows_are_kept_where_they_fit_with_what_a_read_holds_and_not_with_a_byte_less(rows):
    held = (rows.layout.count + (rows.copies - 1) * rows.run_blocks) * rows.block_bytes
    enough = rows.scratch + max(held, (1 + rows.copies) * rows.block_bytes)
    kept = RowBuffers.plan(rows, enough)
    assert (kept.cached_blocks, kept.buffer_bytes) == (rows.layout.count, 0)
    if rows.scratch + held == enough > rows.min_limit:
        assert RowBuffers.plan(rows, enough - 1).buffer_bytes > 0


def test_a_sixteenth_of_what_is_left_is_unspent_and_16_mib_at_the_most():
    needs = plan.checking(ROWS)
    for more, unspent in ((0, 0), (160, 10), (256 * MIB, 16 * MIB), (9999 * MIB, 16 * MIB)):
        assert needs.budget(needs.min_limit + more) == needs.rows.min_limit + more - unspent


def test_a_plan_says_what_becomes_of_the_rows():
    needs = plan.checking(ROWS)
    limits = (10**9, needs.min_limit + 12 * ROWS.block_bytes)
    assert [plan.Plan.of(limit, needs, 2).keeping for limit in limits] == [
        "kept in memory",
        "44% kept in memory, rest streamed",
    ]
    assert plan.Plan.of(limits[1], needs, 2, again=False).keeping == "streamed once"
    who = [plan.Plan.of(2**30, needs, workers).who for workers in (1, 2)]
    assert who == ["1 process with 1.00 GiB each", "2 workers with 1.00 GiB each"]
    assert [plan.counted(number, "node") for number in (1, 2000)] == ["1 node", "2,000 nodes"]
