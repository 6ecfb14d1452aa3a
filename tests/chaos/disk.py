"""Directories with limited space."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PLENTY = 1 << 30


class Folder:
    """Directory of one run; on a small file system if it must run out of space."""

    def __init__(self, path: Path, room: int | None) -> None:
        self.path = path
        self._mounted = room is not None
        path.mkdir()
        if room is not None:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "psmds-chaos", str(path)], check=True)

    def enlarge(self) -> None:
        """Add space."""
        if self._mounted:
            subprocess.run(["mount", "-o", f"remount,size={PLENTY}", str(self.path)], check=True)

    def close(self) -> None:
        """Remove the directory."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        shutil.rmtree(self.path)


def can_mount(folder: Path) -> bool:
    """Whether this user may mount a file system."""
    if os.geteuid() != 0:
        return False
    try:
        Folder(folder / "mount-test", 1 << 20).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
