"""The command psmds, stopped just before it renames a state, or its map, into place.

``python stopping.py MOMENT FILE ARGUMENT...`` makes FILE at this moment, when it has just read that it owns its target,
and goes on once FILE is gone. MOMENT is ``state`` (the third one), ``map`` or ``never``. With ``NO_LOCKS`` in the
environment the file system has no locks, and a lease ends after 3 s.
"""

import errno
import fcntl
import os
import sys
import time
from pathlib import Path

from psmds_dist.__main__ import main
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.utils import lease

IS_MOMENT = {
    "state": lambda target: target.suffix == ".npz",
    "map": lambda target: target.suffix == ".zarr" and not target.name.startswith("."),
    "never": lambda target: False,
}
SKIPPED = {"state": 2, "map": 0, "never": 0}


def without_locks(handle, how):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def stopped(rename, moment, file):
    """Return a function that renames, but waits at a moment until a file is gone."""
    met = 0

    def call(source, target):
        nonlocal met
        met += IS_MOMENT[moment](Path(target))
        if met == 1 + SKIPPED[moment]:
            met += 1
            file.touch()
            while file.exists():
                time.sleep(0.05)
        rename(source, target)

    return call


if __name__ == "__main__":
    _, moment, file, *arguments = sys.argv
    sys.argv[1:] = arguments
    if os.environ.get("NO_LOCKS"):
        fcntl.flock = without_locks
        lease.INTERVAL, lease.LEASE = 0.3, 3.0
    os.replace = stopped(os.replace, moment, Path(file))
    os.rename = stopped(os.rename, moment, Path(file))
    DirectoryCheckpoint.__init__.__kwdefaults__["every"] = 0.0
    main()
