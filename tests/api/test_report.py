"""What a run says: the time left, the tables, the pictures."""

import io
import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, classical_mds, smacof
from psmds_dist.api.plot import save_map
from psmds_dist.api.plot.curves import add_history_axes, draw_history
from psmds_dist.api.report import TimeLeft, counter, describe_seconds, progress, stress_lines, table
from psmds_dist.core.events import EpochEvent
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.solver.solve import HISTORY


def events(radii, end_radius, pace=0.5):
    return [EpochEvent(k + 1, r, 1.0, pace * (k + 1), 1.0, end_radius) for k, r in enumerate(radii)]


def halving(start, end, epochs_each):
    radii, radius = [], start
    while radius > end:
        radii += [radius] * epochs_each
        radius /= 2
    return radii


@pytest.mark.parametrize("epochs_each", [1, 2, 5])
def test_time_left_is_about_right_when_the_pace_is_steady(epochs_each):
    told = events(halving(1.0, 1e-4, epochs_each), 1e-4)
    left = TimeLeft()
    guesses = [left.update(event) for event in told]
    truth = [told[-1].seconds - event.seconds for event in told]
    half = len(told) // 2
    assert all(0 < guess < math.inf for guess in guesses)
    for guess, true in zip(guesses[half:], truth[half:], strict=True):
        assert true / 2 - 0.5 * epochs_each <= guess <= 2 * true + epochs_each


REAL_RUNS = {
    "digits": [10, 8, 6, 7, 5, 5, 4, 3, 1, 2, 1, 1, 1],
    "five dimensions": [4, 7, 11, 10, 7, 8, 6, 4, 1, 2, 1, 1, 1],
    "exact": [6, 5, 5, 5, 5, 3, 5, 5, 4, 5, 5, 5, 5],
}
"""Epochs at each radius of real runs."""


@pytest.mark.parametrize("run", REAL_RUNS)
def test_time_left_of_real_runs_is_honest(run):
    radii = [0.5**k for k, count in enumerate(REAL_RUNS[run]) for _ in range(count)]
    told = events(radii, end_radius=0.5 ** len(REAL_RUNS[run]), pace=0.2)
    left = TimeLeft()
    for event in told[5:]:
        guess, truth = left.update(event), told[-1].seconds - event.seconds
        assert truth / 3 - 0.5 <= guess <= 4 * truth + 1


@pytest.mark.parametrize("radii", [[1e-9], [1.0], [1.0, 1.0, 2.0]])
def test_time_left_of_odd_runs(radii):
    left = TimeLeft()
    for event in events(radii, end_radius=1e-3):
        assert 0 < left.update(event) < 1e4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (1e-6, "0.0 ms"), (0.00012, "0.1 ms"), (0.0046, "5 ms"), (0.094, "94 ms"), (0.096, "0.1 s"),
     (3.21, "3.2 s"), (42, "42 s"), (99.9, "100 s"), (100, "2 min"), (3600, "60 min"),
     (5999, "1 h 40 min"), (6000, "1 h 40 min"), (90_000, "25 h 00 min")],
)  # fmt: skip
def test_durations(seconds, text):
    assert describe_seconds(seconds) == text


def test_nothing_is_shown_off_a_terminal(capsys):
    with progress(quiet=False) as show:
        for event in events([1.0, 0.5], 0.1):
            show(event)
    with counter("writing", quiet=False) as count:
        count(1, 2)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_the_line_and_the_bar(monkeypatch, capsys, quiet):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with progress(quiet) as show:
        for event in events([1.0, 0.5], 0.125):
            show(event)
        print("said meanwhile")
    with counter("writing", quiet) as count:
        count(3, 4)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert ("epoch 2   radius 0.5 (ends at 0.125)   rms error 1   100% moved" in text) == (not quiet)
    assert ("writing" in text) == (not quiet)
    assert capsys.readouterr().out == "said meanwhile\n"  # standard output stays where it was sent


def test_stress_lines_and_tables():
    text = stress_lines(Stress(0.25, 12.5, 0.125, 0.0625, np.zeros(3)))
    assert "normalized stress  0.062500" in text
    assert "Stress-1           0.125000" in text
    lost = stress_lines(Stress.unknown(3))
    assert "not measured" in lost
    assert "nan" not in lost
    assert table(["name", "n"], [["a", "10"], ["longer", "7"]]) == "name     n\na       10\nlonger   7"
    assert table(["name"], []) == "name"


def test_pictures(tmp_path):
    random = np.random.default_rng(0)
    mds = PatternSearchMDS(max_epochs=3).fit(squareform(pdist(random.random((40, 3)))))
    save_map(tmp_path / "plain.png", mds.embedding_)
    save_map(tmp_path / "classes.svg", mds.embedding_, colour=np.arange(40) % 3, colour_label="kind", title="<t>")
    save_map(tmp_path / "line.pdf", mds.embedding_[:, :1], colour=random.random(40), history=mds.history_)
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot save a picture to"):
        save_map(tmp_path / "map.nonsense", mds.embedding_)
    with pytest.raises(StorageError, match="create its directory first"):
        save_map(tmp_path / "no" / "map.png", mds.embedding_)


def test_the_curve_of_the_error_fills_its_picture():
    history = np.zeros(20, HISTORY)
    history["epoch"], history["radius"] = np.arange(1, 21), 0.5 ** np.arange(20)
    history["mse"] = (10 + np.linspace(0.2, 0, 20)) ** 2  # a landmark start leaves little to gain
    above, below = add_history_axes(Figure())
    draw_history(above, below, history)
    low, high = above.get_ylim()
    assert low < 10 < 10.2 < high
    assert high - low < 0.4


def test_other_methods_are_measured_the_same_way():
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(80, 4))))
    for other in (smacof(matrix, random_state=0), classical_mds(matrix)):
        d = squareform(pdist(other.embedding))
        assert other.stress.mse == pytest.approx(((matrix - d) ** 2).mean(), rel=1e-10)
        assert other.embedding.shape == (80, 2)
        assert other.seconds > 0
    ours = PatternSearchMDS(random_state=0, dtype="float64").fit(matrix)
    assert ours.normalized_stress_ < 1.02 * smacof(matrix, random_state=0).stress.normalized_stress
