"""Resume fidelity: the state at the save against the live state before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .._rooms import schemas


def compare(
    checkpoint: str,
    saved: Sequence[schemas.ComponentDigest],
    live: Sequence[schemas.ComponentDigest],
    rank: int = 0,
) -> schemas.Restore:
    """Say for every component of a rank whether it was restored, differs, is absent, or cannot be told."""
    before = {c.component: c for c in saved}
    after = {c.component: c for c in live}
    names = [n for n in schemas.COMPONENTS if n in before or n in after]
    return schemas.Restore(
        checkpoint=checkpoint, components=[_one(n, before.get(n), after.get(n), rank) for n in names]
    )


def _one(
    name: str,
    saved: schemas.ComponentDigest | None,
    live: schemas.ComponentDigest | None,
    rank: int,
) -> schemas.ComponentRestore:
    title = schemas.catalogue().concept(name).title
    a, b = (saved.digest if saved else None), (live.digest if live else None)
    facts = "" if name == "rng" else _facts(saved, live)  # digests of generators tell a reader nothing
    if saved is None or a is None:
        why = (saved.note if saved and saved.note else "nothing was recorded at the save") + facts
        return schemas.ComponentRestore(
            component=name, status="not_recorded", live=b, text=f"{title} cannot be compared: {why}"
        )
    if live is None or b is None:
        why = live.note if live and live.note else "the live run holds none"
        status = "absent" if live is None else "not_recorded"
        return schemas.ComponentRestore(
            component=name,
            status=status,
            saved=a,
            text=f"{title} {'absent' if live is None else 'cannot be compared'}: {why}{facts}",
        )
    if name == "rng":
        return _generators(title, saved, live)
    if _empty(live) and not _empty(saved):
        return schemas.ComponentRestore(
            component=name, status="absent", saved=a, live=b, text=f"{title} not restored{facts}"
        )
    if a != b and rank and _given(live):
        return schemas.ComponentRestore(
            component=name,
            status="restored",
            saved=a,
            live=b,
            text=f"{title}: rank 0's are given to this rank before each forward pass (broadcast_buffers), so its own "
            "at the save count for nothing",
        )
    if a != b and (changed := _form(saved, live)):
        return schemas.ComponentRestore(
            component=name, status="differs", saved=a, live=b, text=f"{title} not as at the save ({changed})"
        )
    if _layout(saved) != _layout(live):
        return schemas.ComponentRestore(
            component=name,
            status="not_recorded",
            saved=a,
            live=b,
            text=f"{title} cannot be compared on this rank alone: its parts are cut otherwise than at the save",
        )
    if a == b:
        return schemas.ComponentRestore(
            component=name,
            status="restored",
            saved=a,
            live=b,
            text=f"{title} as at the save{facts}",
        )
    return schemas.ComponentRestore(
        component=name,
        status="differs",
        saved=a,
        live=b,
        text=f"{title} not as at the save{facts}{_kinds(saved, live)}",
    )


FORM = ("dtypes", "tied")
"""Facts of the tensors as such, which no sharding changes."""


def _form(saved: schemas.ComponentDigest, live: schemas.ComponentDigest) -> str:
    """In what form the tensors came back otherwise: another type, a tie that is gone or new; "" where in none."""
    said = []
    types = [side.detail["dtypes"].text() for side in (saved, live) if "dtypes" in side.detail]
    if len(types) == 2 and types[0] != types[1]:
        said.append(f"their type was changed by the load: {types[0]} -> {types[1]}")
    tied = [side.detail["tied"].text() if "tied" in side.detail else "" for side in (saved, live)]
    if (
        "dtypes" in saved.detail and tied[0] != tied[1]
    ):  # a save without types is of a version that saw no ties
        said.append(f"tied before: {tied[0] or 'none'}; tied now: {tied[1] or 'none'}")
    return "; ".join(said)


def _given(live: schemas.ComponentDigest) -> bool:
    """Whether rank 0 gives its own to the other ranks, see `state.capture`."""
    return "from_rank" in live.detail


def _kinds(saved: schemas.ComponentDigest, live: schemas.ComponentDigest) -> str:
    """Of which kind the buffers are that differ: lost because no file holds them, or statistics of a normalisation."""
    said = []
    for kind, words in KINDS.items():
        a, b = (side.detail.get(f"digest_{kind}") for side in (saved, live))
        if a is not None and b is not None and a != b:
            said.append(f"; {words.format(saved.detail[kind].text())}")
    return "".join(said)


KINDS = {
    "not_saved": "no state_dict holds {} (persistent=False)",
    "statistics": "the statistics of batch normalisation are others ({})",
}
"""Kinds of buffers that have a digest of their own, see `state_facts.kinds_of_buffers`."""


def _generators(
    title: str, saved: schemas.ComponentDigest, live: schemas.ComponentDigest
) -> schemas.ComponentRestore:
    """Compare generator by generator. One that was never drawn from before the save decides nothing."""
    unused = saved.detail.get("unused", schemas.Scalar.of("")).text().split(",")
    names = [n for n in saved.detail if n != "unused"]
    differing = [n for n in names if saved.detail[n] != live.detail.get(n)]
    decisive = [n for n in differing if n not in unused]
    status: Literal["restored", "differs"] = "differs" if decisive else "restored"
    if decisive:
        why = f": {live.note}" if live.note else ""
        text = f"{title} not as at the save ({', '.join(decisive)}){why}"
    else:
        aside = (
            f" ({', '.join(differing)} differs and was not drawn from before the save)" if differing else ""
        )
        text = f"{title} as at the save{aside}"
    return schemas.ComponentRestore(
        component="rng",
        status=status,
        saved=saved.digest,
        live=live.digest,
        text=text,
        parts={n: live.detail[n] for n in names if n in live.detail},
    )


def _facts(saved: schemas.ComponentDigest | None, live: schemas.ComponentDigest | None) -> str:
    """The readable details of both sides that differ, or the saved ones where all agree."""
    a, b = (saved.detail if saved else {}), (live.detail if live else {})
    differing = [
        f"{k} {a[k].text() if k in a else 'none'} -> {b[k].text() if k in b else 'none'}"
        for k in sorted({*a, *b} - UNREADABLE)
        if a.get(k) != b.get(k)
    ]
    return f" ({', '.join(differing)})" if differing else ""


UNREADABLE = {"layout", "from_rank", *FORM, *KINDS, *(f"digest_{kind}" for kind in KINDS)}
"""Facts that stand in words of their own."""


def _layout(side: schemas.ComponentDigest) -> str | None:
    """Which parts of its tensors a side holds; None where they are whole."""
    found = side.detail.get("layout")
    return None if found is None else found.text()


def _empty(side: schemas.ComponentDigest | None) -> bool:
    """Whether a side holds no tensor at all."""
    count = side.detail.get("tensors") if side else None
    return count is not None and count.plain() == 0


def at_load(
    saved: Sequence[schemas.ComponentDigest],
    loaded: Sequence[schemas.ComponentDigest],
    live: Sequence[schemas.ComponentDigest],
) -> list[schemas.ComponentDigest]:
    """Choose, for loader and random numbers, the moment at which they can be judged.

    Both move before the first step begins: the loop fetches its batch first. `loaded` was read right after
    the load, `live` at the first step. Where either equals the save, it was restored. Else the moment after
    the load decides, if the load was over by then (the weights are those of the first step); if not, nothing is shown.
    """
    old = {c.component: c.digest for c in saved}
    early = {c.component: c for c in loaded}
    weights = next((c.digest for c in live if c.component == "weights"), None)
    over = weights is not None and "weights" in early and early["weights"].digest == weights
    return [_moment(c, old, early, over) if c.component in MOVING else c for c in live]


MOVING = ("rng", "loader_position")
DRAWN = (
    "it was as at the save right after the load, and numbers were drawn from it before the first step (an iterator of "
    "a DataLoader draws one, seeding and augmentation draw more); whether the unbroken run drew them too is not known"
)


def _moment(
    c: schemas.ComponentDigest,
    old: dict[str, str | None],
    early: dict[str, schemas.ComponentDigest],
    over: bool,
) -> schemas.ComponentDigest:
    first = early.get(c.component)
    if c.digest is None or c.digest == old.get(c.component):
        return c  # where nothing has moved since the load
    if c.component == "rng" and first is not None and first.digest == old.get("rng"):
        return c.model_copy(update={"digest": None, "note": DRAWN})
    if first is not None and (over or first.digest == old.get(c.component)):
        return first
    note = (
        "it had moved on when it was read; call rec.resumed_from(path) after loading, before the first batch"
    )
    return c.model_copy(update={"digest": None, "note": note})
