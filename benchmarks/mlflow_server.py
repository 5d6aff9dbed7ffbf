"""A real `mlflow server` on loopback, and a door in front of it that can be slowed or shut."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .probes import environment


class Server:
    """`mlflow server` on SQLite. A context manager that starts it; `ready` waits until it answers."""

    def __init__(self, folder: Path, patience: float = 240.0) -> None:
        self.folder, self.patience = folder, patience
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = int(s.getsockname()[1])
        self.uri = f"http://127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"),
            *("--artifacts-destination", str(folder / "artifacts")),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"

    def __enter__(self) -> Server:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                # no job runners: they are processes of their own, and nothing here submits a job
                env={**environment(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                start_new_session=True,
            )
        return self

    def ready(self) -> None:
        """Wait until the server answers. Raises `RuntimeError` with its log where it does not start."""
        assert self._process is not None, "ready() belongs inside the with block"
        end = time.monotonic() + self.patience
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"`mlflow server` did not come up at {self.uri}:\n{self._log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Door:
    """Passes requests on to a server. `delay` seconds go by before each; `shut` refuses connections."""

    def __init__(self, upstream: str) -> None:
        self.delay = 0.0
        door = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                time.sleep(door.delay)
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                request = urllib.request.Request(upstream + self.path, body, headers, method=self.command)
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        status, found, kind = answer.status, answer.read(), answer.headers.get("Content-Type")
                except urllib.error.HTTPError as e:
                    status, found, kind = e.code, e.read(), e.headers.get("Content-Type")
                self.send_response(status)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            do_GET = do_POST = do_PATCH = do_PUT = _pass  # noqa: N815 (names that http.server calls)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that has gone, or the server at the end: nothing to print."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def shut(self) -> None:
        """Close the port: whoever connects from now on is refused."""
        self._server.shutdown()
        self._server.server_close()
