"""Values that go to the same workers round after round: packed once, and known again where they have been before."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any


class PickledOnce:
    """Base of frozen dataclasses that travel as the fields they were made of, packed once.

    Where the same parcel arrives again nothing is opened or computed anew: it is the same object. What an object has
    found out besides, such as the names of all rows, stays behind.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the parcel."""
        return _unpacked, (self._packed,)

    @cached_property
    def _packed(self) -> bytes:
        import cloudpickle  # as Dask does: what was defined in the user's own script or notebook travels whole

        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return bytes(cloudpickle.dumps((type(self), values)))


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> PickledOnce:
    import cloudpickle

    kind, values = cloudpickle.loads(packed)
    made: PickledOnce = kind(*values)
    return made


def forget() -> None:
    """Let go of what has arrived in this process."""
    _unpacked.cache_clear()
