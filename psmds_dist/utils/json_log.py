"""Log records as lines of JSON, for programs that collect logs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: ``time``, ``level``, ``event`` and ``message``, then its own fields.

    Records name their event and fields by ``extra={"event": "epoch", "fields": {"epoch": 3}}``; the event of others is
    ``"log"``, and of warnings ``"warning"``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, in ASCII."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = getattr(record, "event", "log")
        head = {"time": time, "level": record.levelname.lower(), "event": event, "message": record.getMessage()}
        return json.dumps({**head, **_plain(getattr(record, "fields", {}))}, default=str)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with null for numbers that JSON does not know."""
    odd = {name for name, value in fields.items() if isinstance(value, float) and not math.isfinite(value)}
    return {name: None if name in odd else value for name, value in fields.items()}
