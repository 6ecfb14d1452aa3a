"""Objects that are sent to the same workers in every round: pickled once, and unpickled once per process."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any


class PickledOnce:
    """Base of frozen dataclasses that are pickled as their fields, once.

    A process that unpickles the same bytes again gets the same object, so that nothing is opened or computed twice.
    Cached attributes that are not fields, such as the names of all rows, are not sent.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the cached bytes."""
        return _unpacked, (self._packed,)

    @cached_property
    def _packed(self) -> bytes:
        import cloudpickle  # like Dask, to include what a script or notebook defines

        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return bytes(cloudpickle.dumps((type(self), values)))


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> PickledOnce:
    import cloudpickle

    kind, values = cloudpickle.loads(packed)
    made: PickledOnce = kind(**values)
    return made


def forget() -> None:
    """Clear the cache of unpickled objects of this process."""
    _unpacked.cache_clear()
