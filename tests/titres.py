"""The example ``unfolding.py`` as a module: a made-up table of titres, and a plain minimiser of its cost."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def _loaded() -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / "unfolding.py"
    spec = importlib.util.spec_from_file_location("unfolding_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


titres = _loaded()
