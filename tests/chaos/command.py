"""``psmds`` as it is, but that it keeps its state after every epoch and portion, so that short runs can be resumed.

``PSMDS_CHAOS_FILE_SIZE`` limits the bytes of any file it writes, ``PSMDS_CHAOS_OUTPUT`` takes its standard output away.
"""

import os
import resource
import sys

FILE_SIZE = "PSMDS_CHAOS_FILE_SIZE"

OUTPUT = "PSMDS_CHAOS_OUTPUT"
CLOSED, FULL = "closed", "full"
"""Ways to lose it."""

PORTION = 0.05
"""Seconds of work in a portion of points that are placed."""


def main() -> None:
    if FILE_SIZE in os.environ:  # workers that a command starts inherit it
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
