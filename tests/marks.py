"""Marks shared by several tests."""

import pytest


def wide_but_one(first, *others):
    """Parameters of a test, all but the first marked as wide (``make test-all``)."""
    return [first, *(pytest.param(other, marks=pytest.mark.wide) for other in others)]
