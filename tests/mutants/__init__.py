"""Mutation tests: small faults put into the code one at a time, each of which some test must notice.

Cosmic Ray makes the faults. ``make mutants`` runs a sample of them for each module below and lists those that survive;
what is known to change nothing is in ``equivalent.toml``, with the reason.
"""
