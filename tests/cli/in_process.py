"""Commands in this process: another one would not see what lies in memory://, and starts slowly."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lineage.cli import main
from lineage.cli.app import app


@dataclass
class Done:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def lineage_(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`lineage_("checkpoint", "preserve", path)` runs the command."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["lineage", *map(str, arguments)])
        capsys.readouterr()
        app.registered_commands.clear()  # `main` adds all of them, once in a process
        app.registered_groups.clear()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        found = capsys.readouterr()
        return Done(code, found.out, found.err)

    return run
