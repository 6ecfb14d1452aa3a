"""Names of clusters, as ``--cluster`` and ``cluster=`` take them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from psmds_dist.core.errors import InputError

QUEUES = ("slurm", "pbs", "lsf", "sge")
"""Batch systems whose jobs become workers."""

FORMS = (
    "local, local:4, an address such as tcp://host:8786, a scheduler file (.json), slurm[:file.yaml] (also pbs, lsf, "
    "sge), ssh:hosts.txt, kubernetes:file.yaml, or a function that returns a cluster, as package.module:function"
)

_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*[.:][^\W\d]\w*")


class ClusterName(NamedTuple):
    """A name taken apart."""

    kind: str
    """``local``, ``address``, ``file``, ``ssh``, ``kubernetes``, ``function``, or one of `QUEUES`."""

    value: str
    """What the kind needs: a number of workers, an address, a path, the name of a function, or nothing."""


def parse_cluster(name: str) -> ClusterName:
    """Take the name of a cluster apart.

    Raises
    ------
    InputError
        When it has none of the known forms.
    """
    kind, _, value = name.partition(":")
    if kind == "local":
        return ClusterName(kind, _count(name, value))
    if kind in QUEUES:
        return ClusterName(kind, value)
    if kind in ("ssh", "kubernetes"):
        return ClusterName(kind, _path(name, value))
    if "://" in name or _HOST_AND_PORT.fullmatch(name):
        return ClusterName("address", name)
    return ClusterName(_kind_of_plain(name), name)


def _count(name: str, value: str) -> str:
    if value and not (value.isascii() and value.isdigit() and int(value)):
        raise InputError(f"cluster {name!r} must end with a number of workers, such as local:4.")
    return value


def _path(name: str, value: str) -> str:
    if not value:
        raise InputError(f"cluster {name!r} must name a file: use one of {FORMS}.")
    return value


def _kind_of_plain(name: str) -> str:
    """Kind of a name without a prefix: a file, or a function."""
    if name.endswith((".yaml", ".yml", ".txt")):
        raise InputError(f"cluster {name!r} does not say what kind it is: put it in front, such as slurm:{name}.")
    if name.endswith(".json") or os.path.exists(name):
        return "file"
    if _FUNCTION.fullmatch(name):
        return "function"
    raise InputError(f"cluster {name!r} is not known: use one of {FORMS}.")
