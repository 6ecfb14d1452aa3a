"""Connections to a running cluster."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from psmds_dist.core.types import InputError
from psmds_dist.executor._dask_internals import check_address, silence_logging
from psmds_dist.executor.tls import require_same_security, tls_security

if TYPE_CHECKING:
    from distributed import Client


def connect(address: str | None = None, scheduler_file: str | None = None, tls: str | None = None) -> Client:
    """Connect to a running scheduler.

    Parameters
    ----------
    address, scheduler_file : str, optional
        Where the scheduler is: one of the two.
    tls : str, optional
        Directory with the certificate and key of the scheduler.

    Raises
    ------
    InputError
        When no scheduler answers, or a file is missing.
    """
    from distributed import Client, Security

    security = None if tls is None else tls_security(tls)
    if scheduler_file is not None and not os.path.exists(scheduler_file):
        raise InputError(
            f"scheduler file {scheduler_file!r} does not exist: start 'psmds scheduler --scheduler-file "
            f"{scheduler_file}' first, on a file system that this machine shares with it."
        )
    try:
        address = str(address) if scheduler_file is None else address_in(scheduler_file)
        if "://" not in address:
            address = f"{'tcp' if tls is None else 'tls'}://{address}"
        # a client that fails on its address or security never lets the process end
        check_address(address)
        ours = (security or Security()).get_connection_args("client")  # Dask's own settings may have TLS too
        require_same_security(address, able=ours["ssl_context"] is not None, required=ours["require_encryption"])
        # waits as long as Dask's setting distributed.comm.timeouts.connect says; as the default client it
        # would change Dask's settings, and leave them changed when nobody answers
        return Client(address, set_as_default=False, security=security)
    except InputError:
        raise
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        if "TLS certificate does not match" in str(error):
            raise InputError(
                f"the scheduler at {address} does not have the certificate in {tls}: pass --tls with the directory of "
                "the one that it was started with."
            ) from None
        place, what = scheduler_file or address, str(error).rstrip(".")
        hint = "" if tls else "; one that uses TLS has an address that begins with tls://, and needs --tls"
        raise InputError(f"no Dask scheduler answers at {place}: {type(error).__name__} {what}{hint}.") from None


def address_in(scheduler_file: str) -> str:
    """Address of the scheduler that wrote a file; raises what reading raises."""
    with open(scheduler_file, encoding="utf-8") as file:
        return str(json.load(file)["address"])


@contextlib.contextmanager
def dask_silenced() -> Iterator[None]:
    """Hide Dask's log of faults that end in an error of this package."""
    with silence_logging():
        yield
