"""Landmark mode: embed a subset, place everybody else against it, and refine.

Stands on `psmds_dist`, never the reverse. Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landmarks.estimator import LandmarkMDS
    from landmarks.selection import choose

_HOMES = {"LandmarkMDS": "estimator", "choose": "selection"}

__all__ = ["LandmarkMDS", "choose"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"landmarks.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
