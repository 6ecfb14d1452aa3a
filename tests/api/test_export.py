"""Maps in files of other programs, read back by these."""

import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from psmds_dist import InputError, PatternSearchMDS, read_result
from psmds_dist.api.export import MapTable, join, write_map
from psmds_dist.cli.app import main
from psmds_dist.data.ids import read_ids

IDS = ["0101", "NA", "=1+1", "é 中", 'a "b", c', "-1", "x\ty"]
N = len(IDS)
RNG = np.random.default_rng(0)


@pytest.fixture
def table():
    return MapTable(RNG.normal(size=(N, 3)), list(IDS), RNG.random(N))


def metadata(folder, rows, separator="\t", name="metadata.tsv"):
    (folder / name).write_text("\n".join(separator.join(row) for row in rows) + "\n")
    return str(folder / name)


def test_parquet_holds_the_same_numbers_and_ids(tmp_path, table):
    pytest.importorskip("pyarrow")
    write_map(table, str(tmp_path / "m.parquet"))
    frame = pd.read_parquet(tmp_path / "m.parquet")
    assert frame["id"].tolist() == IDS
    np.testing.assert_array_equal(frame[["x1", "x2", "x3"]].to_numpy(), table.coordinates)
    np.testing.assert_array_equal(frame["point_stress"], table.point_stress)


def test_json_is_a_list_of_records(tmp_path, table):
    table.point_stress[1] = np.nan
    write_map(table, str(tmp_path / "m.json"))
    records = json.loads((tmp_path / "m.json").read_text())
    assert [record["id"] for record in records] == IDS
    assert [[record[f"x{k}"] for k in (1, 2, 3)] for record in records] == table.coordinates.tolist()
    assert records[1]["point_stress"] is None


@pytest.mark.parametrize("dims", [2, 3])
def test_geojson_is_a_collection_of_points(tmp_path, table, dims):
    write_map(MapTable(table.coordinates[:, :dims], table.ids), str(tmp_path / "m.geojson"))
    found = json.loads((tmp_path / "m.geojson").read_text())
    assert found["type"] == "FeatureCollection"
    assert [feature["geometry"] for feature in found["features"]] == [
        {"type": "Point", "coordinates": x} for x in table.coordinates[:, :dims].tolist()
    ]
    assert [feature["id"] for feature in found["features"]] == IDS
    with pytest.raises(InputError, match="for 2 or 3 dimensions, but the map has 1"):
        write_map(MapTable(table.coordinates[:, :1]), str(tmp_path / "line.geojson"))


@pytest.mark.filterwarnings("ignore")
def test_scikit_bio_reads_the_ordination(tmp_path, table):
    skbio = pytest.importorskip("skbio")
    write_map(MapTable(table.coordinates, [*IDS[:-1], "last"]), str(tmp_path / "m.txt"), "ordination")
    found = skbio.OrdinationResults.read(str(tmp_path / "m.txt"))
    assert found.samples.index.tolist() == [*IDS[:-1], "last"]
    np.testing.assert_array_equal(found.samples.to_numpy(), table.coordinates)
    np.testing.assert_allclose(found.eigvals, table.coordinates.var(axis=0) * N, rtol=1e-12)
    np.testing.assert_allclose(found.proportion_explained, found.eigvals / found.eigvals.sum(), rtol=1e-12)


def test_the_ordination_has_the_eigenvalues_of_an_exact_map(tmp_path):
    """Where distances are those of points in a plane, the map is classical scaling's up to its orientation."""
    points = RNG.normal(size=(30, 2)) * [3, 1]
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    mds = PatternSearchMDS(random_state=0).fit(distances)
    write_map(MapTable(mds.embedding_), str(tmp_path / "m.txt"), "ordination")
    found = [float(cell) for cell in (tmp_path / "m.txt").read_text().splitlines()[1].split("\t")]
    expected = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_data_frames(tmp_path):
    matrix = np.linalg.norm(RNG.normal(size=(N, 1, 3)) - RNG.normal(size=(1, N, 3)), axis=2)
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    mds = PatternSearchMDS(random_state=0).fit(pd.DataFrame(matrix, IDS, IDS))
    mds.save(tmp_path / "map.zarr")
    for frame in (mds.result_.to_frame(), read_result(tmp_path / "map.zarr").to_frame()):
        assert frame.index.tolist() == IDS
        assert frame.index.name == "id"
        np.testing.assert_array_equal(frame[["x1", "x2"]].to_numpy(), mds.embedding_)
        np.testing.assert_array_equal(frame["point_stress"], mds.point_stress_)


# metadata ------------------------------------------------------------------------------------------------------------


def test_metadata_is_joined_by_id(tmp_path, table):
    path = metadata(
        tmp_path,
        [
            ["#SampleID", "site", "note"],
            ["#q2:types", "categorical", ""],
            ["é 中", "gut", "=2"],
            ["0101", "", "b"],
            ["other", "?", "?"],
        ],
    )
    joined, missing = join(table, path)
    assert missing == N - 2
    assert joined.joined == {"site": ["", "", "", "gut", "", "", ""], "note": ["b", "", "", "=2", "", "", ""]}
    write_map(joined, str(tmp_path / "m.csv"))
    frame = pd.read_csv(tmp_path / "m.csv", dtype=str, keep_default_na=False)
    assert frame["site"].tolist() == joined.joined["site"]
    assert frame["note"][3] == "'=2"  # no spreadsheet runs it
    assert frame["id"][2] == "'=1+1"
    assert read_ids(tmp_path / "m.csv", N)[:4] == IDS[:4]
    order = joined.taken(np.array([3, 0]))
    assert (order.ids, order.joined["site"]) == (["é 中", "0101"], ["gut", ""])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([["id", "site"], ["nobody", "x"]], "has none of the ids of the map in its first column; the first is '0101'"),
        ([["id", "site"], ["NA", "x"], ["NA", "y"]], "has the id 'NA' twice"),
        ([["id", "site", "site"], ["NA", "x", "y"]], "has two columns 'site'; rename one"),
        ([["id", "site"], ["#q2:types", "x"], ["NA"]], "has 1 cells in line 3, but a heading of 2"),
        ([["id", "x1"], ["NA", "x"]], "has a column 'x1', as the map has; rename it"),
        ([["id", "site"], ["NA"]], "has 1 cells in line 2, but a heading of 2"),
    ],
)
def test_metadata_that_does_not_fit_is_told(tmp_path, table, rows, told):
    with pytest.raises(InputError, match=told):
        join(table, metadata(tmp_path, rows))


def test_what_a_format_cannot_hold_is_told(tmp_path, table):
    joined, _ = join(table, metadata(tmp_path, [["id", "site"], ["NA", "x"]]))
    with pytest.raises(InputError, match=r"a \.npy file holds coordinates alone; join metadata to another format"):
        write_map(joined, str(tmp_path / "m.npy"))
    with pytest.raises(InputError, match="an ordination holds coordinates alone"):
        write_map(joined, str(tmp_path / "m.txt"), "ordination")
    with pytest.raises(InputError, match="has no ids to join"):
        join(MapTable(table.coordinates), metadata(tmp_path, [["id", "site"]]))
    with pytest.raises(InputError, match=r"must end in one of \.csv, .*\.geojson, or have --format csv\|tsv"):
        write_map(table, str(tmp_path / "m.xlsx"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["metadata.tsv"]


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matrix = np.abs(np.subtract.outer(np.arange(N), np.arange(N))) * 1.0
    PatternSearchMDS(random_state=0, max_epochs=2).fit(pd.DataFrame(matrix, IDS, IDS)).save("map.zarr")
    metadata(tmp_path, [["id", "site"], ["NA", "gut"]])

    def export(*arguments):
        ended = CliRunner().invoke(main, ["export", "map.zarr", *arguments])
        assert ended.exit_code == 0, ended.output
        return ended.output

    assert "6 points are not in metadata.tsv; their cells are empty" in export(
        "m.json", "--join", "metadata.tsv", "--sort"
    )
    records = json.loads((tmp_path / "m.json").read_text())
    assert {record["id"]: record["site"] for record in records}["NA"] == "gut"
    x1 = [record["x1"] for record in records]
    assert x1 == sorted(x1)
    assert "a map of stress has no eigenvalues" in export("m.txt", "--format", "ordination")
    assert (tmp_path / "m.txt").read_text().startswith("Eigvals\t2\n")


def test_anndata_reads_the_map_back(tmp_path, table):
    anndata = pytest.importorskip("anndata")
    joined = replace(table, joined={"kind": ["x"] * len(IDS)})
    write_map(joined, str(tmp_path / "m.h5ad"))
    for found in (joined.to_anndata(), anndata.read_h5ad(tmp_path / "m.h5ad")):
        assert list(found.obs_names) == IDS
        np.testing.assert_array_equal(found.obsm["X_mds"], table.coordinates)
        np.testing.assert_array_equal(found.obs["point_stress"], table.point_stress)
        assert list(found.obs["kind"]) == ["x"] * len(IDS)


def test_a_missing_anndata_is_told_with_its_command(monkeypatch, tmp_path, table):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(InputError, match=r"needs anndata: pip install 'psmds-dist\[anndata\]'"):
        write_map(table, str(tmp_path / "m.h5ad"))
    assert not list(tmp_path.iterdir())
