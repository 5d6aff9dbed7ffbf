"""What a person may call a run, a segment or a checkpoint, and which one is meant.

A ledger folder, a run id, a run's name, a tracker's run id; with `:2` a segment by its number, with `@4000` the
checkpoint at a step; a checkpoint's folder or file; a uid, or eight characters of its beginning or end.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..judge.graph import Graph, Node
from ..ledger import layout, reader, scan
from .common import CliError, Subject, root, short, step_text

SHORTEST = 8
"""Characters of a uid that are enough: `short` prints as many."""

_PART = re.compile(r"^(?P<run>.+?)(?::(?P<segment>\d+))?(?:@(?P<step>[\d_,]+))?$")
_UID = re.compile(r"^[0-9a-f-]+$")


def by_name(name: str) -> Subject | None:
    """Find what a name means in the folder of ledgers; None where nothing bears it.

    Raises `CliError` where several do, with what to call each.
    """
    return _by_part(name) or _by_run_name(name) or _by_uid(name)


def holds(ledger: Path, text: str) -> bool:
    """Whether a ledger's journal holds a text anywhere, without reading its records."""
    wanted = text.encode()
    for file in scan.journal_files(ledger):
        try:
            with file.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data.find(wanted) >= 0:
                    return True
        except (OSError, ValueError):
            continue  # gone, or empty
    return False


def ledgers(folders: Iterable[Path] = ()) -> Iterator[Path]:
    """All ledgers in the folder of ledgers and in further ones, each once."""
    seen = set()
    for folder in (root(), *folders):
        for path in reader.find(folder):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def saved_in(subject: Subject, checkpoint: str | None) -> Path | None:
    """The ledger that holds a save, where it is another than the subject's: a fork's save is in another run's."""
    if checkpoint is None or checkpoint in subject.graph.nodes:
        return None
    others = ledgers([subject.ledger.path.parent])
    holders = (p for p in others if holds(p, checkpoint) and p != subject.ledger.path)
    return next((p for p in holders if checkpoint in Subject(reader.Ledger(p)).graph.nodes), None)


def _by_part(name: str) -> Subject | None:
    """`run:2`, `run@4000`, `run:2@4000`."""
    match = _PART.match(name)
    if match is None or not (match["segment"] or match["step"]):
        return None
    ledger = _ledger(match["run"])
    if ledger is None:
        return None
    subject = Subject(ledger)
    if match["segment"]:
        subject.segment = _segment(subject, int(match["segment"]))
    if match["step"]:
        step = int(re.sub("[_,]", "", match["step"]))
        subject.checkpoint = _at_step(subject, match["run"], step)
    return subject


def _ledger(name: str) -> reader.Ledger | None:
    for path in (Path(name).expanduser(), root() / name):
        if layout.is_ledger(path):
            return reader.Ledger(path)
    found = _by_run_name(name)
    return found.ledger if found else None


def _segment(subject: Subject, number: int) -> str:
    graph = subject.graph
    for uid in graph.segments:
        if graph.number(uid) == number:
            return uid
    raise CliError(f"run {subject.ledger.run} has segments 1 to {len(graph.segments)}; not {number}")


def _at_step(subject: Subject, name: str, step: int) -> str:
    graph = subject.graph
    nodes = [n for n in graph.nodes.values() if subject.segment in (None, n.segment)]
    found = [n for n in nodes if n.checkpoint.step == step]
    if len(found) == 1:
        return found[0].uid
    if found:
        names = ", ".join(f"{name}:{graph.number(n.segment)}@{step} ({short(n.uid)})" for n in found)
        if len({n.segment for n in found}) < len(found):
            names = ", ".join(short(n.uid) for n in found)
        raise CliError(f"{name} has {len(found)} checkpoints at step {step:,}. Name one: {names}")
    raise CliError(f"{name} has no checkpoint at step {step:,}. {_nearest(nodes, step)}")


def _nearest(nodes: list[Node], step: int) -> str:
    steps = sorted({n.checkpoint.step for n in nodes})
    if not steps:
        return "It has none at all on record."
    near = [
        s
        for s in (
            max((s for s in steps if s < step), default=None),
            min((s for s in steps if s > step), default=None),
        )
        if s is not None
    ]
    return f"The nearest: step {' and step '.join(map(step_text, near))}."


def _by_run_name(name: str) -> Subject | None:
    """A run's own name, or what a tracker calls it."""
    found: list[reader.Ledger] = []
    written = json.dumps(name, ensure_ascii=False)[1:-1]
    for path in ledgers():
        if not holds(path, written):
            continue
        ledger = reader.Ledger(path)
        runs = [r.payload for r in ledger.of("run")]
        if any(name == r.name or any(name == a.id for a in r.aliases) for r in runs):
            found.append(ledger)
    if len(found) > 1:
        names = ", ".join(str(ledger.path) for ledger in found)
        raise CliError(f"{len(found)} runs are called {name}. Name a ledger's folder: {names}")
    return Subject(found[0]) if found else None


def _by_uid(name: str) -> Subject | None:
    """A checkpoint or a segment by its uid, or by a part of it that is enough."""
    text = name.lower()
    if len(text) < SHORTEST or not _UID.match(text):
        return None
    found: list[tuple[str, Subject]] = []
    for path in ledgers():
        if holds(path, text):
            subject = Subject(reader.Ledger(path))
            found += [(uid, subject) for uid in _matching(subject.graph, text)]
    if len(found) > 1:
        names = "; ".join(f"{uid} of run {s.ledger.run}" for uid, s in found[:6])
        raise CliError(f"{name} fits {len(found)} uids: {names}. Name more of it.")
    if not found:
        return None
    uid, subject = found[0]
    if uid in subject.graph.nodes:
        return Subject(subject.ledger, uid)
    return Subject(subject.ledger, segment=uid)


def _matching(graph: Graph, text: str) -> list[str]:
    return [u for u in (*graph.nodes, *graph.segments) if u.startswith(text) or u.endswith(text)]
