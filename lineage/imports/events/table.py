"""A site's own monitor: events as CSV, JSON or JSON lines, with columns that a small table knows or `--map` names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..entries import ImportTrouble
from . import kernel_rules, slurm, table_rows, times, xid
from .draft import Draft, Found, Written

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "time": (
        "time",
        "timestamp",
        "when",
        "ts",
        "datetime",
        "@timestamp",
        "date",
        "at",
        "startsat",
        "start",
        "begin",
    ),
    "until": ("until", "end", "endsat", "stop", "cleared_at", "resolved_at"),
    "node": (
        "node",
        "nodes",
        "host",
        "hostname",
        "nodename",
        "node_name",
        "host_name",
        "instance",
        "server",
        "machine",
        "nodelist",
    ),
    "device_uuid": ("uuid", "gpu_uuid", "device_uuid"),
    "device_index": ("gpu", "gpu_index", "gpu_id", "index", "device_index", "minor_number"),
    "device_pci": ("pci", "pci.bus_id", "pci_bus_id", "bus_id", "pci_id"),
    "rank": ("rank", "global_rank"),
    "pid": ("pid", "process_id"),
    "category": ("category", "class", "component", "type", "event_type", "kind"),
    "code": ("code", "xid", "error_code", "err_code", "event_id", "alertname", "check", "name"),
    "severity": ("severity", "level", "priority", "loglevel"),
    "text": ("text", "message", "msg", "description", "summary", "detail", "details", "event", "reason"),
    "count": ("count", "occurrences"),
}
"""Field of an event -> the columns in which it is found, the first that is there. Case does not matter."""

_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "xid": ("xid",),
    "ecc": ("ecc", "edac", "memory_error", "memory error", "dbe", "sbe"),
    "remap": ("remap", "retired", "page_retirement"),
    "nvlink": ("nvlink", "nvswitch", "sxid"),
    "throttle": ("throttle", "throttling", "thermal", "power", "temperature", "clock"),
    "network": ("network", "infiniband", "link", "roce", "ethernet", "fabric", "rdma", "ib", "nic", "switch"),
    "driver": ("driver", "firmware", "cuda", "kernel module"),
    "storage": ("storage", "disk", "filesystem", "file system", "lustre", "nfs", "gpfs", "nvme"),
    "scheduler": ("scheduler", "slurm", "job", "kubernetes", "preemption", "drain", "pod"),
    "process": ("process", "oom", "segfault", "crash"),
    "nccl": ("nccl", "collective"),
    "node": ("node", "host", "reboot", "machine", "server"),
}
_SEVERITIES = {
    "fault": (
        "fault",
        "fatal",
        "critical",
        "crit",
        "error",
        "err",
        "emergency",
        "emerg",
        "alert",
        "failure",
        "page",
        "panic",
        "severe",
        "high",
        "disaster",
    ),
    "warning": ("warning", "warn", "major", "minor", "degraded", "average", "medium"),
    "note": (
        "note",
        "info",
        "informational",
        "information",
        "notice",
        "debug",
        "trace",
        "ok",
        "healthy",
        "normal",
        "resolved",
        "low",
        "none",
    ),
}
_ELSEWHERE = ("time", "node", "text", "severity")
"""Fields that are read from the next column of their names where a row has nothing in the first one."""


def _name(column: str) -> str:
    """A column's name as it is looked up: `Host Name`, `host-name` and `host_name` are one."""
    return re.sub(r"[\s_-]+", "_", column.strip().lower())


def mapped(columns: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Field -> column, for the columns of a file. Raises `ImportTrouble` for a `--map` that does not fit."""
    out: dict[str, str] = {}
    lowered = {c.strip().lower(): c for c in reversed(columns)}
    lowered = {**{_name(c): c for c in reversed(columns)}, **lowered}
    for field, column in given.items():
        if field not in COLUMNS:
            raise ImportTrouble(
                f"--map {field}={column}: {field} is no field; there are {', '.join(COLUMNS)}"
            )
        if column not in columns and column.lower() not in lowered:
            raise ImportTrouble(
                f"--map {field}={column}: there is no column {column}; there are {', '.join(columns)}"
            )
        out[field] = column if column in columns else lowered[column.lower()]
    taken = set(out.values())
    for field, names in COLUMNS.items():
        found = next((lowered[n] for n in names if n in lowered and lowered[n] not in taken), None)
        if field not in out and found is not None:
            out[field] = found
            taken.add(found)
    return out


def is_table(columns: Sequence[str], given: Mapping[str, str]) -> bool:
    """Whether columns are those of a table of events: a time, and what happened or where."""
    try:
        known = mapped(columns, given)
    except ImportTrouble:
        return bool(given)
    what = {"text", "code", "category"} & set(known)
    return bool(what) and ("time" in known or bool({"node", "device_uuid", "rank"} & set(known)))


def read_csv(text: str, given: Mapping[str, str]) -> Found:
    """Read CSV with a header, comma, semicolon, tab or bar between cells."""
    rows = table_rows.of_csv(text)
    return _read(rows, rows.columns, given)


def read_json(text: str, given: Mapping[str, str]) -> Found:
    """Read a list of objects, also under the one key of an object that holds a list, or an object per line."""
    rows = table_rows.of_json(text)
    if not is_table(rows.columns, given):
        raise ImportTrouble(
            "LIN-E004: the objects have no fields of an event (a time, and a text, code or category); --map "
            f"field=column names them. They have {', '.join(rows.columns[:20]) or 'no fields'}"
        )
    return _read(rows, rows.columns, given)


def _read(rows: table_rows.Rows, columns: Sequence[str], given: Mapping[str, str]) -> Found:
    found = Found("table", unit="entry")
    fields = mapped(columns, given)
    left = [c for c in columns if c not in fields.values()]
    if "time" not in fields:
        found.problems.append("LIN-E002: no column holds a time; --map time=COLUMN names one")
    lowered = {_name(c): c for c in reversed(left)}
    others = {
        f: [lowered[n] for n in COLUMNS[f] if n in lowered]
        for f in _ELSEWHERE
        if f not in given and f in fields
    }
    unknown = [c for c in left if not any(c in columns_ for columns_ in others.values())]
    if unknown:
        more = f" and {len(unknown) - 12} more" if len(unknown) > 12 else ""
        found.problems.append(
            f"columns without a meaning here are kept as values: {', '.join(unknown[:12])}{more}"
        )
    for number, entry in rows.entries:
        found.read += 1
        found.drafts.append(_event(entry, fields, others, left, number))
    found.problems += [*_not_understood(found.drafts, fields), *rows.problems]
    return found


def _not_understood(drafts: Sequence[Draft], fields: Mapping[str, str]) -> list[str]:
    """What rows say in words that mean nothing here, each kind once: nothing of it is taken for less than it is."""
    out: list[str] = []
    times_ = [d for d in drafts if d.when is not None and d.when.at is None]
    if times_:
        shown = ", ".join(f"{d.when.text[:40]!r} in line {d.line}" for d in times_[:2] if d.when is not None)
        out.append(
            f"LIN-E006: the times of {table_rows.counted(len(times_), 'cannot', 'cannot')} be read ({shown}): such as "
            "2026-11-30T02:51:27Z or seconds since 1970 can; day and month by numbers alone are not guessed"
        )
    column = fields.get("severity", "")
    odd = [d for d in drafts if d.severity_unknown]
    if odd:
        shown = ", ".join(repr(x) for x in list(dict.fromkeys(d.severity_unknown for d in odd))[:4])
        said = table_rows.counted(len(odd), "means", "mean")
        out.append(
            f"{column} of {said} nothing here ({shown}): they are notes where "
            "their text or code says no more, and `lineage events show --all` lists notes"
        )
    counts = [d for d in drafts if any(p.startswith("count ") for p in d.problems)]
    if counts:
        out.append(f"the count of {table_rows.counted(len(counts), 'is', 'are')} no number, and taken as 1")
    return out


def _event(
    entry: Mapping[str, Any],
    fields: Mapping[str, str],
    others: Mapping[str, Sequence[str]],
    left: Sequence[str],
    number: int,
) -> Draft:
    told = {
        f: str(v).strip() for f, c in fields.items() if (v := entry.get(c)) is not None and str(v).strip()
    }
    for f, columns in others.items():
        if f not in told:
            held = ((c, str(entry[c]).strip()) for c in columns if entry.get(c) is not None)
            told |= next(({f: text} for _, text in held if text), {})
    if fields.get("code", "").lower() == "xid" and re.fullmatch(r"0*[1-9]\d{0,3}", told.get("code", "")):
        told["code"] = f"xid {int(told['code'])}"  # the column says what the number is
    problems: list[str] = []
    text = (
        told.get("text")
        or ", ".join(told[k] for k in ("category", "code") if k in told)
        or "no text is given"
    )
    like = kernel_rules.match(text)
    d = Draft(*_judged(told, text, like), text, code=told.get("code"), line=number, problems=problems)
    if like is not None:
        d.device_pci, d.pid, d.meaning = like.device_pci, like.pid, like.meaning
        d.code = d.code or like.code
    if d.category in ("xid", "ecc", "remap", "nvlink") and (m := _xid_number(told)) is not None:
        d.meaning, d.code = xid.meaning(m), str(m)
    d.when, d.until = _time(told, "time", problems), _time(told, "until", problems)
    d.nodes = _nodes(told.get("node"), problems)
    d.device_uuid = told.get("device_uuid")
    d.device_pci = told.get("device_pci") or d.device_pci
    d.device_index = _whole(told, "device_index", problems)
    d.rank = _whole(told, "rank", problems)
    pid = _whole(told, "pid", problems)
    d.pid = d.pid if pid is None else pid
    d.values = {c: entry[c] for c in left if entry.get(c) not in (None, "")}
    if "severity" in told:
        d.values = {**d.values, fields["severity"]: told["severity"]}
    if "count" in told:
        d.values = {**d.values, fields["count"]: told["count"]}
        if not re.fullmatch(r"0*[1-9]\d{0,8}", told["count"]):
            problems.append(f"count {told['count'][:40]!r} is no number of times; taken as 1")
    if "severity" in told and _word(told["severity"], _SEVERITIES) is None:
        d.severity_unknown = told["severity"][:40]
    return d


def _judged(told: Mapping[str, str], text: str, like: Draft | None) -> tuple[str, str]:
    """(category, severity): as the columns say, else as the text says, else other and note."""
    category = next((c for w in ("category", "code") if (c := _word(told.get(w, ""), _CATEGORIES))), None)
    severity = _word(told.get("severity", ""), _SEVERITIES)
    number = _xid_number(told)
    published = xid.table().get(number) if number is not None else None
    if published is not None:
        category, severity = published.kind, severity or published.severity
    if like is not None:
        category, severity = category or like.category, severity or like.severity
    return category or _word(text, _CATEGORIES) or "other", severity or "note"


def _xid_number(told: Mapping[str, str]) -> int | None:
    """The Xid that a row names: in a column of codes where the row is about Xids, or as `Xid 79`."""
    code = told.get("code", "")
    about = "xid" in told.get("category", "").lower() or "xid" in code.lower()
    m = re.fullmatch(r"(?:xid[ _:-]*)?(\d{1,4})", code, re.I)
    if m and (about or "xid" in told.get("text", "").lower()):
        return int(m[1])
    m = re.search(r"\bxid[ :=]*(?:error )?(\d{1,4})\b", told.get("text", ""), re.I)
    return int(m[1]) if m else None


def _word(text: str, words: Mapping[str, tuple[str, ...]]) -> str | None:
    """The first of these names that a text has a word of."""
    lowered = re.sub(r"[^a-z0-9]+", " ", text.lower())
    held = set(lowered.split())
    for name, known in words.items():
        if any(k in held or (" " in k and k in lowered) or k == text.lower() for k in known):
            return name
    return None


def _time(told: Mapping[str, str], field: str, problems: list[str]) -> Written | None:
    if field not in told:
        return None
    found = times.parse(told[field])
    if found.at is None:
        problems.append(f"{field} {told[field][:40]!r} is no time")
    return found


def _nodes(text: str | None, problems: list[str]) -> tuple[str, ...]:
    if text is None:
        return ()
    host = re.sub(r":\d{2,5}$", "", text)  # the port of a scraped instance
    if "[" not in host and "," not in host:
        return (host,)
    try:
        return tuple(dict.fromkeys(slurm.expand(host)))
    except ImportTrouble as e:
        problems.append(str(e))
        return ()


def _whole(told: Mapping[str, str], field: str, problems: list[str]) -> int | None:
    text = told.get(field)
    if text is None:
        return None
    m = re.fullmatch(r"(?:gpu|nvidia|rank)?[ _-]?(\d{1,9})(?:\.0)?", text, re.I)
    if m is None:
        problems.append(f"{field} {text[:40]!r} is no number")
        return None
    return int(m[1])
