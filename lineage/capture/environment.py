"""Capture of the environment: packages, builds, devices, variables and switches that results depend on.

What differs by process though nothing is different (ranks, ports, pids, temporary folders, which device of a
node) stays out, so that equal digests on all ranks mean equal environments.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import canonical, packages, secrets, torch_switches


def capture(world_size: int = 1) -> schemas.Environment:
    """Read the environment of this process into its record.

    torch is asked only if it is imported already. The digest covers all fields but the UUIDs of devices: a
    job on other devices of the same kind has the same environment.
    """
    versions, origins = packages.installed()
    builds = torch_switches.builds()
    for name, version in (("driver", torch_switches.driver()), ("triton", versions.get("triton"))):
        if version:
            builds[name] = version
    held: dict[str, Any] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": canonical.text(platform.platform()),
        "packages": versions,
        "direct_urls": origins,
        "builds": {k: secrets.mask(v)[0] for k, v in builds.items()},
        "devices": torch_switches.devices(),
        "variables": variables(os.environ),
        "switches": {"python.optimize": schemas.Scalar.of(sys.flags.optimize), **torch_switches.switches()},
        "world_size": world_size,
    }
    return schemas.Environment(**held, digest=_digest(held))


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the allow-list (`variables.toml`), sorted, with names and values masked."""
    found: dict[str, str] = {}
    for name in sorted(environ):
        if is_recorded(name):
            value, _ = secrets.mask_value(name, canonical.text(environ[name]))
            found[secrets.mask(canonical.text(name))[0]] = str(value)
    return found


@cache
def _lists() -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    data = tomllib.loads((Path(__file__).parent / "variables.toml").read_text(encoding="utf-8"))
    return tuple(data["prefixes"]), frozenset(data["names"]), tuple(data["never"])


def is_recorded(name: str) -> bool:
    """Say whether a variable of this name is recorded."""
    prefixes, names, never = _lists()
    if name in names:
        return True
    return name.startswith(prefixes) and not any(fnmatch.fnmatchcase(name, pattern) for pattern in never)


def _digest(held: Mapping[str, Any]) -> str:
    plain = {
        **held,
        "devices": [d.model_dump(mode="json", exclude={"uuid"}) for d in held["devices"]],
        "switches": {k: v.model_dump(mode="json") for k, v in held["switches"].items()},
    }
    return canonical.digest(plain)
