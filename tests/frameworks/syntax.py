"""Reading a framework's keys and defaults off its source text: nothing is imported, so nothing is needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Unknown:
    """A default that only running the code would tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()
REQUIRED = Unknown()
"""A key that has no default: the user must state it."""
Keys = dict[str, Any]
"""key -> default"""


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def literal(node: ast.expr | None) -> Any:
    """The value of an expression where the text alone tells it."""
    if node is None:
        return REQUIRED
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.BinOp):  # 2**32, 5 * 8
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return {ast.Pow: left**right, ast.Mult: left * right}.get(type(node.op), UNKNOWN)
    if isinstance(node, ast.Attribute):  # an enumeration's member is written by its name
        return Member(node.attr)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("int", "Path")) and node.args:
        return literal(node.args[0])
    return UNKNOWN


class Member(str):
    """The name of an enumeration's member, which may be written otherwise in a config."""

    __slots__ = ()


def _field(node: ast.expr | None) -> ast.expr | None:
    """The default inside `field(default=...)`, `Field(...)` or a wrapper of it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("field", "Field"):
        named = {k.arg: k.value for k in node.keywords}
        for name in ("default", "default_factory"):
            if name in named:
                return named[name] if name == "default" else ast.Name("factory")
        return node.args[0] if node.args else None
    return node


def classes(path: Path) -> dict[str, dict[str, tuple[Any, str, list[str]]]]:
    """Class (`Outer.Inner` for a nested one) -> field -> (default, annotation, aliases)."""
    out: dict[str, dict[str, tuple[Any, str, list[str]]]] = {}
    for name, node in _classes(tree(path).body, ""):
        out[name] = {
            s.target.id: (literal(_field(s.value)), ast.unparse(s.annotation), _aliases(s.value))
            for s in node.body
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        }
    return out


def _aliases(node: ast.expr | None) -> list[str]:
    named = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    found = literal(named["alias"]) if "alias" in named else None
    out = [found] if isinstance(found, str) else []
    for inner in ast.walk(named["metadata"]) if "metadata" in named else ():
        if isinstance(inner, ast.Dict):  # Megatron: the option's name where it differs from the field's
            told = {literal(k): v for k, v in zip(inner.keys, inner.values, strict=True) if k is not None}
            names = literal(told["arg_names"]) if "arg_names" in told else []
            out += [n.lstrip("-").replace("-", "_") for n in names]
    return out


def _classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node
            yield from _classes(node.body, f"{prefix}{node.name}.")


def fields(path: Path, *names: str, prefix: str = "") -> Keys:
    """The fields of some classes, each under a prefix."""
    known = classes(path)
    out: Keys = {}
    for name in names or tuple(known):
        for field, (default, _, aliases) in known[name].items():
            out |= {prefix + n: default for n in (field, *aliases)}
    return out


def nested(paths: list[Path], root: str) -> Keys:
    """The fields of a class and, dotted, those of the classes that its fields are annotated with."""
    known: Mapping[str, dict[str, tuple[Any, str, list[str]]]] = {}
    for path in paths:
        known = {**known, **classes(path)}

    def walk(name: str, prefix: str, depth: int) -> Keys:
        out: Keys = {}
        for field, (default, annotation, _) in known[name].items():
            out[prefix + field] = default
            inner = [c for c in known if c in ast_names(annotation) and c != name]
            for c in inner if depth < 5 else ():
                out |= walk(c, f"{prefix}{field}.", depth + 1)
        return out

    return walk(root, "", 0)


def ast_names(annotation: str) -> set[str]:
    """The names in an annotation, which may be quoted."""
    text = annotation.strip("'\"")
    return {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}


def parameters(path: Path, function: str, owner: str = "", prefix: str = "") -> Keys:
    """The parameters of a function, or of a class's method."""
    body: list[ast.stmt] = tree(path).body
    if owner:
        body = next(n for name, n in _classes(body, "") if name == owner).body
    node = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == function)
    named = [a for a in node.args.args if a.arg != "self"]
    defaults: list[ast.expr | None] = [None] * (len(named) - len(node.args.defaults)) + list(
        node.args.defaults
    )
    found = [*zip(named, defaults, strict=True)]
    found += list(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    return {prefix + a.arg: literal(d) for a, d in found}


def options(path: Path) -> Keys:
    """The options that a file gives to argparse, by the name on the command line."""
    out: Keys = {}
    for node in ast.walk(tree(path)):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        names = [literal(a) for a in node.args]
        named = {k.arg: k.value for k in node.keywords}
        action = literal(named["action"]) if "action" in named else None
        default = literal(named["default"]) if "default" in named else None
        if action in ("store_true", "store_false") and "default" not in named:
            default = action == "store_false"
        for name in names:
            if isinstance(name, str) and name.startswith("--"):
                out[name[2:].replace("-", "_")] = default
        dest = literal(named["dest"]) if "dest" in named else None
        if isinstance(dest, str):  # the name under which the program keeps it, and logs it
            out.setdefault(dest, default)
    return out


def assignments(path: Path) -> Keys:
    """The names that a module sets at its top level."""
    out: Keys = {}
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            out[node.targets[0].id] = literal(node.value)
    return out
