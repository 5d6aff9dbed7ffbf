"""Slurm: node lists (`node[001-004,007]`, `scontrol show hostnames`) and the rows of `sacct --parsable2`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ..entries import ImportTrouble
from . import times
from .draft import Draft, Found, Written

MOST_NODES = 100_000
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_LIST = re.compile(r"^[A-Za-z][A-Za-z0-9._,\[\]-]*$")
_STATES = {
    "COMPLETED": "note",
    "RUNNING": "note",
    "PENDING": "note",
    "SUSPENDED": "warning",
    "PREEMPTED": "warning",
    "REQUEUED": "warning",
    "TIMEOUT": "warning",
    "DEADLINE": "warning",
    "CANCELLED": "warning",
    "FAILED": "fault",
    "NODE_FAIL": "fault",
    "BOOT_FAIL": "fault",
    "OUT_OF_MEMORY": "fault",
}


def expand(text: str) -> list[str]:
    """The nodes of a Slurm node list, in order: `n[1-2,07],m3` is n1, n2, n07, m3. Raises `ImportTrouble`."""
    out: list[str] = []
    for part in _outside(text.strip()):
        out += _expanded(part)
        if len(out) > MOST_NODES:
            raise ImportTrouble(f"LIN-E004: a node list names more than {MOST_NODES:,} nodes: {text[:80]}")
    return out


def _outside(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            raise ImportTrouble(f"LIN-E004: the brackets of a node list do not close: {text[:80]}")
        if c == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    if depth:
        raise ImportTrouble(f"LIN-E006: a node list is cut off inside its brackets: {text[:80]}")
    yield text[start:]


def _expanded(part: str) -> list[str]:
    """The nodes of one name, whose brackets may stand several times (`rack[1-2]n[01-04]`)."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        if not _NAME.match(part):
            raise ImportTrouble(f"LIN-E004: {part[:80]!r} is no name of a node")
        return [part]
    inside, _, tail = rest.partition("]")
    numbers: list[str] = []
    for item in inside.split(","):
        low, dash, high = item.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or (dash and int(high) < int(low)):
            raise ImportTrouble(f"LIN-E004: {item[:40]!r} is no range of a node list")
        if dash and int(high) - int(low) >= MOST_NODES:
            raise ImportTrouble(f"LIN-E004: a node list names more than {MOST_NODES:,} nodes: {part[:80]}")
        numbers += [str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1)]
    tails = _expanded_tail(tail)
    if len(numbers) * len(tails) > MOST_NODES:
        raise ImportTrouble(f"LIN-E004: a node list names more than {MOST_NODES:,} nodes: {part[:80]}")
    return [f"{head}{n}{t}" for n in numbers for t in tails]


def _expanded_tail(tail: str) -> list[str]:
    if "[" not in tail:
        return [tail]
    return _expanded(tail)


def looks_like(lines: list[str]) -> bool:
    """Whether every line is a node list, or the name of a node with a digit in it."""
    held = [line.strip() for line in lines if line.strip()]
    return bool(held) and all(_LIST.match(line) and any(c.isdigit() for c in line) for line in held)


def read_nodes(text: str) -> Found:
    """Read node lists: lines with brackets or commas are a list each, plain names are one list together."""
    found = Found("slurm-nodes")
    lists: list[tuple[int, list[str]]] = []
    plain: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found.read += 1
        if "[" in line or "," in line:
            lists.append((number, expand(line)))
        else:
            plain += expand(line)
    if plain:
        lists.append((1, plain))
    for number, nodes in lists:
        doubled = len(nodes) - len(set(nodes))
        unique = tuple(dict.fromkeys(nodes))
        problems = [f"{doubled} nodes stand twice in the list"] if doubled else []
        text_ = f"node list of {len(unique)} nodes"
        found.drafts.append(
            Draft("scheduler", "note", text_, code="nodes", nodes=unique, line=number, problems=problems)
        )
    if lists:
        found.problems.append("LIN-E002: a node list has no time; --at says when it was in use")
    return found


def is_sacct(line: str) -> bool:
    """Whether a line is the header of `sacct --parsable` or `--parsable2`, or of the same as CSV."""
    names = {c.strip().strip('"').lower() for c in re.split(r"[|,]", line)}
    return "jobid" in names and bool(names & {"state", "nodelist", "start", "end"})


def read_sacct(text: str) -> Found:
    """One event for each row: the job, or the step of a job, with its state, nodes and times."""
    found = Found("sacct", unit="row")
    delimiter = "|" if "|" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    head = [c.strip().lower() for c in next(rows)]
    short = 0
    for number, cells in enumerate(rows, 2):
        if not cells or not any(cells):
            continue
        if len(cells) < len([h for h in head if h]):
            short += 1
            continue
        found.read += 1
        found.drafts.append(_job(dict(zip(head, cells, strict=False)), number))
    if short:
        found.problems.append(f"LIN-E006: {short} rows have fewer cells than the header; left out")
    return found


def _job(row: dict[str, str], number: int) -> Draft:
    state = row.get("state", "").strip()
    word = state.split(" ")[0].rstrip("+").upper()
    job = row.get("jobid", "?").strip()
    problems: list[str] = []
    nodes: tuple[str, ...] = ()
    told = row.get("nodelist", "").strip()
    if told and told.lower() not in ("none assigned", "unknown", "none"):
        try:
            nodes = tuple(dict.fromkeys(expand(told)))
        except ImportTrouble as e:
            problems.append(str(e))
    start, end = _time(row, "start", problems), _time(row, "end", problems)
    exit_code = row.get("exitcode", "").strip()
    text = f"job {job}: {state.lower() or 'state not given'}" + (
        f", exit code {exit_code}" if exit_code else ""
    )
    skipped = ("jobid", "state", "nodelist", "start", "end", "")
    values = {k: v for k, v in row.items() if k not in skipped and v}
    return Draft(
        "scheduler",
        _STATES.get(word, "warning" if word else "note"),
        text,
        code=word or None,
        nodes=nodes,
        when=start or end,
        until=end if start else None,
        values={"job": job, **values},
        line=number,
        problems=problems,
    )


def _time(row: dict[str, str], name: str, problems: list[str]) -> Written | None:
    told = row.get(name, "").strip()
    if not told or told.lower() in ("unknown", "none", "n/a"):
        return None
    found = times.parse(told)
    if found.at is None:
        problems.append(f"{name} {told[:40]!r} is no time")
        return None
    return found
