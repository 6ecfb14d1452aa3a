"""Marks shared by several tests."""

import pytest


def wide(*parameters):
    """Parameters of a test, marked as wide (``make test-all``)."""
    return [pytest.param(parameter, marks=pytest.mark.wide) for parameter in parameters]


def wide_but_one(first, *others):
    """Parameters of a test, all but the first marked as wide."""
    return [first, *wide(*others)]
