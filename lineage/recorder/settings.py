"""Settings: explicit argument, then `LINEAGE_*`, then `lineage.toml` or `[tool.lineage]`, then the default."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ledger.layout import DEFAULT_ROOT

_ON = {"1", "true", "yes", "on"}


@dataclass(frozen=True)
class Setting:
    """One setting: its default, how text becomes a value, and what it does."""

    default: Any
    parse: Callable[[str], Any]
    doc: str
    file: bool = True
    """whether a `lineage.toml` beside training code may set it"""


def _bool(text: str) -> bool:
    return text.strip().lower() in _ON


def _names(text: str) -> tuple[str, ...]:
    return tuple(n.strip() for n in text.split(",") if n.strip())


def run_id(text: str) -> str:
    """Check a lineage run id: one plain name, since it names a folder. Raises `ValueError`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text):
        raise ValueError(
            f"{text!r} is no run id: letters, digits, '.', '_' and '-', at most 128, beginning with one"
        )
    return text


SETTINGS: Mapping[str, Setting] = {
    "enabled": Setting(True, _bool, "whether the layer records at all"),
    "dir": Setting(DEFAULT_ROOT, str, "folder of all ledgers"),
    "run_id": Setting(None, run_id, "lineage run id"),
    "digests": Setting(True, _bool, "exact digests of the live state at saves and resumes"),
    "probes": Setting(True, _bool, "gradient norms of this rank before the reduction"),
    "fingerprints": Setting(True, _bool, "fingerprints of batches"),
    "exit_timeout": Setting(5.0, float, "seconds that closing waits for the tracker"),
    "on_alarm": Setting(None, str, "`request_stop` sets rec.should_stop at an alarm"),
    "step_base": Setting(1, int, "0 where the training loop counts its first update as 0"),
    "share": Setting(
        (),
        _names,
        "what may go to the tracker beyond the default: batches, diffs, logs, environment, hosts",
        False,
    ),
    "report": Setting(True, _bool, "a report at the end, in the ledger and on the tracker's page"),
    "quiet": Setting(False, _bool, "no lines at exit"),
}


@dataclass(frozen=True)
class Settings:
    """Resolved settings, each with where it came from."""

    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def resolve(arguments: Mapping[str, Any] | None = None, start: Path | None = None) -> Settings:
    """Resolve every setting. An unknown name or a value of the wrong form is left out and said in `sources`."""
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    table, table_path = _file(start)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, setting in SETTINGS.items():
        env = f"LINEAGE_{name.upper()}"
        values[name], sources[name] = setting.default, "default"
        if name in table and setting.file:
            values[name], sources[name] = table[name], str(table_path)
        elif name in table:
            sources[name] = f"default; {table_path} may not set it, since it lies beside training code"
        if env in os.environ:
            try:
                values[name], sources[name] = setting.parse(os.environ[env]), env
            except ValueError:
                sources[name] += f"; {env}={os.environ[env]!r} cannot be read"
        if name in given:
            values[name], sources[name] = _checked(name, given[name]), "argument"
    return Settings(values, sources)


def _checked(name: str, value: Any) -> Any:
    """An argument as it is, or as its text reads; one that fits in neither way raises `ValueError`."""
    setting = SETTINGS[name]
    if name == "run_id" or (setting.default is not None and not isinstance(value, type(setting.default))):
        text = ",".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)
        return setting.parse(text)
    return value


def _file(start: Path | None) -> tuple[Mapping[str, Any], Path | None]:
    """The nearest `lineage.toml` or `[tool.lineage]`, from the script's folder, then the working directory."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [start] if start else [Path(main).resolve().parent if main else Path.cwd(), Path.cwd()]
    for folder in folders:
        for path, keys in ((folder / "lineage.toml", ()), (folder / "pyproject.toml", ("tool", "lineage"))):
            try:
                table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            for key in keys:
                table = table.get(key, {})
            if table:
                return table, path
    return {}, None
