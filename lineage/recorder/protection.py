"""What rotation must not delete: asked by the integrations before they, or their framework, remove a checkpoint.

    protection = Protection.of(rec)                # or Protection(ledger)
    if why := protection.holds(path):          # words for the log; None: it may go
        now_at = protection.keep(path)         # only where the framework's own removal cannot be refused

Nothing here raises, and nothing waits for another process or rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..judge.protected import KINDS, Protected, protected
from ..ledger import evidence, evidence_move, layout, scan, sidecars
from ..ledger.journal import Journal
from .contain import describe, log
from .identity import place

if TYPE_CHECKING:
    from .recorder import Recorder

Write = Callable[[Any], schemas.Envelope]

_KIND = re.compile(rb'"payload":\{"kind":"(\w+)"')
_WANTED = frozenset(k.encode() for k in KINDS)
_MOVED: dict[str, list[tuple[int, str | None, str]]] = {}
"""Where this process moved what lay at a path: (when, checkpoint, where to), oldest first. For a save whose files are
still being digested under the old path; a loop that keeps one file saves the next one to that path."""
_MOVING = threading.Lock()
"""Held while one is moved, so that nobody finds it neither there nor here."""


def where(path: Path, since: int) -> Path:
    """Where what was written to a path is now: there, or where this process moved it to.

    `since`: the time at which it was there (`time.monotonic_ns()`). What was moved before was an earlier save.
    """
    with _MOVING:
        moves = _MOVED.get(os.path.abspath(path), ())
        return Path(next((to for when, _, to in moves if when >= since), path))


def where_is(path: Path, checkpoint: str) -> Path | None:
    """Where this process moved a checkpoint that lay at a path; None where it did not."""
    with _MOVING:
        moves = _MOVED.get(os.path.abspath(path), ())
        return next((Path(to) for _, uid, to in reversed(moves) if uid == checkpoint), None)


class Protection:
    """Answers whether a checkpoint must be kept, from a run's ledger.

    Args:
        ledger: the run's ledger folder. It need not be there yet.
        write: writes a payload as a record (`writer.write`); a journal file of its own is opened where none is given.
    """

    def __init__(self, ledger: Path, *, write: Write | None = None) -> None:
        self._ledger = Path(ledger)
        self._write = write
        self._lock = threading.RLock()
        self._journals = _Journals(self._ledger)
        self._found: Protected | None = None
        self._newest: dict[str, str] = {}
        self._others: dict[str, Protection] = {}
        self._troubled = False

    @classmethod
    def of(cls, rec: Recorder) -> Protection:
        """The protection of a run that is being recorded. Where nothing is recorded it holds nothing."""
        writer = rec.begin() if rec.live else None
        return cls(Path(os.devnull)) if writer is None else cls(writer.ledger, write=writer.write)

    def holds(self, path: Path | str) -> str | None:
        """Why a checkpoint must not be deleted, in words; None where it may be.

        Held are: the last good and the first bad checkpoint of an incident that is open, and the newest one between
        them; where an alarm is on record whose first bad cell is not named yet, the newest complete checkpoint before
        it, the newest one that is old enough not to be in doubt (a NaN in the loss may come from weights that went
        bad two updates before), and the first one saved after it; what a person holds (`lineage checkpoint hold`) or
        preserved without a copy in the evidence store. The folder that holds such a checkpoint is held with it. A
        checkpoint that another ledger knows, as its sidecar says, is asked for there too.

        Never raises. The journals are read again only where they have grown.
        """
        try:
            with self._lock:
                return self._holds(os.path.abspath(path))
        except Exception as e:
            self._trouble(e, f"whether {path} must be kept is not known")
            return None

    def keep(self, path: Path | str, why: str | None = None) -> Path:
        """Take a checkpoint out of the rotation's reach, and return where it is now.

        It is renamed into a folder beside the rotation's folder, which takes no time and no space; where that cannot
        be, it is copied into the evidence store (shared extents where the file system can) and verified. Recorded
        as preserved, with `why` (by default what `holds` says).

        Never raises: where nothing worked it is said in the log, and the path comes back as it was. The caller should
        leave the checkpoint alone then.
        """
        at = Path(os.path.abspath(path))
        try:
            with self._lock:
                return self._keep(at, why or self._holds(str(at)) or "it was to be kept")
        except Exception as e:
            self._trouble(e, f"{at} could not be taken out of the rotation's reach")
            return at

    def _holds(self, path: str) -> str | None:
        found = self._look()
        real = os.path.realpath(path)
        named = [self._newest[p] for p in self._newest if _touches(p, path) or _touches(p, real)]
        said = [found.why[uid] for uid in named if uid in found.why]
        if said:
            return said[0]
        if named:
            return self._written_over(path, named)
        tells = _sidecar(Path(path))
        if tells is not None and tells[0] in found.graph.nodes:
            return found.why.get(tells[0])
        if tells is not None and (other := self._other(tells[1])) is not None:
            with other._lock:
                return other._look().why.get(tells[0])
        return _may_be(path, found.pending)

    def _written_over(self, path: str, named: list[str]) -> str | None:
        """Why a path of one checkpoint on record may hold a later save, whose files are not on record yet."""
        assert self._found is not None
        nodes, order = self._found.graph.nodes, self._journals.order()
        last = max(order.get(nodes[uid].record, -1) for uid in named)
        later = {
            n.checkpoint.step for n in nodes.values() if n.checkpoint.path is None and order[n.record] > last
        }
        return _may_be(path, {step: why for step, why in self._found.pending.items() if step in later})

    def _look(self) -> Protected:
        """What must be kept, as the journals tell it now."""
        if self._journals.read() or self._found is None or self._went():
            self._found = protected(self._journals.records(), self._stored, os.path.exists)
            nodes = self._found.graph.nodes.values()
            order = self._journals.order()
            newest = sorted(
                (n for n in nodes if n.checkpoint.path and not n.deleted),
                key=lambda n: order.get(n.record, -1),
            )  # a path that is written over holds the last
            self._newest = {os.path.abspath(str(n.checkpoint.path)): n.uid for n in newest}
        return self._found

    def _went(self) -> bool:
        """Whether a checkpoint that was to be kept is gone since: another one must be kept in its place."""
        paths = (
            [self._found.graph.nodes[uid].checkpoint.path for uid in self._found.why] if self._found else []
        )
        return any(p is not None and not os.path.exists(p) for p in paths)

    def _stored(self, location: str) -> bool:
        return (self._ledger / location / evidence.MANIFEST).is_file()

    def _other(self, ledger: str | None) -> Protection | None:
        if not ledger or os.path.abspath(ledger) == os.path.abspath(self._ledger):
            return None
        if not layout.is_ledger(Path(ledger)):
            return None
        return self._others.setdefault(ledger, Protection(Path(ledger)))

    def _keep(self, at: Path, why: str) -> Path:
        found = self._look()
        uid = self._newest.get(str(at))
        if uid is not None and uid not in found.why and self._written_over(str(at), [uid]):
            uid = None  # it may be a later one, which finds its files where they are now
        elif uid is None and (tells := _sidecar(at)) is not None:
            uid = tells[0]
        try:
            with _MOVING:
                now = evidence_move.out_of_reach(at)
                if now != at:
                    _MOVED.setdefault(str(at), []).append((time.monotonic_ns(), uid, str(now)))
        except evidence_move.CannotMove as refused:
            return self._copy(at, uid, why, refused)
        if now == at:
            return at
        log.warning("lineage: %s was moved to %s, where no rotation deletes it: %s", at, now, why)
        node = found.graph.nodes.get(uid or "")
        manifest = node.checkpoint.manifest if node else None
        kept: list[schemas.Preserved] = []
        if manifest is not None:  # a rename changes no byte: what was digested at the save stands
            target = evidence.point(self._ledger, manifest, str(now), "checkpoint")
            kept.append(
                schemas.Preserved(
                    what="checkpoint",
                    source=str(at),
                    location=str(target.relative_to(self._ledger)),
                    root=manifest.root,
                    files=len(manifest.files),
                    bytes=sum(f.size for f in manifest.files),
                    method="moved",
                    verified=False,
                    at=str(now),
                )
            )
        self._record(uid, why, kept, str(now))
        return now

    def _copy(self, at: Path, uid: str | None, why: str, refused: Exception) -> Path:
        log.warning("lineage: %s; it is copied into the evidence store instead", refused)
        kept = evidence.preserve(self._ledger, at, "checkpoint")  # one thread, and no file is mapped
        self._record(uid, why, [kept], None)
        return self._ledger / kept.location

    def _record(self, uid: str | None, why: str, kept: list[schemas.Preserved], path: str | None) -> None:
        """Write down what was kept, on the run's own writer or in a journal file of its own."""
        with contextlib.ExitStack() as stack:
            write = self._write or self._own_journal(stack)
            if write is None:
                return
            ids = [write(p).id for p in kept]
            if uid is not None:
                write(
                    schemas.CheckpointMark(checkpoint=uid, mark="preserved", why=why, evidence=ids, path=path)
                )

    def _own_journal(self, stack: contextlib.ExitStack) -> Write | None:
        """A journal file in the newest segment, closed when the stack is; None where there is no ledger."""
        newest = self._journals.newest()
        if newest is None:
            return None
        run, segment = newest
        journal = Journal(self._ledger, run, segment, 0, place(run, 0))
        stack.callback(journal.close)
        return journal.append

    def _trouble(self, error: Exception, what: str) -> None:
        if not self._troubled:
            self._troubled = True
            log.warning("lineage: %s (%s). Training goes on.", what, describe(error))


class _Journals:
    """The records of a ledger that decide what is kept; each file is read on from where the last look ended."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._read: dict[Path, int] = {}
        self._records: dict[Path, list[schemas.Record]] = {}

    def read(self) -> bool:
        """Read what is new; return whether anything was."""
        changed = False
        for path in scan.journal_files(self._ledger):
            with contextlib.suppress(OSError):
                changed |= self._file(path)
        return changed

    def _file(self, path: Path) -> bool:
        done, size = self._read.get(path, 0), path.stat().st_size
        if size == done:
            return False
        if size < done:  # it was cut back, or is another file
            done, self._records[path] = 0, []
        with path.open("rb") as f:
            f.seek(done)
            data = f.read()
        whole = data.rfind(b"\n") + 1  # a line that is being written is read the next time
        self._read[path] = done + whole
        held = self._records.setdefault(path, [])
        for line in data[:whole].splitlines():
            kind = _KIND.search(line)
            if kind is None or kind[1] in _WANTED:
                with contextlib.suppress(schemas.RecordError):
                    held.append(schemas.read_line(line, file=f"{path.parent.name}/{path.name}"))
        return whole > 0

    def records(self) -> list[schemas.Record]:
        """All records so far of the wanted kinds."""
        return [r for held in self._records.values() for r in held if r.kind in KINDS]

    def order(self) -> dict[str, int]:
        """Record -> its place in time."""
        return {r.id: n for n, r in enumerate(sorted(self.records(), key=lambda r: (r.at, r.file, r.seq)))}

    def newest(self) -> tuple[str, str] | None:
        """(run, segment) of the newest record."""
        found = max(self.records(), key=lambda r: r.at, default=None)
        return None if found is None else (found.run, found.segment)


def _touches(held: str, path: str) -> bool:
    """Whether removing a path would remove a checkpoint, or a part of it."""
    return held == path or held.startswith(f"{path}{os.sep}") or path.startswith(f"{held}{os.sep}")


def _sidecar(path: Path) -> tuple[str, str | None] | None:
    """(checkpoint, ledger) as the sidecar tells; None where there is none that can be read."""
    try:
        data = json.loads(sidecars.path_of(path).read_bytes())
        return str(data["checkpoint"]["uid"]), data.get("ledger")
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _may_be(path: str, pending: dict[int, str]) -> str | None:
    """A path that no record names yet may be a save whose files are still being digested."""
    numbers = {int(n) for n in re.findall(r"\d+", os.path.basename(path))}
    for step, why in pending.items():
        if not numbers or step in numbers:
            return f"it may be the save of step {step:,}, whose files are not on record yet: {why}"
    return None
