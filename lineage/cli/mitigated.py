"""What was declared of a run's mitigations, by whom and why, and from which step to which each is shown to act."""

from __future__ import annotations

from rich.markup import escape

from .._rooms import schemas
from .common import Subject, console, step_text

NONE = "Mitigations: none is on record. A change that is undeclared is nobody's, whatever was meant."


def tell(subject: Subject) -> None:
    """Print every declared mitigation with what is known of its effect, or that none is on record."""
    declared = subject.ledger.of("mitigation")
    if not declared:
        console.print(f"{NONE}\n")
        return
    console.print("[bold]Mitigations[/]")
    gone = {r.supersedes for r in subject.ledger.of("mitigation_effect")}
    for r in declared:
        m: schemas.Mitigation = r.payload
        effects = [
            e.payload
            for e in subject.ledger.of("mitigation_effect")
            if e.payload.mitigation == m.uid and e.id not in gone
        ]
        when = "before the first step" if not r.step else f"at step {step_text(r.step)}"
        console.print(f"  {escape(what(m))}, declared {when}")
        for line in [acts(e) for e in effects] or [
            "not shown to be in effect: nothing is on record of its effect"
        ]:
            console.print(f"    {escape(line)}")
        who = m.who or "nobody is named"
        more = f"; expected: {m.hypothesis}" if m.hypothesis else ""
        console.print(f"    [dim]{escape(f'{who}: {m.why}{more}')}[/]")
    console.print()


def what(m: schemas.Mitigation) -> str:
    """`gradient clipping 1 -> 0.5`, as it was declared."""
    known = schemas.catalogue().concepts.get(m.concept)
    sides = [v.text() if v is not None else "not stated" for v in (m.before, m.after)]
    return f"{known.title if known else m.concept} {' -> '.join(sides)}"


def acts(e: schemas.MitigationEffect) -> str:
    """From which step to which it is in effect, or that it is not, or that nothing shows it."""
    if e.in_effect == "yes":
        start = (
            "from a step that is not on record"
            if e.from_step is None
            else f"from step {step_text(e.from_step)}"
        )
        end = ", and no end is on record" if e.to_step is None else f" to step {step_text(e.to_step)}"
        return f"in effect {start}{end}: {e.text}"
    return f"{'not in effect' if e.in_effect == 'no' else 'not shown to be in effect'}: {e.text}"
