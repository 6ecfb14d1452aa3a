"""Print the installed versions of what a psmds image contains, one per line, as in cluster/requirements.txt."""

from __future__ import annotations

from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("metrics",)


def closure(name: str, extras: tuple[str, ...] = (), found: dict[str, str] | None = None) -> dict[str, str]:
    """Installed versions of everything that a distribution requires, directly or not."""
    found = {} if found is None else found
    for text in requires(name) or []:
        needed = Requirement(text)
        key = canonicalize_name(needed.name)
        if key not in found and _applies(needed, extras):
            found[key] = version(key)
            closure(key, tuple(needed.extras), found)
    return found


def _applies(needed: Requirement, extras: tuple[str, ...]) -> bool:
    return needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras))


if __name__ == "__main__":
    for name, pin in sorted(closure("psmds-dist", EXTRAS).items()):
        print(f"{name}=={pin}")
