"""The status of a run as metrics of Prometheus: as text for node_exporter, or served over HTTP."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from psmds_dist.api.watch import RunState, RunStatus
from psmds_dist.core.errors import InputError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """A metric, and the fact of a status that it tells."""

    name: str
    kind: str
    fact: str
    help: str


METRICS = (
    Metric("psmds_epoch", "gauge", "epoch", "Epochs done."),
    Metric("psmds_radius", "gauge", "radius", "Radius of the moves, in units of the dissimilarities."),
    Metric("psmds_end_radius", "gauge", "end_radius", "Radius at which the solve ends."),
    Metric("psmds_stress", "gauge", "stress", "Normalized stress of the last epoch."),
    Metric("psmds_moved_ratio", "gauge", "moved", "Share of the points that moved in the last epoch."),
    Metric("psmds_stage_parts_done", "gauge", "done", "Parts of the stage, or blocks of the store, that are done."),
    Metric("psmds_stage_parts", "gauge", "total", "All parts of the stage, or blocks of the store."),
    Metric("psmds_left_seconds", "gauge", "seconds_left", "Estimated time left."),
    Metric("psmds_restarts_total", "counter", "restarts", "How often the run was resumed."),
    Metric("psmds_bytes_read_total", "counter", "bytes_read", "Bytes of rows that the processes have read."),
    Metric("psmds_workers", "gauge", "workers", "Workers that are connected."),
    Metric("psmds_workers_lost_total", "counter", "workers_lost", "Workers that were lost."),
    Metric("psmds_updated_timestamp_seconds", "gauge", "updated", "Last sign of life, in seconds since 1970."),
    Metric("psmds_map_epochs", "gauge", "n_epochs", "Epochs of the finished map."),
    Metric("psmds_map_stress", "gauge", "normalized_stress", "Normalized stress of the finished map."),
)
"""Metrics of a run, a store or a map; those whose fact is unknown are left out."""


def prometheus_text(status: RunStatus) -> str:
    """Metrics of a status in Prometheus' text format."""
    label = f'target="{_quoted(status.target)}"'
    lines = ["# HELP psmds_state Whether the run is in this state.", "# TYPE psmds_state gauge"]
    lines += [f'psmds_state{{{label},state="{state}"}} {int(state is status.state)}' for state in RunState]
    for metric in METRICS:
        value = status.facts.get(metric.fact)
        if isinstance(value, int | float) and math.isfinite(value):
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            lines.append(f"{metric.name}{{{label}}} {value!r}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Escape a label; bytes that are no text are replaced."""
    readable = text.encode(errors="replace").decode()
    return readable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextmanager
def metrics_served(text: Callable[[], str], address: str) -> Iterator[str]:
    """Serve metrics over HTTP for the length of a with block, and yield their URL.

    Parameters
    ----------
    text : callable
        Returns the metrics.
    address : str
        Port, or host and port; without a host only this machine can read them.

    Raises
    ------
    InputError
        When the address is none, or in use.
    """
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), _handler(text))
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"metrics cannot be served at {address!r} ({error}): give a free port such as 9464, or host:port."
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] in ("/", "/metrics")
            body = text().encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler
