"""Kernels that are compiled for any processor of a family."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
from psmds_dist.deploy.settings import prepare_process
prepare_process()
import numpy as np
from psmds_dist.kernels.multiply import _multiply, multiply_squares

random = np.random.default_rng(0)
rows, block = random.random((40, 300)), random.normal(size=(5, 300))
points = np.arange(40)
found = multiply_squares(rows, points, points, block)
rows[points, points] = 0
np.testing.assert_allclose(found, rows**2 @ block.T, rtol=1e-12, atol=1e-12)
print("\\n".join(_multiply.inspect_asm().values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks at the registers of x86")
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="needs compiled kernels")
def test_portable_kernels_use_the_registers_that_all_processors_have(tmp_path):
    environment = {**os.environ, "DASK_PSMDS__PORTABLE": "true", "NUMBA_CACHE_DIR": str(tmp_path)}  # compiled anew
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert "%xmm" in out
    assert "%ymm" not in out
    assert "vfmadd" not in out
