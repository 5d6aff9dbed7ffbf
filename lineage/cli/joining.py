"""Bringing ledgers together: those that were named, those that their checkpoints come from, and lone sidecars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._rooms import schemas
from ..judge import joined
from ..ledger import layout, reader, sidecars
from . import judging, naming
from .common import CliError, Exit, Subject, find

MOST = 50
"""Ledgers that are followed to the origin of a state."""


@dataclass(frozen=True)
class Lone:
    """A checkpoint of which only the folder is there: its ledger is not."""

    sidecar: schemas.Sidecar
    path: Path


Named = Subject | Lone


def named(name: str | None) -> Named:
    """Find what was named; a checkpoint whose ledger is gone is known by its sidecar. Raises `CliError`."""
    try:
        return find(name)
    except CliError as e:
        path = Path(name or "").expanduser()
        if e.code != Exit.CANNOT_TELL or not path.exists():
            raise
        sidecar = sidecars.read(path)
        if sidecar is None:
            raise
        return Lone(sidecar, path)


def world(what: Sequence[Named], more: Iterable[Path] = (), *, follow: bool = True) -> joined.World:
    """All that is known of what was named.

    With `follow` also the ledgers that its states come from, as far as they are there; `more` are folders of
    further ledgers to look in.
    """
    subjects: dict[Path, Subject] = {}
    for x in what:
        if isinstance(x, Subject):
            subjects.setdefault(x.ledger.path.resolve(), x)
    lone = [x for x in what if isinstance(x, Lone)]
    further = [*more, *(p.parent for p in subjects)]
    told: dict[str, Sequence[str]] = {}
    sought: set[str] = set()
    while follow and len(subjects) < MOST:
        unknown = _origins(subjects.values(), lone) - sought
        if not unknown:
            break
        sought |= unknown
        for uid in sorted(unknown):
            found = _ledger_of(uid, subjects, further)
            if found is not None:
                subjects[found.path.resolve()] = Subject(found)
            else:
                told |= _told_of(uid, subjects.values())
                sought -= {a for line in told.values() for a in line}
    return joined.join(
        [s.ledger.records for s in subjects.values()],
        sidecars=[(x.sidecar, str(sidecars.path_of(x.path))) for x in lone],
        ancestors=told,
        reached={uid: step for s in subjects.values() for uid, step in s.ledger.reached.items()},
        bad={uid: bad for s in subjects.values() for uid, bad in judging.first_bads(s).items()},
        damage=damage(subjects.values()),
    )


def damage(what: Iterable[Named]) -> list[str]:
    """What could not be read of the ledgers of what was named."""
    return [text for x in what if isinstance(x, Subject) for text in judging.damage(x)]


def branch(world: joined.World, x: Named) -> joined.Branch:
    """The state that was named, with its path. Raises `CliError` where its ledger holds no segment."""
    if isinstance(x, Lone):
        return joined.branch(world, checkpoint=x.sidecar.checkpoint.uid)
    if x.checkpoint is not None:
        return joined.branch(world, checkpoint=x.checkpoint)
    if not x.graph.segments:
        raise CliError(
            f"{x.ledger.path} holds no segment of training, so there is nothing to compare. Check its files: "
            f"lineage verify {x.ledger.path}",
            Exit.CANNOT_TELL,
        )
    return joined.branch(world, segment=x.tip)


def _origins(subjects: Iterable[Subject], lone: Iterable[Lone]) -> set[str]:
    """Checkpoints from which something starts, and which no ledger at hand holds."""
    known: set[str] = set()
    wanted: set[str] = set()
    for s in subjects:
        known |= set(s.graph.nodes)
        wanted |= {i.parent_checkpoint for i in s.graph.segments.values() if i.parent_checkpoint}
        wanted |= {p for n in s.graph.nodes.values() for p in n.checkpoint.parents}
    for x in lone:
        parent = x.sidecar.segment.parent_checkpoint
        wanted |= {*x.sidecar.ancestors, *([parent] if parent else [])}
    return wanted - known


def _ledger_of(uid: str, subjects: dict[Path, Subject], folders: Iterable[Path]) -> reader.Ledger | None:
    """The ledger that holds a checkpoint: beside those at hand, or in the folder of ledgers."""
    for path in naming.ledgers(folders):
        if path.resolve() in subjects or not naming.holds(path, uid):
            continue
        ledger = reader.Ledger(path)
        if uid in Subject(ledger).graph.nodes:
            return ledger
    return None


def _told_of(uid: str, subjects: Iterable[Subject]) -> dict[str, Sequence[str]]:
    """What sidecars tell of the ancestors of a checkpoint whose ledger is not there."""
    for s in subjects:
        for node in s.graph.nodes.values():
            path = Path(node.checkpoint.path) if node.checkpoint.path else None
            if path is None:
                continue
            try:
                sidecar = sidecars.read(path)
            except (sidecars.SidecarError, OSError):
                continue
            if sidecar is not None and uid in sidecar.ancestors:
                return joined.chain(sidecar.ancestors[sidecar.ancestors.index(uid) :])
    return {}


def is_ledger(path: Path) -> bool:
    """Whether a folder is a ledger or holds some."""
    return layout.is_ledger(path) or bool(reader.find(path))
