"""Places with too little room."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PLENTY = 1 << 30


class Folder:
    """A directory for one run; on a small file system of its own when it must get full."""

    def __init__(self, path: Path, room: int | None) -> None:
        self.path = path
        self._mounted = room is not None
        path.mkdir()
        if room is not None:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "psmds-chaos", str(path)], check=True)

    def enlarge(self) -> None:
        """Make room."""
        if self._mounted:
            subprocess.run(["mount", "-o", f"remount,size={PLENTY}", str(self.path)], check=True)

    def close(self) -> None:
        """Remove it."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        shutil.rmtree(self.path)


def can_mount(folder: Path) -> bool:
    """Whether this user may have a small file system."""
    if os.geteuid() != 0:
        return False
    try:
        Folder(folder / "mount-test", 1 << 20).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
