"""Fuzzing of every public entry: ``python -m tests.fuzz`` runs many cases, pytest a few.

A case is made by a chooser (`choosing`), from a seed or by hypothesis; what must come of it is decided without our
code (`oracle`); an entry (`library`, `commands`, `damage`) hands it over and judges what came.
"""
