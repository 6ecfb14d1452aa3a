"""How commands end before they are done: exit codes, and the hint on how to continue."""

from __future__ import annotations

from collections.abc import Callable

import click

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM, the value that shells use."""

TRY_AGAIN = 75
"""Exit code of a run that lost its cluster and can be resumed (EX_TEMPFAIL of sysexits.h)."""

_HINT = f"{__name__}.hint"


class Interrupted(click.ClickException):
    """An interrupted command."""

    exit_code = INTERRUPTED


class Resumable(click.ClickException):
    """A command that failed for an external reason and can be resumed."""

    exit_code = TRY_AGAIN


def set_resume_hint(hint: Callable[[], str]) -> None:
    """Register what tells how to continue the current command, or returns an empty string if nothing was saved."""
    click.get_current_context().meta[_HINT] = hint


def resume_hint(ctx: click.Context) -> str:
    """How to continue an interrupted command; empty if nothing was saved."""
    hint: Callable[[], str] = ctx.meta.get(_HINT, str)
    return hint()
