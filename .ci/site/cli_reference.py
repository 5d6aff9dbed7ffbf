"""Hook of MkDocs: a page for each command, read off the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from mkdocs.structure.files import File, Files

from lineage.cli.app import app


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    root = typer.main.get_command(app)
    rows = []
    for name, command in root.commands.items():
        files.append(File.generated(config, f"cli/{name}.md", content=_page(f"lineage {name}", command)))
        rows.append(f"| [`lineage {name}`]({name}.md) | {_words(_first(command.help))} |")
    text = [
        "# Commands",
        "",
        _words(root.help),
        "",
        _words(root.epilog),
        "",
        "| command | what it does |",
        "| --- | --- |",
        *rows,
    ]
    files.append(File.generated(config, "cli/index.md", content="\n".join(text) + "\n"))
    return files


def _page(name: str, command: Any) -> str:
    return "\n".join([f"# {name}", "", *_told(name, command, 2)]) + "\n"


def _told(name: str, command: Any, level: int) -> Iterator[str]:
    """What a command does, its arguments, options and commands of its own."""
    context = command.make_context(name, [], resilient_parsing=True)
    yield from (_words(command.help), "")
    yield from ("```text", f"{name} {' '.join(command.collect_usage_pieces(context))}", "```", "")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"
    ]
    if arguments:
        yield from ("| argument | what it is |", "| --- | --- |")
        for p in arguments:
            yield f"| `{p.metavar or p.name}`{'' if p.required else ' (optional)'} | {_cell(_words(p.help))} |"
        yield ""
    if options:
        yield from ("| option | what it does |", "| --- | --- |")
        for p in options:
            yield f"| {_option(p)} | {_cell(_words(p.help))}{_default(p)} |"
        yield ""
    if epilog := _words(getattr(command, "epilog", "")):
        yield from (epilog, "")
    for own, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from (f"{'#' * level} {name} {own}", "")
            yield from _told(f"{name} {own}", below, level + 1)


def _option(p: Any) -> str:
    names = ", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts])
    if p.is_flag:
        return names
    return f"{names} {(p.metavar or _kind(p)).upper()}"


def _kind(p: Any) -> str:
    """What an option takes, in a word: newer versions of Typer keep the annotation, older ones Click's own type."""
    if (told := getattr(p, "type_descriptor", None)) is None:
        return str(p.type.name)
    inner = getattr(told.annotation, "__args__", (told.annotation,))[0]
    return {"str": "text", "int": "number", "float": "number"}.get(inner.__name__, inner.__name__)


def _default(p: Any) -> str:
    value = p.default
    if value is None or value is False or value in ((), []) or callable(value) or not p.show_default:
        return ""
    value = getattr(value, "value", value)
    return f" Default: `{value}`."


def _first(text: str | None) -> str:
    return (text or "").strip().partition("\n\n")[0]


def _words(text: str | None) -> str:
    """Help as Markdown: paragraphs on one line each, and no markup of Rich's."""
    plain = re.sub(
        r"\[/?(?:bold|dim|italic|red|green|yellow|cyan)[^\]]*\]|\[/\]", "", (text or "").replace("\b", "")
    )
    paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", plain.strip()))
    return "\n\n".join(re.sub(r"<(?=[\w/])", "&lt;", p) for p in paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n\n", " ")
