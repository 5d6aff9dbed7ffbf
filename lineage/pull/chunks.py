"""The chunks of journals, as a tracker has them, put together line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..ledger import layout, scan
from ..ledger.blanked import BLANKED
from .source import PullTrouble

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_NAME = re.compile(
    rf"^journal/(?P<segment>{_WORD})/(?P<writer>{_WORD})/(?P<first>\d{{6,12}})-(?P<last>\d{{6,12}})\.jsonl$"
)


@dataclass
class Chunks:
    """Lines of journal files by their place, from one page or several."""

    lines: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """journal file -> line number from 0 -> the line as the tracker has it"""
    digests: dict[tuple[str, int], str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    """lines of which two pages, or a page and what was pulled before, have different ones"""
    odd: list[str] = field(default_factory=list)
    """files on the page that are no chunks of a journal, or are cut off"""

    def add_folder(self, folder: Path, names: Iterable[str], where: str) -> None:
        """Take the chunks that were fetched into a folder."""
        for name in names:
            found = _NAME.match(name)
            if found is None:
                self.odd.append(f"{name} on {where} is no chunk of a journal by its name; it was left out")
                continue
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
                self.odd.append(f"{name} on {where} is a link, or was not sent; it was left out")
                continue
            self._add(path, found, where)

    def _add(self, path: Path, found: re.Match[str], where: str) -> None:
        file, first, last = (
            f"{found['segment']}/{found['writer']}.jsonl",
            int(found["first"]),
            int(found["last"]),
        )
        try:
            whole = [raw for _, raw, ends in scan.raw_lines(path) if ends]
        except OSError as e:
            raise PullTrouble(f"{path} of {where} cannot be read: {e}") from None
        if len(whole) != last - first + 1:
            self.odd.append(
                f"{found[0]} on {where} has {len(whole):,} whole lines, {last - first + 1:,} are due by its name"
            )
        for n, raw in enumerate(whole[: last - first + 1]):
            self.put(file, first + n, raw, where)

    def add_ledger(self, ledger: Path, known: Iterable[str]) -> None:
        """Take what was pulled before, of these journal files."""
        for file in known:
            path = layout.journal_folder(ledger) / file
            if path.is_file():
                for n, raw, ends in scan.raw_lines(path):
                    if ends:
                        self.put(file, n - 1, raw, "what was pulled before")

    def put(self, file: str, n: int, raw: bytes, where: str) -> None:
        """Take one line; of two that are the same, the one with its words."""
        held = self.lines.setdefault(file, {})
        digest = scan.digest_of(raw)
        if n not in held:
            held[n], self.digests[file, n] = raw, digest
        elif self.digests[file, n] != digest:
            self.conflicts.append(f"line {n + 1:,} of {file}: {where} has another one than was read before")
        elif held[n].startswith(BLANKED) and not raw.startswith(BLANKED):
            held[n] = raw

    def whole(self) -> dict[str, list[bytes]]:
        """Journal file -> its lines from the first on, as far as none is missing."""
        out = {}
        for file, held in sorted(self.lines.items()):
            lines: list[bytes] = []
            while len(lines) in held:
                lines.append(held[len(lines)])
            if lines:
                out[file] = lines
        return out

    def gaps(self) -> list[str]:
        """Where lines are missing that later ones follow."""
        out = []
        whole = self.whole()
        for file, held in sorted(self.lines.items()):
            n = len(whole.get(file, ()))
            after = [k for k in held if k > n]
            if after:
                out.append(
                    f"lines {n + 1:,} to {min(after):,} of journal {file} are not on the page, though later ones are: "
                    "these are left out too, since the chain to them is broken. `lineage sync` where the run trained "
                    "sends what is missing"
                )
        return out
