"""Settings: explicit argument, then `LINEAGE_*`, then `lineage.toml` or `[tool.lineage]`, then the default."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ledger.layout import DEFAULT_ROOT

_WORDS = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True)
class Setting:
    """One setting: its default, how text becomes a value, and what it does."""

    default: Any
    parse: Callable[[str], Any]
    doc: str
    file: bool = True
    """whether a `lineage.toml` beside training code may set it"""
    secret: bool = False
    """whether its value stands in no record and in no message"""


SHARED = ("text",)
"""What `share` takes. Batch content, samples, diffs, logs and host names are sent to no tracker by this version."""


def _bool(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


def _share(text: str) -> tuple[str, ...]:
    names = tuple(n.strip() for n in text.split(",") if n.strip())
    unknown = [n for n in names if n not in SHARED]
    if unknown:
        raise ValueError(
            f"share takes {', '.join(SHARED)} and nothing else: {', '.join(unknown)} goes to no tracker in this version"
        )
    return names


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is no number of seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(f"{text!r} is below zero")
    return value


def _samples(text: str) -> int:
    """A number of samples; `true` stands for the default."""
    known = _WORDS.get(text.strip().lower()) if not text.strip().isdigit() else None
    return _count(text) if known is None else 256 * known


def _one_of(*values: Any) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        for value in values:
            if text.strip() == str(value):
                return value
        raise ValueError(f"{text!r} is none of {', '.join(map(str, values))}")

    return parse


def _webhook(text: str) -> str | None:
    from .webhook import url

    return url(text)


def _tables(text: str) -> str:
    return "(in the file)" if text.startswith("{") else text


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
    "probes": Setting(
        True, _bool, "gradients of this rank before the reduction, weights, moments and updates"
    ),
    "state_every": Setting(10, _count, "steps between two reads of weights, moments and updates; 0 never"),
    "agree_every": Setting(
        50, _count, "steps between two digests of the state, by which ranks are compared; 0 never"
    ),
    "activations": Setting(
        False, _bool, "outputs of each block; under torch.compile they change what is fused"
    ),
    "gate": Setting(
        False, _bool, "a step with a non-finite gradient leaves weights and optimizer as they were"
    ),
    "fingerprints": Setting(True, _bool, "fingerprints of batches"),
    "samples": Setting(256, _samples, "most samples of a step that get a row of their own; 0 none"),
    "recent_samples": Setting(
        65536, _count, "samples that are remembered, so that one that is read again is found; 0 none"
    ),
    "hardware_every": Setting(
        15.0, _seconds, "seconds between two looks at this node: GPUs by NVML, the kernel's log; 0 never"
    ),
    "bundle_bytes": Setting(
        1 << 30, _count, "bytes that the evidence of one bad step may have; 0 writes none"
    ),
    "bundle_steps": Setting(
        64,
        _count,
        "steps whose batches are kept for the evidence, as far as they are 64 MiB in all; at least 3",
    ),
    "exit_timeout": Setting(5.0, _seconds, "seconds that closing waits for the tracker"),
    "on_alarm": Setting(None, _one_of("request_stop"), "`request_stop` sets rec.should_stop at an alarm"),
    "step_base": Setting(1, _one_of(0, 1), "0 where the training loop counts its first update as 0"),
    "share": Setting(
        (),
        _share,
        "`text`: to the tracker too, what persons and exceptions said, the command line, and variables",
        False,
    ),
    "webhook": Setting(
        None,
        _webhook,
        "URL that alarms and broken verdicts are posted to: https, or http on localhost",
        file=False,
        secret=True,
    ),
    "report": Setting(True, _bool, "a report at the end, in the ledger and on the tracker's page"),
    "quiet": Setting(False, _bool, "no lines at exit"),
    "site": Setting(None, str, "TOML file of the site's own concepts, keys and policy"),
    "catalogue": Setting(
        None, _tables, "the run's own: a TOML file, or the table [catalogue] of lineage.toml"
    ),
}


@dataclass(frozen=True)
class Settings:
    """Resolved settings, each with where it came from."""

    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """what was asked for and is not done: unknown names, values that cannot be read"""

    def recorded(self) -> dict[str, Any]:
        """What of them may stand in a record: not where ledgers lie, and no secret."""
        return {
            k: v for k, v in self.values.items() if k != "dir" and not (k in SETTINGS and SETTINGS[k].secret)
        }

    def shown(self, name: str) -> str:
        """A value as a person may see it."""
        value = self.values[name]
        return "(set)" if SETTINGS[name].secret and value else str(value)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def resolve(arguments: Mapping[str, Any] | None = None, start: Path | None = None) -> Settings:
    """Resolve every setting. What a file or a variable asks for in vain is left out, and said in `problems`.

    Raises `ValueError` for an argument of the wrong form.
    """
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    table, path = _file(start)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems = [*_unknown(given, "an argument"), *_unknown(table, str(path))]
    for name, setting in SETTINGS.items():
        env = f"LINEAGE_{name.upper()}"
        values[name], sources[name] = setting.default, "default"
        asked = [(str(path), table[name])] if name in table else []
        if asked and not setting.file:
            problems.append(f"{path} may not set {name}, since it lies beside training code; it is left out")
            asked = []
        asked += [(env, os.environ[env])] if env in os.environ else []
        for source, value in asked:
            try:
                values[name], sources[name] = _read(name, value), source
            except ValueError as e:
                problems.append(f"{name} of {source} is left out: {e}")
        if name in given:
            values[name], sources[name] = _read(name, given[name]), "argument"
    return Settings(values, sources, tuple(problems))


def _unknown(names: Iterable[str], where: str) -> list[str]:
    out = []
    for name in names:
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, 1)
            meant = f"; did you mean {near[0]}?" if near else "; `lineage doctor` lists the settings"
            out.append(f"no setting is called {name!r}, which {where} gives{meant}")
    return out


def _read(name: str, value: Any) -> Any:
    """A value in whatever form it was given, as its text reads. Raises `ValueError`."""
    parts = isinstance(value, list | tuple | set | frozenset)
    return SETTINGS[name].parse(",".join(map(str, value)) if parts else str(value))


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
