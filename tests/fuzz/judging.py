"""Outcomes of a case: correct, refused with one sentence, or a failure."""

from __future__ import annotations

import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from psmds_dist.core.errors import DissimilarityWarning
from tests.fuzz.choosing import Chooser
from tests.fuzz.oracle import Verdict, require_sentence

ERRORS = (ValueError, TypeError, MemoryError)
"""Documented errors for invalid input."""

IN_A_LINE = "the landmarks span only"
"""Messages that valid input may cause: random landmarks may lie on a line where others do not."""


class FuzzFailure(AssertionError):
    """A failure."""


Entry = Callable[[Chooser, Path], str]
"""Runs one case in its own directory and returns the outcome; raises `FuzzFailure` on a failure."""


def judged(call: Callable[[], object], verdict: Verdict, story: str) -> str:
    """Call and compare the outcome with the verdict."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)  # documented: a monotone solve without certificate
            warnings.simplefilter("ignore", DissimilarityWarning)  # tests.fuzz.judgements looks at these
            call()
    except AssertionError as error:
        raise FuzzFailure(f"{story}: {error}") from error
    except ERRORS as error:
        if verdict is Verdict.RIGHT and not str(error).startswith(IN_A_LINE):
            raise FuzzFailure(f"{story}: refused, though valid: {error!r}") from error
        _require_ours(error, story)
        return "refused"
    except Exception as error:
        raise FuzzFailure(
            f"{story}: {type(error).__name__} instead of a sentence: {error}\n{_last_frames(error)}"
        ) from error
    if verdict is Verdict.REFUSED:
        raise FuzzFailure(f"{story}: accepted in silence")
    return "right"


def _require_ours(error: Exception, story: str) -> None:
    from psmds_dist.core.errors import PsmdsError

    if not isinstance(error, PsmdsError):
        raise FuzzFailure(f"{story}: leaked {error!r}\n{_last_frames(error)}") from error
    try:
        require_sentence(str(error))
    except AssertionError as wrong:
        raise FuzzFailure(f"{story}: {wrong}") from error


def _last_frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-3:])


@contextmanager
def own_folder() -> Iterator[Path]:
    """Directory for one case."""
    folder = Path(tempfile.mkdtemp(prefix="psmds-fuzz-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
