"""Make docs/suspects-confusion.md: `python -m tests.suspects_injected.table --seeds 0-3 --write`."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from lineage.judge.suspects import FAMILIES

from . import runs
from .judged import Judged, judge
from .runs import KINDS, LESS

PAGE = Path(__file__).parents[2] / "docs" / "suspects-confusion.md"
TITLES: dict[str, str] = {f.id: f.title for f in FAMILIES}
HEAD = """# How faults of a known kind are ranked

Made by `python -m tests.suspects_injected.table --seeds {asked} --write`. Twelve faults, two of each family, were put
into small language models on three real ranks (gloo, `DistributedDataParallel`), rank, step and tensor drawn at
random, {n} runs of each; then `lineage suspects` was asked. The rules were written with such faults in mind and looked
at while seeds 0 and 1 ran, so this shows that they work, and not how they do on faults that nobody thought of.
Everything that the layer can record was recorded, at each step.

**First** is alone at the first place; **tie** is there with others; **below** is behind a family that has evidence too.
Behind one that has none must never be, and is counted apart. Where a fault moved nothing out of its range there is **no
bad cell**, and nothing is suspected. These runs read the doubled shard for 20 steps, too short for two of three
to be found; since then it is read for 28, and the table was not made again.
"""


def page(found: Sequence[Judged], asked: str) -> str:
    """The page, in Markdown."""
    n = len({j.seed for j in found})
    full = [j for j in found if j.less is None]
    less = [j for j in found if j.less is not None]
    return "\n".join(
        [
            HEAD.format(asked=asked, n=n),
            *_faults(full),
            "",
            *_sums(full),
            "",
            "## True family against the one that stands first",
            "",
            *_confusion(full),
            "",
            "## The same faults with less on record",
            "",
            "What tells them apart is switched off. The answer must then name what is missing, and `unknown` is one.",
            "",
            *_less(less),
            "",
        ]
    )


def _faults(found: Sequence[Judged]) -> Iterator[str]:
    yield "| fault | family | first bad cell right | no bad cell | first | tie | below | behind none | on what |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind in KINDS:
        mine = [j for j in found if j.kind is kind]
        if not mine:
            continue
        of = len(mine)
        alone = sum(j.alone for j in mine)
        tie = sum(j.kind.family in j.first and not j.alone for j in mine)
        behind = sum(j.below_none for j in mine)
        none = sum(j.cell is None for j in mine)
        what = Counter(str(j.true["evidence"]) for j in mine if j.cell is not None)
        yield (
            f"| {kind.words} | {TITLES[kind.family]} | {sum(j.right for j in mine)} of {of} | {none} | {alone} | "
            f"{tie} | {of - none - alone - tie - behind} | {behind} | {', '.join(what)} |"
        )


def _sums(found: Sequence[Judged]) -> Iterator[str]:
    every = len(found)
    yield (
        f"Of {every} runs: first bad cell right in {sum(j.right for j in found)}, the true family first and alone in "
        f"{sum(j.alone for j in found)}, behind a family without evidence in {sum(j.below_none for j in found)}."
    )
    by_seed = Counter(j.seed for j in found if j.alone)
    each = ", ".join(str(by_seed[s]) for s in sorted({j.seed for j in found}))
    yield f"Of the twelve of a seed, first and alone: {each}."


def _confusion(found: Sequence[Judged]) -> Iterator[str]:
    """Rows: the true family. A tie counts in each of its columns, so that a row may add up to more than its runs."""
    yield f"| true family | runs | {' | '.join(TITLES.values())} | unknown |"
    yield "| --- |" + " --- |" * (len(TITLES) + 2)
    for family, title in TITLES.items():
        mine = [j for j in found if j.kind.family == family]
        counts = Counter(f for j in mine for f in j.first)
        cells = " | ".join(str(counts[f] or "") for f in TITLES)
        yield f"| {title} | {len(mine)} | {cells} | {sum(not j.first for j in mine) or ''} |"


def _less(found: Sequence[Judged]) -> Iterator[str]:
    yield "| fault | switched off | runs | what stands first | the missing evidence is named |"
    yield "| --- | --- | --- | --- | --- |"
    for x in LESS:
        mine = [j for j in found if j.less is x]
        if not mine:
            continue
        counts = Counter(" and ".join(TITLES[f] for f in j.first) or "unknown" for j in mine)
        first = "; ".join(f"{w}: {n}" for w, n in counts.items())
        named = f"{sum(j.names_missing for j in mine)} of {len(mine)}"
        yield f"| {mine[0].kind.words} | {x.words} | {len(mine)} | {first} | {named} |"


def main() -> None:
    """Make the runs, judge them, and print the page or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-3", help="first and last seed")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of printing it")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            here = Path(folder) / str(seed)
            seen = runs.run_all(here, [seed], runs.names())
            found += [judge(here, n, seed, seen[f"{n}-{seed}"]) for n in runs.names() if n != "healthy"]
    text = page(found, asked.seeds)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
