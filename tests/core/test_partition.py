import pytest
from hypothesis import given
from hypothesis import strategies as st

from psmds_dist.core.layout import (
    MIN_BLOCKS,
    Layout,
    format_bytes,
    groups,
    owners,
    parse_bytes,
    round_up,
)
from psmds_dist.core.types import InputError
from psmds_dist.solver.schedule import halves

SIZES = st.one_of(st.integers(3, 5000), st.integers(5000, 3_000_000))
CLUSTERS = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.integers(1, 16), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("n", "rows", "count"),
    [
        (3, 1, 3),
        (31, 1, 31),
        (3_000, 93, 33),
        (20_000, 100, 200),
        (100_000, 20, 5_000),
        (300_000, 6, 50_000),
        (3_000_000, 1, 3_000_000),
    ],
)
def test_block_size_follows_from_the_number_of_points(n, rows, count):
    assert (Layout(n).rows, Layout(n).count) == (rows, count)


@given(SIZES)
def test_blocks_tile_all_rows(n):
    layout = Layout(n)
    assert layout.rows == 1 or layout.rows * n * 4 <= 8_000_000
    assert layout.count >= min(n, MIN_BLOCKS)
    assert layout.bounds(0)[0] == 0
    assert layout.bounds(layout.count - 1)[1] == n
    for block in {0, 1, layout.count // 2, layout.count - 2}:
        lo, hi = layout.bounds(block)
        assert hi - lo == layout.rows
        assert layout.bounds(block + 1)[0] == hi
    lo, hi = layout.bounds(layout.count - 1)
    assert 1 <= hi - lo <= layout.rows


@given(st.integers(3, 40_000), CLUSTERS)
def test_every_block_has_one_owner_within_its_share_of_threads(n, workers):
    count = Layout(n).count
    exclusive_lock = owners(range(count), workers)
    assert list(exclusive_lock) == list(workers)
    assert sorted(block for own in exclusive_lock.values() for block in own) == list(range(count))
    pairs = -(-count // 2)
    for name, own in exclusive_lock.items():
        assert own == sorted(own)
        assert len({block // 2 for block in own}) <= -(-pairs * workers[name] // sum(workers.values()))
        for block in own:
            partner = block ^ 1
            assert partner in own or partner == count


def test_a_worker_with_more_threads_gets_more_blocks():
    exclusive_lock = owners(range(200), {"small": 1, "large": 3})
    assert (len(exclusive_lock["small"]), len(exclusive_lock["large"])) == (50, 150)


def test_owners_do_not_depend_on_the_order_in_which_workers_are_named():
    names = ["a", "b", "c", "d"]
    one = owners(range(203), dict.fromkeys(names, 2))
    two = owners(range(203), dict.fromkeys(reversed(names), 2))
    assert one == two


@pytest.mark.parametrize("workers", [3, 8, 16])
def test_few_blocks_move_when_a_worker_is_lost_or_returns(workers):
    names = [f"worker-{k}" for k in range(workers)]
    before = {b: name for name, own in owners(range(2000), dict.fromkeys(names, 1)).items() for b in own}
    lost = names[1]
    rest = [name for name in names if name != lost]
    after = {b: name for name, own in owners(range(2000), dict.fromkeys(rest, 1)).items() for b in own}
    orphans = [b for b, name in before.items() if name == lost]
    moved = [b for b, name in before.items() if name not in (lost, after[b])]
    assert len(orphans) >= 2000 // workers - 2 * workers
    assert len(moved) <= 0.05 * 2000
    again = {b: name for name, own in owners(range(2000), dict.fromkeys(names, 1)).items() for b in own}
    assert again == before


@given(st.integers(100, 40_000), CLUSTERS, st.integers(0, 100))
def test_both_rounds_are_equally_large_on_every_worker(n, workers, epoch):
    layout = Layout(n)
    exclusive_lock = owners(range(layout.count), workers)
    first, second = (set(half) for half in halves(layout, 7, epoch))
    for own in exclusive_lock.values():
        assert abs(len(first.intersection(own)) - len(second.intersection(own))) <= 1


@given(st.integers(100, 40_000), CLUSTERS, st.integers(0, 100))
def test_a_block_has_the_same_owner_in_a_round_as_in_the_whole(n, workers, epoch):
    layout = Layout(n)
    whole = {b: name for name, own in owners(range(layout.count), workers).items() for b in own}
    for half in halves(layout, 7, epoch):
        part = {b: name for name, own in owners(half, workers).items() for b in own}
        assert sorted(part) == sorted(half)
        changed = sum(whole[b] != name for b, name in part.items())
        # the pair without a partner is missing in one of the rounds: shares may round down by one pair each
        assert changed <= (len(workers) if layout.count % 2 else 0)


def test_groups_cut_blocks_in_order():
    assert groups([5, 3, 1, 4, 2], 2) == [[1, 2], [3, 4], [5]]
    assert groups([5, 3, 1], None) == [[1, 3, 5]]
    assert groups([], 3) == groups([], None) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (4096, 4096),
        (1e9, 10**9),
        ("512", 512),
        ("512b", 512),
        ("400 MiB", 400 * 2**20),
        ("400MB", 400 * 10**6),
        (" 1.5 gib ", 3 * 2**29),
        ("4GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("4Gi", 4 * 2**30),
        ("2 TiB", 2**41),
        ("3k", 3000),
    ],
)
def test_bytes_are_read_from_numbers_and_text(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "much", "-1", 0, "0 MB", "1.2.3 MB", "4 XB", True, None, "nan", "inf", "1e400", [4]]
)
def test_what_is_no_number_of_bytes_is_refused_by_name(text):
    with pytest.raises(InputError, match=r"^budget must be a positive number of bytes"):
        parse_bytes(text, "budget")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (400 * 2**20, "400.0 MiB"),
        (3 * 2**29, "1.50 GiB"),
        (5 * 2**41, "10.00 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_are_written_in_binary_units(count, text):
    assert format_bytes(count) == text


@given(st.integers(0, 2**45))
def test_bytes_rounded_up_are_enough_and_hardly_more(count):
    parsed = parse_bytes(round_up(count)) if count else 0
    assert count <= parsed <= 1.1 * count + 103
