"""What NVIDIA's Xid codes stand for, from `xid.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Xid:
    """One code, as NVIDIA publishes it."""

    code: int
    means: str
    action: str
    kind: str
    severity: str


@cache
def table() -> dict[int, Xid]:
    """All codes that the catalogue gives a meaning."""
    data = tomllib.loads((Path(__file__).parent / "xid.toml").read_text(encoding="utf-8"))
    return {
        code: Xid(code, e["means"], e["action"], e["kind"], e["severity"])
        for e in data["xid"]
        for code in e["codes"]
    }


@cache
def source() -> str:
    """Where the meanings are published."""
    data = tomllib.loads((Path(__file__).parent / "xid.toml").read_text(encoding="utf-8"))
    return str(data["source"])


def meaning(code: int) -> str:
    """The meaning in words with its source, or that none is published."""
    found = table().get(code)
    if found is None:
        return f"Xid {code} has no meaning in NVIDIA's catalogue ({source()})"
    return f"{found.means}; NVIDIA's first step: {found.action} ({source()})"
