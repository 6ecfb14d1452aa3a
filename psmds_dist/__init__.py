"""Distributed pattern search multidimensional scaling.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing would take longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from psmds_dist.api.certificate import certify
    from psmds_dist.api.compare import classical_mds, smacof
    from psmds_dist.api.dimensions import Dimensions, dimensions
    from psmds_dist.api.embed import Embedding
    from psmds_dist.api.estimator import PatternSearchMDS
    from psmds_dist.api.plot import plot
    from psmds_dist.api.quality import measure, quality
    from psmds_dist.api.results import Result, read_result
    from psmds_dist.core.certificate import Certificate
    from psmds_dist.core.errors import (
        BudgetError,
        ClusterLost,
        DamagedDataError,
        DissimilarityWarning,
        ForkError,
        InputError,
        PsmdsError,
        StorageError,
        WorkerError,
    )
    from psmds_dist.core.events import EpochEvent
    from psmds_dist.core.quality import Quality
    from psmds_dist.core.sources import ReadProfile, RowSource, WrappedSource
    from psmds_dist.core.stress import Stress, canonical
    from psmds_dist.core.types import Executor, InputCheck, StopReason
    from psmds_dist.data.features import open_points
    from psmds_dist.data.geodesics import open_geodesics
    from psmds_dist.data.objects import open_objects
    from psmds_dist.data.opening import open_matrix
    from psmds_dist.data.pairs import open_pairs
    from psmds_dist.data.sources import ArrayRows
    from psmds_dist.data.store import open_rows
    from psmds_dist.data.unfolding import unfold
    from psmds_dist.deploy.clusters import open_client, open_executor
    from psmds_dist.executor import DaskExecutor, InProcessExecutor
    from psmds_dist.ingest.build import build

__version__ = "0.1.0"

_HOMES = {
    "ArrayRows": "data.sources",
    "BudgetError": "core.errors",
    "Certificate": "core.certificate",
    "ClusterLost": "core.errors",
    "DaskExecutor": "executor",
    "Dimensions": "api.dimensions",
    "DissimilarityWarning": "core.errors",
    "Embedding": "api.embed",
    "EpochEvent": "core.events",
    "Executor": "core.types",
    "ForkError": "core.errors",
    "InProcessExecutor": "executor",
    "InputCheck": "core.types",
    "DamagedDataError": "core.errors",
    "InputError": "core.errors",
    "PatternSearchMDS": "api.estimator",
    "PsmdsError": "core.errors",
    "Quality": "core.quality",
    "ReadProfile": "core.sources",
    "Result": "api.results",
    "RowSource": "core.sources",
    "StopReason": "core.types",
    "StorageError": "core.errors",
    "Stress": "core.stress",
    "WorkerError": "core.errors",
    "WrappedSource": "core.sources",
    "build": "ingest.build",
    "canonical": "core.stress",
    "certify": "api.certificate",
    "classical_mds": "api.compare",
    "dimensions": "api.dimensions",
    "measure": "api.quality",
    "open_client": "deploy.clusters",
    "open_executor": "deploy.clusters",
    "open_geodesics": "data.geodesics",
    "open_matrix": "data.opening",
    "open_objects": "data.objects",
    "open_pairs": "data.pairs",
    "open_points": "data.features",
    "open_rows": "data.store",
    "plot": "api.plot",
    "quality": "api.quality",
    "read_result": "api.results",
    "smacof": "api.compare",
    "unfold": "data.unfolding",
}

__all__ = [
    "ArrayRows",
    "BudgetError",
    "Certificate",
    "ClusterLost",
    "DamagedDataError",
    "DaskExecutor",
    "Dimensions",
    "DissimilarityWarning",
    "Embedding",
    "EpochEvent",
    "Executor",
    "ForkError",
    "InProcessExecutor",
    "InputCheck",
    "InputError",
    "PatternSearchMDS",
    "PsmdsError",
    "Quality",
    "ReadProfile",
    "Result",
    "RowSource",
    "StopReason",
    "StorageError",
    "Stress",
    "WorkerError",
    "WrappedSource",
    "build",
    "canonical",
    "certify",
    "classical_mds",
    "dimensions",
    "measure",
    "open_client",
    "open_executor",
    "open_geodesics",
    "open_matrix",
    "open_objects",
    "open_pairs",
    "open_points",
    "open_rows",
    "plot",
    "quality",
    "read_result",
    "smacof",
    "unfold",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"psmds_dist.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
