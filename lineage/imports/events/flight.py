"""NCCL flight-recorder dumps of torch: what one rank had enqueued and what had not completed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ..entries import ImportTrouble
from . import plain_pickle
from .draft import Draft, Found, Written

KNOWN = ("2.",)
"""Versions of the dump whose fields this module knows, by how they begin."""
_RANK = re.compile(r"(?:^|[^0-9])(\d{1,6})(?:\.(?:pkl|pickle|json|bin))?$")
MOST_GROUPS = 4096


def is_pickle(data: bytes) -> bool:
    """Whether bytes begin as a pickle of protocol 2 or newer does."""
    return len(data) > 2 and data[0] == 0x80 and data[1] <= 5


def is_dump(found: Any) -> bool:
    """Whether plain data is a flight recorder's dump."""
    return (
        isinstance(found, Mapping)
        and "entries" in found
        and ("pg_status" in found or "nccl_version" in found)
    )


def read_pickle(data: bytes, name: str) -> Found:
    """Read a pickled dump. Raises `ImportTrouble`; nothing in the file is run, whatever it asks for."""
    try:
        found = plain_pickle.loads(data)
    except plain_pickle.Refused as e:
        code = "LIN-E005" if e.operation else "LIN-E004"
        raise ImportTrouble(
            f"{code}: {name} is a pickle that was not read: {e}. A flight recorder's dump holds plain data only."
        ) from None
    if not is_dump(found):
        raise ImportTrouble(f"LIN-E004: {name} is a pickle of plain data, and no flight recorder's dump")
    return read(found, name)


def read(dump: Mapping[str, Any], name: str) -> Found:
    """The events of a dump: each process group whose work had not completed, else one note that all had."""
    found = Found("flight-recorder", unit="entry")
    version = str(dump.get("version", "none"))[:40]
    if not version.startswith(KNOWN):
        found.problems.append(
            f"LIN-E006: the dump has version {version}; versions {', '.join(KNOWN)}x are known. What has the same "
            "names is read, and may mean something else"
        )
    entries = [e for e in _list(dump.get("entries")) if isinstance(e, Mapping)]
    found.read = len(entries)
    rank = _rank(dump, name)
    if rank is None:
        found.problems.append(f"{name} does not end with a rank, so it is not known whose dump it is")
    groups = _groups(dump)
    waiting: dict[str, list[Mapping[str, Any]]] = {}
    for e in entries:
        if e.get("state") != "completed" and e.get("time_discovered_completed_ns") is None:
            waiting.setdefault(str(e.get("pg_id")), []).append(e)
    status = dump.get("pg_status")
    told = (
        {str(k): v for k, v in status.items() if isinstance(v, Mapping)}
        if isinstance(status, Mapping)
        else {}
    )
    nccl = str(dump.get("nccl_version", "not stated"))[:40]
    for pg in sorted({*waiting, *(k for k, v in told.items() if _behind(v))}, key=_number)[:MOST_GROUPS]:
        found.drafts.append(_group(pg, waiting.get(pg, []), told.get(pg, {}), groups, rank, nccl))
    if not found.drafts:
        text = f"flight recorder: all {len(entries)} recorded operations of this rank had completed"
        last = max((w for e in entries if (w := _time(e))), key=lambda w: w.at or _EPOCH, default=None)
        found.drafts.append(
            Draft("nccl", "note", text, code="completed", rank=rank, when=last, values={"nccl": nccl})
        )
    return found


def _group(
    pg: str,
    waiting: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
    groups: Mapping[str, tuple[str, str]],
    rank: int | None,
    nccl: str,
) -> Draft:
    """One process group with work that had not completed on this rank."""
    first = min(waiting, key=lambda e: _int(e.get("time_created_ns")) or 0, default=None)
    name, ranks = groups.get(_named(first), ("", "")) if first else ("", "")
    what = (
        str(first.get("profiling_name", "an operation"))[:120]
        if first
        else "an operation older than the record"
    )
    enqueued, completed = (
        _int(status.get("last_enqueued_collective")),
        _int(status.get("last_completed_collective")),
    )
    counts = "" if enqueued is None else f"; enqueued up to {enqueued}, completed up to {completed}"
    started = any(e.get("state") == "started" for e in waiting)
    label = f"{pg}{f' ({name})' if name else ''}"
    text = (
        f"flight recorder: process group {label}: {len(waiting)} of its recorded operations had not completed on "
        f"this rank, the oldest {what} ({'started' if started else 'not seen to start'}){counts}. Which rank it "
        "waited for is not shown by one rank's dump"
    )
    values: dict[str, Any] = {"nccl": nccl, "process_group": label, "not_completed": len(waiting)}
    if ranks:
        values["group_ranks"] = ranks
    values |= {k: v for k, v in (("enqueued", enqueued), ("completed", completed)) if v is not None}
    if first is not None:
        for key in ("collective_seq_id", "p2p_seq_id", "op_id", "timeout_ms"):
            if (held := _int(first.get(key))) is not None:
                values[key] = held
    last = max(waiting, key=lambda e: _int(e.get("time_created_ns")) or 0, default=None)
    return Draft(
        "nccl",
        "warning",
        text,
        code="not completed",
        rank=rank,
        when=_time(first) if first else None,
        until=_time(last) if last else None,
        values=values,
    )


_EPOCH = datetime.fromtimestamp(0, UTC)


def _time(e: Mapping[str, Any]) -> Written | None:
    ns = _int(e.get("time_created_ns"))
    if ns is None or not 0 < ns < 4_102_444_800 * 10**9:
        return None
    return Written(f"{ns} ns", _EPOCH + timedelta(microseconds=ns // 1000), 1e-6)


def _rank(dump: Mapping[str, Any], name: str) -> int | None:
    """The rank whose dump this is: as the dump says, else as torch names the file, `<prefix><rank>`."""
    told = _int(dump.get("rank"))
    if told is not None and 0 <= told < 10**7:
        return told
    m = _RANK.search(name)
    return int(m[1]) if m else None


def _groups(dump: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Name of a process group -> (description, its ranks)."""
    config = dump.get("pg_config")
    held = config.values() if isinstance(config, Mapping) else []
    return {
        str(g.get("name")): (str(g.get("desc", ""))[:120], str(g.get("ranks", ""))[:400])
        for g in held
        if isinstance(g, Mapping)
    }


def _named(e: Mapping[str, Any]) -> str:
    group = e.get("process_group")
    return (
        str(group[0]) if isinstance(group, Sequence) and group and not isinstance(group, str) else str(group)
    )


def _behind(status: Mapping[str, Any]) -> bool:
    enqueued, completed = (
        _int(status.get("last_enqueued_collective")),
        _int(status.get("last_completed_collective")),
    )
    return enqueued is not None and completed is not None and completed < enqueued


def _list(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list | tuple) else []


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _number(pg: str) -> tuple[int, str]:
    return (int(pg) if pg.isascii() and pg.isdigit() and len(pg) < 10 else 10**9, pg)
