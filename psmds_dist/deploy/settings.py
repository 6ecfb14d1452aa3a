"""Settings of clusters, in the namespace ``psmds`` of Dask's configuration.

The defaults, with a comment each, are in ``psmds.yaml`` beside this module. A file ``~/.config/dask/psmds.yaml`` and
environment variables such as ``DASK_PSMDS__DEADLINE`` override them, as everywhere in Dask.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from psmds_dist.core.errors import InputError

LOOPBACK = "127.0.0.1"

_CORES = {"x86_64": "Nehalem", "aarch64": "ARMV8"}
"""Oldest processor of each architecture that OpenBLAS, of NumPy and SciPy, has code for."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_NESTED = ("dask", "environment")
"""Settings whose keys are free."""


@cache
def _defaults() -> dict[str, Any]:
    """Settings of this package, which Dask's configuration takes as defaults."""
    import yaml

    dask = _dask()
    text = Path(__file__).with_name("psmds.yaml").read_text(encoding="utf-8")
    defaults: dict[str, Any] = yaml.safe_load(text)
    dask.config.update_defaults(defaults)
    known: dict[str, Any] = defaults["psmds"]
    return known


def _dask() -> Any:
    """Dask, which reads all files of its configuration as it is imported.

    Raises
    ------
    InputError
        When one of them is no YAML.
    """
    try:
        import dask
    except ValueError as error:
        raise InputError(f"Dask's configuration cannot be read: {' '.join(str(error).split())}") from None
    return dask


def setting(name: str) -> Any:
    """Value of a setting of the namespace ``psmds``, such as ``"deadline"``.

    Raises
    ------
    InputError
        When the namespace has a setting that does not exist, or a value in place of a section.
    """
    dask, known = _dask(), _defaults()
    found = dask.config.get("psmds")
    wrong = [key for key in found if key.replace("_", "-") not in known] if isinstance(found, dict) else ["psmds"]
    if wrong:
        raise InputError(
            f"Dask's configuration has no setting psmds.{wrong[0]}: use one of {', '.join(sorted(known))}, in "
            "~/.config/dask/psmds.yaml or in an environment variable such as DASK_PSMDS__DEADLINE."
        )
    value = dask.config.get(f"psmds.{name}")
    if name in _NESTED and not isinstance(value, dict):
        raise InputError(f"the setting psmds.{name} must be a section of names and values, not {value!r}.")
    return value


def _may_be_set(name: str) -> bool:
    """Whether a setting may differ from its default: Dask is imported only then."""
    return f"DASK_PSMDS__{name.upper()}" in os.environ or any(map(_tells_of_psmds, _files()))


def _files() -> Iterator[Path]:
    """Files of Dask's configuration of this user; ``DASK_CONFIG`` is one, or a directory of them."""
    place = Path(os.environ.get("DASK_CONFIG", Path.home() / ".config" / "dask"))
    yield from place.glob("*.y*ml") if place.is_dir() else [place]


def _tells_of_psmds(file: Path) -> bool:
    try:
        return b"psmds" in file.read_bytes()
    except OSError:
        return False


def default_cluster() -> str | None:
    """Cluster of commands that are given none."""
    found = setting("cluster") if _may_be_set("cluster") else None
    return None if found is None else str(found)


def portable_environment() -> dict[str, str]:
    """Variables of a process whose kernels and linear algebra give the same bits on all processors of a family."""
    core = _CORES.get(platform.machine())
    return {"NUMBA_CPU_NAME": "generic", **({} if core is None else {"OPENBLAS_CORETYPE": core})}


def prepare_process() -> None:
    """Make this process portable where that is set; Numba and NumPy must not be loaded yet."""
    if _may_be_set("portable") and setting("portable"):
        for name, value in portable_environment().items():
            os.environ.setdefault(name, value)


def worker_environment() -> dict[str, str]:
    """Environment variables that a worker process starts with; what is set in this process takes precedence."""
    given = setting("environment") | (portable_environment() if setting("portable") else {})
    wrong = [name for name in given if not _VARIABLE.fullmatch(str(name))]
    if wrong:
        raise InputError(
            f"the setting psmds.environment has the name {wrong[0]!r}: use letters, digits and underscores, and "
            "no digit at the beginning."
        )
    return {name: os.environ.get(name, str(value)) for name, value in given.items() if value is not None}


def dask_settings() -> dict[str, Any]:
    """Dask's settings for schedulers and workers by their full names, with the environment that nannies hand on."""
    environment = {f"distributed.nanny.pre-spawn-environ.{name}": v for name, v in worker_environment().items()}
    return {**dict(_full_names(setting("dask"))), **environment}


def exported() -> dict[str, str]:
    """Environment of a process on another machine that becomes a scheduler or worker, with the settings of this one."""
    settings = {_variable(name): str(value) for name, value in _full_names(setting("dask"))}
    return {**settings, **worker_environment()}


def listen_on(host: str | None = None, interface: str | None = None) -> dict[str, str]:
    """Where processes listen, as keyword arguments of Dask: as given, otherwise as set, otherwise on loopback."""
    if host is None and interface is None:
        host, interface = setting("host"), setting("interface")
    if host is not None and interface is not None:
        raise InputError(f"give a host ({host}) or an interface ({interface}) to listen on, not both.")
    return {"host": host or LOOPBACK} if interface is None else {"interface": interface}


def _full_names(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested settings with their dotted names."""
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _full_names(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _variable(name: str) -> str:
    """Environment variable that Dask reads a setting from."""
    return "DASK_" + name.upper().replace(".", "__").replace("-", "_")
