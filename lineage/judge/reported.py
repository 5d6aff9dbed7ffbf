"""Judging what others reported: does an entry of a logbook open a new regime?

Only the machine-readable fields of an entry decide: its run, step, date, concept, values and restart. Its prose
is never read: a logbook says what somebody believed. Rules are tried in order; the first that applies decides,
and its name stands in the judgement. `cannot_tell` is an answer: nothing is concluded from silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .._rooms import schemas
from . import reported_values as values
from .contradictions import contradictions, otherwise
from .reported_words import words
from .restarts import same_restart

Answer = Literal["yes", "no", "cannot_tell"]

_RANK: dict[Answer, int] = {"yes": 2, "cannot_tell": 1, "no": 0}


@dataclass(frozen=True)
class Case:
    """One entry under one of its words, with what the same run reported besides."""

    entry: schemas.Reported
    word: schemas.Word
    first: bool
    """nothing of this run is known to have run before it"""
    whole_known: bool = False
    """the whole that a part belongs to is on record in this run"""
    whole_changes: bool = False
    """... and is changed at the same restart"""

    @property
    def differs(self) -> bool:
        """Both values are given, and they are not the same."""
        before, after = self.entry.before, self.entry.after
        if self.word.concept == "data_mix" and values.same_mix(before, after):
            return False
        return values.stated(before) and not values.equal(before, after)

    @property
    def arrives(self) -> bool:
        """Only the new value is given."""
        return values.stated(self.entry.after) and not values.stated(self.entry.before)

    @property
    def silent(self) -> bool:
        """No value is given."""
        return not values.stated(self.entry.after) and not values.stated(self.entry.before)

    @property
    def arrow(self) -> str:
        """`1.0 -> 0.2`, as a person reads it."""
        return f"{_said(self.entry.before)} -> {_said(self.entry.after)}"

    @property
    def differing(self) -> str:
        """What differs: of two configs every key with its two values, else the two values."""
        return self.entry.difference or self.arrow


@dataclass(frozen=True)
class Ruling:
    """What a rule says of a case."""

    answer: Answer
    rule: str
    reason: str


def judge(entries: Sequence[schemas.Reported]) -> list[schemas.ReportedJudgement]:
    """Judge the entries of one run, in the order of their source; one judgement for each entry.

    Entries of different runs must be judged apart: what one run launched with is no change of another.
    """
    cases = [_cases(e, _nothing_ran(entries[:i], e), entries) for i, e in enumerate(entries)]
    rulings = [_worst([_rule(c) for c in of_entry]) for of_entry in cases]
    rulings = _with_companions(entries, cases, rulings)
    rulings = _with_machine(entries, rulings)
    changed = [e for e, r in zip(entries, rulings, strict=True) if r.answer == "yes"]
    return [
        _judgement(e, of_entry, r, [o.uid for o in changed if o.uid != e.uid and same_restart(e, o)])
        for e, of_entry, r in zip(entries, cases, rulings, strict=True)
    ]


def _cases(entry: schemas.Reported, first: bool, entries: Sequence[schemas.Reported]) -> list[Case]:
    out = []
    for word in words(entry.concept):
        case = Case(entry, replace(word, name=entry.concept), first)
        if word.nature == "part":
            wholes = [e for e in entries if any(w.concept == "global_batch" for w in words(e.concept))]
            with_it = [e for e in wholes if same_restart(e, entry)]
            case = replace(case, whole_known=bool(wholes), whole_changes=bool(with_it))
        out.append(case)
    return out


def _nothing_ran(earlier: Sequence[schemas.Reported], entry: schemas.Reported) -> bool:
    """Tell whether an entry may say what the run began with: the first, or one at step 0 before any progress."""
    if entry.cls is not None:
        return False  # the difference of two configs: there was one before
    if not earlier:
        return True
    at_zero = 0 in (entry.step, entry.restart_from)
    return at_zero and not any((e.step or 0) > 0 or (e.restart_from or 0) > 0 for e in earlier)


def _worst(rulings: Sequence[Ruling]) -> Ruling:
    return max(rulings, key=lambda r: _RANK[r.answer])


def _rule(case: Case) -> Ruling:
    for rule in (*_COMMON, *_BY_NATURE.get(case.word.nature, ()), _nothing_applies):
        found = rule(case)
        if found is not None:
            return found
    raise AssertionError("the last rule always applies")


def _compared(case: Case) -> Ruling | None:
    """What the comparison of two configs found: it knows the class of the difference."""
    cls, name = case.entry.cls, case.word.name
    if cls is None:
        return None
    if cls in ("R", "C"):
        return Ruling("yes", "config-changed", f"{name}: {case.differing}")
    if cls == "B" and case.word.nature == "topology":
        return _topology(case)
    if cls == "unclassified":
        return Ruling(
            "cannot_tell", "one-side-only" if case.entry.problems else "unknown-word", _unsaid(case)
        )
    if cls == "B":
        return _bitwise(case)
    return Ruling("no", "operation-only", f"{name}: {case.differing}; results do not depend on it")


def _unsaid(case: Case) -> str:
    told = [case.differing, *(case.entry.problems or ["what it does to results is not known"])]
    return f"{case.word.name}: {'; '.join(dict.fromkeys(told))}"


def _operations(case: Case) -> Ruling | None:
    if case.word.nature != "operations":
        return None
    if case.word.concept == "none":
        return Ruling("no", "observed-only", "something was observed and nothing was changed")
    why = "it concerns the operation of the job, not what it computes"
    return Ruling("no", "operation-only", f"{case.word.name}: {why}")


def _asked_not_held(case: Case) -> Ruling | None:
    found = values.asked_not_held(case.entry.before, case.entry.after)
    if found is None:
        return None
    asked, held = found
    if values.equal(schemas.Scalar.of(asked), schemas.Scalar.of(held)):
        return Ruling("no", "same-value", f"{case.word.name}: {asked} was asked for and was in effect")
    reason = f"{case.word.name}: {asked} was asked for and {held} was in effect, so the run was not what was believed"
    return Ruling("yes", "asked-not-in-effect", reason)


def _equal(case: Case) -> Ruling | None:
    e = case.entry
    if not (values.stated(e.before) and values.stated(e.after)) or case.differs:
        return None
    return Ruling("no", "same-value", f"{case.word.name} is the same before and after: {case.arrow}")


def _launch(case: Case) -> Ruling | None:
    e = case.entry
    at_start = e.restart_from in (0, None) and e.step in (0, None)
    if not (case.first and at_start and case.arrives):
        return None
    return Ruling("no", "first-setting", f"{_said(e.after)} is what the run began with")


def _lever(case: Case) -> Ruling | None:
    e, name = case.entry, case.word.name
    if values.for_evaluation(e.after):
        return Ruling("no", "evaluation-only", f"{name}: {case.arrow}; as stated, training does not use it")
    if case.differs:
        if values.is_course(e.before) and not values.is_course(e.after) and e.restart_from is None:
            return Ruling(
                "no", "course-of-schedule", f"{name}: the planned {_said(e.before)} came to its end"
            )
        return Ruling("yes", "value-changed", f"{name}: {case.arrow}")
    if case.arrives and (values.off(e.after) or values.plain_text(e.after) == "0"):
        return Ruling("no", "nothing-set", f"{name} is {_said(e.after)}, and no value before is stated")
    if case.arrives:
        return Ruling(
            "yes", "value-set", f"{name} was set to {_said(e.after)}; the value before is not stated"
        )
    return Ruling("yes", "named-without-values", f"{name} was changed; neither value is stated")


def _state(case: Case) -> Ruling | None:
    name = case.word.name
    if case.differs:
        return Ruling("yes", "state-changed", f"{name}: {case.arrow}")
    if case.arrives:
        return Ruling("yes", "state-changed", f"{name} became {_said(case.entry.after)}")
    return Ruling(
        "cannot_tell", "no-values", f"{name} is named and no value is given: nothing shows that it changed"
    )


def _course(case: Case) -> Ruling | None:
    name = case.word.name
    if values.changes_mode(case.entry.before, case.entry.after) and case.differs:
        return Ruling("yes", "value-changed", f"{name}: {case.arrow}; how it moves was chosen")
    if case.entry.restart_from is not None and (case.differs or case.arrives):
        return Ruling("yes", "set-at-restart", f"{name} was set at a restart: {case.arrow}")
    return Ruling("no", "moves-by-itself", f"{name} moves by itself, and nobody set it: {case.arrow}")


def _code(case: Case) -> Ruling | None:
    name = case.word.name
    if case.silent:
        return Ruling("cannot_tell", "no-values", f"{name} is named; what was changed in it is not stated")
    if values.only_operational(case.entry.before, case.entry.after):
        return Ruling("no", "operation-only", f"{name}: {case.arrow} concerns the operation of the job")
    reason = f"{name}: {case.arrow}; no replay shows that results stayed the same"
    return Ruling("yes", "code-changed", reason)


def _topology(case: Case) -> Ruling | None:
    name = case.word.name
    if case.differs:
        reason = (
            f"{name}: {case.differing}; who draws which sample, the random streams and the order of reduction follow "
            "the layout, and nothing on record shows that they were kept"
        )
        return Ruling("yes", "layout-changed", reason)
    return Ruling("cannot_tell", "no-values", f"{name} is named; the layout before and after is not stated")


def _hardware(case: Case) -> Ruling | None:
    e, name = case.entry, case.word.name
    old, new = values.accelerators(e.before), values.accelerators(e.after)
    if old and new and old != new:
        return Ruling(
            "yes", "other-accelerator", f"{name}: {case.arrow}; another model computes with other kernels"
        )
    counts = values.device_counts(e.before, name), values.device_counts(e.after, name)
    if all(counts) and counts[0] != counts[1]:
        return _topology(case)
    return Ruling("no", "same-hardware", f"{name}: machines of the same kind, as far as the entry says")


def _part(case: Case) -> Ruling | None:
    name = case.word.name
    if case.silent:
        return Ruling("cannot_tell", "no-values", f"{name} is named and no value is given")
    if case.whole_changes:
        return Ruling("yes", "whole-changed", f"{name}: {case.arrow}, and the global batch changes with it")
    if case.whole_known:
        reason = f"{name}: {case.arrow}; the global batch is on record and is not changed with it"
        return Ruling("no", "same-whole", reason)
    reason = f"{name}: {case.arrow}; whether the global batch stayed the same is not on record"
    return Ruling("cannot_tell", "whole-not-shown", reason)


def _bitwise(case: Case) -> Ruling | None:
    return Ruling(
        "no", "bitwise-only", f"{case.word.name}: {case.differing}; only the bits of results depend on it"
    )


def _branch(case: Case) -> Ruling | None:
    reason = (
        f"{case.word.name}: another starting point; whether data or settings differ from there is not stated"
    )
    return Ruling("cannot_tell", "branch-only", reason)


def _ambiguous(case: Case) -> Ruling | None:
    if values.only_operational(case.entry.before, case.entry.after):
        return Ruling(
            "no", "operation-only", f"{case.word.name}: {case.arrow} concerns the operation of the job"
        )
    reason = f"{case.word.name} is used for different things, and which is meant is not stated"
    return Ruling("cannot_tell", "ambiguous-word", reason)


def _nothing_applies(case: Case) -> Ruling:
    if case.silent:
        return Ruling(
            "cannot_tell", "unknown-word", f"{case.word.name} is not in the vocabulary, and has no values"
        )
    reason = f"{case.word.name} is not in the vocabulary, so what {case.arrow} does to results is not known"
    return Ruling("cannot_tell", "unknown-word", reason)


Rule = Callable[[Case], Ruling | None]

_COMMON: tuple[Rule, ...] = (_compared, _operations, _asked_not_held, _equal, _launch)
_BY_NATURE: dict[str, tuple[Rule, ...]] = {
    "lever": (_lever,),
    "state": (_state,),
    "course": (_course,),
    "code": (_code,),
    "topology": (_topology,),
    "hardware": (_hardware,),
    "part": (_part,),
    "branch": (_branch,),
    "bitwise": (_bitwise,),
    "ambiguous": (_ambiguous,),
}


def _with_companions(
    entries: Sequence[schemas.Reported], cases: Sequence[Sequence[Case]], rulings: Sequence[Ruling]
) -> list[Ruling]:
    """Let a branch that says nothing of itself take the answer of what else changed at the same restart.

    Only where the entry names the state it starts from: several rollbacks told in one sentence are no restart.
    """
    out = list(rulings)
    for i, (entry, ruling) in enumerate(zip(entries, rulings, strict=True)):
        if ruling.rule != "branch-only" or entry.restart_from is None:
            continue
        beside = [
            cases[j][0].word.name
            for j, other in enumerate(entries)
            if j != i and rulings[j].answer == "yes" and same_restart(entry, other)
        ]
        if beside:
            what = ", ".join(dict.fromkeys(beside))
            reason = f"{cases[i][0].word.name}: the branch runs on under other conditions ({what}, at the same restart)"
            out[i] = Ruling("yes", "changed-beside", reason)
    return out


def _with_machine(entries: Sequence[schemas.Reported], rulings: Sequence[Ruling]) -> list[Ruling]:
    """Let the machine's entry decide where a person's account of the same matter differs from it."""
    against = contradictions(entries)
    by_uid = {e.uid: r for e, r in zip(entries, rulings, strict=True)}
    out = []
    for entry, ruling in zip(entries, rulings, strict=True):
        if entry.uid not in against:
            out.append(ruling)
            continue
        machine = against[entry.uid][0]
        decided = by_uid[machine.uid]
        out.append(Ruling(decided.answer, "machine-stands", f"{otherwise(machine)}: {decided.reason}"))
    return out


def _judgement(
    entry: schemas.Reported, cases: Sequence[Case], ruling: Ruling, beside: list[str]
) -> schemas.ReportedJudgement:
    catalogue = schemas.catalogue()
    concepts = list(dict.fromkeys(c.word.concept for c in cases))
    known = [catalogue.concept(c) for c in concepts]
    effects: dict[str, schemas.Status] = {}
    if ruling.answer == "yes":
        effects = {claim: _effect(known, claim) for claim in catalogue.claims}
    return schemas.ReportedJudgement(
        reported=entry.uid,
        regime_change=ruling.answer,
        concepts=concepts,
        cls=known[0].cls,
        rule=ruling.rule,
        reason=ruling.reason,
        beside=beside if ruling.answer == "yes" else [],
        effects=effects,
    )


def _effect(concepts: Sequence[schemas.Concept], claim: str) -> schemas.Status:
    return max((c.effect(claim) for c in concepts), key=schemas.STATUS_ORDER.index)


def _said(value: schemas.Scalar | None) -> str:
    if value is None or value.type == "null":
        return "not stated"
    text = value.text()
    return text if len(text) <= 80 else text[:77] + "..."
