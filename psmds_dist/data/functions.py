"""Metrics that are functions of two objects: a user's own, and those of RapidFuzz, which computes blocks on threads."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import CodeType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, InputError
from psmds_dist.kernels.jit import current_threads
from psmds_dist.utils.importing import import_name
from psmds_dist.utils.text import escaped

Function = Callable[[Any, Any], float]


class PairError(Exception):
    """What is wrong with the value of a pair, of which the places in a block are known."""

    def __init__(self, i: int, j: int, what: str) -> None:
        super().__init__(i, j, what)
        self.i, self.j, self.what = i, j, what


class PairMetric(Protocol):
    """A metric that compares objects."""

    @property
    def name(self) -> str:
        """Name for messages and records."""

    @property
    def identity(self) -> str | None:
        """Text that is equal for equal metrics; None where that cannot be known."""

    def fill(self, some: Sequence[Any], others: Sequence[Any], out: Floats) -> None:
        """Fill ``out`` with the dissimilarities between some objects and others, or raise `PairError`.

        Where both are the same object, its mirrored half may be copied.
        """


@dataclass(frozen=True)
class PythonFunction:
    """A Python function of two objects, called pair by pair."""

    function: Function
    label: str | None = None
    """Name by which it can be imported, if there is one."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a name where there is one: functions of compiled modules cannot be pickled."""
        return (type(self), (self.function,)) if self.label is None else (metric_function, (self.label,))

    @property
    def name(self) -> str:
        """Name for messages and records."""
        return self.label or str(getattr(self.function, "__qualname__", type(self.function).__name__))

    @cached_property
    def identity(self) -> str | None:
        """Name, version and code of the function; None for one without a name, which may depend on anything."""
        if self.label is None:
            return None
        package = sys.modules.get(self.label.partition(".")[0])
        code = getattr(self.function, "__code__", None)
        version = getattr(package, "__version__", "")
        defaults = (getattr(self.function, name, None) for name in ("__defaults__", "__kwdefaults__"))
        written = "" if code is None else " ".join(map(_written, (code, *defaults)))
        return f"{self.label} {version} {hashlib.blake2b(written.encode(), digest_size=8).hexdigest()}"

    def fill(self, some: Sequence[Any], others: Sequence[Any], out: Floats) -> None:
        """Fill ``out``, with each pair once where ``some`` and ``others`` are the same objects."""
        if some is not others:
            for i, one in enumerate(some):
                out[i] = self._row(i, one, others, 0)
            return
        for i, one in enumerate(some):
            out[i, i] = 0
            out[i, i + 1 :] = out[i + 1 :, i] = self._row(i, one, others, i + 1)

    def _row(self, i: int, one: Any, others: Sequence[Any], first: int) -> NDArray[Any]:
        """Dissimilarities of an object to others from the ``first`` on."""
        values: list[Any] = []
        try:
            for other in others[first:]:
                values.append(self.function(one, other))
        except Exception as error:  # of the user's function, which may raise anything
            raise PairError(i, first + len(values), f"raises {type(error).__name__}: {error}") from error
        return _numbers(i, values, first)


def _written(part: Any) -> str:
    """What a function does, as far as its code and its defaults tell; equal in every process."""
    if isinstance(part, CodeType):
        return f"{part.co_code.hex()} {part.co_names} {_written(part.co_consts)}"
    if isinstance(part, tuple | list):
        return f"({' '.join(map(_written, part))})"
    if isinstance(part, frozenset | set):
        return f"({' '.join(sorted(map(_written, part)))})"
    if isinstance(part, dict):
        return _written(list(part.items()))
    plain = isinstance(part, bool | int | float | complex | str | bytes | None)
    return f"{type(part).__name__} {repr(part) if plain else ''}"  # others may show where in memory they are


def _numbers(i: int, values: list[Any], first: int) -> NDArray[Any]:
    """Values of a row as numbers."""
    try:
        found = np.asarray(values, dtype=None if values else np.float64)
        if found.ndim == 1 and found.dtype.kind in "fiub":
            return found
    except ValueError:  # arrays of several lengths
        pass
    wrong = next(
        (k for k, value in enumerate(values) if np.ndim(value) or np.asarray(value).dtype.kind not in "fiub"), 0
    )
    raise PairError(i, first + wrong, f"gives {escaped(repr(values[wrong])[:60])}, which is no number")


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub"


class RapidFuzzScorer(PythonFunction):
    """A function of RapidFuzz, which compares blocks of strings on all threads."""

    def fill(self, some: Sequence[Any], others: Sequence[Any], out: Floats) -> None:
        """Fill ``out``."""
        from rapidfuzz.process import cdist  # of an extra: whoever names one of its functions has it

        scorer: Any = self.function
        try:  # a list of its own: RapidFuzz compares equal lists one pair at a time, others many at once
            out[...] = cdist(some, list(others), scorer=scorer, dtype=out.dtype, workers=current_threads())
        except TypeError:
            super().fill(some, others, out)  # names the pair


def metric_function(metric: Function | str) -> PythonFunction:
    """Make a metric of a function or of the name of one.

    Parameters
    ----------
    metric : callable or str
        Function of two objects, or its name: ``package.module.function``. Modules may lie in the working directory.

    Raises
    ------
    InputError
        When there is no such function.
    """
    function = _imported(metric) if isinstance(metric, str) else metric
    if not callable(function):
        raise InputError(f"metric {metric!r} must be a function of two objects, not {type(function).__name__}.")
    label = metric.replace(":", ".") if isinstance(metric, str) else _label_of(function)
    kind = RapidFuzzScorer if _is_rapidfuzz(function) else PythonFunction
    return kind(function, label)


def is_function(metric: object) -> bool:
    """Whether a metric is given as a function, or by the name of one that is imported."""
    return callable(metric) or (isinstance(metric, str) and ("." in metric or ":" in metric))


def _imported(name: str) -> Any:
    try:
        return import_name(name)
    except Exception as error:  # importing a module may raise anything
        top = name.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == top == "rapidfuzz"
        advice = "pip install 'psmds-dist[strings]'" if missing else "give package.module.function"
        raise InputError(f"metric {name!r} cannot be imported ({type(error).__name__}: {error}): {advice}.") from None


def _is_rapidfuzz(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("rapidfuzz.")


def _label_of(function: Any) -> str | None:
    """Name by which a function can be imported."""
    if _is_rapidfuzz(function):
        return _public_name(function)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    label = f"{module}.{name}"
    try:
        return label if import_name(label) is function else None
    except (ImportError, AttributeError, ValueError):
        return None


def _public_name(function: Any) -> str | None:
    """Name of a function of RapidFuzz, which calls all of them ``distance`` or ``similarity``."""
    public = import_module("rapidfuzz.distance")
    places = [getattr(public, name) for name in dir(public) if not name.startswith("_")]
    names = [f"{place.__name__}.{name}" for place in places for name, found in vars(place).items() if found is function]
    return min(names, default=None)
