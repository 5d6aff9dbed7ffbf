"""What a reader of a tracker's page must know that the page itself does not say: rollbacks, branches, old config."""

from __future__ import annotations

from typing import Any

from .._rooms import schemas, trackers
from ..judge import branches, graph
from ..ledger.reader import Ledger
from .contain import log
from .delivery import key

NAMES = {"wandb": "W&B", "mlflow": "MLflow"}

ROLLED_BACK = {
    "wandb": "W&B drops rows logged with step= at or below {last:,} (it only prints a warning), so steps {first:,} to "
    "{last:,} of this branch are missing there, and the summary keeps the values of step {last:,} until a later one is "
    "logged; rows on an own step axis (define_metric) are kept, beside those of the abandoned branch",
    "mlflow": "MLflow keeps the abandoned branch's points: its latest values are those of step {last:,} until this "
    "branch passes it, and both branches overlay between steps {first:,} and {last:,}",
}
"""What a tracker's page does after a rollback, measured; by tracker."""

PASSED = (
    "this branch has passed step {last:,}: values logged since then are its own, and MLflow's latest ones"
)

REWOUND = (
    "W&B was rewound to its step {to:,}: rows after it, of the abandoned steps {first:,} to {last:,}, are no longer on "
    "this page. W&B keeps them in an archived run (Overview, 'Forked From'); the ledger has them too"
)

CONFIG_CHANGED = {
    "wandb": "W&B's config shows only the later value of {keys}; both stand in the config keys lineage/drift/*",
    "mlflow": "MLflow keeps the first value of {keys} and refuses the later one; the tags lineage/drift/* have both",
}
"""What a tracker's page makes of a config that changed on a resume; by tracker."""


def config_changed(writer: Any, drift: schemas.Drift) -> None:
    """The config differs from the first segment's: say which side the tracker's own page shows."""
    kind = writer.outbox.tracker.kind if writer.outbox is not None else ""
    keys = [k for c in [*drift.changes, *drift.unclassified] for k in c.keys]
    if keys and kind in CONFIG_CHANGED:
        names = ", ".join(keys[:6]) + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
        _note(writer, "LIN-D008", CONFIG_CHANGED[kind].format(keys=names))


def rolled_back(writer: Any, ledger: Ledger, checkpoint: schemas.Checkpoint) -> None:
    """Say what a rollback does to the page, and where the branches of the run stand. On the worker thread of rank 0."""
    if writer.outbox is None or writer.outbox.tracker.kind not in ROLLED_BACK:
        return
    tracker = writer.outbox.tracker
    g = graph.build(ledger.records, reached=ledger.reached)
    elsewhere = pages(ledger, tracker.alias())
    last = _made_again(g, writer.ids.segment, elsewhere, checkpoint.step)
    if last is not None:
        to = getattr(tracker, "taken_back_to", None)
        form = ROLLED_BACK[tracker.kind] if to is None else REWOUND
        _note(writer, "LIN-T001", form.format(first=checkpoint.step + 1, last=last, to=to))
    told = branches.words(g, writer.ids.run, elsewhere)
    if told:
        _note(writer, "LIN-T004", told)


def at_end(writer: Any) -> None:
    """Where the page's latest values were those of an abandoned branch: say if they no longer are."""
    if writer.outbox is None or writer.outbox.tracker.kind != "mlflow" or writer.step is None:
        return
    ledger = Ledger(writer.ledger)
    told = [r for r in ledger.of("tracker_note", writer.ids.segment) if r.payload.code == "LIN-T001"]
    if not told:
        return
    g = graph.build(ledger.records, reached=ledger.reached)
    info = g.segments.get(writer.ids.segment)
    from_step = (info.parent_step or 0) if info else 0
    last = _made_again(g, writer.ids.segment, pages(ledger, writer.outbox.tracker.alias()), from_step)
    if last is not None and g.last_step.get(writer.ids.segment, 0) > last:
        _note(writer, "LIN-T001", PASSED.format(last=last))


def pages(ledger: Ledger, *here: schemas.TrackerAlias) -> dict[str, str]:
    """Segment -> the name of its page in a tracker, for segments that are not on the page that `here` names."""
    out = {}
    names = set(map(key, here))
    for r in ledger.of("run"):
        aliases = r.payload.aliases
        if aliases and not names & set(map(key, aliases)):
            out[r.segment] = name(aliases[0])
    return out


def name(alias: schemas.TrackerAlias) -> str:
    """A page as a person finds it: the tracker and the run's id there, of an offline W&B run its folder."""
    kind = NAMES.get(alias.tracker, alias.tracker)
    where, _, folder = (alias.uri or "").partition(":")
    return f"{kind} {folder}" if where == "offline" else f"{kind} run {alias.id}"


def _made_again(g: graph.Graph, segment: str, elsewhere: dict[str, str], step: int) -> int | None:
    """The last step after `step` that an earlier segment on this page had made; None if there is none."""
    made = [
        last
        for uid, last in g.last_step.items()
        if uid != segment and uid not in elsewhere and uid in g.segments and last > step
    ]
    return max(made, default=None)


def _note(writer: Any, code: str, text: str) -> None:
    kind = writer.outbox.tracker.kind
    writer.write(schemas.TrackerNote(code=code, tracker=kind, text=text))


def tell_version(writer: Any, kind: str) -> None:
    """A tracker's client that the adapter was not tested on is said once; nothing is refused for it."""
    text = trackers.versions.said(kind)
    if text:
        writer.write(schemas.TrackerNote(code=trackers.versions.CODE, tracker=kind, text=text))
        log.warning("lineage: %s: %s", trackers.versions.CODE, text)
