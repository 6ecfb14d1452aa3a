"""Text that commands print: results and status on standard output, notes on standard error."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.core.errors import DissimilarityWarning, StorageError
from psmds_dist.core.events import Event, OnEvent, StageEvent
from psmds_dist.utils.json_log import JsonFormatter
from psmds_dist.utils.streams import discard_output
from psmds_dist.utils.text import escaped_lines

if TYPE_CHECKING:
    from psmds_dist.ingest.scan import Progress

UNWRITABLE = "standard output cannot be written ({}); redirect it to a file or command that accepts it."
"""Error of a command whose result cannot be printed."""

Print = Callable[[str], object]

LOGGER = "psmds_dist"
"""Parent of all loggers of this package."""

_JSON = f"{__name__}.json"


def echo(text: str, *, err: bool = False) -> None:
    """Print lines of text, with control characters of names and paths escaped."""
    click.echo(escaped_lines(text), err=err)


def print_note(text: str) -> None:
    """Print a note on standard error, or log it."""
    if logs_json():
        logging.getLogger(LOGGER).info(text, extra={"event": "note"})
    else:
        echo(f"Note: {text}.", err=True)


def start_json_log(ctx: click.Context, param: click.Parameter, wanted: bool) -> bool:
    """Log as lines of JSON on standard error until the command ends; callback of ``--log-json``."""
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_JSON] = True
        handler = _EchoHandler()
        handler.setFormatter(JsonFormatter())
        ctx.find_root().with_resource(_handled(logging.getLogger(LOGGER), handler, logging.DEBUG))
    return wanted


def logs_json() -> bool:
    """Whether the current command logs as lines of JSON."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_JSON))


def log_error(error: click.ClickException) -> None:
    """Log why a command fails."""
    fields = {"exit_code": error.exit_code}
    logging.getLogger(LOGGER).error(error.format_message(), extra={"event": "error", "fields": fields})


def _log_event(event: Event) -> None:
    """Log an event of a run."""
    fields = asdict(event)
    name = "stage" if isinstance(event, StageEvent) else "epoch"
    logging.getLogger(LOGGER).info("%s %s", name, fields[name], extra={"event": name, "fields": fields})


def events_shown(quiet: bool) -> AbstractContextManager[OnEvent]:
    """Yield what shows the events of a run: as log, on a terminal, or not at all."""
    from psmds_dist.api.report import progress

    return nullcontext(_log_event) if logs_json() and not quiet else progress(quiet)


def parts_shown(what: str, quiet: bool) -> AbstractContextManager[Progress]:
    """The same for work in parts; yields ``show(done, total)``."""
    from psmds_dist.api.report import counter

    if not logs_json() or quiet:
        return counter(what, quiet)
    return nullcontext(lambda done, total: _log_event(StageEvent(what, done, total)))


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
    _require_printed(lambda: echo(text))


def print_file(path: Path) -> None:
    """Print a text file as it is, as the result of a command."""

    def write() -> None:
        with path.open("rb") as file:
            while part := file.read(2**20):
                click.echo(part, nl=False)

    _require_printed(write)


def _require_printed(write: Callable[[], None]) -> None:
    """Write to standard output, or fail."""
    try:
        write()
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
    """Print log messages and matrix warnings of the library as notes, or suppress both if ``quiet``.

    With ``--log-json`` messages are logged anyway, and so are all warnings.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", DissimilarityWarning)
        default = warnings.showwarning
        shown: Callable[..., None] = _log_warning if logs_json() else partial(_show_warning, default)
        warnings.showwarning = shown
        if quiet or logs_json():
            yield
            return
        with _handled(logging.getLogger(LOGGER), _NoteHandler(), logging.INFO):
            yield


@contextmanager
def _handled(logger: logging.Logger, handler: logging.Handler, lowest: int) -> Iterator[None]:
    """Hand records from a level on to a handler."""
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(lowest)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _NoteHandler(logging.Handler):
    """Prints log records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


class _EchoHandler(logging.Handler):
    """Prints records on standard error as they are formatted."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), err=True)


def _log_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Log a warning."""
    fields = {"category": category.__name__}
    logging.getLogger(LOGGER).warning("%s", message, extra={"event": "warning", "fields": fields})


def _show_warning(default: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a matrix warning as a note, and pass others to ``default``."""
    if issubclass(category, DissimilarityWarning):
        print_note(str(message))
    else:
        default(message, category, *where)
