"""Libraries that every test process needs, imported once in the process that all others are forked from."""

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import distributed  # noqa: F401
import hypothesis  # noqa: F401
import numba  # noqa: F401
import pytest  # noqa: F401
import scipy.spatial.distance  # noqa: F401
import sklearn.datasets
import sklearn.manifold  # noqa: F401
import zarr  # noqa: F401
