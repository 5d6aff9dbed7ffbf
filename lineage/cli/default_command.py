"""A group of commands that runs one of them where no other is named: `lineage incident RUN` walks the first hour."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class DefaultGroup(TyperGroup):
    """Runs the command `default` where the first word names none. A run of a command's name is written as a path."""

    default = ""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put the default's name before words that name no command. `ctx` is Click's, or the copy that Typer brings."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Walks(DefaultGroup):
    """The group `incident`."""

    default = "walk"


class Decides(DefaultGroup):
    """The group `recover`."""

    default = "decide"
