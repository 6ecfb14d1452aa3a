"""Commands that read stores and results: ``info``, ``quality`` and ``export``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.cli.options import (
    SAMPLE_ROWS,
    ClusterOptions,
    InputPath,
    Positive,
    RuleOptions,
    accept,
    option,
    overwrite_option,
)
from psmds_dist.cli.output import print_file, print_note, print_result, print_status
from psmds_dist.cli.session import open_executor, require_output, with_matrices_beside
from psmds_dist.core.errors import InputError

if TYPE_CHECKING:
    from psmds_dist.api.compare import Comparison
    from psmds_dist.api.results import Result
    from psmds_dist.core.certificate import Certificate
    from psmds_dist.core.executor import Executor
    from psmds_dist.core.quality import Quality
    from psmds_dist.core.region import Region
    from psmds_dist.core.rules import PairRule
    from psmds_dist.core.sources import RowSource
    from psmds_dist.core.stress import Stress
    from psmds_dist.core.types import Floats


@click.command()
@click.argument("path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(path: str, as_json: bool) -> None:
    """Describe the store, result or checkpoint at PATH."""
    from psmds_dist.api.report import fact_lines
    from psmds_dist.data.store import describe
    from psmds_dist.solver.checkpoint import describe_run

    facts = describe_run(path) or describe(path)
    print_result(json.dumps(facts, indent=2) if as_json else "\n".join(fact_lines(facts)))


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured beside stress, and how it is printed."""

    n_neighbors: int | None = option(
        "--neighbors", "-k", type=click.IntRange(1), help="Nearest points that the measures look at [default: 10]."
    )
    labels: str | None = option(
        "--labels",
        type=click.Path(exists=True, dir_okay=False),
        help="Class of each point, for hit and score of neighborhoods: one per line, .npy, or the last column of a "
        ".csv/.tsv whose first column names the points.",
    )
    truth: str | None = option(
        "--truth", type=click.Path(exists=True, dir_okay=False), help="Known coordinates, in a file as those of RESULT."
    )
    sample: int | None = option(
        "--sample", type=SAMPLE_ROWS, help="Read this many random rows only, and print 95 % intervals."
    )
    seed: int = option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the sample.")
    as_json: bool = option("--json", is_flag=True, help="Print all measures as JSON.")

    def measure(self, source: RowSource, found: _Map, executor: Executor, memory_limit: str | None) -> Stress | Quality:
        """Stress of a map, or all measures if any of the options asks for them."""
        from psmds_dist.api.embed import measure
        from psmds_dist.api.quality import Wanted, assess

        extra = (self.n_neighbors, self.labels, self.truth, self.sample)
        if not self.as_json and all(value is None for value in extra):
            return measure(source, found.embedding, executor, memory_limit, found.rule)
        wanted = Wanted.of(source.n, source.ids, self.labels, self.truth, self.n_neighbors, self.sample, self.seed)
        return assess(source, found.embedding, executor, wanted, memory_limit, found.rule)


@click.command()
@click.argument("result", type=InputPath())
@click.option("--matrix", type=click.Path(), help="The dissimilarities [default: those that RESULT was computed from].")
@click.option(
    "--worst", default=5, show_default=True, type=click.IntRange(0), help="Number of points of highest stress to list."
)
@click.option(
    "--compare",
    multiple=True,
    type=click.Choice(["smacof", "classical"]),
    help="Also run this method of scikit-learn.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Also try every move along the axes, of the final radius of RESULT or --radius, and print the best gain.",
)
@click.option("--radius", type=Positive(), help="Length of the moves of --certify.")
@accept(RuleOptions, "pairs")
@accept(MeasureOptions, "measures")
@accept(ClusterOptions, "cluster")
def quality(
    result: str,
    matrix: str | None,
    worst: int,
    compare: tuple[str, ...],
    certify: bool,
    radius: float | None,
    pairs: RuleOptions,
    measures: MeasureOptions,
    cluster: ClusterOptions,
) -> None:
    """Measure the stress of RESULT and list its worst points.

    --neighbors, --labels, --truth, --sample or --json print more measures: stress after scaling, strain, correlations,
    trustworthiness and continuity, and those that the options are for. With missing pairs, weights, bounds or another
    loss, stress and the measures that labels and known coordinates give remain.

    RESULT is a map of psmds, or a file with the coordinates of any map of --matrix: .npy, or .csv or .tsv with a column
    for each dimension. A heading, and names in the first column, are optional. If the matrix has names as well, points
    are matched by them, otherwise by their order. Coordinates are in units of the dissimilarities. A map of psmds is
    measured with the weights, bounds and loss that it was made with, unless others are given.
    """
    from psmds_dist.api.report import table
    from psmds_dist.data.coordinates import holds_coordinates

    if compare and measures.as_json:
        raise click.UsageError("--json and --compare are mutually exclusive; use one of them.")
    if radius is not None and not certify:
        raise click.UsageError("--radius is the length of the moves of --certify; give both.")
    source, found = (_open_file if holds_coordinates(result) else _open_result)(result, matrix, pairs)
    with open_executor(cluster) as executor:
        executor.check_readable(source)
        measured = measures.measure(source, found, executor, cluster.memory_limit)
        if certify:
            found = found.certified(source, executor, cluster.memory_limit, radius)
    print_result(_as_json(measured, found, worst) if measures.as_json else _as_text(measured, found, worst))
    if compare:
        rows = _comparisons(source, found, measured, compare)
        print_result("\n" + table(["method", "normalized stress", "seconds"], rows))


def _as_text(measured: Stress | Quality, found: _Map, worst: int) -> str:
    """Lines on a map, and a table of its worst points."""
    from psmds_dist.api.report import quality_lines, stress_lines, table
    from psmds_dist.core.quality import Quality

    rule = found.rule
    figures = quality_lines(measured, rule) if isinstance(measured, Quality) else stress_lines(measured, rule)
    lines = [*filter(None, [found.agreement]), figures]
    lines += [found.certificate.describe()] if found.certificate else []
    if worst:
        rows = [[name, f"{value:.4f}"] for name, value in _worst(measured, found, worst)]
        lines += ["", table(["worst points", "point stress"], rows)]
    return "\n".join(lines)


def _as_json(measured: Stress | Quality, found: _Map, worst: int) -> str:
    from psmds_dist.core.quality import Quality

    assert isinstance(measured, Quality)  # --json asks for all measures
    worst_points = [{"id": name, "point_stress": value} for name, value in _worst(measured, found, worst)]
    certified = {"certificate": found.certificate.as_dict()} if found.certificate else {}
    return json.dumps({**measured.as_dict(), **certified, "worst_points": worst_points}, indent=2)


def _worst(measured: Stress | Quality, found: _Map, count: int) -> list[tuple[str, float]]:
    """Names and stress of the points that fit worst, of those that were looked at."""
    from psmds_dist.core.stress import worst_points

    rows = getattr(measured, "rows", None)
    ids = found.ids if rows is None else [found.ids[k] if found.ids else str(k) for k in rows]
    return worst_points(measured, ids, count)


@dataclass(frozen=True)
class _Map:
    """A map to measure, and what is known about how it was made."""

    method: str
    embedding: Floats
    ids: Sequence[str] | None
    rule: PairRule
    seconds: float | None = None
    seed: int = 0
    agreement: str = ""
    raw: Floats | None = None
    """The map before it was turned."""

    radius: float | None = None
    region: Region | None = None
    certificate: Certificate | None = None

    def certified(self, source: RowSource, executor: Executor, memory_limit: str | None, radius: float | None) -> _Map:
        """The same with its certificate, for moves along the axes of the solve."""
        from psmds_dist.api.certificate import certificate_of

        x = self.embedding if self.raw is None else self.raw
        found = certificate_of(source, x, executor, radius or self.radius, memory_limit, self.rule, self.region)
        return replace(self, certificate=found)


def _open_file(path: str, matrix: str | None, pairs: RuleOptions) -> tuple[RowSource, _Map]:
    """Matrix, and the map that another program has written to a file."""
    from psmds_dist.data.coordinates import read_coordinates
    from psmds_dist.data.opening import open_matrix

    if matrix is None:
        raise InputError(f"{path} holds coordinates alone; give the dissimilarities that they are a map of (--matrix).")
    source = open_matrix(matrix)
    found = read_coordinates(path, source.n, source.ids)
    ids = None if source.ids is None else list(source.ids)
    whole = with_matrices_beside(source, ids, pairs.beside)
    return whole, _Map(os.path.basename(path), found.values, ids or found.ids, pairs.rule)


def _open_result(path: str, matrix: str | None, pairs: RuleOptions) -> tuple[RowSource, _Map]:
    """Matrix and map of a result, with the rule that it was made by unless another one is given."""
    from psmds_dist.api.results import read_result
    from psmds_dist.core.rules import PLAIN, PairRule
    from psmds_dist.data.opening import open_matrix

    found = read_result(path)
    facts = found.attributes
    source = open_matrix(matrix or _matrix_of(found, path))
    given = pairs.rule != PLAIN
    rule = pairs.rule if given else PairRule(**facts.get("rule", {}))
    beside = pairs.beside if given else _beside(facts, rule, path)
    whole = with_matrices_beside(source, None if source.ids is None else list(source.ids), beside)
    agreement = str(facts.get("starts", {}).get("agreement", ""))  # a landmark map has no such record
    seconds, seed = float(facts["seconds"]), int(facts["seed"])
    made = _Map(
        method="pattern search",
        embedding=found.embedding,
        ids=found.ids,
        rule=rule,
        seconds=seconds,
        seed=seed,
        agreement=agreement,
        raw=found.raw_embedding,
        radius=facts.get("radius"),
        region=found.region,
    )
    return _of_points(whole, source.ids, made), made


def _beside(facts: Mapping[str, Any], rule: PairRule, path: str) -> dict[str, str]:
    """Paths of the upper bounds and weights that a result was computed with."""
    wanted = ["upper"] * rule.bounded + ["weights"] * rule.weighted
    for name in wanted:
        if name not in facts:
            raise InputError(f"{path} does not record where its {name} matrix is; give it with --{name}.")
    return {name: facts[name] for name in wanted}


def _of_points(source: RowSource, names: Sequence[str] | None, made: _Map) -> RowSource:
    """The matrix of the points of a map, which may be the largest component alone."""
    import numpy as np

    from psmds_dist.ingest.connected import subset_of

    if source.n <= len(made.embedding) or made.ids is None:
        return source
    row = {name: k for k, name in enumerate(names or map(str, range(source.n)))}
    unknown = [name for name in made.ids if name not in row]
    if unknown:
        raise InputError(f"the map has a point {unknown[0]!r} that is not in the matrix; give that of the map.")
    return subset_of(source, np.array([row[name] for name in made.ids]))


def _matrix_of(found: Result, result: str) -> str:
    """Path of the matrix that a result was computed from."""
    path: str | None = found.attributes.get("matrix")
    if path is None:
        raise InputError(
            f"{result} does not record where its dissimilarities are (it may come from points, a panel or memory); "
            "give the whole matrix with --matrix."
        )
    return path


def _comparisons(source: RowSource, found: _Map, stress: Stress | Quality, methods: tuple[str, ...]) -> list[list[str]]:
    from psmds_dist.api.compare import load
    from psmds_dist.data.paired import PairedRows

    matrix = load(source.first if isinstance(source, PairedRows) else source)
    others = [_compare(method, matrix, found) for method in methods]
    rows = [(found.method, stress, found.seconds)]
    rows += [(other.method, other.stress, other.seconds) for other in others]
    return [
        [name, f"{stress.normalized_stress:.6f}", "unknown" if seconds is None else f"{seconds:.2f}"]
        for name, stress, seconds in rows
    ]


def _compare(method: str, matrix: Floats, found: _Map) -> Comparison:
    from psmds_dist.api.compare import classical_mds, smacof

    dims = found.embedding.shape[1]
    if method == "classical":
        return classical_mds(matrix, dims)
    return smacof(matrix, dims, random_state=found.seed)


@click.command()
@click.argument("result", type=InputPath())
@click.argument("output", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    type=click.Choice(["csv", "tsv", "npy", "parquet", "h5ad", "json", "geojson", "ordination"]),
    help="Format of OUTPUT [default: its suffix].",
)
@click.option(
    "--join",
    "metadata",
    type=click.Path(exists=True, dir_okay=False),
    help="Add columns of this .csv or .tsv by id.",
)
@click.option("--sort", is_flag=True, help="Sort the rows by x1: the order of a map in one dimension.")
@overwrite_option
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def export(
    result: str, output: str, format: str | None, metadata: str | None, sort: bool, overwrite: bool, quiet: bool
) -> None:
    """Write the coordinates of RESULT to the file OUTPUT.

    '-' is standard output, for formats of text (--format).

    OUTPUT ends in .csv, .tsv, .parquet or .json (with ids and point stress), .geojson (points of a plane, not of the
    globe), .h5ad (AnnData, obsm["X_mds"]) or .npy; '--format ordination' is scikit-bio's text for Emperor and QIIME 2.
    In .csv and .tsv, control characters in ids are escaped, and an id that a spreadsheet would read as a formula gets a
    leading apostrophe, which --ids OUTPUT removes again; signed numbers are left unchanged.
    """
    from psmds_dist.api.results import export_stored

    write = partial(export_stored, result, sort=sort, format=format, metadata=metadata)
    if output == "-":
        missing = _print_export(write, format)
    else:
        require_output(output, overwrite, result, *filter(None, [metadata]))
        missing = write(output)
    if quiet:
        return
    if missing:
        print_note(f"{missing:,} points are not in {metadata}; their cells are empty")
    if format == "ordination":
        print_note("a map of stress has no eigenvalues; in their place are the sums of squares of its axes")
    if output != "-":
        print_status(f"{output}: coordinates of {result}")


def _print_export(write: Callable[[str], int], format: str | None) -> int:
    """Write a map in a format of text to standard output; return what ``write`` does."""
    from psmds_dist.api.export import BINARY, format_of

    if format_of("-", format) in BINARY:
        raise InputError(f"the format {format} is binary and is not written to standard output; give a file as OUTPUT.")
    with TemporaryDirectory() as folder:
        path = Path(folder, "map")
        missing = write(str(path))
        print_file(path)
    return missing
