"""The command psmds, and the jobs that it submits, with a brake.

``python braked.py FILE ARGUMENT...``: while FILE exists, each epoch takes a moment longer, so that a run of few epochs
lasts until a test has done to it what it wants to.
"""

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from psmds_dist.__main__ import main
from psmds_dist.api import report
from psmds_dist.deploy import batch

MOMENT = 0.4
"""Seconds."""


def wait_after(show, file, event):
    """Show an event, and wait while a file exists."""
    show(event)
    if file.exists():
        time.sleep(MOMENT)


def brake(progress, file):
    """Return a progress display that waits after each event while a file exists."""

    @contextmanager
    def braked(quiet):
        with progress(quiet) as show:
            yield partial(wait_after, show, file)

    return braked


if __name__ == "__main__":
    _, file, *arguments = sys.argv
    sys.argv[1:] = arguments
    render, program = batch.script, (sys.executable, __file__, file)
    batch.script = lambda job: render(replace(job, program=program))
    report.progress = brake(report.progress, Path(file))
    main()
