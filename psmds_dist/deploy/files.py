"""Files that describe clusters: YAML with the arguments of a class, and lists of hosts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from psmds_dist.core.errors import InputError


def read_text(path: str, what: str) -> str:
    """Text of a file.

    Raises
    ------
    InputError
        When it cannot be read; ``what`` says what it is for.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of order
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise InputError(f"{what} cannot be read from {path}: {reason}.") from None


def read_mapping(path: str, what: str) -> dict[str, Any]:
    """Names and values in a YAML file; a hyphen in a name is read as an underscore.

    Raises
    ------
    InputError
        When the file cannot be read, or holds anything else.
    """
    import yaml

    try:
        found = yaml.safe_load(read_text(path, what))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold names and values, such as 'cores: 16', one per line.")
    return {str(key).replace("-", "_"): value for key, value in found.items()}


def require_known(given: Iterable[str], known: Iterable[str], path: str) -> None:
    """Refuse names that mean nothing, with the one that was probably meant.

    Raises
    ------
    InputError
        For the first of them.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]}?" if close else f"use some of {', '.join(names)}."
            raise InputError(f"{path} has the unknown name {name}: {meant}")
