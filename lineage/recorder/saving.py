"""Recording checkpoints: live digests at the save, files digested later, a sidecar beside them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .._rooms import schemas
from ..capture import effective, state
from ..capture.reason import reason
from ..capture.watched import Watched
from ..judge import graph
from ..ledger import files, hashing, layout, sidecars
from ..ledger.reader import Ledger
from . import agreeing, protection, quarantine
from .boundary import Parent
from .contain import contained, log
from .identity import checkpoint_uid
from .staged import APART, Staged, Stager
from .staged import PATIENCE as STAGED
from .writer import Writer
from .written import GONE, Written

if TYPE_CHECKING:
    from .recorder import Recorder


def checkpoint(rec: Recorder, path: Path, step: int | None) -> str | None:
    """A save that is already done: digests now, files later."""
    save = Saving(rec, step)
    save.__enter__()
    save.commit(path)
    return save.uid


OF_EACH_RANK = ("optimizer_step",)
"""Components that are to be alike on all ranks, and few bytes: each rank records its own, so that it can be seen."""


class Saving:
    """A save under way: `pending` from its start, `complete` when its files are committed."""

    def __init__(self, recorder: Recorder, step: int | None, stager: Stager | None = None) -> None:
        self._rec = recorder
        self._step = step
        self._stager = stager
        self._staged: Staged | None = None
        self.uid: str | None = None
        self._record: schemas.Checkpoint | None = None
        self._sidecar: dict[str, Any] = {}

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self._rec.trouble(part, error, consequence)

    @contained("checkpoint", "a checkpoint is not recorded")
    def _begin(self) -> None:
        rec = self._rec
        w = rec.begin()
        if w is None or not rec.live:
            return
        step = rec.steps.done if self._step is None else self._step
        live: list[schemas.ComponentDigest] = []
        if self._stager is not None and rec.settings.digests:
            self._staged = Staged(rec, w, step, self._digested)
            live = _kept(w, state.capture(rec.watched, APART))
        elif rec.settings.digests:
            known = rec.steps.agreeing.at(w, step, agreeing.SAVE)
            live = _kept(w, state.capture(rec.watched, known=known))
        nth = rec._saves[(step, "")] = rec._saves.get((step, ""), 0) + 1
        self.uid = checkpoint_uid(w.ids.segment, step, "", nth)
        parent = rec.last_checkpoint or (
            rec.parent.checkpoint.uid if rec.parent and rec.parent.checkpoint else None
        )
        held = effective.capture(rec.watched, rec.seen, "save", step)
        self._record = schemas.Checkpoint(
            uid=self.uid,
            step=step,
            parents=[parent] if parent else [],
            regime=rec.regime_id(),
            samples=rec.steps.samples or None,
            tokens=rec.steps.tokens or None,
            live=live,
            lr_ahead=held.lr_ahead,
        )
        self._sidecar = {"effective": held, "segment": rec.segment()}
        rec.last_checkpoint = self.uid
        w.write(self._record, step=step)
        if self._stager is not None and self._staged is not None:
            self._stager.expect(self._staged)

    def _digested(self, tensors: list[schemas.ComponentDigest]) -> None:
        """The digests of the staged state are made, on a thread of their own: the record of the save has them now."""
        w, record = self._rec.begin(), self._record
        if w is None or record is None:
            return
        place = {name: n for n, name in enumerate(schemas.COMPONENTS)}
        live = sorted([*record.live, *_kept(w, tensors)], key=lambda c: place[c.component])
        self._record = record.model_copy(update={"live": live})
        w.write(self._record, step=record.step)

    def __enter__(self) -> Saving:
        self._begin()
        return self

    @contained("checkpoint", "the digests of a staged save are not recorded")
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is committed by leaving the block: `commit(path)` does, when the files are there."""
        if self._staged is None:
            return
        if not self._staged.begun:  # nothing was staged, and training goes on now
            self._staged.take(None, None)
        self._staged.leave()

    @contained("checkpoint", "the files of a checkpoint are not recorded")
    def commit(self, path: str | Path) -> None:
        """The files are there: digest them and write the sidecar, away from this thread."""
        rec, w, record = self._rec, self._rec.begin(), self._record
        if w is None or record is None:
            return
        if self._staged is not None:
            self._staged.leave()
        target = Path(path).absolute()
        seen = Written.look(target, alone=w.world.world_size == 1)
        w.tasks.put(lambda: _finish(rec, w, self._named(record, target), target, self._sidecar, seen))

    def _named(self, record: schemas.Checkpoint, path: Path) -> schemas.Checkpoint:
        """On the worker thread: the record with its path, and with the digests of the staged state."""
        if self._staged is not None:
            self._staged.done.wait(STAGED)
        return (self._record or record).model_copy(update={"path": str(path)})


def _kept(w: Writer, live: list[schemas.ComponentDigest]) -> list[schemas.ComponentDigest]:
    """What this rank records: rank 0 all, the others what is their own."""
    if w.world.rank == 0:
        return live
    return [c for c in live if c.scope == "rank" or c.component in OF_EACH_RANK]


def _finish(
    rec: Recorder, w: Writer, record: schemas.Checkpoint, path: Path, known: dict[str, Any], seen: Written
) -> None:
    """On the worker thread: manifest, the completed record, the sidecar, the seal."""
    if w.world.rank == 0:
        rec.followed.look()
        rec.followed.replaced(str(path), f"save (step {record.step:,})")
        found = _digest(w, record, path, seen)
        record = found.model_copy(update={"regime": rec.regime_id()})
        w.write(record, step=record.step)
        if record.missing == [GONE]:
            return
        if not Path(str(record.path)).exists():
            rec.absent.add(record.uid)
            log.warning(
                "lineage: the checkpoint path %s of step %d does not exist; the save is on record as incomplete. Call "
                "rec.checkpoint(path, step=step) after saving, with the path that was written.",
                path,
                record.step,
            )
            return
        if record.status == "complete":
            rec.followed.add(record)
    else:
        _own_files(w, protection.where(path, seen.when))
    if w.world.rank != 0 and not any(c.scope == "rank" for c in record.live):
        return
    rec.surroundings.wait_read()
    at = _write_sidecar(rec, w, record, path, seen.when, known)
    quarantine.saved(w, record, at)
    if w.world.rank == 0:
        w.seal("checkpoint")


def _digest(w: Writer, record: schemas.Checkpoint, path: Path, seen: Written) -> schemas.Checkpoint:
    """The record with what the files are; read once more where they were moved out of a rotation's reach meanwhile."""
    at = protection.where(path, seen.when)
    try:
        kept = hashing.Kept(w.ledger / layout.DIGESTS, at, "rank0")
        manifest = files.manifest(at, kept=kept)
        kept.forget()
        missing = _lack(at) if manifest.files else ["no file at all"]
    except OSError as e:
        manifest, missing = None, [f"cannot be read ({reason(e)})"]
    gone = seen.there and seen.changed()
    if gone and (now := protection.where(path, seen.when)) != at:
        return _digest(w, record, now, seen)
    if gone and at == seen.path:  # what was digested is another save's, or a part of this one
        manifest, missing = None, [GONE]
    status: Literal["complete", "incomplete"] = "incomplete" if missing else "complete"
    return record.model_copy(
        update={"path": str(at), "status": status, "manifest": manifest, "missing": missing}
    )


def _lack(path: Path) -> list[str]:
    """What a resume from these files would fail on for certain; nothing where it cannot be told."""
    try:
        from ..checkpoints import lack_of  # readers of eight formats, which no step needs
    except ImportError as e:
        log.debug("lineage: %s was not looked into: %s", path, reason(e))
        return []
    return lack_of(path)


def _own_files(w: Writer, path: Path) -> None:
    """Digest the files that this rank wrote, so that rank 0 need not read them; it takes what it finds."""
    try:
        mine = hashing.own_share(files.listing(path), w.world.rank) if path.is_dir() else []
        kept = hashing.Kept(w.ledger / layout.DIGESTS, path, f"rank{w.world.rank}")
        kept.drop_old()
        hashing.digest_all(mine, kept, threads=1, mapped=False)
    except OSError as e:
        log.debug("lineage: rank 0 digests the files of rank %d: %s", w.world.rank, reason(e))


def _write_sidecar(
    rec: Recorder, w: Writer, record: schemas.Checkpoint, path: Path, since: int, known: dict[str, Any]
) -> Path:
    """Write it beside the checkpoint, wherever that lies now, and return where."""
    ancestors = list(record.parents)
    if w.world.rank == 0:
        g = graph.build(Ledger(w.ledger).records)
        while ancestors and (node := g.nodes.get(ancestors[-1])) is not None and node.checkpoint.parents:
            if node.checkpoint.parents[0] in ancestors:
                break
            ancestors.append(node.checkpoint.parents[0])
        parent = rec.parent.sidecar if rec.parent else None
        if parent and ancestors and parent.checkpoint.uid == ancestors[-1]:
            ancestors += parent.ancestors
    first = w.world.rank == 0
    sidecar = schemas.Sidecar(
        run=w.ids.run,
        rank=w.world.rank,
        segment=known["segment"],
        checkpoint=record,
        ancestors=ancestors,
        config=rec.now.config if first else None,
        effective=known["effective"] if first else None,
        code=rec.now.code if first else None,
        environment=rec.now.environment if first else None,
        ledger=str(w.ledger),
    )
    at = protection.where(path, since)
    if not at.exists() and not (at := protection.where(path, since)).exists():
        return at  # a rotation took it meanwhile: a sidecar alone in its place would be litter
    try:
        sidecars.write(at, sidecar)
    except OSError:
        now = protection.where(path, since)
        if now == at:
            raise
        sidecars.write(now, sidecar)
        return now
    return at


def find_by_content(w: Writer, watched: Watched) -> Parent | None:
    """The checkpoint of this run whose recorded weights equal the live ones; None where none or several do."""
    live = {c.component: c for c in state.capture(watched)}
    weights = live.get("weights")
    if weights is None or weights.digest is None:
        return None
    ledger = Ledger(w.ledger)
    found = []
    for node in graph.build(ledger.records).nodes.values():
        saved = next((c for c in node.checkpoint.live if c.component == "weights"), None)
        if saved is not None and saved.digest == weights.digest:
            found.append(node.checkpoint)
    if len({c.uid for c in found}) != 1:
        return None
    only = found[0]
    parent = Parent(only.path or "", run=w.ids.run, checkpoint=only, evidence="content")
    if only.path:
        try:
            parent.sidecar = sidecars.read(Path(only.path))
        except sidecars.SidecarError as e:
            parent.problem = str(e)
    return parent
