"""A real `mlflow server` on loopback, and a server in front of it that fails on request."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """`mlflow server` on SQLite with one worker. `kill` ends it as a crash would; `start` brings it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, patience: float = 240.0) -> None:
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--workers", "1"),
            *("--artifacts-destination", str(self.folder / "artifacts")),
        ]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # no job runners: they are processes of their own that import MLflow again, and no test has a job
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                start_new_session=True,
            )
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                if requests.get(f"{self.uri}/health", timeout=2).status_code == 200:
                    return
            except requests.RequestException:
                time.sleep(0.2)
        log_text = (self.folder / "server.log").read_text()[-3000:]
        self.kill()
        raise RuntimeError(f"mlflow server did not start on {self.uri}:\n{log_text}")

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Faulty:
    """Stands in front of a server, passes requests on, and fails them as `fault` says.

    `fault`: None, "hang" (no answer), "slow" (each answer after a second), "503", "403" (no permission), "401",
    "login" (an HTML page), "no_models" (MLflow before 3.0: no such endpoint), "lost" (the request is done, its
    answer never arrives). Only requests whose path contains `where` fail; `times` counts down, -1 means for ever.
    """

    def __init__(self, upstream: str) -> None:
        self.fault: str | None = None
        self.where = ""
        self.times = -1
        self.seen: list[str] = []
        self.release = threading.Event()
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                faulty.seen.append(f"{self.command} {self.path}")
                fault = faulty._fault_for(self.path)
                if fault == "hang":
                    faulty.release.wait(60)
                    return
                if fault == "slow":
                    faulty.release.wait(1.0)
                if fault == "503":
                    self._answer(503, b"busy", "text/plain")
                elif fault == "401":
                    self._answer(401, b"who are you", "text/plain")
                elif fault == "403":
                    body = {"error_code": "PERMISSION_DENIED", "message": "not yours"}
                    self._answer(403, json.dumps(body).encode())
                elif fault == "login":
                    self._answer(200, b"<html>Sign in</html>", "text/html")
                elif fault == "no_models":
                    self._answer(404, b"<title>404 Not Found</title>", "text/html")
                else:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host",)}
                    r = requests.request(
                        self.command, upstream + self.path, data=body, headers=headers, timeout=30
                    )
                    if fault == "lost":
                        self.connection.close()
                        return
                    self._answer(r.status_code, r.content, r.headers.get("Content-Type", "text/plain"))

            do_GET = do_POST = do_PATCH = do_PUT = _handle  # noqa: N815 (names that http.server calls)

        self._handler, self._port = Handler, 0
        self.open()
        self.uri = f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Listen; after `close` on the same port again."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        self._server.daemon_threads = True
        self._port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def fail(self, fault: str | None, where: str = "", times: int = -1) -> None:
        self.fault, self.where, self.times = fault, where, times

    def _fault_for(self, path: str) -> str | None:
        if self.fault is None or self.where not in path or self.times == 0:
            return None
        self.times -= 1 if self.times > 0 else 0
        return self.fault

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
