"""TLS between client, scheduler and workers: one certificate, which all of them present and trust."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from psmds_dist.core.types import InputError

if TYPE_CHECKING:
    from distributed import Security

CERTIFICATE = "certificate.pem"
KEY = "key.pem"

ROLES = ("client", "scheduler", "worker")


def write_certificates(folder: str) -> None:
    """Create a key and a certificate signed with it, valid for a year, readable by this user only.

    Raises
    ------
    InputError
        When either file exists.
    """
    from distributed import Security

    certificate, key = (os.path.join(folder, name) for name in (CERTIFICATE, KEY))
    for path in (certificate, key):
        if os.path.lexists(path):
            raise InputError(f"{path} exists: choose another directory, or delete both files.")
    made = Security.temporary()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _write(key, made.tls_client_key)
    _write(certificate, made.tls_client_cert)


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def tls_security(folder: str) -> Security:
    """Security settings of Dask with the certificate and key of a directory.

    Raises
    ------
    InputError
        When they are missing, cannot be read or do not belong together.
    """
    from distributed import Security

    certificate, key = (os.path.abspath(os.path.join(folder, name)) for name in (CERTIFICATE, KEY))
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise InputError(
                f"the TLS file {path} cannot be read ({error.strerror}): give the directory that 'psmds certificates' "
                "made."
            ) from None
    security = Security(
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in ROLES},
        **{f"tls_{role}_key": key for role in ROLES},
    )
    try:
        security.get_connection_args("client")
    except ssl.SSLError as error:
        raise InputError(
            f"{certificate} and {key} are no certificate and its key ({error.reason or error}): make new ones "
            "with 'psmds certificates'."
        ) from None
    return security


def tls_configuration(folder: str) -> dict[str, Any]:
    """Dask's settings that make a process use the certificate and key of a directory."""
    certificate, key = (os.path.abspath(os.path.join(folder, name)) for name in (CERTIFICATE, KEY))
    files = {f"{role}.{part}": path for role in ROLES for part, path in (("cert", certificate), ("key", key))}
    names = {f"distributed.comm.tls.{name}": path for name, path in {"ca-file": certificate, **files}.items()}
    return {"distributed.comm.require-encryption": True, **names}


def require_same_security(address: str, *, able: bool, required: bool) -> None:
    """Refuse a scheduler that uses TLS when we cannot, and one that does not when we must.

    Parameters
    ----------
    address : str
        Address of the scheduler.
    able : bool
        Whether we have a certificate.
    required : bool
        Whether we connect with TLS only.

    Raises
    ------
    InputError
        In both cases.
    """
    if address.startswith("tls://") and not able:
        raise InputError(f"the scheduler at {address} uses TLS: pass --tls with the directory of its certificate.")
    if address.startswith("tcp://") and required:
        raise InputError(f"the scheduler at {address} does not use TLS: leave out --tls, or start it with --tls.")
