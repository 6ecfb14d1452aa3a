"""Files of a checkpoint: a digest followed by an ``.npz`` archive whose first member holds the identity of the run.

That member is named after the stream of the state. So a state is recognized by its contents, whole or damaged, and
files of others are never taken for one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import IO, Any

import numpy as np

from psmds_dist.core.errors import DamagedDataError, StorageError
from psmds_dist.utils.atomic import atomic_file
from psmds_dist.utils.remote_paths import AnyPath, RemotePath

Arrays = Mapping[str, Any]
"""Arrays of any shape, scalars among them, by name."""

Identity = Mapping[str, Any]
"""What must be the same for a run to be this one."""

STATE = re.compile(r"([a-z]+(?:-[0-9a-z]+)*)\.(\d{9})(?:\.(\d+))?\.npz")
"""Name of a state: its stream, its number, and the token of its owner (`psmds_dist.utils.lease`), if it had one."""

UNFINISHED = re.compile(rf"\.[0-9a-f]{{12}}-{STATE.pattern}")
"""Name of a state that is being written, or was when a process was killed."""

ZIP = b"PK\x03\x04"
"""First bytes of an ``.npz`` archive that is no state."""

IDENTITY = "identity-"
"""Prefix of the name of the first member of a state: it is at the beginning of the archive and in the directory at its
end."""

EDGE = 4096
"""Bytes at either end of a state that hold its mark; where one end is damaged the other identifies it."""

DIGEST = hashlib.blake2b
DIGEST_BYTES = DIGEST().digest_size


def state_name(stream: str, number: int, token: int = 0) -> str:
    """Name of the file of a state; two owners never use the same."""
    return f"{stream}.{number:09d}.{token}.npz" if token else f"{stream}.{number:09d}.npz"


def stream_of(path: AnyPath) -> str:
    """Stream of the state that has the name of a file; empty where no state has such a name."""
    match = STATE.fullmatch(path.name) or UNFINISHED.fullmatch(path.name)
    return match[1] if match else ""


def token_of(path: AnyPath) -> int:
    """Token of the owner who wrote a state; 0 if its name has none."""
    match = STATE.fullmatch(path.name) or UNFINISHED.fullmatch(path.name)
    return int(match[3] or 0) if match else 0


def order_of(path: AnyPath) -> tuple[str, int, int]:
    """Key that sorts states by stream, owner and number: the last of a stream counts."""
    stream, number, token = STATE.fullmatch(path.name).groups()  # type: ignore[union-attr]
    return stream, int(token or 0), int(number)


def is_state(path: AnyPath, streams: Collection[str] = ()) -> bool:
    """Whether a file is a state, whole or damaged.

    Empty files and those of zeros are, where they have the names of states of the given ``streams``, or of states that
    are being written: the digest is written last.
    """
    stream, edges = stream_of(path), _edges(path)
    if not stream or edges.startswith(ZIP):
        return False
    is_blank = not edges.strip(b"\0")
    return _mark(stream) in edges or (is_blank and (stream in streams or path.name.startswith(".")))


def is_archive(path: AnyPath) -> bool:
    """Whether a file is an archive but no state, or is not there any more."""
    return _edges(path).startswith(ZIP)


def write_state(path: AnyPath, identity: Identity, arrays: Arrays) -> None:
    """Write a state, which is found whole or not at all."""
    contents: dict[str, Any] = {IDENTITY + stream_of(path): np.array(json.dumps(identity)), **arrays}
    with atomic_file(path) as fresh, fresh.open("w+b") as file:
        file.write(bytes(DIGEST_BYTES))
        np.savez(file, **contents)
        digest = _digest(file)
        file.seek(0)
        file.write(digest)


def read_state(path: AnyPath) -> tuple[Any, Arrays]:
    """Identity of the run that a state belongs to, and its arrays.

    Raises
    ------
    DamagedDataError
        When it is not as it was written.
    """
    arrays = dict(_read(path))
    if (name := IDENTITY + stream_of(path)) not in arrays:
        raise DamagedDataError(f"{path} is damaged (it is a state of another stream).")
    return json.loads(str(arrays.pop(name))), arrays


def _mark(stream: str) -> bytes:
    return f"{IDENTITY}{stream}.npy".encode()


def _edges(path: AnyPath) -> bytes:
    """Both ends of a file; where it is none, or has been removed, those of an archive that is no state."""
    try:
        if isinstance(path, RemotePath):
            return path.edges(EDGE)
        with path.open("rb") as file:
            head = file.read(EDGE)
            file.seek(max(len(head), os.fstat(file.fileno()).st_size - EDGE))
            return head + file.read(EDGE)
    except (FileNotFoundError, IsADirectoryError):  # a live run may have just removed it
        return ZIP


def _digest(file: IO[bytes]) -> bytes:
    """Digest of what follows the place for it."""
    file.seek(DIGEST_BYTES)
    return hashlib.file_digest(file, DIGEST).digest()  # type: ignore[arg-type]


def _read(path: AnyPath) -> Arrays:
    try:
        with path.open("rb") as file:
            if file.read(DIGEST_BYTES) != _digest(file):
                raise DamagedDataError("its digest is not that of its contents")
            file.seek(DIGEST_BYTES)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
    except StorageError:  # no server answers: nothing is known of the state
        raise
    except (OSError, ValueError) as error:
        raise DamagedDataError(f"{path} is damaged ({_first_line(error)}).") from None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
