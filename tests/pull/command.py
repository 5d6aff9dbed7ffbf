"""The command line in this process: another one starts slowly."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest import mock

from lineage.cli import main


@dataclass
class Done:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


def lineage(*arguments: object) -> Done:
    """Run a command of ours."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "argv", ["lineage", *map(str, arguments)]),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def asked(code: int, *arguments: object) -> Any:
    """What a command prints as JSON; it must end with this exit code."""
    done = lineage(*arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)
