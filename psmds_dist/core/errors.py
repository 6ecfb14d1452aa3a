"""Errors raised on purpose, apart from everything else so that they cost nothing to import."""


class PsmdsError(Exception):
    """Base of every error that this package raises on purpose; its text is one sentence for the user."""


class InputError(PsmdsError, ValueError):
    """An argument, file or matrix that cannot be used as it is."""


class DamagedDataError(InputError):
    """Stored data that is not as it was written: a store, a chunk, a result or a checkpoint."""


class DissimilarityWarning(UserWarning):
    """A matrix is used, but something in it is suspicious; its text is one sentence."""


class BudgetError(PsmdsError, MemoryError):
    """The work does not fit into the memory budget."""


class StorageError(PsmdsError, OSError):
    """A file or directory could not be written."""


class OwnershipLost(PsmdsError, RuntimeError):
    """Another process writes to a path that this one owned; no error of storage, so that nothing is saved elsewhere."""


class WorkerError(PsmdsError, RuntimeError):
    """The cluster could not finish a round."""


class ClusterLost(WorkerError):
    """The cluster is gone, or has no workers left; a run can continue on another one from its checkpoint."""


class ForkError(PsmdsError, RuntimeError):
    """A process was forked from one that had used threads which do not survive that."""


class AlreadyComplete(Exception):
    """A run that is to be continued has ended already; its text is one sentence for the user."""
