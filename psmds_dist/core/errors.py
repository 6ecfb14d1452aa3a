"""Errors raised on purpose, apart from everything else so that they cost nothing to import."""


class PsmdsError(Exception):
    """Base of every error that this package raises on purpose; its text is one sentence for the user."""


class InputError(PsmdsError, ValueError):
    """An argument, file or matrix that cannot be used as it is."""


class DissimilarityWarning(UserWarning):
    """A matrix is used, but something in it is suspicious; its text is one sentence."""


class BudgetError(PsmdsError, MemoryError):
    """The work cannot be done inside the memory budget."""


class StorageError(PsmdsError, OSError):
    """A file or directory could not be written."""


class WorkerError(PsmdsError, RuntimeError):
    """The cluster could not finish a round."""


class ClusterLost(WorkerError):
    """The cluster is gone, or has nobody who works; with another one a run goes on from what it has kept."""


class ForkError(PsmdsError, RuntimeError):
    """A process was forked from one that had used threads which do not survive that."""


class AlreadyComplete(Exception):
    """A run that is asked to go on has ended already; its text is one sentence for the user."""
