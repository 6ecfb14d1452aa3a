"""Print the installed versions of what an image contains, one per line, as in cluster/requirements.txt."""

from __future__ import annotations

from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BESIDES = "prometheus-client"
"""What the package does not require, but an image should have; Dask's pages would need pandas and bokeh."""


def closure(name: str, found: dict[str, str]) -> dict[str, str]:
    """Add the installed versions of everything that a distribution requires, directly or not."""
    for text in requires(name) or []:
        needed = Requirement(text)
        key = canonicalize_name(needed.name)
        if key not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            found[key] = version(key)
            closure(key, found)
    return found


if __name__ == "__main__":
    for name, pin in sorted(closure("psmds-dist", {BESIDES: version(BESIDES)}).items()):
        print(f"{name}=={pin}")
