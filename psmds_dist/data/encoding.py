"""How the numbers of a store are written: as they are, or in two bytes each, for half of what a pass reads.

Rows of two bytes are decoded to float32 as they come from the disk. ``uint16`` counts units, all of one size: a power
of two, so that decoding rounds nothing and multiples of it, among them integers up to 65,534, stay exact. ``float16``
keeps eleven binary digits of every number. The same dissimilarity is rounded the same way wherever it stands, so that
a symmetric matrix stays symmetric.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import InputError
from psmds_dist.core.sources import ReadProfile, WrappedSource
from psmds_dist.core.types import Rows

Stored = NDArray[Any]

HALF_SIZES = ("float16", "uint16")
"""Types of two bytes that a store can have."""

PIECE = 1 << 17
"""Numbers decoded at a time: few enough to stay in the second cache."""

MOST_UNITS = 65534
"""Largest number of units; the next one stands for missing pairs."""

HALF_MAX = 65504.0
"""Largest finite float16."""

ROUNDING_COPIES = 6
"""Arrays of a piece that rounding takes, counted in float32."""

COARSE = 1e-3
"""Largest rounding error, as a share of the root mean square dissimilarity, that a store may have on average."""


@dataclass(frozen=True)
class Encoding:
    """Numbers that are written as they are.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the stored numbers.
    scale : float
        Dissimilarity that a stored 1 stands for.
    """

    dtype: np.dtype[Any]
    scale: float = 1.0

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Type that rows of a store have unless another one is asked for."""
        return self.dtype

    @property
    def facts(self) -> dict[str, Any]:
        """What the header of a store says about it."""
        return {"dtype": self.dtype.name}

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the array, by which xarray reads the same numbers (conventions of CF)."""
        return {}

    @property
    def fill_value(self) -> float:
        """Stored number that stands for a missing pair."""
        return math.nan

    def suits(self, dtype: np.dtype[Any]) -> bool:
        """Whether files can be read into rows of a type without Zarr."""
        return self.dtype == dtype and dtype.newbyteorder("<") == dtype

    def encode(self, rows: Rows) -> Stored:
        """Return rows as they are stored."""
        return rows

    def decode(self, stored: Stored, out: Rows) -> None:
        """Fill ``out``, of the same shape, with what stored numbers stand for."""
        fill(out, stored)

    def landing(self, out: Rows) -> Iterator[Stored]:
        """Yield arrays to fill with the bytes of a file, one after the other, until they have become ``out``."""
        yield out

    def describe(self, rms: float, highest: float) -> str:
        """Say how far dissimilarities were rounded; nothing where they were not."""
        return ""


class HalfSize(Encoding, ABC):
    """Numbers of two bytes, which are float32 in rows."""

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return np.dtype(np.float32)

    def suits(self, dtype: np.dtype[Any]) -> bool:
        """Whether files can be read into rows of a type without Zarr."""
        return np.dtype("<u2") == np.dtype("u2")

    def decode(self, stored: Stored, out: Rows) -> None:
        """Fill ``out``, of the same shape, with what stored numbers stand for."""
        target: Rows = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        self._decode(np.ascontiguousarray(stored).reshape(-1).view(np.uint16), target.reshape(-1))
        if target is not out:
            out[...] = target

    def landing(self, out: Rows) -> Iterator[Stored]:
        """Yield arrays to fill with the bytes of a file, one after the other, until they have become ``out``."""
        flat = out.reshape(-1)
        buffer = np.empty(min(PIECE, flat.size), np.uint16)
        for first in range(0, flat.size, PIECE):
            part = flat[first : first + PIECE]
            yield buffer[: part.size]
            self._decode(buffer[: part.size], part)

    def round(self, rows: Rows) -> None:
        """Replace numbers by the nearest ones that can be stored; those that must be refused stay as they are."""
        flat = rows.reshape(-1)
        for first in range(0, flat.size, PIECE):
            part = flat[first : first + PIECE]
            self._require_range(part)
            nearest = np.empty_like(part)
            self.decode(self.encode(part), nearest)
            with np.errstate(invalid="ignore"):  # infinities stay
                np.copyto(part, nearest, where=np.abs(part - nearest) < 2 * self.largest_error(part))

    def describe(self, rms: float, highest: float) -> str:
        """Say how far dissimilarities were rounded."""
        most, share = float(self.largest_error(np.float64(highest))), self.typical_error(rms) / rms
        return (
            f"by at most {most:.3g}, {share:.2g} of the root mean square on average, which adds {share**2:.1g} to the "
            "squared normalized stress of a map"
        )

    def require_fine(self, rms: float) -> None:
        """Refuse what would be rounded too far, given the root mean square of a typical row.

        Raises
        ------
        InputError
            When the average error is more than `COARSE`.
        """
        error = self.typical_error(rms)
        if error > COARSE * rms:
            raise InputError(
                f"{self.dtype.name} would round dissimilarities by {error:.2g} on average, more than {COARSE:g} of "
                f"{rms:.2g}, the root mean square of a typical row: {self._instead}."
            )

    @property
    @abstractmethod
    def _instead(self) -> str:
        """What to use where the numbers do not suit."""

    @abstractmethod
    def largest_error(self, rows: Any) -> Any:
        """Largest rounding error of numbers of these sizes."""

    @abstractmethod
    def typical_error(self, rms: float) -> float:
        """Root mean square rounding error of numbers with such a root mean square, or a bound of it."""

    @abstractmethod
    def _require_range(self, rows: Rows) -> None:
        """Refuse finite numbers beyond the largest that can be stored."""

    @abstractmethod
    def _decode(self, codes: NDArray[np.uint16], out: Rows) -> None:
        """Decode in one dimension."""


class Halves(HalfSize):
    """Numbers as float16."""

    def __init__(self) -> None:
        super().__init__(np.dtype(np.float16))

    def encode(self, rows: Rows) -> Stored:
        """Return rows as they are stored."""
        with np.errstate(over="ignore"):
            return rows.astype(np.float16)

    def largest_error(self, rows: Any) -> Any:
        """Half of the last of eleven digits, or of the smallest number."""
        return np.maximum(np.abs(rows) * 2.0**-11, 2.0**-25)

    def typical_error(self, rms: float) -> float:
        """Bound for errors that are spread evenly."""
        return math.hypot(rms * 2.0**-11, 2.0**-25) / math.sqrt(3)

    @property
    def _instead(self) -> str:
        return "use dtype='uint16' (--dtype uint16), whose unit is chosen by the largest, or float32"

    def _require_range(self, rows: Rows) -> None:
        beyond = np.isfinite(rows) & (np.abs(rows) > HALF_MAX)
        if beyond.any():
            raise InputError(
                f"the matrix holds {rows[beyond.argmax()]:g}, but float16 ends at {HALF_MAX:g}: {self._instead}."
            )

    def _decode(self, codes: NDArray[np.uint16], out: Rows) -> None:
        from psmds_dist.kernels.decode import decode_halves  # late: needs Numba

        number = np.float32
        decode_halves(codes, number(2.0**112), number(np.inf), number(np.nan), out)


class Units(HalfSize):
    """Numbers as multiples of ``scale``, a power of two, in uint16."""

    def __init__(self, scale: float) -> None:
        super().__init__(np.dtype(np.uint16), scale)

    @classmethod
    def up_to(cls, largest: float) -> Units:
        """Choose the smallest unit with which the largest number can be stored."""
        if not 0 < largest < math.inf:  # the check will tell
            return cls(1.0)
        _, exponent = math.frexp(largest / MOST_UNITS)
        unit = math.ldexp(1.0, max(exponent - 1, -126))
        return cls(unit if largest <= MOST_UNITS * unit else 2 * unit)

    @property
    def facts(self) -> dict[str, Any]:
        """What the header of a store says about it."""
        return {**super().facts, "scale": self.scale}

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the array, by which xarray reads the same numbers (conventions of CF)."""
        return {"scale_factor": self.scale, "missing_value": self.fill_value}

    @property
    def fill_value(self) -> int:
        """Stored number that stands for a missing pair."""
        return MOST_UNITS + 1

    def encode(self, rows: Rows) -> Stored:
        """Return rows as they are stored."""
        codes: Stored = np.rint(rows * rows.dtype.type(1 / self.scale))
        np.clip(codes, 0, MOST_UNITS, out=codes)
        codes[np.isnan(codes)] = self.fill_value
        return codes.astype(np.uint16)

    def largest_error(self, rows: Any) -> Any:
        """Half a unit; rounded zeros may lie a whole one below zero."""
        return self.scale / 2

    def typical_error(self, rms: float) -> float:
        """Error of numbers that are spread evenly."""
        return self.scale / math.sqrt(12)

    @property
    def _instead(self) -> str:
        return "a few are much larger than most, so look at these, or use float32"

    def _require_range(self, rows: Rows) -> None:
        most = float(rows.max(where=np.isfinite(rows), initial=0.0))
        if most > (MOST_UNITS + 0.5) * self.scale:
            raise InputError(
                f"the matrix holds {most:g}, but had nothing above {MOST_UNITS * self.scale:g} when it was read "
                "before, so it has changed meanwhile; run again when it does not change any more."
            )

    def _decode(self, codes: NDArray[np.uint16], out: Rows) -> None:
        from psmds_dist.kernels.decode import decode_units  # late: needs Numba

        number = out.dtype.type
        decode_units(codes, number(self.scale), np.uint16(self.fill_value), number(np.nan), out)


def encoding_of(dtype: np.dtype[Any], header: Mapping[str, Any]) -> Encoding:
    """Encoding of an array, by its type and what the header of its store says; of other arrays there is none."""
    if "scale" in header:
        return Units(header["scale"])
    return Halves() if header and dtype == np.float16 else Encoding(dtype)


@dataclass(frozen=True, eq=False)
class Rounded(WrappedSource):
    """Rows as they are after they were written in two bytes a number, and read again."""

    encoding: HalfSize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.encoding.row_dtype

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return " ".join([super().content_id, *map(str, self.encoding.facts.values())])

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: rows of the source, and what rounding takes."""
        profile, wider = self.source.read_profile, self.source.dtype != self.dtype
        scratch = profile.scratch_bytes + ROUNDING_COPIES * PIECE * self.dtype.itemsize
        return replace(profile, scratch_bytes=scratch, read_copies=profile.read_copies + 2 * wider)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rows = out[: hi - lo]
        if self.source.dtype == self.dtype:
            self.source.read(lo, hi, rows)
        else:
            fill(rows, self.source.take(np.arange(lo, hi)))
        self.encoding.round(rows)
