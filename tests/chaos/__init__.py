"""Runs that are killed, stopped, starved and damaged, and must end with the bits of an undisturbed run."""
