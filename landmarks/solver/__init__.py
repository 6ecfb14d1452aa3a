"""The parts of a landmark fit: landmarks among themselves, placement, refinement, evaluation."""
