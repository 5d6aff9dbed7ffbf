"""`lineage schema`: the published JSON Schemas."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .._rooms import schemas  # the package must be loaded before its submodules are
from .common import CliError, Exit, Json, console, emit

NAME = "schema"


def command(
    name: Annotated[
        str | None, typer.Argument(help="A record's name, such as checkpoint; nothing lists all.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the published ones; 1 where they drifted.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Publish what is not published yet.")] = False,
    as_json: Json = False,
) -> None:
    """Print, publish or check the JSON Schemas of all records."""
    publish = schemas.publish
    if write:
        for file in publish.write():
            typer.echo(f"published {file}")
        return
    if check:
        problems = publish.check()
        if as_json:
            emit({"problems": problems})
        else:
            for problem in problems:
                console.print(problem)
            console.print(
                "published schemas are as generated" if not problems else f"{len(problems)} problems"
            )
        raise typer.Exit(Exit.FOUND if problems else Exit.OK)
    every = publish.generate()
    if name is None:
        names = sorted(f.rsplit("-", 3)[0] for f in every)
        emit(names) if as_json else console.print("\n".join(names))
        return
    for file, data in every.items():
        if file.rsplit("-", 3)[0] == name:
            typer.echo(json.dumps(json.loads(data), indent=1))
            return
    raise CliError(f"there is no record {name!r}; `lineage schema` lists them")
