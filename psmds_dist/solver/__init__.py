"""The solve: the loop, an epoch, the schedule of radii, work on blocks, checkpoints."""
