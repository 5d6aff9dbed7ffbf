"""How a record reads in every tracker: one wording for all, so that pages agree."""

from __future__ import annotations

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
    if broken:
        since = "" if verdict.since_step is None else f" since step {verdict.since_step:,}"
        names = ", ".join(CLAIM_TITLES.get(c.claim, c.claim) for c in broken)
        return f"Broken{since}: {names}"
    missing = [c for c in verdict.claims if c.status == "not_shown"]
    if missing:
        return f"Nothing broken is known; {len(missing)} of {len(verdict.claims)} claims are not shown"
    caveats = [c for c in verdict.claims if c.status == "caveat"]
    if caveats:
        return f"Holds, with {len(caveats)} caveat{'s' if len(caveats) > 1 else ''}"
    return "Holds: no change since the reference alters what may be concluded"


def markdown(verdict: schemas.Verdict, *, limit: int = 6000) -> str:
    """Return the verdict as Markdown: headline, what changed, a table of claims, what to do next."""
    lines = [f"**{headline(verdict)}**", ""]
    links = {(k.concept, k.step): k for c in verdict.claims for k in c.chain}
    if links:
        lines += ["What changed:", ""]
        lines += [
            f"- step {k.step:,}: {k.text} ({'declared' if k.declared else 'undeclared'})"
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
