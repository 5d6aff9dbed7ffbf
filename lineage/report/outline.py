"""The lineage tree in words: the same lines in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._rooms import schemas, trackers
from ..judge.tree import Fold, Item, Line, Part, Ref, Root, Tail, Turn
from . import words
from .blocks import Span, Style, Twig

STYLE: dict[str, Style] = {"holds": "good", "caveat": "warn", "not_shown": "quiet", "broken": "bad"}
MARKS: dict[str, tuple[str, Style]] = {
    "last_good": ("LAST GOOD", "good"),
    "first_bad": ("FIRST BAD", "bad"),
    "quarantined": ("QUARANTINED", "bad"),
    "quarantine_lifted": ("quarantine lifted", "warn"),
    "preserved": ("preserved", "good"),
    "held": ("held", "good"),
    "released": ("released", "quiet"),
    "deleted": ("deleted", "quiet"),
}
STATE = {
    "newest": "newest",
    "abandoned": "",
    "tip": "nothing goes on from it",
    "continued": "",
}
MOST_CAUSES = 4
MOST_NAMES = 4

Piece = str | Span

DOT = " \u00b7 "


def outline(roots: Sequence[Root], places: Mapping[str, str] | None = None) -> list[Twig]:
    """The twigs of a forest. `places` says where the ledger of each run lies."""
    writer = _Writer()
    out: list[Twig] = []
    for run in dict.fromkeys(r.run for r in roots):
        head: list[Piece] = [Span(f"run {run or '?'}", "strong")]
        if places and run is not None and run in places:
            head.append(Span(f"{DOT}{places[run]}", "quiet"))
        under = [t for r in roots if r.run == run for t in writer.line(r.line, above=None)]
        out.append(Twig(head, under))
    return out


class _Writer:
    def line(self, line: Line, *, above: Part | None) -> list[Twig]:
        """One twig per segment; the first of a nested line stands under the checkpoint that it came from."""
        return [self.part(p, above if i == 0 else None) for i, p in enumerate(line.parts)]

    def part(self, p: Part, above: Part | None) -> Twig:
        name = f"segment {p.number}" if p.number else "a segment whose record is lost"
        if above is not None and above.run != p.run:
            name = f"run {p.run}, {name}"
        text: list[Piece] = [Span(name, "strong"), f"{DOT}{p.start}"]
        if p.came is not None and above is None:
            text.append(f" from {self.ref(p.came, p.run)}")
        text.append(f", {_steps(p.first, p.last)}")
        if p.world_size is not None:
            text.append(f", {words.plural(p.world_size, 'rank')}")
        if p.regime is not None:
            text.append(f", regime {p.regime}")
        text += self.verdict(p.verdict)
        if STATE[p.state]:
            text += [DOT, Span(f"({STATE[p.state]})", "strong" if p.state == "newest" else "quiet")]
        if not p.held:
            text += [DOT, Span("known from a checkpoint's sidecar alone: its ledger is not at hand", "warn")]
        under: list[Twig] = [Twig([Span("first bad: ", "bad"), p.bad])] if p.bad else []
        return Twig(text, [*under, *(self.item(i, p) for i in p.items)])

    def item(self, item: Item | Fold | Turn | Tail, part: Part) -> Twig:
        match item:
            case Turn():
                causes = "; ".join(words.shorten(words.brief(b), 100) for b in item.because[:MOST_CAUSES])
                more = len(item.because) - MOST_CAUSES
                causes += f"; and {more} more" if more > 0 else ""
                begins = words.from_step(item.step, item.lower_bound)
                return Twig([Span(f"regime {item.regime} {begins}: ", "warn"), causes])
            case Tail():
                left = f"{_steps(item.after + 1, item.last)} left"
                return Twig([Span(f"abandoned after step {item.after:,}", "bad"), f": {left}"])
            case Fold():
                return Twig(self.fold(item, part))
            case Item():
                return Twig(
                    self.checkpoint(item, part), [t for b in item.under for t in self.line(b, above=part)]
                )

    def fold(self, f: Fold, part: Part) -> list[Piece]:
        text: list[Piece] = [
            f"... {words.plural(len(f.steps), 'checkpoint')}, steps {f.steps[0]:,} to {f.steps[-1]:,}"
        ]
        if f.same_as:
            text.append(f", the same states as of run {', '.join(f.same_as)}")
        if f.abandoned:
            text += [DOT, Span("abandoned", "quiet")]
        return [*text, *self.verdict(f.verdict, part)]

    def checkpoint(self, i: Item, part: Part) -> list[Piece]:
        text: list[Piece] = [f"step {i.step:,} ", Span(f"({words.short(i.uid)})", "quiet")]
        for mark in i.marks:
            word, style = MARKS.get(mark, (mark.replace("_", " "), "plain"))
            text += [DOT, Span(word, style)]
        if i.status == "pending" and part.world_size is None:
            text += [DOT, Span("known only from a restart", "quiet")]
        elif i.status != "complete":
            missing = f": {words.shorten(', '.join(i.missing), 80)}" if i.missing else ""
            text += [DOT, Span(f"{i.status}{missing}", "warn")]
        if i.abandoned:
            text += [DOT, Span("abandoned", "quiet")]
        if i.parents:
            made = i.transformation or "made by hand"
            text.append(f"{DOT}{made} of {_and([self.ref(p, part.run) for p in i.parents])}")
        elif i.transformation:
            text.append(f"{DOT}{i.transformation}")
        if i.goes_into:
            text.append(f"{DOT}goes into {_and([self.ref(r, part.run) for r in i.goes_into])}, shown there")
        if i.same_as:
            text.append(f"{DOT}the same state as {_and([self.ref(r, part.run) for r in i.same_as])}")
        return [*text, *self.verdict(i.verdict, part)]

    def ref(self, r: Ref, run: str | None) -> str:
        """A checkpoint that stands elsewhere."""
        if r.number == 0 and r.run is None:
            step = f"step {r.step:,} " if r.step is not None else "a checkpoint "
            return f"{step}({words.short(r.uid)}) of a ledger that is not shown here"
        of = f"segment {r.number}" if r.number else "a segment whose record is lost"
        other = f" of run {r.run}" if r.run != run else ""
        step = f"step {r.step:,} of " if r.step is not None else ""
        return f"{step}{of}{other}"

    def verdict(self, status: schemas.Status | None, part: Part | None = None) -> list[Piece]:
        """The mark of validity; left out where it is that of the whole segment."""
        if status is None or (part is not None and status == part.verdict):
            return []
        word = trackers.text.WORDS[status]
        return [DOT, Span(word.upper() if status == "broken" else word, STYLE[status])]


def _steps(first: int, last: int | None) -> str:
    if last is None:
        return f"from step {first:,} on"
    if last < first:
        return "no step"
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def _and(names: Sequence[str]) -> str:
    few = list(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        return f"{', '.join(few)} and {len(names) - MOST_NAMES} more"
    return " and ".join([", ".join(few[:-1]), few[-1]]) if len(few) > 1 else few[0]
