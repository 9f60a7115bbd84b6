"""An S3 for tests: moto's server as a process of its own, on a free port of the loopback.

moto looks whether a condition holds and writes in two steps; here one request at a time passes, as a real store decides
between two writers. `lose_answers` and `fail` make it misbehave for the next writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from strandline.state_store.storage import StorageOptions
from tests.support.waiting import PATIENCE_SECONDS

BUCKET = "lakes"
_FAULTS = "/_faults/"


class S3Server:
    """The running server, with one bucket in it. Anyone may read and write."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.s3_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._put(f"/{BUCKET}")

    def options(self, patience_seconds: float = 20.0) -> StorageOptions:
        """The way to it."""
        return StorageOptions(
            endpoint=self.url,
            region="us-east-1",
            access_key_id="canary-id",
            secret_access_key="canary-secret",
            allow_http=True,
            patience_seconds=patience_seconds,
        )

    def lose_answers(self, count: int) -> None:
        """Do the next writes, and tell their writers that the server failed."""
        self._put(f"{_FAULTS}lose/{count}")

    def fail(self, count: int) -> None:
        """Do not do the next writes, and say so."""
        self._put(f"{_FAULTS}fail/{count}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _put(self, path: str) -> None:
        with urlopen(Request(self.url + path, method="PUT"), timeout=PATIENCE_SECONDS):
            pass


class _OneAtATime:
    """moto's application, with faults."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._faults = {"lose": 0, "fail": 0}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            path = str(environ["PATH_INFO"])
            if path.startswith(_FAULTS):
                kind, count = path.removeprefix(_FAULTS).split("/")
                self._faults = {"lose": 0, "fail": 0, kind: int(count)}
                start_response("200 OK", [])
                return [b""]
            fault = self._fault() if environ["REQUEST_METHOD"] == "PUT" else None
            if fault != "fail":
                answer = start_response if fault is None else (lambda *_: None)
                done = list(self._app(environ, answer))
                if fault is None:
                    return done
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]

    def _fault(self) -> str | None:
        for kind, left in self._faults.items():
            if left:
                self._faults[kind] = left - 1
                return kind
        return None


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _OneAtATime(app), threaded=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
