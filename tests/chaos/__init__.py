"""Runs that are killed, stopped, starved and damaged; results must equal those of undisturbed runs."""
