"""Python processes that start in a moment: forked from one that has imported large packages already.

torch, mlflow or pyarrow take seconds of processor time to import, which a test of real processes pays once for
each. Here a server process imports them once and forks. Each fork then runs what `python -c`, `python -m` or
`python script.py` would run, in a `__main__` of its own, with its own arguments, variables, folder and standard
streams. Nothing of this repository is imported beforehand, so every process imports the product anew. At its end
threads are joined, exit handlers run and streams are flushed; only the modules are not taken down one by one,
which after a fork copies all of their memory.

The server: `python -m tests.warm SOCKET MODULE ...`. It ends when its standard input does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

REPOSITORY = Path(__file__).parents[1]


class Process:
    """A process that was asked for: what `subprocess.Popen` offers, as far as tests need it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._said = connection, connection.makefile()
        self.pid = int(self._said.readline())
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            self.returncode = int(self._said.readline())
            self._said.close()
            self._connection.close()
        return self.returncode


class Warm:
    """The client of one server. A context manager that starts the server, and ends it."""

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")  # a socket's path may not be long
        self._address = f"{self._folder.name}/socket"
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", self._address, *modules],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # no threads that a fork would lose
        )

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()
        self._folder.cleanup()

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdout: int | IO[Any],
        stderr: int | IO[Any],
        env: Mapping[str, str],
        cwd: Path | None = None,
    ) -> Process:
        """Start what `python ARGUMENTS` starts, with its output in two open files."""
        return start(self.address, arguments, stdout=stdout, stderr=stderr, env=env, cwd=cwd)

    @property
    def address(self) -> str:
        """Where other processes reach the server, once it is ready."""
        if self._server.stdout is not None and not os.path.exists(self._address):
            assert self._server.stdout.readline() == b"ready\n", "the warm process did not start"
        return self._address

    def run(
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run what `python ARGUMENTS` runs, to its end, with its output captured as text."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            code = self.start(arguments, stdout=out, stderr=err, env=env, cwd=cwd).wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


def start(
    address: str,
    arguments: Sequence[str],
    *,
    stdout: int | IO[Any],
    stderr: int | IO[Any],
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> Process:
    """Ask the server at an address for a process, from whichever process this is."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    files = [f if isinstance(f, int) else f.fileno() for f in (stdout, stderr)]
    asked = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd or Path.cwd())}
    socket.send_fds(connection, [b"!"], files)
    connection.sendall(json.dumps(asked).encode() + b"\n")
    return Process(connection)


class Subprocess:
    """Stands in for the module `subprocess` in a module whose processes are to be started warm."""

    STDOUT = subprocess.STDOUT

    def __init__(self, address: str) -> None:
        self._address = address

    def Popen(
        self,
        command: Sequence[str],
        *,
        stdout: IO[Any],
        stderr: int,
        env: Mapping[str, str],
        cwd: Path | None = None,
    ) -> Process:
        """Start a command that begins with this interpreter, with one file for its output."""
        assert (command[0], stderr) == (sys.executable, subprocess.STDOUT)
        return start(self._address, command[1:], stdout=stdout, stderr=stdout, env=env, cwd=cwd)


def serve(address: str) -> list[str]:
    """Fork for each request. Returns only in a process that was asked for: what it is to run."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        attendants: set[int] = set()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            attendant = os.fork()
            if attendant == 0:
                listener.close()
                return _attend(connection)
            connection.close()
            attendants = {p for p in {*attendants, attendant} if os.waitpid(p, os.WNOHANG)[0] == 0}
    for p in attendants:
        os.waitpid(p, 0)
    os._exit(0)


def _attend(connection: socket.socket) -> list[str]:
    """Fork once more, wait for that process, and say how it ended. Returns in that process."""
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    with connection.makefile() as said:
        asked = json.loads(said.readline())
    pid = os.fork()
    if pid != 0:
        for f in files:
            os.close(f)
        os.dup2(2, 1)
        with connection.makefile("w") as say:
            say.write(f"{pid}\n")
            say.flush()
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            try:
                say.write(f"{code}\n")
                say.flush()
            except BrokenPipeError:
                pass  # nobody waits any more
            finally:
                os._exit(0)
    connection.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in zip((nothing, *files), (0, 1, 2), strict=True):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    return list(asked["arguments"])


def become(arguments: list[str]) -> None:
    """Do what `python ARGUMENTS` does; `-c`, `-m` and a script's path are known."""
    first, *others = arguments
    if first == "-m":
        sys.argv, sys.path[0] = others, str(Path.cwd())
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        exec(compile(others[0], "<string>", "exec"), vars(main))
    else:
        sys.argv, sys.path[0] = arguments, str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


def to_the_end(arguments: list[str]) -> NoReturn:
    """Do it, and end with the exit code with which an interpreter would."""
    code = 0
    try:
        become(arguments)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def main(address: str, *modules: str) -> None:
    """Import, then serve."""
    for name in modules:
        importlib.import_module(name)
    if threading.active_count() > 1:
        raise SystemExit(f"a fork would lose these threads of {modules}: {threading.enumerate()}")
    gc.freeze()
    to_the_end(serve(address))


if __name__ == "__main__":
    main(*sys.argv[1:])
