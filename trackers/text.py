"""How a record reads in every tracker: one wording for all, so that pages agree."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

from ._rooms import schemas

CLAIM_TITLES = {c.id: c.title for c in schemas.catalogue().claims.values()}

WORDS = {
    "holds": "holds",
    "caveat": "holds with a caveat",
    "not_shown": "not shown",
    "broken": "broken",
}


def headline(verdict: schemas.Verdict) -> str:
    """Return the one line that comes first: flagged or not, since when, for what."""
    broken = [c for c in verdict.claims if c.status == "broken"]
    names = ", ".join(CLAIM_TITLES.get(c.claim, c.claim) for c in broken)
    if verdict.status == "broken":
        since = "" if verdict.since_step is None else f" since step {verdict.since_step:,}"
        return f"Broken{since}: {names}"
    aside = f"; broken all the same: {names}" if broken else ""
    return _not_broken(verdict) + aside


def _not_broken(verdict: schemas.Verdict) -> str:
    """The words for a run that is not flagged. Counts are of the claims that could flag it."""
    flagging = schemas.catalogue().flagging
    statuses = [c.status for c in verdict.claims if c.claim in flagging]
    missing, caveats = statuses.count("not_shown"), statuses.count("caveat")
    if missing:
        return f"Nothing broken is known; {missing} of {len(statuses)} claims are not shown"
    if caveats:
        return f"Holds, with {caveats} caveat{'s' if caveats > 1 else ''}"
    return "Holds: no change since the reference alters what may be concluded"


def advice(verdict: schemas.Verdict) -> str:
    """Return what a reader does next, with its command, as one line of Markdown."""
    kind, _, uid = verdict.subject.partition(":")
    run = f" {uid}" if kind == "run" else ""
    if verdict.status == "broken":
        broken = [c for c in verdict.claims if c.status == "broken"]
        abnormal = any(k.code.startswith("LIN-A") for c in broken for k in c.chain)
        see = (
            f"`lineage first-bad{run}` (where it began)"
            if abnormal
            else f"`lineage diff{run}` (what changed)"
        )
        since = verdict.since_step
        before = "" if since is None else f" of before step {since:,}"
        return (
            f"{see}; then resume from a good checkpoint{before} with everything restored, or report this branch as "
            "a regime of its own. Until then do not use the broken claims"
        )
    if verdict.status == "not_shown":
        shows = sorted({c.show for c in verdict.claims if c.show})
        line = f". The line that would show it: `{shows[0]}`" if shows else ""
        return f"do not rely on the claims that are not shown: `lineage verdict{run}`{line}"
    if verdict.status == "caveat":
        return f"name the caveats wherever results are used: `lineage verdict{run}`"
    return f"nothing needs doing. Whether the record is whole: `lineage verify{run}`"


_ALSO = " | "


SYMPTOMS = {
    "global": "on all ranks",
    "one_rank": "on one rank",
    "some_ranks": "on some ranks",
    "one_tensor": "in one tensor or layer",
    "after_restart": "soon after a restart",
    "evaluation_only": "in evaluation only",
}
"""Class of a symptom -> its words; `unknown` is left out of a line."""


def symptoms(found: schemas.FirstBad) -> str:
    """The classes that a first bad cell belongs to, as one piece of a line; empty where none is known."""
    return ", ".join(SYMPTOMS[s.cls] for s in found.symptoms if s.cls in SYMPTOMS)


def first_bad(found: schemas.FirstBad) -> str:
    """A first bad cell with its class and what to check next, as Markdown."""
    cell = found.cell
    if cell is None:
        return "# First bad cell\n\nNone: no abnormal value is in the ledger.\n"
    of = f", tensor {cell.tensor}" if cell.tensor else f", layer {cell.layer}" if cell.layer else ""
    lines = [f"# First bad: rank {cell.rank}, step {cell.step:,}{of}", "", f"{cell.text}.", ""]
    if found.last_good_step is not None:
        lines += [f"Last good step: {found.last_good_step:,}.", ""]
    for s in found.symptoms:
        lines += [
            f"## Seen {SYMPTOMS.get(s.cls, 'where: not known')}",
            "",
            f"{'. '.join([s.reason, *s.evidence])}.",
            "",
        ]
        lines += [*(f"- Check next: {c.text} ({c.source})." for c in s.checks), ""]
    for title, told in (
        ("How it spread", found.spread),
        ("Later, not the beginning", found.later),
        ("Not shown", [*found.not_shown, *found.gaps]),
    ):
        if told:
            lines += [f"## {title}", "", *(f"- {t}." for t in told), ""]
    return "\n".join(lines)


def _declared(link: schemas.ChainLink) -> str:
    """Whether a change was declared; an abnormal value is nobody's to declare."""
    return "" if link.code.startswith("LIN-A") else " (declared)" if link.declared else " (undeclared)"


def markdown(verdict: schemas.Verdict, *, limit: int = 6000) -> str:
    """Return the verdict as Markdown: headline, what to do next, what changed, a table of claims."""
    lines = [f"**{headline(verdict)}**", "", f"Next: {advice(verdict)}.", ""]
    links = {(k.concept, k.step): k for c in verdict.claims for k in c.chain}
    if links:
        lines += ["What changed:", ""]
        lines += [
            f"- step {k.step:,}: {k.text}{_declared(k)}"
            for k in sorted(links.values(), key=lambda k: (k.step, k.concept))
        ]
        lines.append("")
    if verdict.confounded:
        lines += [
            "Several changes came at one restart: **confounded**. No effect can be traced to one of them.",
            "",
        ]
    lines += ["| claim | verdict | why |", "|---|---|---|"]
    for c in verdict.claims:
        why = c.reason.replace("|", "\\|")
        word = f"**{WORDS[c.status]}**" if c.status == "broken" else WORDS[c.status]
        lines.append(f"| {CLAIM_TITLES.get(c.claim, c.claim)} | {word} | {why} |")
    shows = sorted({c.show for c in verdict.claims if c.show})
    if shows:
        lines += ["", "To show what is not shown: " + "; ".join(f"`{s}`" for s in shows)]
    lines += ["", f"Reference: {verdict.reference}. Details: `lineage verdict`."]
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    return text[: limit - 60].rsplit("\n", 1)[0] + "\n\n(shortened; the whole text: `lineage verdict`)"


RESUMED_BAD = "LIN-C006"
"""The finding that a segment resumed from a quarantined checkpoint."""
_RESUMED, _QUARANTINED = "**Resumed from a quarantined checkpoint**: ", "**Quarantined**: "
_LONGEST_WARNING = 1500


def warnings(resumed: str, held: str, lifted: Collection[str]) -> list[str]:
    """Return what stands below a verdict's headline about quarantine, as paragraphs of Markdown.

    Args:
        resumed: the finding of a resume from a quarantined checkpoint, as `finding` says it; empty where there is none.
        held: the line of `quarantined`; empty where nothing was ever quarantined.
        lifted: the checkpoints whose quarantine was taken back.
    """
    out = []
    if resumed and not any(uid in resumed.partition(". Next: ")[0] for uid in lifted):
        said = resumed.removeprefix("fault: resume: ")
        more = "… (the whole text is in the ledger: lineage check)"
        out.append(_RESUMED + (said if len(said) <= _LONGEST_WARNING else said[:_LONGEST_WARNING] + more))
    if held and not held.startswith("none"):
        out.append(f"{_QUARANTINED}{held}.")
    return out


def warned(markdown: str, given: Sequence[str]) -> str:
    """Return a verdict's Markdown with these warnings below its headline, in place of those that were there."""
    parts = [p for p in markdown.split("\n\n") if p and not p.startswith((_RESUMED, _QUARANTINED))]
    return "\n\n".join([*parts[:1], *given, *parts[1:]])


def advised(given: Sequence[str], by_verdict: str) -> str:
    """Return what to do next in plain words: by a resume from a quarantined checkpoint first, then by the verdict."""
    resumed = next((w for w in given if w.startswith(_RESUMED)), "")
    remedy = resumed.rpartition(". Next: ")[2].partition(";")[0].replace("a checkpoint from before it: ", "")
    first = f"its parent is quarantined: {remedy}" if remedy else ""
    return _ALSO.join(part.replace("`", "") for part in (first, by_verdict) if part)


def by_verdict(advised: str) -> str:
    """Return the verdict's part of what `advised` returned."""
    return advised.rpartition(_ALSO)[2]


_CLASS = re.compile(r"[A-Za-z_]\w*(?=: |:?$)")


def exception_class(error: str) -> str | None:
    """Return the class at the beginning of `Class: message`, as records keep an exception; None without one."""
    found = _CLASS.match(error)
    return found[0] if found else None


def without_message(error: str) -> str:
    """Return what a tracker shows of an exception: its class, and where its own words are.

    An exception's message may quote anything that training held: data, paths, a prompt. It is masked, and
    still it is nobody's to publish, so it stays in the ledger unless `share=["text"]` was asked for.
    """
    found = exception_class(error)
    return f"{found + ', ' if found else ''}its own words are in the ledger"


def finding(record: schemas.Envelope | schemas.Record) -> tuple[str, str]:
    """Return a finding's name on a page, `finding/<code>`, and the finding in words.

    Codes of logged series (`LIN-S...`) may be found of several: there the key of the series follows.
    """
    f: schemas.Finding = record.payload  # type: ignore[assignment]
    names = ", ".join(f.names[:5]) + (", ..." if len(f.names) > 5 else "")
    at = "" if record.step is None else f" (seen after step {record.step:,} on rank {record.rank})"
    said = f"{f.severity}: {f.subject}: {f.text}{f': {names}' if names else ''}{at}"
    where = f"/{_short(f.subject)}" if f.code.startswith("LIN-S") else ""
    return f"finding/{f.code}{where}", f"{said}. Next: {f.remedy}" if f.remedy else said


def _short(name: str, longest: int = 80) -> str:
    """A name that fits; a longer one ends in its digest, so that two that begin alike stay two."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def mark(m: schemas.CheckpointMark, page_shares: frozenset[str]) -> str:
    """Return a mark's reason as a page may show it: a person's words stay in the ledger unless text is shared."""
    return m.why if m.by == "layer" or "text" in page_shares else "the reason is in the ledger: lineage show"


def quarantined(steps: Mapping[str, int | None], lifted: Collection[str]) -> str:
    """Return the line that says which checkpoints are not to be resumed from.

    Args:
        steps: checkpoint -> its step, if it is known, of all that were ever quarantined.
        lifted: those of which it was taken back.
    """
    held = {uid: step for uid, step in steps.items() if uid not in lifted}
    if not held:
        return "none: each quarantine was taken back"
    known = sorted(step for step in held.values() if step is not None)
    names = [f"step {step:,}" for step in known] + [uid for uid, step in held.items() if step is None]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"do not resume from the checkpoints of {', '.join(names[:12])}{more}"


def degraded(record: schemas.Envelope | schemas.Record, *, message: bool = False) -> str:
    """Return what failed inside the layer, what follows and what to do; `message`: the exception's text too."""
    d: schemas.Degraded = record.payload  # type: ignore[assignment]
    found = exception_class(d.error)
    lines = [f"{d.code}: {d.part}{f' failed with {found}' if found else ''}: {d.consequence}"]
    if d.remedy:
        lines.append(f"Next: {d.remedy}")
    if d.error:
        own = f"The error's own words are in the ledger: lineage report {record.run}"
        lines.append(d.error if message else own)
    return ". ".join(line.rstrip(".") for line in lines)


def anchor_place(place: str, alias: schemas.TrackerAlias) -> str:
    """Return where an anchor can be read: the place on the page, and the server or store that has the page."""
    return f"{place} of {alias.uri}" if alias.uri else place
