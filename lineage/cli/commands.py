"""Which commands there are. A module is imported when its command is asked for: most need only their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

MODULES = {
    "demo": "demo",
    "run": "run",
    "import": "import_",
    "pull": "pull",
    "histories": "histories",
    "show": "show",
    "tree": "tree",
    "phases": "phases",
    "diff": "diff",
    "compare": "compare",
    "verdict": "verdict",
    "verify": "verify",
    "compact": "compact",
    "first-bad": "first_bad",
    "suspects": "suspects",
    "audit": "audit",
    "quarantine": "quarantine",
    "resume": "resume",
    "ranks": "ranks",
    "replay": "replay",
    "check": "check",
    "batch": "batch",
    "overfit": "overfit",
    "loss-normalisation": "loss_normalisation",
    "precision": "precision",
    "gradients": "gradients",
    "reference": "reference",
    "canary": "canary",
    "report": "report",
    "postmortem": "postmortem",
    "sync": "sync",
    "schema": "schema",
    "catalogue": "catalogue",
    "explain": "explain",
    "doctor": "doctor",
    "incident": "incident_commands",
    "recover": "recover",
    "bundle": "bundle",
    "events": "events",
    "checkpoint": "checkpoint",
}
"""Command -> its module, in the order of the help. A module has `app`, where its command is a group, or `command`."""


class Lazily(MutableMapping[str, Any]):
    """Name -> Click command, made when it is first asked for.

    Args:
        modules: name -> module of this folder; `module:name` where the command is not called `command`.
        made: commands that are there already.
    """

    def __init__(self, modules: Mapping[str, str], made: Mapping[str, Any] | None = None) -> None:
        self._modules, self._made = modules, dict(made or {})

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _make(name, self._modules[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules or name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter({**self._made, **self._modules})

    def __len__(self) -> int:
        return len({**self._modules, **self._made})


class Commands(TyperGroup):
    """The group `lineage`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = Lazily(MODULES)


def _make(name: str, module: str) -> Any:
    """The Click command of a module, or its group of commands."""
    module, _, function = module.partition(":")
    found = import_module(f".{module}", __package__)
    holder = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    if hasattr(found, "app") and not function:
        holder.add_typer(found.app, name=name)
    else:
        holder.command(name, context_settings=getattr(found, "CONTEXT", None))(
            getattr(found, function or "command")
        )
    return typer.main.get_group(holder).commands[name]
