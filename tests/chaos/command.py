"""``psmds`` that saves a checkpoint after every epoch and portion, so that short runs can be resumed.

``PSMDS_CHAOS_FILE_SIZE`` limits the size of its files, ``PSMDS_CHAOS_OUTPUT`` closes its standard output.
"""

import os
import resource
import sys

FILE_SIZE = "PSMDS_CHAOS_FILE_SIZE"

OUTPUT = "PSMDS_CHAOS_OUTPUT"
CLOSED, FULL = "closed", "full"
"""Ways to lose standard output."""

PORTION = 0.05
"""Seconds of work per portion of placed points."""


def main() -> None:
    if FILE_SIZE in os.environ:  # inherited by the workers of a command
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ[FILE_SIZE]), resource.RLIM_INFINITY))
    if os.environ.get(OUTPUT) == CLOSED:
        os.close(1)
    elif os.environ.get(OUTPUT) == FULL:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    from psmds_dist.__main__ import main as command
    from psmds_dist.solver.checkpoint import DirectoryCheckpoint

    DirectoryCheckpoint.__init__.__kwdefaults__["every"] = 0.0
    if "landmarks" in sys.argv:
        import landmarks.solver.placement

        landmarks.solver.placement.PORTION = PORTION
    command()


if __name__ == "__main__":
    main()
