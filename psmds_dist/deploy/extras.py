"""Libraries that only some clusters need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from psmds_dist.core.errors import InputError


def extra(module: str, name: str, what: str) -> ModuleType:
    """Import a library of one of the package's extras.

    Raises
    ------
    InputError
        When it is not installed: how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs {error.name or module}: pip install 'psmds-dist[{name}]'.") from None
