"""Objects that users name as ``package.module.name``, also from modules in the working directory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any


def import_name(name: str) -> Any:
    """Import an object by its dotted name, such as ``rapidfuzz.distance.Levenshtein.distance``.

    Raises
    ------
    ImportError, AttributeError, ValueError
        When there is none; any other error is one of the module itself.
    """
    with working_directory_importable():
        return resolve_name(name.replace(":", "."))


@contextlib.contextmanager
def working_directory_importable() -> Iterator[None]:
    """Search modules in the working directory as well, after all other places."""
    before = list(sys.path)
    sys.path.append(os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before
