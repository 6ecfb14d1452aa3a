"""Utilities for long runs: atomic files, locks, signals, standard streams, pickling, text."""
