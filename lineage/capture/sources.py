"""Where a config comes from: each kind of object that people keep a config in, as a mapping.

Recognised by type name and module, so that omegaconf, wandb, mlflow and pydantic need not be installed and
are never imported here unless the object at hand is theirs.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
import tomllib
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import documents
from .plain import Hidden
from .secrets import is_secret_key

_INTERPOLATION = re.compile(r"\$\{\s*(?:oc\.(?:env|decode|select|deprecated)\s*:\s*)?([^{},:\s]+)[^{}]*\}")
_LARGEST_FILE = 64 * 2**20


def read(source: object) -> tuple[str, Mapping[str, Any]]:
    """Return the kind of a config (`dict`, `argparse`, `yaml`, ...) and its top level as a mapping.

    Raises `TypeError` for an object that holds no config, `FileNotFoundError` and `ValueError` for files.
    """
    if isinstance(source, str | os.PathLike):
        return _file(Path(source))
    found = mapping_of(source)
    if found is None:
        raise TypeError(
            f"cannot read a config from {type(source).__name__}: pass a dict, an argparse.Namespace, a "
            "dataclass, a pydantic model, an OmegaConf, wandb.config, an MLflow run, an object with "
            "to_dict(), or the path of a YAML, JSON or TOML file"
        )
    return found


def mapping_of(value: object) -> tuple[str, Mapping[Any, Any]] | None:
    """Return the kind and the entries of an object that holds named values, or None for a leaf."""
    if isinstance(value, type):
        return None
    if isinstance(value, dict):
        return "dict", value
    for kind, fits, entries in _KINDS:
        if fits(value):
            return kind, entries(value)
    return None


def _root(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _is_pydantic(value: object) -> bool:
    kind = type(value)
    return any(
        base.__module__.startswith("pydantic") and base.__name__ == "BaseModel" for base in kind.__mro__
    )


def _pydantic(value: Any) -> dict[str, Any]:
    fields = getattr(type(value), "model_fields", None) or getattr(type(value), "__fields__", {})
    return {name: _attribute(value, name) for name in fields} | dict(
        getattr(value, "model_extra", None) or {}
    )


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except Exception as error:  # a property of the user's may do anything
        return f"<reading it failed with {type(error).__name__}>"


def _is_wandb(value: object) -> bool:
    return _root(value) == "wandb" and (hasattr(value, "as_dict") or type(value).__name__ == "Run")


def _wandb(value: Any) -> dict[str, Any]:
    config = value if hasattr(value, "as_dict") else value.config
    return {k: v for k, v in config.as_dict().items() if k != "_wandb"}


def _is_to_dict(value: object) -> bool:
    if _root(value) in ("pandas", "polars", "pyarrow", "torch", "numpy", "xarray"):
        return False  # their to_dict gives data, not settings
    return callable(getattr(value, "to_dict", None))


def _to_dict(value: Any) -> dict[str, Any]:
    try:
        made = value.to_dict()
    except Exception:  # not the to_dict of a config after all
        made = None
    return dict(made) if isinstance(made, Mapping) else dict(vars(value))


def _omegaconf(value: Any) -> dict[str, Any]:
    """Resolve an OmegaConf; what cannot be resolved keeps its own text, node by node."""
    omega = sys.modules["omegaconf"].OmegaConf
    raw = omega.to_container(value, resolve=False, throw_on_missing=False)
    try:
        resolved = omega.to_container(value, resolve=True, throw_on_missing=False)
    except Exception:  # any one interpolation that fails makes the whole call raise
        resolved = _resolved_by_node(omega, value)
    made = _joined(raw, resolved)
    return made if isinstance(made, dict) else {}


def _resolved_by_node(omega: Any, node: Any) -> Any:
    if omega.is_dict(node):
        keys = list(node.keys())
        return {k: _resolved_child(omega, node, k) for k in keys}
    return [_resolved_child(omega, node, i) for i in range(len(node))]


def _resolved_child(omega: Any, node: Any, key: Any) -> Any:
    if omega.is_missing(node, key):
        return "???"
    try:
        child = node[key]
    except Exception:
        return omega.to_container(node, resolve=False)[key]
    return _resolved_by_node(omega, child) if omega.is_config(child) else child


def _joined(raw: Any, resolved: Any) -> Any:
    """Take the resolved tree, but hide what an interpolation took from a secret (`${oc.env:HF_TOKEN}`)."""
    if isinstance(raw, str) and any(is_secret_key(name) for name in _INTERPOLATION.findall(raw)):
        return Hidden()
    if isinstance(raw, dict) and isinstance(resolved, dict):
        return {k: _joined(raw.get(k), v) for k, v in resolved.items()}
    if isinstance(raw, list) and isinstance(resolved, list) and len(raw) == len(resolved):
        return [_joined(r, v) for r, v in zip(raw, resolved, strict=True)]
    return resolved


_KINDS: tuple[tuple[str, Callable[[Any], bool], Callable[[Any], Mapping[Any, Any]]], ...] = (
    (
        "omegaconf",
        lambda v: _root(v) == "omegaconf" and type(v).__name__ == "DictConfig",
        _omegaconf,
    ),
    ("wandb.config", _is_wandb, _wandb),
    ("mlflow", lambda v: _root(v) == "mlflow" and hasattr(v, "data"), lambda v: dict(v.data.params)),
    ("pydantic", _is_pydantic, _pydantic),
    ("to_dict", _is_to_dict, _to_dict),
    (
        "dataclass",
        dataclasses.is_dataclass,
        lambda v: {f.name: _attribute(v, f.name) for f in dataclasses.fields(v)},
    ),
    ("argparse", lambda v: isinstance(v, argparse.Namespace), vars),
    ("namespace", lambda v: isinstance(v, types.SimpleNamespace), vars),
    ("namedtuple", lambda v: isinstance(v, tuple) and hasattr(v, "_asdict"), lambda v: v._asdict()),
    ("dict", lambda v: isinstance(v, Mapping), dict),
)


def _file(path: Path) -> tuple[str, Mapping[str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"no config file at {path}: pass the path of a YAML, JSON or TOML file, or a dict"
        )
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes: a config of more than 64 MiB is not read"
        )
    text = path.read_text(encoding="utf-8-sig")
    suffix = path.suffix.lower()
    kind = {".json": "json", ".toml": "toml"}.get(suffix, "yaml")
    try:
        data: Any = _PARSERS[kind](text)
    except ImportError:
        raise ImportError(f"reading {path} needs PyYAML: pip install pyyaml") from None
    except ValueError as error:
        # The message of a parser may quote the file, secrets too: only the place is repeated.
        where = re.search(r"line \d+(?:,? column \d+)?", str(error))
        raise ValueError(
            f"{path} is not valid {kind.upper()}{', ' + where.group() if where else ''}"
        ) from None
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise ValueError(f"{path} holds a {type(data).__name__}: a config has named values at its top level")
    unwrapped = _wandb_file(data)
    return ("wandb.config", unwrapped) if unwrapped is not None else (kind, data)


def _wandb_file(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of a W&B run's `config.yaml` (`lr: {value: 0.1}`), or None for another file."""
    rows = {k: v for k, v in data.items() if k not in ("_wandb", "wandb_version")}
    if len(rows) == len(data) or not all(isinstance(v, Mapping) and "value" in v for v in rows.values()):
        return None
    return {k: v["value"] for k, v in rows.items()}


_PARSERS: dict[str, Callable[[str], Any]] = {
    "json": documents.read_json,
    "toml": tomllib.loads,
    "yaml": documents.read_yaml,
}
