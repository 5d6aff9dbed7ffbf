"""`lineage run -- COMMAND`: run a training command under observation, without a change to its code."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..ledger import layout
from ..recorder.settings import resolve, run_id
from .common import CliError, Exit, errors

NAME = "run"
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What follows the command's name is the command's own, options too."""
HOOK = Path(__file__).resolve().parent.parent / "observe" / "hook"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""As shells have it."""


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="The command, such as torchrun train.py.", show_default=False
        ),
    ],
    ledger: Annotated[
        Path | None, typer.Option(help="Folder of all ledgers; else the setting `dir`.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Lineage run id; else found from tracker and checkpoints.", show_default=False),
    ] = None,
) -> None:
    """Run a command and record what its W&B, MLflow, checkpoint calls show. Its exit code is the command's."""
    environment = dict(os.environ)
    if ledger is not None:
        environment["LINEAGE_DIR"] = str(ledger.expanduser().absolute())
    if run is not None:
        try:
            environment["LINEAGE_RUN_ID"] = run_id(run)
        except ValueError as e:
            raise CliError(str(e)) from None
    program = shutil.which(words[0])
    if program is None:
        raise CliError(f"{words[0]}: no such command", _code(NOT_FOUND))
    settings = resolve({"dir": environment.get("LINEAGE_DIR")})
    off = environment.get("LINEAGE_OBSERVE", "").strip().lower() in ("0", "false", "no", "off")
    if settings.enabled and not off:
        _prepare(environment, Path(str(settings.dir)).expanduser().absolute())
    _become(program, words, environment)


def _code(number: int) -> Exit:
    """An exit code of a shell's, where `Exit` has none of its own."""
    return number  # type: ignore[return-value]


def _prepare(environment: MutableMapping[str, str], root: Path) -> None:
    """Put the hook into the environment, make the folder where processes meet, and start the watch beside it.

    Where one of them fails it is said, and the command runs without observation.
    """
    from uuid6 import uuid7

    folder = root / ".observe" / str(uuid7())
    try:
        layout.make_folder(folder)
    except OSError as e:
        errors.print(f"lineage: {folder} cannot be made ({e.strerror}); the command runs without observation")
        return
    present = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment["PYTHONPATH"] = os.pathsep.join([str(HOOK), *(p for p in present if p != str(HOOK))])
    environment["LINEAGE_OBSERVE_TO"] = str(folder)
    if hasattr(os, "pidfd_open") and os.path.isdir("/proc/self"):
        _watch(os.getpid(), folder)
    else:
        errors.print(
            "lineage: this system has no /proc: processes that the hook does not reach are not noticed"
        )


def _watch(main: int, folder: Path) -> None:
    """Start the watch as a process that is no child of the command's, and no member of its terminal's group."""
    from ..observe.reach import follow

    end = os.pidfd_open(main)  # now: it may be over before the watch has begun
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(end)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.chdir("/")
            with contextlib.suppress(Exception):
                follow(main, end, folder, str(HOOK))
    finally:
        os._exit(0)


def _become(program: str, words: list[str], environment: MutableMapping[str, str]) -> NoReturn:
    """Turn into the command: its pid, signals, exit code and streams are this process's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what it becomes would
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(program, words, environment)
    except OSError as e:
        raise CliError(f"{program} cannot be run: {e.strerror}", _code(NOT_EXECUTABLE)) from None
