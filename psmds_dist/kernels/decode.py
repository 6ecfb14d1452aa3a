"""Numbers of two bytes as floats, in one thread: the one that reads rows ahead of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Rows
from psmds_dist.kernels.jit import serial

Codes = NDArray[np.uint16]


@serial
def decode_units(codes: Codes, unit: Any, unknown: Any, missing: Any, out: Rows) -> None:
    """Multiples of a unit; the number ``unknown`` of them stands for ``missing``."""
    for j in range(codes.size):
        out[j] = unit * codes[j] if codes[j] != unknown else missing


@serial
def decode_halves(codes: Codes, shift: Any, infinite: Any, missing: Any, out: Rows) -> None:
    """Values of float16, given as their bits.

    Exponent and fraction are shifted to where float32 has them, which divides by ``shift``, two to the power 112.
    """
    for j in range(codes.size):
        bits = codes[j] & 0x7FFF
        value = shift * np.uint32(bits << 13).view(np.float32)
        value = value if bits < 0x7C00 else (infinite if bits == 0x7C00 else missing)
        out[j] = value if codes[j] < 0x8000 else -value
