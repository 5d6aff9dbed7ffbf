"""Read a W&B run back from the log that the client keeps on disk (`run-<id>.wandb`), offline or online.

The file has the framing of a LevelDB log: a header of 7 bytes, then blocks of 32 KiB that hold chunks of
(crc32 of type and data: uint32, length: uint16, type: uint8, data), little-endian; a record is one FULL
chunk or FIRST, MIDDLE..., LAST. Records are W&B's own protobuf messages.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32 * 1024
CHUNK_HEADER = struct.Struct("<IHB")
FILE_HEADER = struct.Struct("<4sHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

_ABSENT = object()


@dataclass(frozen=True)
class ConfigChange:
    """One change of one config key, in the order in which the run made them."""

    number: int
    """number of the record in the log, from 1"""
    key: str
    """the key; parts of a nested key are joined with dots"""
    value: Any
    """the new value; None for a removed key"""


@dataclass(frozen=True)
class Alert:
    """An alert that the run sent."""

    level: str
    title: str
    text: str


@dataclass(frozen=True)
class LoggedArtifact:
    """An artifact that the run logged."""

    name: str
    type: str
    digest: str
    aliases: tuple[str, ...]
    metadata: dict[str, Any]
    files: dict[str, dict[str, Any]]
    """path in the artifact -> digest, ref (for references) and size in bytes"""


@dataclass
class OfflineRun:
    """What the log holds of a run."""

    path: Path
    id: str = ""
    project: str = ""
    entity: str = ""
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    commit: str = ""
    starting_step: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    config_changes: list[ConfigChange] = field(default_factory=list)
    tag_changes: list[tuple[str, ...]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    row_numbers: list[int] = field(default_factory=list)
    """number of the record in the log of each row of `history`"""
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """name or glob -> step metric and whether it is hidden"""
    artifacts: list[LoggedArtifact] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    exit_code: int | None = None
    records: int = 0
    torn: bool = False
    """the last record is incomplete: the run still writes, or was killed"""
    damaged: list[int] = field(default_factory=list)
    """byte offsets of blocks in the middle of the file that could not be read"""

    @property
    def pinned(self) -> list[str]:
        """The config keys that are pinned on the overview."""
        return list(self.config.get("_wandb", {}).get("pinned_keys", []))


class NotARunLog(ValueError):
    """The file is not a W&B run log."""


def find_log(path: str | Path) -> Path:
    """Return the log of a run: the file itself, or the one in a run folder.

    Raises `NotARunLog` where a folder holds none or several.
    """
    path = Path(path)
    if not path.is_dir():
        return path
    found = sorted(path.glob("run-*.wandb"))
    if len(found) != 1:
        raise NotARunLog(
            f"{path} holds {len(found)} run-*.wandb files; give the folder of one run, "
            "such as wandb/offline-run-<date>-<id>, or the file itself"
        )
    return found[0]


def read_run(path: str | Path) -> OfflineRun:
    """Read a run from its log, or from the folder that holds it.

    A torn tail is tolerated and noted. W&B writes the last block a moment after `finish()` returns: until
    then `exit_code` is None, as it is for a run that still goes on or was killed. Raises `NotARunLog`,
    `FileNotFoundError`.
    """
    run = OfflineRun(find_log(path))
    for record in _records(run):
        run.records += 1
        take = _TAKE.get(record.WhichOneof("record_type"))
        if take is not None:
            take(run, record)
    return run


def pinned_keys(log: Path, *, limit: int = 64 * 1024 * 1024) -> list[str]:
    """Return the pinned config keys that a log shows, as far as it is on disk.

    An empty list where there is no log, or one of more than `limit` bytes: reading it would take too long.
    """
    try:
        if not log.is_file() or log.stat().st_size > limit:
            return []
        return read_run(log).pinned
    except (OSError, NotARunLog):
        return []


def _records(run: OfflineRun) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data = run.path.read_bytes()
    if len(data) < FILE_HEADER.size or FILE_HEADER.unpack_from(data) != (b":W&B", 0xBEE1, 0):
        raise NotARunLog(f"{run.path} does not begin as a W&B run log (version 0) does")
    offset, parts = FILE_HEADER.size, b""
    begun = False
    while offset < len(data):
        left = BLOCK - offset % BLOCK
        if left < CHUNK_HEADER.size:
            offset += left  # zeros at the end of a block
            continue
        chunk = _chunk(data, offset)
        if chunk is None:
            after = offset + left
            if not any(data[after:]):
                run.torn = any(data[offset:])
                return
            run.damaged.append(offset)
            offset, begun = after, False
            continue
        kind, body = chunk
        offset += CHUNK_HEADER.size + len(body)
        if kind in (FULL, FIRST):
            parts, begun = body, True
        elif begun:
            parts += body
        if begun and kind in (FULL, LAST):
            begun = False
            yield Record.FromString(parts)
    run.torn = begun


def _chunk(data: bytes, offset: int) -> tuple[int, bytes] | None:
    """Return type and data of the chunk at an offset, None where it is torn or damaged."""
    if offset + CHUNK_HEADER.size > len(data):
        return None
    crc, length, kind = CHUNK_HEADER.unpack_from(data, offset)
    start = offset + CHUNK_HEADER.size
    body = data[start : start + length]
    if kind not in (FULL, FIRST, MIDDLE, LAST) or len(body) < length:
        return None
    if zlib.crc32(body, zlib.crc32(bytes([kind]))) != crc:
        return None
    return kind, body


def _key(item: Any) -> list[str]:
    return list(item.nested_key) or [item.key]


def _put(target: dict[str, Any], key: list[str], value: Any) -> None:
    for part in key[:-1]:
        inner = target.get(part)
        if not isinstance(inner, dict):
            inner = target[part] = {}
        target = inner
    target[key[-1]] = value


def _drop(target: dict[str, Any], key: list[str]) -> None:
    for part in key[:-1]:
        target = target.get(part, {})
    target.pop(key[-1], None)


def _logged(item: Any) -> Any:
    """The value of a history item: as JSON, or in one of the typed forms of newer clients."""
    if item.value_json:
        return json.loads(item.value_json)
    for name in ("boolean", "integer", "number", "text"):
        if name in item.DESCRIPTOR.fields_by_name and item.HasField(name):
            return getattr(item, name)
    text = getattr(item, "json", "")
    return json.loads(text) if text else None


def _take_run(run: OfflineRun, record: Any) -> None:
    r = record.run
    run.id, run.project, run.entity, run.name = r.run_id, r.project, r.entity, r.display_name
    run.notes, run.group, run.commit = r.notes, r.run_group, r.git.commit
    run.starting_step = r.starting_step
    if not run.tag_changes or run.tag_changes[-1] != tuple(r.tags):
        run.tag_changes.append(tuple(r.tags))
    run.tags = tuple(r.tags)
    for item in r.config.update:
        # The record comes again with each change of tags and repeats the config that the run object holds,
        # which of W&B's own part is nothing: only what differs is a change.
        key, value = _key(item), json.loads(item.value_json)
        if key == ["_wandb"] and isinstance(value, dict):
            value = {**run.config.get("_wandb", {}), **value}
        if len(key) > 1 or run.config.get(key[0], _ABSENT) != value:
            run.config_changes.append(ConfigChange(record.num, ".".join(key), value))
        _put(run.config, key, value)


def _take_config(run: OfflineRun, record: Any) -> None:
    for item in record.config.update:
        value = json.loads(item.value_json)
        _put(run.config, _key(item), value)
        run.config_changes.append(ConfigChange(record.num, ".".join(_key(item)), value))
    for item in record.config.remove:
        _drop(run.config, _key(item))
        run.config_changes.append(ConfigChange(record.num, ".".join(_key(item)), None))


def _take_summary(run: OfflineRun, record: Any) -> None:
    for item in record.summary.update:
        _put(run.summary, _key(item), json.loads(item.value_json))
    for item in record.summary.remove:
        _drop(run.summary, _key(item))


def _take_history(run: OfflineRun, record: Any) -> None:
    row: dict[str, Any] = {}
    for item in record.history.item:
        _put(row, _key(item), _logged(item))
    run.history.append(row)
    run.row_numbers.append(record.num)


def _take_artifact(run: OfflineRun, record: Any) -> None:
    a = record.artifact
    files = {e.path: {"digest": e.digest, "ref": e.ref or None, "size": e.size} for e in a.manifest.contents}
    metadata = json.loads(a.metadata) if a.metadata else {}
    run.artifacts.append(LoggedArtifact(a.name, a.type, a.digest, tuple(a.aliases), metadata, files))


def _take_metric(run: OfflineRun, record: Any) -> None:
    m = record.metric
    run.metrics[m.name or m.glob_name] = {"step_metric": m.step_metric, "hidden": m.options.hidden}


def _take_alert(run: OfflineRun, record: Any) -> None:
    run.alerts.append(Alert(record.alert.level, record.alert.title, record.alert.text))


def _take_files(run: OfflineRun, record: Any) -> None:
    run.files.extend(item.path for item in record.files.files)


def _take_used(run: OfflineRun, record: Any) -> None:
    run.used.append(record.use_artifact.name)


def _take_exit(run: OfflineRun, record: Any) -> None:
    run.exit_code = record.exit.exit_code


_TAKE = {
    "run": _take_run,
    "config": _take_config,
    "summary": _take_summary,
    "history": _take_history,
    "artifact": _take_artifact,
    "metric": _take_metric,
    "alert": _take_alert,
    "files": _take_files,
    "use_artifact": _take_used,
    "exit": _take_exit,
}
