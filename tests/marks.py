"""Marks that several tests share."""

import pytest


def wide_but_one(first, *others):
    """Parameters of a test, of which all but the first only widen a search (``make test-all``)."""
    return [first, *(pytest.param(other, marks=pytest.mark.wide) for other in others)]
