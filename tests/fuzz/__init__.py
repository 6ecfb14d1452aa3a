"""Fuzzing of every public entry point: ``python -m tests.fuzz`` runs many cases, pytest a few.

A chooser (`choosing`) makes a case, from a seed or with hypothesis; `oracle` computes the expected outcome without code
of the package; an entry (`library`, `commands`, `damage`) runs the case and compares.
"""
