"""`lineage compare`: may two checkpoints or runs be compared, for which claims, and what decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .._rooms import schemas
from ..judge import columns, pairs, validity
from ..judge.joined import Branch, World
from . import joining
from .common import STYLE, CliError, Json, console, emit, ending, short, step_text, table
from .joining import Lone, Named
from .verdict import code

NAME = "compare"

WORDS: dict[str, str] = {
    "holds": "comparable",
    "caveat": "with a caveat",
    "not_shown": "not shown",
    "broken": "NOT COMPARABLE",
}
LONGEST = 60
MOST_NAMES = 4

What = Annotated[
    str,
    typer.Argument(
        help="A run (ledger folder, id or name; run:2 for its segment 2) or a checkpoint (folder, file, uid or its "
        "beginning or end, run@step).",
        show_default=False,
    ),
]


def command(
    a: What,
    b: What,
    claim: Annotated[
        list[str] | None,
        typer.Option(help="Ask for this claim alone; may be repeated. " + ", ".join(schemas.CLAIMS) + "."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every row, also the folded ones.")] = False,
    ledger: Annotated[
        list[Path] | None,
        typer.Option(help="A further folder of ledgers to look for common ancestors in; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether A and B may be compared, for which claims, and which difference decides it.

    What both share counts for neither: they are compared from their last common state on, found by uid or by
    content, also in other ledgers; where there is none, from their starts.
    """
    asked = _claims(claim)
    for folder in ledger or ():
        if not joining.is_ledger(folder):
            raise CliError(
                f"{folder} is no ledger and holds none; --ledger takes a ledger or a folder of ledgers"
            )
    one, two = joining.named(a), joining.named(b)
    world = joining.world([one, two], ledger or ())
    found = pairs.compare(world, joining.branch(world, one), joining.branch(world, two))
    found = _only(found, asked)
    rows = columns.rows(found.a, found.b, pairs.difference(found.a, found.b))
    if as_json:
        emit(_data(world, found, rows))
    else:
        _show(world, (one, two), found, rows, every=every)
    raise ending(code(found.verdict), world.damage, as_json=as_json)


def _claims(names: Sequence[str] | None) -> list[str]:
    unknown = [n for n in names or () if n not in schemas.CLAIMS]
    if unknown:
        raise CliError(f"--claim takes {', '.join(schemas.CLAIMS)}; not {', '.join(unknown)}")
    return list(names or schemas.CLAIMS)


def _only(found: pairs.Comparison, claims: Sequence[str]) -> pairs.Comparison:
    """The comparison for some claims alone: status, changes and gaps that do not bear on them are left out."""
    kept = [c for c in found.verdict.claims if c.claim in claims]
    links = {(k.step, k.concept, k.text) for c in kept for k in c.chain}
    broken = [k.step for c in kept for k in c.chain if k.effect == "broken"]
    verdict = found.verdict.model_copy(
        update={
            "claims": kept,
            "status": max((c.status for c in kept), key=schemas.STATUS_ORDER.index),
            "since_step": min(broken, default=None),
        }
    )
    left = [
        d for d in (*found.decisive, *found.beside) if (d.link.step, d.link.concept, d.link.text) in links
    ]
    decisive, beside = pairs.deciding(left, kept)
    return replace(
        found,
        verdict=verdict,
        decisive=decisive,
        beside=beside,
        missing={c: m for c, m in found.missing.items() if c in claims},
    )


def _data(world: World, found: pairs.Comparison, rows: Sequence[columns.Row]) -> dict[str, Any]:
    """Everything, for a program: each change with the records it rests on, by file and line."""
    places = {r.id: f"{r.run}/journal/{r.file}:{r.line}" if r.raw else r.file for r in world.records}
    return {
        "a": _side(world, found.branches[0]),
        "b": _side(world, found.branches[1]),
        "ancestor": asdict(found.ancestor) if found.ancestor else None,
        "verdict": found.verdict,
        "comparable": {c.claim: WORDS[c.status] for c in found.verdict.claims},
        "decisive": [_difference(d, places) for d in found.decisive],
        "beside": [_difference(d, places) for d in found.beside],
        "alike": [{"a": m.a, "b": m.b} for m in found.alike],
        "missing": {c: [asdict(m) for m in ms] for c, ms in found.missing.items()},
        "rows": [asdict(r) for r in rows],
        "folded": dict(columns.folded(rows)),
    }


def _difference(d: pairs.Decisive, places: Mapping[str, str]) -> dict[str, Any]:
    sources = [places[r] for r in d.link.records if r in places]
    return {"side": d.side, **d.link.model_dump(), "sources": sources}


def _side(world: World, branch: Branch) -> dict[str, Any]:
    graph = world.graph
    node = graph.nodes.get(branch.checkpoint or "")
    return {
        "run": graph.runs.get(branch.segment),
        "segment": branch.segment,
        "number": graph.number(branch.segment),
        "checkpoint": branch.checkpoint,
        "step": node.checkpoint.step if node else graph.last_step.get(branch.segment),
        "path": branch.path,
    }


def _show(
    world: World,
    names: tuple[Named, Named],
    found: pairs.Comparison,
    rows: Sequence[columns.Row],
    *,
    every: bool,
) -> None:
    for letter, branch, name in zip("AB", found.branches, names, strict=True):
        console.print(f"[bold]{letter}[/]  {escape(describe(world, branch))}  [dim]{escape(_place(name))}[/]")
    console.print(escape(_ancestor(world, found)))
    console.print(f"\n{_headline(found.verdict)}\n")
    console.print(_claim_table(found))
    _decisive(found)
    _missing(found)
    two_columns(rows, every=every)


def describe(world: World, branch: Branch) -> str:
    """A state in words: its step, where it stands, and how to name it."""
    graph = world.graph
    node = graph.nodes.get(branch.checkpoint or "")
    number = f"segment {graph.number(branch.segment)}"
    run = f"run {graph.runs.get(branch.segment, '?')}"
    if node is not None:
        return f"step {node.checkpoint.step:,} of {run}, {number} (checkpoint {short(node.uid)})"
    last = graph.last_step.get(branch.segment, 0)
    return f"{run}, {number}, as it stands at step {last:,}"


def _place(name: Named) -> str:
    if isinstance(name, Lone):
        return f"{name.path} (its ledger is not at hand)"
    return str(name.ledger.path)


def _ancestor(world: World, found: pairs.Comparison) -> str:
    a = found.ancestor
    if a is None:
        return "No common ancestor is on record: they are compared from their starts."
    where = f"step {a.step:,} of run {world.graph.runs.get(a.segment, '?')}"
    if a.checkpoint:
        where += f" (checkpoint {short(a.checkpoint)})"
    if a.by == "content":
        twin = f"run {world.graph.runs.get(a.twin_segment or '', '?')} (checkpoint {short(a.twin)})"
        return (
            f"Last common state: {where}, equal digest by digest to {twin}. What led to it decides nothing."
        )
    told = ", as a sidecar tells" if a.by == "sidecar" else ""
    return f"Common ancestor: {where}{told}. What lies before it is shared, and decides nothing."


def _headline(verdict: schemas.Verdict) -> str:
    total = len(verdict.claims)
    parts: list[str] = []
    for s in reversed(schemas.STATUS_ORDER):
        n = sum(c.status == s for c in verdict.claims)
        if n:
            which = ("the claim" if total == 1 else "all claims") if n == total else f"{n} of {total} claims"
            since = f", from step {step_text(verdict.since_step)}" if s == "broken" else ""
            parts.append(f"[{STYLE[s]}]{WORDS[s]}[/] for {which if not parts else n}{since}")
    return "; ".join(parts)


def _claim_table(found: pairs.Comparison) -> Any:
    rows = table("claim", "A and B", "decided by")
    for c in found.verdict.claims:
        title = schemas.catalogue().claims[c.claim].title
        rows.add_row(title, f"[{STYLE[c.status]}]{WORDS[c.status]}[/]", escape(_why(found, c)))
    return rows


def _why(found: pairs.Comparison, c: schemas.ClaimVerdict) -> str:
    """The deciding concepts by side and step; the whole texts stand below the table."""
    sides: dict[str, list[pairs.Decisive]] = {}
    texts = {(k.step, k.concept, k.text) for k in c.chain if k.effect == c.status}
    for d in found.decisive:
        if (d.link.step, d.link.concept, d.link.text) in texts and c.status in ("broken", "caveat"):
            sides.setdefault(d.side, []).append(d)
    if sides:
        return "; ".join(_of_side(side, ds) for side, ds in sides.items())
    if c.status == "not_shown":
        names = dict.fromkeys(f"{_title(m.concept)}{_of(m.side)}" for m in found.missing[c.claim])
        few = list(names)[:3]
        return f"missing: {', '.join(few)}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if c.reason == pairs.SAME:
        return c.reason
    aside = " (no evaluation of both is on record)" if "no evaluator's result" in c.reason else ""
    return "nothing that bears on it differs" + aside


def _of_side(side: str, found: Sequence[pairs.Decisive]) -> str:
    """The concepts that decide on one side, and the step from which."""
    names = []
    for d in found:
        concept = schemas.catalogue().concept(d.link.concept)
        names.append(d.link.text if concept.id == "unclassified" else concept.title)
    few = list(dict.fromkeys(names))
    more = f" and {len(few) - MOST_NAMES} more" if len(few) > MOST_NAMES else ""
    return f"{_where(side, found[0].link.step)}: {', '.join(few[:MOST_NAMES])}{more}".replace(
        " at step", " from step" if len({d.link.step for d in found}) > 1 else " at step"
    )


def _where(side: str, step: int) -> str:
    return f"{'A, B' if side == 'between' else side.upper()} at step {step:,}"


def _of(side: str) -> str:
    return "" if side == "between" else f" ({side.upper()})"


def _title(concept: str) -> str:
    return {"parent": "parent checkpoint", "ledger": "a ledger", "damage": "damaged records"}.get(
        concept, validity.title(concept)
    )


def _decisive(found: pairs.Comparison) -> None:
    if found.decisive:
        console.print("\n[bold]What decides[/]")
        rows = _grid()
        seen: set[tuple[str, str]] = set()
        last = ""
        for d in found.decisive:
            k = d.link
            where = _where(d.side, k.step)
            if (where, k.text) in seen:
                continue
            seen.add((where, k.text))
            how = "alarm" if k.code.startswith("LIN-A") else "declared" if k.declared else "undeclared"
            known = [how] if d.side != "between" else []
            known += [short(k.records[0])] if k.records else []
            mark = f"[{STYLE[k.effect]}]{where}[/]" if where != last else ""
            rows.add_row(mark, escape(k.text), f"[dim]{', '.join(known)}[/]")
            last = where
        console.print(rows)
    _beside(found)
    if found.verdict.confounded:
        console.print(
            "  [bold]confounded[/]: several differences at one place; no effect can be traced to one"
        )
    if found.alike:
        console.print("\n[bold]Changed alike on both sides, so it decides nothing[/]")
        rows = _grid()
        for m in found.alike:
            rows.add_row(f"at step {m.a.step:,}", escape(m.a.text), "")
        console.print(rows)


def _beside(found: pairs.Comparison) -> None:
    """What differs and decides nothing: known things in one line, keys that no concept is known for one by one."""
    unknown = [d for d in found.beside if d.link.concept == "unclassified"]
    if unknown:
        console.print("\n[bold]Cannot tell what these keys do to results[/]")
        rows = _grid()
        for text in dict.fromkeys((_where(d.side, d.link.step), d.link.text) for d in unknown):
            rows.add_row(text[0], escape(text[1]), "")
        console.print(rows)
    known = dict.fromkeys(
        f"{validity.title(d.link.concept)}{_of(d.side)}" for d in found.beside if d not in unknown
    )
    if known:
        console.print(f"\n[dim]differs too, and decides nothing: {escape(', '.join(known))}[/]")


def _grid() -> Table:
    """Columns without lines; the first is indented, and only the second one wraps."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold", ratio=1)
    rows.add_column(overflow="fold", max_width=24)
    return rows


def _missing(found: pairs.Comparison) -> None:
    """Each gap once, those of one reason together, with the lines that would close them."""
    gaps: dict[str, dict[str, list[str]]] = {}
    shows: dict[str, None] = {}
    for missing in found.missing.values():
        for m in missing:
            sides = gaps.setdefault(m.why, {}).setdefault(_title(m.concept), [])
            sides += [m.side.upper()] if m.side.upper() not in sides else []
            shows |= {m.show: None} if m.show else {}
    if not gaps:
        return
    console.print("\n[bold]Evidence that is missing[/]")
    rows = _grid()
    for why, concepts in gaps.items():
        by_side: dict[str, list[str]] = {}
        for name, sides in concepts.items():
            by_side.setdefault(" and ".join("between" if s == "BETWEEN" else s for s in sides), []).append(
                name
            )
        for side, names in by_side.items():
            rows.add_row(
                "" if side == "between" else side, f"{escape(', '.join(names))} [dim]({escape(why)})[/]", ""
            )
    console.print(rows)
    for line in shows:
        console.print(f"would show it: [bold]{escape(line)}[/]")


def two_columns(rows: Sequence[columns.Row], *, every: bool = False) -> None:
    """Print what A and B each asked for and what was in effect, noise folded to one counted line."""
    shown = [r for r in rows if every or r.kind in columns.SHOWN]
    aside = ""
    if not rows:
        aside = ": not shown: no config and no live value is on record"
    elif not shown:
        aside = ": none that bears on results differs"
    console.print(f"\n[bold]Conditions at A and at B[/]{aside}")
    if shown:
        out = table("", "A requested", "A in effect", "B requested", "B in effect")
        kind: str = "differs"
        for r in shown:
            if r.kind != kind and r.kind in columns.FOLDED:
                out.add_section()
                out.add_row(f"[bold]{columns.FOLDED[r.kind]}[/]", "", "", "", "")
                kind = r.kind
            note = f" [yellow]({escape(r.note)})[/]" if r.note and r.kind in columns.SHOWN else ""
            cells = (r.a_requested, r.a_effective, r.b_requested, r.b_effective)
            out.add_row(escape(r.title) + note, *(escape(_cell(c)) for c in cells))
        console.print(out)
    counted = columns.folded(rows)
    if counted and not every:
        console.print(
            "folded: " + ", ".join(f"{n} {columns.FOLDED[k]}" for k, n in counted) + " [dim](--all)[/]"
        )


def _cell(text: str | None) -> str:
    if text is None:
        return "-"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
