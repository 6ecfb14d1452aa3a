"""Pictures, by the data in their axes."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, plot
from psmds_dist.api.plot import KINDS, colors, maps, save_map, shepard
from psmds_dist.api.plot.style import OKABE_ITO
from psmds_dist.cli.plot import KINDS as COMMAND_KINDS
from tests.marks import wide_but_one

rng = np.random.default_rng(3)
N = 60
POINTS = rng.normal(size=(N, 4))
GIVEN = squareform(pdist(POINTS))
KIND = rng.choice(["b", "a", "c"], N)


@pytest.fixture(scope="module")
def fitted():
    return PatternSearchMDS(init="random", moves="axes", random_state=0, max_epochs=40).fit(GIVEN)


def dots_of(axes):
    """Positions and colors of the markers, in the order of their positions."""
    (dots,) = axes.collections
    order = np.lexsort(dots.get_offsets().T)
    return np.asarray(dots.get_offsets())[order], dots


def sorted_rows(x):
    return x[np.lexsort(x.T)]


def legend_of(figure):
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    return dict(zip(names, (line.get_color() for line in legend.get_lines()), strict=True))


def test_the_command_knows_the_kinds():
    assert KINDS == COMMAND_KINDS


def test_a_map_shows_every_point_in_the_color_of_its_class(fitted):
    figure = plot(fitted, color=KIND, color_label="kind")
    (axes,) = figure.axes
    positions, dots = dots_of(axes)
    assert_allclose(positions, sorted_rows(fitted.embedding_))
    legend = legend_of(figure)
    assert list(legend) == ["a", "b", "c"]
    assert list(legend.values()) == list(OKABE_ITO[:3])
    places = {tuple(row): kind for row, kind in zip(fitted.embedding_.tolist(), KIND, strict=True)}
    for place, color in zip(np.asarray(dots.get_offsets()).tolist(), dots.get_facecolor(), strict=True):
        assert to_rgba(legend[places[tuple(place)]])[:3] == tuple(color[:3])
    assert axes.get_aspect() == 1
    assert axes.get_title() == f"Map of 60 points, normalized stress {fitted.normalized_stress_:.4f}"


def test_values_get_a_color_bar(fitted):
    figure = plot(fitted, color=POINTS[:, 0], color_label="first $coordinate$")
    axes, bar = figure.axes
    assert bar.get_ylabel() == r"first \$coordinate\$"
    (dots,) = axes.collections
    assert_array_equal(np.sort(dots.get_array()), np.sort(POINTS[:, 0]))
    assert not figure.legends


def test_whole_numbers_are_classes_as_long_as_they_are_few():
    assert colors.coloring(np.arange(20)).classes == tuple(map(str, range(20)))
    assert colors.coloring(np.arange(21)).classes == ()
    assert colors.coloring(np.arange(4) / 2).classes == ()
    assert colors.coloring(np.arange(4) / 2, categorical=True).classes == ("0.0", "0.5", "1.0", "1.5")
    assert colors.coloring(np.array([True, False])).classes == ("False", "True")


def test_of_many_classes_the_most_frequent_have_colors_of_their_own():
    labels = np.repeat(np.arange(30), np.where(np.arange(30) % 3, 5, 1))
    found = colors.coloring(labels, categorical=True)
    frequent = [str(k) for k in range(30) if k % 3]
    assert found.classes == (*frequent, "10 other classes")
    assert len(found.colors) == 21
    assert len(set(map(tuple, map(to_rgba, found.colors)))) == 21
    assert_array_equal(found.values == 20, labels % 3 == 0)
    assert "alike" in found.legend
    assert "alike" not in colors.coloring(np.arange(8)).legend


def test_the_stress_of_points_is_their_color(fitted):
    axes, bar = plot(fitted, kind="stress").axes
    assert_array_equal(np.sort(axes.collections[0].get_array()), np.sort(fitted.point_stress_))
    assert bar.get_ylabel() == "normalized stress of the point"


def test_three_dimensions_are_drawn_as_such_and_of_more_the_first_two():
    figure = plot(POINTS[:, :3])
    assert figure.axes[0].name == "3d"
    shown = np.column_stack(figure.axes[0].collections[0]._offsets3d)
    assert_allclose(sorted_rows(shown), sorted_rows(POINTS[:, :3]))
    (axes,) = plot(POINTS).axes
    assert_allclose(dots_of(axes)[0], sorted_rows(POINTS[:, :2]))
    assert axes.get_xlabel() == "dimension 1 of 4"
    (axes,) = plot(POINTS[:, :1]).axes
    assert_allclose(dots_of(axes)[0][:, 0], np.sort(POINTS[:, 0]))
    assert not axes.get_yticks().size


def names_in(axes):
    """Names beside the points, with their places."""
    return {text.get_text().strip(): text.get_position() for text in axes.texts}


def named(n, dims=2):
    names = [f"point $ {k}" for k in range(n - 1)] + ["x" * 30]
    return pd.DataFrame(rng.normal(size=(n, dims)), pd.Index(names, name="id"), list("xyz"[:dims]))


def test_few_points_have_their_names_beside_them(tmp_path):
    table = named(maps.MOST_NAMES)
    table.to_csv(tmp_path / "map.csv")
    (axes,) = plot(tmp_path / "map.csv").axes
    shown = names_in(axes)
    assert len(shown) == maps.MOST_NAMES
    assert_allclose(shown[r"point \$ 3"], table.iloc[3])
    assert_allclose(shown["x" * 21 + "..."], table.iloc[-1])
    assert not names_in(plot(tmp_path / "map.csv", ids=False).axes[0])


def test_many_points_have_their_names_only_where_they_are_asked_for(tmp_path):
    named(maps.MOST_NAMES + 1).to_csv(tmp_path / "map.csv")
    assert not names_in(plot(tmp_path / "map.csv").axes[0])
    assert len(names_in(plot(tmp_path / "map.csv", ids=True).axes[0])) == maps.MOST_NAMES + 1


def test_names_of_points_on_a_line_stand_above_it_and_below_the_title(tmp_path):
    named(5, 1).to_csv(tmp_path / "map.csv")
    figure = plot(tmp_path / "map.csv")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert all(text.get_rotation() == 90 for text in axes.texts)
    assert max(text.get_window_extent().y1 for text in axes.texts) < axes.title.get_window_extent().y0


def test_a_saved_map_of_few_points_has_names(tmp_path):
    save_map(tmp_path / "plain.png", POINTS[:5, :2])
    save_map(tmp_path / "named.png", POINTS[:5, :2], ids=list("abcde"))
    assert not np.array_equal(imread(tmp_path / "plain.png"), imread(tmp_path / "named.png"))


def test_maps_side_by_side_are_turned_and_scaled_to_the_first():
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    other = POINTS[:, :2] + 0.1 * rng.normal(size=(N, 2))
    figure = plot([POINTS[:, :2], 7 * POINTS[:, :2] @ turn + 3, other, POINTS[:, :3], other], names=list("abcde"))
    first, same, *_ = figure.axes
    (drawn, again) = (np.column_stack(axes.collections[0]._offsets3d) for axes in (first, same))
    assert_allclose(drawn, again, atol=1e-12)
    assert len({(axes.get_xlim(), axes.get_ylim(), axes.get_zlim()) for axes in figure.axes}) == 1
    assert [axes.get_title() for axes in figure.axes] == list("abcde")
    assert max(axes.get_subplotspec().colspan.stop for axes in figure.axes) == 3  # in two rows
    (one, another) = maps.aligned([POINTS[:, :2], other])
    assert np.linalg.norm(one) == pytest.approx(np.linalg.norm(another))
    cosine = (one * another).sum() / np.square(one).sum()
    assert 1 - cosine**2 == pytest.approx(procrustes(POINTS[:, :2], other)[2], rel=1e-9)


def test_pixels_of_many_points_show_number_mean_value_and_most_frequent_class(monkeypatch):
    monkeypatch.setattr(maps, "MOST_MARKERS", 100)
    monkeypatch.setattr(maps, "PIXELS", 7)
    x = rng.normal(size=(500, 2)) * (2, 1)
    value, kind = rng.normal(size=500), rng.integers(0, 3, 500)
    side = np.ptp(x[:, 0]) / 7
    columns, rows = np.floor((x - x.min(axis=0)) / side).astype(int).T
    counts, sums, votes = np.zeros((8, 8)), np.zeros((8, 8)), np.zeros((8, 8, 3))
    for row, column, number, k in zip(rows, columns, value, kind, strict=True):
        counts[row, column] += 1
        sums[row, column] += number
        votes[row, column, k] += 1
    height = rows.max() + 1
    here = counts[:height] > 0
    image = plot(x).axes[0].images[0].get_array()
    assert_array_equal(image.filled(0), counts[:height])
    image = plot(x, color=value).axes[0].images[0].get_array()
    assert_allclose(image[here], (sums[:height][here] / counts[:height][here]))
    assert_array_equal(image.mask, ~here)
    image = plot(x, color=kind).axes[0].images[0].get_array()
    expected = np.array([to_rgba(color) for color in OKABE_ITO[:3]])[votes[:height].argmax(axis=2)]
    assert_allclose(np.asarray(image)[here], expected[here])
    assert not np.asarray(image)[~here].any()


def test_all_points_may_be_at_one_place(monkeypatch):
    plot(np.zeros((5, 2)), color=np.arange(5)).draw_without_rendering()
    monkeypatch.setattr(maps, "MOST_MARKERS", 3)
    (image,) = plot(np.ones((5, 2))).axes[0].images
    assert image.get_array().tolist() == [[5]]


def test_convergence_shows_error_and_radius_of_every_epoch(fitted):
    above, below = plot(fitted, kind="convergence").axes
    (errors,), (radius,) = above.lines, below.lines
    history = fitted.history_
    assert_array_equal(errors.get_xdata(), history["epoch"])
    assert_allclose(errors.get_ydata(), np.sqrt(history["mse"]))
    assert_allclose(radius.get_ydata(), history["radius"])
    assert below.get_yscale() == "log"
    assert above.get_ylabel() == "root mean square error"
    figure = plot([fitted, fitted], kind="convergence", names=["_one", "two"])
    assert list(legend_of(figure)) == ["_one", "two"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]


def test_the_error_of_another_loss_is_called_by_its_name():
    other = PatternSearchMDS(loss="huber", init="random", random_state=0, max_epochs=3).fit(GIVEN)
    above, _ = plot(other, kind="convergence").axes
    assert above.get_ylabel() == "root of the mean huber loss"


def test_a_shepard_diagram_shows_every_pair_once(fitted):
    (axes,) = plot(fitted, kind="shepard", X=GIVEN).axes
    expected = np.column_stack((pdist(POINTS), pdist(fitted.embedding_)))
    assert_allclose(dots_of(axes)[0], sorted_rows(expected), rtol=1e-6)
    assert "1,770 pairs of 60 points" in axes.get_title()


def test_a_shepard_diagram_of_many_pairs_shows_their_density(fitted, monkeypatch):
    monkeypatch.setattr(shepard, "MOST_DOTS", 100)
    axes, bar = plot(fitted, kind="shepard", X=GIVEN).axes
    assert axes.collections[0].get_array().sum() == N * (N - 1) / 2
    assert bar.get_ylabel() == "pairs in a cell"
    axes, _ = plot(fitted, kind="shepard", X=GIVEN, sample=10).axes
    assert axes.collections[0].get_array().sum() == 10 * (N - 1)
    assert "590 pairs of 60 points: 10 random ones with all others" in axes.get_title()


@pytest.mark.parametrize("suffix", wide_but_one("png", "svg", "pdf"))
def test_a_saved_picture_is_not_blank(tmp_path, fitted, suffix):
    path = tmp_path / f"map.{suffix}"
    assert isinstance(plot(fitted, path, color=["日本", "$x", "_z"] * 20, title="50 $ or 60 $"), Figure)
    assert path.stat().st_size > 5000
    if suffix == "png":
        assert len(np.unique((imread(path) * 255).astype(np.uint8).view(np.uint32))) > 10


def test_the_settings_of_matplotlib_stay_as_they_were(fitted):
    before = dict(matplotlib.rcParams)
    plot(fitted)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("results", "settings", "words"),
    [
        (POINTS, {"kind": "pie"}, "kind must be one of 'map', 'stress', 'convergence', 'shepard', not 'pie'"),
        (POINTS, {"kind": "stress"}, "the stress of the points of map 1 is not known"),
        (POINTS, {"kind": "convergence"}, "map 1 has no epochs to draw"),
        (POINTS, {"kind": "shepard"}, r"where the dissimilarities of map 1 are; give them \(X= in Python, --matrix\)"),
        (POINTS[1:], {"kind": "shepard", "X": GIVEN}, "map 1 has 59 points, but the matrix 60"),
        ([POINTS, POINTS], {"kind": "shepard", "X": GIVEN}, "a Shepard diagram shows one map, not 2"),
        ([POINTS, POINTS[1:]], {}, "map 2 has 59 points and map 1 has 60"),
        (POINTS, {"color": KIND[1:]}, "color must hold one label for each of 60 points"),
        (POINTS, {"color": "nowhere.txt"}, "labels nowhere.txt does not exist"),
        (POINTS, {"kind": "shepard", "X": GIVEN, "sample": 0}, "sample must be a whole number of at least 1, not 0"),
        (POINTS, {"ids": True}, r"ids=True \(--ids\) needs ids of the points, but map 1 has none"),
        (POINTS, {"names": ["a", "b"]}, "names has 2 names for 1 maps"),
        ([], {}, "results is empty"),
        ("nowhere.zarr", {}, "nowhere.zarr"),
        (POINTS[:, 0], {}, "map 1 must be finite coordinates"),
        (POINTS * np.nan, {}, "map 1 must be finite coordinates"),
        (POINTS, {"path": "map.xyz"}, "cannot save a picture to 'map.xyz': the name must end in"),
        (POINTS, {"path": "no/such/map.png"}, "its directory does not exist"),
        (POINTS, {"path": "s3://b/map.png"}, "is written to a local directory"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(results, settings, words):
    with pytest.raises(InputError, match=words):
        plot(results, **settings)


def test_the_stress_is_no_second_color(fitted):
    with pytest.raises(InputError, match="kind='stress' colors points by their stress"):
        plot(fitted, kind="stress", color=KIND)
