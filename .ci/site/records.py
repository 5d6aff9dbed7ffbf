"""Hook of MkDocs: a page for the records of each module of `schemas`, read off the models and their fields."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from typing import Any

from mkdocs.structure.files import File, Files
from pydantic import BaseModel

import schemas

TITLES = {"base": "Parts of many records"}


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    by_module: dict[str, list[type[BaseModel]]] = {}
    for name in schemas.__all__:
        found = getattr(schemas, name)
        if inspect.isclass(found) and issubclass(found, BaseModel) and found.__name__ == name:
            by_module.setdefault(found.__module__, []).append(found)
    rows = []
    for module in sorted(by_module):
        short = module.rpartition(".")[2].lstrip("_")
        title = TITLES.get(short, short.capitalize())
        models = sorted(by_module[module], key=lambda m: inspect.getsourcelines(m)[1])
        said = (sys.modules[module].__doc__ or "").strip()
        text = [f"# {title}", "", said, ""]
        for model in models:
            text += _model(model)
        files.append(File.generated(config, f"records/{short}.md", content="\n".join(text) + "\n"))
        names = ", ".join(f"[`{m.__name__}`]({short}.md#{m.__name__.lower()})" for m in models)
        rows.append(f"| [{title}]({short}.md) | {names} |")
    head = [
        "# Records",
        "",
        "What `lineage.schemas` holds: pydantic models, one for each kind of record and for their parts.",
        "They are read with `lineage.open_ledger(path).of(kind)`, or from a line with `lineage.schemas.read_line`.",
        "The same models as JSON Schema: `lineage schema NAME`. How they lie on disk: [the format](../format.md).",
        "",
        "| module | models |",
        "| --- | --- |",
    ]
    files.append(File.generated(config, "records/index.md", content="\n".join([*head, *rows]) + "\n"))
    return files


def _model(model: type[BaseModel]) -> list[str]:
    kind = model.model_fields.get("kind")
    told = f" Kind of record: `{kind.default}`." if kind is not None and isinstance(kind.default, str) else ""
    said = inspect.cleandoc(model.__doc__ or "")
    text = [
        f"## {model.__name__}",
        "",
        said + told,
        "",
        "| field | type | what it is |",
        "| --- | --- | --- |",
    ]
    for name, field in model.model_fields.items():
        if name != "kind":
            need = "" if field.is_required() else " (optional)"
            said = (field.description or "").replace("|", "\\|").replace("<", "&lt;")
            shown = _type(field.annotation).replace("|", "\\|")
            text.append(f"| `{field.alias or name}`{need} | `{shown}` | {said} |")
    return [*text, ""]


def _type(found: Any) -> str:
    """A type as people read it."""
    origin, args = typing.get_origin(found), typing.get_args(found)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin is typing.Literal:
        return " | ".join(repr(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type(a) for a in args if a is not type(None)))
    if args:
        return f"{getattr(origin, '__name__', origin)}[{', '.join(_type(a) for a in args)}]"
    return "..." if found is Ellipsis else getattr(found, "__name__", str(found))
