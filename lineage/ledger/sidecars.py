"""Checkpoint sidecars: `lineage.json` in a checkpoint folder, or `<file>.lineage.json` beside a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .._rooms import schemas
from . import layout

MODE = 0o666
"""A sidecar is as readable as the user's umask makes the checkpoint beside it: whoever may resume must read it."""


class SidecarError(ValueError):
    """A sidecar is there and cannot be used; the text says why."""


def path_of(checkpoint: Path, rank: int = 0) -> Path:
    """Where the sidecar of a checkpoint lies, for a rank."""
    suffix = "" if rank == 0 else f".rank{rank}"
    if checkpoint.is_dir():
        return checkpoint / f"lineage{suffix}.json"
    return checkpoint.with_name(f"{checkpoint.name}{suffix}.lineage.json")


def write(checkpoint: Path, sidecar: schemas.Sidecar) -> Path:
    """Write a sidecar durably: temporary file, fsync, rename. Raises `OSError`, leaves nothing."""
    path = path_of(checkpoint, sidecar.rank)
    layout.write_durably(path, sidecar.model_dump_json(by_alias=True).encode(), MODE)
    return path


def read(checkpoint: Path, rank: int = 0) -> schemas.Sidecar | None:
    """Read a checkpoint's sidecar; None where there is none.

    Raises `SidecarError` for a damaged one or one of an unknown major version.
    """
    path = path_of(checkpoint, rank)
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise SidecarError(f"{path} cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise SidecarError(f"{path} is not JSON ({e}); the checkpoint itself is untouched") from None
    schema = data.get("schema", "") if isinstance(data, dict) else ""
    if not str(schema).startswith("lineage/sidecar/1-"):
        raise SidecarError(
            f"{path} has schema {schema!r}; this version reads {schemas.SIDECAR_SCHEMA}. "
            "Install the runlineage release that wrote it, or a newer one."
        )
    try:
        return _read(data)
    except ValueError as e:
        raise SidecarError(f"{path} does not fit its schema: {_misfit(e)}") from None


def _misfit(error: ValueError) -> str:
    """Where the first misfit stands and of what kind it is. What stands there instead is not quoted."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_context=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['type']}"
    return type(error).__name__


def _read(data: object) -> schemas.Sidecar:
    """Read a sidecar of this version; where it does not fit, as one that a newer addition wrote."""
    try:
        return schemas.Sidecar.model_validate(data)
    except ValueError:
        sidecar: Any = schemas.open_class(schemas.Sidecar).model_validate(data)
        return sidecar  # type: ignore[no-any-return]
