"""Pure planning: what a run takes in memory and time."""
