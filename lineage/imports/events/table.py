"""A site's own monitor: events as CSV, JSON or JSON lines, with columns that a small table knows or `--map` names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...capture import documents
from ..entries import ImportTrouble
from . import kernel_rules, slurm, times, xid
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
    ),
    "warning": ("warning", "warn", "major", "minor", "degraded"),
    "note": ("note", "info", "informational", "notice", "debug", "ok", "healthy", "normal", "resolved"),
}


def mapped(columns: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Field -> column, for the columns of a file. Raises `ImportTrouble` for a `--map` that does not fit."""
    out: dict[str, str] = {}
    lowered = {c.strip().lower(): c for c in reversed(columns)}
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
    rows = csv.reader(io.StringIO(text), dialect=_dialect(text))
    try:
        head = [c.strip() for c in next(rows)]
        entries: list[tuple[int, dict[str, Any]]] = []
        short = 0
        for cells in rows:
            if not any(c.strip() for c in cells):
                continue
            short += len(cells) < len(head)
            entries.append((rows.line_num, dict(zip(head, cells, strict=False))))
    except csv.Error as e:
        raise ImportTrouble(f"LIN-E004: line {rows.line_num} is no CSV: {e}") from None
    found = _read(entries, head, given)
    if short:
        found.problems.append(
            f"LIN-E006: {short} rows have fewer cells than the header; read as far as they go"
        )
    return found


def _dialect(text: str) -> type[csv.Dialect]:
    try:
        return csv.Sniffer().sniff(text.partition("\n")[0], delimiters=",;\t|")
    except csv.Error:
        return csv.excel


def read_json(text: str, given: Mapping[str, str]) -> Found:
    """Read a list of objects, also under the one key of an object that holds a list, or an object per line."""
    problems: list[str] = []
    entries = _entries(text, problems)
    columns = list(dict.fromkeys(k for _, e in entries for k in e))
    if not is_table(columns, given):
        raise ImportTrouble(
            "LIN-E004: the objects have no fields of an event (a time, and a text, code or category); --map "
            f"field=column names them. They have {', '.join(columns[:20]) or 'no fields'}"
        )
    found = _read(entries, columns, given)
    found.problems += problems
    return found


def _entries(text: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    try:
        whole = documents.read_json(text)
    except ValueError:
        return _lines(text, problems)
    except RecursionError:
        raise ImportTrouble("LIN-E004: it is nested too deeply to be read") from None
    if isinstance(whole, Mapping):
        lists = [v for v in whole.values() if isinstance(v, list)]
        whole = lists[0] if len(lists) == 1 else [whole]
    if not isinstance(whole, list):
        raise ImportTrouble(f"LIN-E004: it holds {type(whole).__name__}; a list of events is due")
    out = [(n, _flat(e)) for n, e in enumerate(whole, 1) if isinstance(e, Mapping)]
    if len(out) < len(whole):
        problems.append(f"{len(whole) - len(out)} entries are no objects; left out")
    return out


def _lines(text: str, problems: list[str]) -> list[tuple[int, dict[str, Any]]]:
    out: list[tuple[int, dict[str, Any]]] = []
    bad: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = documents.read_json(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, Mapping):
            out.append((number, _flat(entry)))
        else:
            bad.append(number)
    if bad and not out:
        raise ImportTrouble(f"LIN-E004: it begins as JSON and is none: line {bad[0]} cannot be read")
    if bad:
        shown = ", ".join(map(str, bad[:5]))
        problems.append(f"LIN-E006: {len(bad)} lines are no JSON objects (line {shown}); left out")
    return out


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the fields of the objects in it, one level down, such as `labels` and `annotations`."""
    out: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            for inner, held in value.items():
                out.setdefault(str(inner), held)
        else:
            out[str(key)] = value
    return out


def _read(
    entries: Iterable[tuple[int, dict[str, Any]]], columns: Sequence[str], given: Mapping[str, str]
) -> Found:
    found = Found("table", unit="entry")
    fields = mapped(columns, given)
    left = [c for c in columns if c not in fields.values()]
    if left:
        more = f" and {len(left) - 12} more" if len(left) > 12 else ""
        found.problems.append(
            f"columns without a meaning here are kept as values: {', '.join(left[:12])}{more}"
        )
    if "time" not in fields:
        found.problems.append("LIN-E002: no column holds a time; --map time=COLUMN names one")
    for number, entry in entries:
        found.read += 1
        found.drafts.append(_event(entry, fields, left, number))
    return found


def _event(entry: Mapping[str, Any], fields: Mapping[str, str], left: Sequence[str], number: int) -> Draft:
    told = {
        f: str(v).strip() for f, c in fields.items() if (v := entry.get(c)) is not None and str(v).strip()
    }
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
