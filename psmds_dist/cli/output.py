"""Text that commands print: results and status on standard output, notes on standard error."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from psmds_dist.core.errors import DissimilarityWarning, StorageError
from psmds_dist.utils.streams import discard_output
from psmds_dist.utils.text import escaped_lines

UNWRITABLE = "standard output cannot be written ({}); redirect it to a file or command that accepts it."
"""Error of a command whose result cannot be printed."""

Print = Callable[[str], object]


def echo(text: str, *, err: bool = False) -> None:
    """Print lines of text, with control characters of names and paths escaped."""
    click.echo(escaped_lines(text), err=err)


def print_note(text: str) -> None:
    """Print a note on standard error."""
    echo(f"Note: {text}.", err=True)


def print_status(text: str) -> None:
    """Print the status of a run; a failure to print does not affect the run."""
    try:
        echo(text)
    except OSError as error:
        discard_output()
        if error.errno not in (errno.EPIPE, errno.EBADF):  # the reader has gone, or there never was one
            print_note(f"standard output cannot be written ({error.strerror}); the result is not affected")


def print_result(text: str) -> None:
    """Print the result of a command; a failure to print is an error."""
    try:
        echo(text)
    except BrokenPipeError:  # the reader has gone
        raise click.exceptions.Exit(1) from None
    except OSError as error:
        raise StorageError(UNWRITABLE.format(error.strerror)) from None


def status_printer(quiet: bool) -> Print:
    """`print_status`, or a function that prints nothing if ``quiet``."""
    return _print_nothing if quiet else print_status


def _print_nothing(text: str) -> None:
    """Print nothing."""


@contextmanager
def notes_shown(quiet: bool) -> Iterator[None]:
    """Print log messages and matrix warnings of the library as notes, or suppress both if ``quiet``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", DissimilarityWarning)
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        if quiet:
            yield
            return
        with _log_shown(logging.getLogger("psmds_dist")):
            yield


@contextmanager
def _log_shown(logger: logging.Logger) -> Iterator[None]:
    handler, level = _NoteHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _NoteHandler(logging.Handler):
    """Prints log records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


def _show_warning(default: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a matrix warning as a note, and pass others to ``default``."""
    if issubclass(category, DissimilarityWarning):
        print_note(str(message))
    else:
        default(message, category, *where)
