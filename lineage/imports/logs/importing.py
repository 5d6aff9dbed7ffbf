"""Reading the logs of one run, row by row, into segments of a ledger."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..entries import MOST_UPDATES
from ..into_ledger import run_id
from . import journals, megatron, registry
from .cut import Cutter, Part, settle_first
from .meaning import Meaning
from .odd import Odd
from .rows import Format, ImportTrouble, Note, Row, Told
from .sink import Sink

MOST_RANK = 10**7
FIRST = 9
"""First rows of a rank that are kept: as many as a detector needs to learn, and one more."""
_RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.I)


@dataclass
class Source:
    """One file and what was learned of it."""

    path: Path
    name: str
    format: Format
    told: Told = field(default_factory=Told)
    rank: int | None = None
    """as the file's name says, where no line does"""
    keys: dict[str, int] = field(default_factory=dict)
    skips: Counter[int | None] = field(default_factory=Counter)
    """rank that said so -> lines about skipped steps since the last training row"""
    zoned: bool = True
    local: bool = False


@dataclass
class First:
    """One of the first training rows of a rank."""

    step: int
    signals: dict[str, float]
    line: int
    file: str


@dataclass
class Track:
    """What is followed of one rank in one segment."""

    odd: Odd = field(default_factory=Odd)
    first: list[First] = field(default_factory=list)
    place: str = "line"
    names: set[str] = field(default_factory=set)


class Import:
    """The import of one run's logs."""

    def __init__(
        self, paths: Sequence[Path], run: str, root: Path, sources: Sequence[Source] | None = None
    ) -> None:
        """`sources` in place of files whose format is told by their content: what a tracker has, for one."""
        self.name, self.run = run, run_id(run)
        self.ledger = root / self.run
        self.sources = [Source(p, n, f) for p, n, f in _formats(paths)] if sources is None else list(sources)
        self.cutter = Cutter(files=len(self.sources))
        self.meaning = Meaning()
        self.tracks: dict[tuple[int, int], Track] = {}
        self.files: dict[int, set[str]] = {}
        self.base: int | None = None
        self.world: int | None = None
        self.rows = 0
        self.skips = 0

    def write(self) -> Path:
        """Read everything and write the ledger. Raises `ImportTrouble`; nothing is left behind then."""
        if self.ledger.exists():
            raise ImportTrouble(
                f"{self.ledger} is there already; an import never writes into a ledger. Remove it, or name another "
                "--dir or --run."
            )
        self._ranks_by_name()
        sink = Sink(self.ledger, self.run)
        try:
            for source in self.sources:
                self._read(source, sink)
            sink.close()
            self._settle()
            journals.write(self)
        except BaseException:
            shutil.rmtree(self.ledger, ignore_errors=True)
            raise
        return self.ledger

    def _read(self, source: Source, sink: Sink) -> None:
        for found in source.format.read(source.path, source.told):
            if isinstance(found, Note):
                self._note(source, found)
            else:
                self._row(source, found, sink)
        if not source.told.recognised:
            raise ImportTrouble(f"{source.path} has no row with a step and a value")

    def _note(self, source: Source, note: Note) -> None:
        if note.kind == "skip":
            source.skips[note.rank] += 1
            self.skips += 1
        elif note.kind == "world":
            self.world = note.number
        else:
            self.cutter.note(source.name, note)

    def _row(self, source: Source, row: Row, sink: Sink) -> None:
        rank = row.rank if row.rank is not None else source.rank or 0
        if row.step > MOST_UPDATES or rank > MOST_RANK:
            source.told.say(
                f"{source.format.place} {row.line:,} names a step or rank that no run has: left out"
            )
            return
        step = self._step(row)
        said = max(source.skips.values(), default=0) if row.kind == "train" else 0
        if row.kind == "train":
            source.skips.clear()
        logged, row.step = row.step, step
        part = self.cutter.place(source.name, rank, row)
        if part is None:
            return
        row.step = logged
        self.rows += 1
        self._learn(source, row)
        self.files.setdefault(part.number, set()).add(source.name)
        format_ = source.format
        axis = format_.axis + (", which counts from 0: one more here" if step != logged else "")
        sink.row(
            part.uid, rank, row, step, tracker=format_.name, axis=axis, file=source.name, place=format_.place
        )
        if row.kind == "train":
            row.step = step
            self._training(source, row, rank, part, said, sink)

    def _training(self, source: Source, row: Row, rank: int, part: Part, said: int, sink: Sink) -> None:
        signals = self.meaning.of(row.values, source.format.signals)
        track = self.tracks.setdefault((part.number, rank), Track(place=source.format.place))
        track.names |= {source.format.name}
        track.odd.add(row, source.name, said, self.meaning.keys.get("lr"), has_loss="loss" in signals)
        if source.format.name == megatron.Megatron.name:
            _counted(row, said, signals)
        if len(track.first) < FIRST:
            track.first.append(First(row.step, signals, row.line, source.name))
        if signals:
            sink.signals(part.uid, rank, row.node, row.step, row.at, signals)

    def _step(self, row: Row) -> int:
        """The step as the ledger counts: a loop that counts from 0 is one behind; evaluation counts updates made."""
        if row.kind != "train":
            return row.step
        if self.base is None:
            self.base = 0 if row.step == 0 else 1
        return row.step + 1 - self.base

    @staticmethod
    def _learn(source: Source, row: Row) -> None:
        source.zoned &= row.zoned
        source.local |= row.local
        for key in row.values:
            source.keys[key] = source.keys.get(key, 0) + 1

    def _ranks_by_name(self) -> None:
        """Ranks that the names of files tell apart, for lines that tell none."""
        found = [_RANK_IN_NAME.search(s.path.name) for s in self.sources]
        numbers = [int(f[1]) for f in found if f]
        if len(numbers) == len(found) > 1 and len(set(numbers)) == len(numbers):
            for source, rank in zip(self.sources, numbers, strict=True):
                source.rank = rank

    def _settle(self) -> None:
        for part in self.cutter.parts:
            for spacing in part.spacing.values():
                spacing.done()
        settle_first(self.cutter.parts)
        for track in self.tracks.values():
            track.odd.done()


def _counted(row: Row, said: int, signals: dict[str, float]) -> None:
    """What Megatron's counters and DeepSpeed's lines say of an update that was not made, or of a NaN loss.

    A counter is of the rows since the last line; only where it counts each step is it this step's.
    """
    counter = row.values.get(megatron.SKIPPED)
    if said or counter is not None:
        signals["update_skipped"] = float(max(min(said, 1), min(counter or 0.0, 1.0)))
    if megatron.vanished(row.values) == "nan":
        signals["loss"] = math.nan


def _formats(paths: Sequence[Path]) -> list[tuple[Path, str, Format]]:
    """Each file with the name it goes by, the shortest that no other one has, and its reader."""
    out = []
    for path in paths:
        found = registry.detect(path)
        if found is None:
            from . import refused

            raise ImportTrouble(f"{path}: {refused.why(path) or refused.without_step(path)}")
        out.append((path, _short(path, paths), found))
    return out


def _short(path: Path, paths: Sequence[Path]) -> str:
    parts = path.absolute().parts
    for n in range(1, len(parts) + 1):
        name = "/".join(parts[-n:])
        if sum("/".join(p.absolute().parts[-n:]) == name for p in paths) == 1:
            return name
    raise ImportTrouble(f"{path} is named twice")
