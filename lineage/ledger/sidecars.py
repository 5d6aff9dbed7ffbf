"""Checkpoint sidecars: `lineage.json` in a checkpoint folder, or `<file>.lineage.json` beside a file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from glob import escape
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


def of_file(checkpoint: Path) -> list[Path]:
    """The sidecars of all ranks that lie beside a checkpoint of one file."""
    found = checkpoint.parent.glob(f"{escape(checkpoint.name)}*.lineage.json")
    ours = re.compile(re.escape(checkpoint.name) + r"(\.rank\d+)?\.lineage\.json")
    return sorted(p for p in found if ours.fullmatch(p.name))


def write(checkpoint: Path, sidecar: schemas.Sidecar) -> Path:
    """Write a sidecar durably: temporary file, fsync, rename. Raises `OSError`, leaves nothing."""
    path = path_of(checkpoint, sidecar.rank)
    with _as_old_as_before(checkpoint), _writable(path.parent):
        layout.write_durably(path, sidecar.model_dump_json(by_alias=True).encode(), MODE)
    return path


def mark(checkpoint: Path, fact: schemas.CheckpointMark) -> bool:
    """Add a later fact to a checkpoint's sidecar, whole or not at all; what else stands in it stays word for word.

    The manifest of the checkpoint leaves sidecars out, so no digest changes. A folder that is write-protected is
    opened for the moment. Returns whether the mark stands there: not where there is no sidecar, nor in that of
    another checkpoint. Raises `OSError`, and `SidecarError` for one that cannot be read.
    """
    held = read(checkpoint)
    if held is None or held.checkpoint.uid != fact.checkpoint:
        return False
    path = path_of(checkpoint)
    data = json.loads(path.read_bytes())
    told = json.loads(fact.model_dump_json(by_alias=True))
    marks = data.setdefault("marks", [])
    if told not in marks:
        marks.append(told)
        with _as_old_as_before(checkpoint), _writable(path.parent):
            mode = stat.S_IMODE(path.stat().st_mode)
            layout.write_durably(path, json.dumps(data, ensure_ascii=False).encode(), MODE)
            path.chmod(mode)
    return True


@contextlib.contextmanager
def _as_old_as_before(checkpoint: Path) -> Iterator[None]:
    """Leave a checkpoint's folder with its time: rotations go by it, and a sidecar is written later than the save."""
    before = checkpoint.stat() if checkpoint.is_dir() else None
    yield
    if before is not None:
        with contextlib.suppress(OSError):
            os.utime(checkpoint, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Allow the owner to write in a folder that a move out of the rotation's reach has protected."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o200:
        yield
        return
    folder.chmod(mode | 0o200)
    try:
        yield
    finally:
        folder.chmod(mode)


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
