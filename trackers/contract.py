"""What every adapter owes the layer, as tests that an adapter's author runs against a real backend.

    from trackers.contract import Seen, TrackerContract

    class TestMine(TrackerContract):
        kind = "mine"
        def open(self, place): ...
        def seen(self, place): ...
        def dead(self, place): ...

pytest collects the class and runs each `test_` method; without pytest they are plain methods that take a folder.
Every test opens pages in folders below the one that it is given, so nothing need be cleaned up between tests.
The methods to be filled in are those that raise `NotImplementedError`; docs/sinks.md shows a whole adapter with its
contract.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from . import plugins
from .base import Page, Shown, Tracker, TrackerRefused, TrackerUnavailable
from .contract_story import CUT, RUN, SPOKEN, Story, Told
from .held import Held
from .outbox import Item, Outbox

PATIENCE = 300.0
"""Seconds until a backend that does not take a few records counts as hanging. Against hanging only."""


@dataclass
class Seen:
    """What a reader finds on a page, read from the backend and not from the adapter's memory."""

    text: str
    """all values of ours, as one text in a fixed order: what is the same on two pages reads the same"""
    order: Sequence[str]
    """ids of records, in the order in which the page has or numbers them; those that it keeps no order of left out"""
    files: dict[str, bytes] = field(default_factory=dict)
    """published name -> content"""


class Delivery:
    """Records sent as the layer sends them: through an outbox, so on a thread that did not build the adapter."""

    def __init__(self, tracker: Tracker, page: Page) -> None:
        self.places: dict[str, str | None] = {}
        """record id -> what `show` returned"""
        self.trouble: list[tuple[Exception, bool]] = []
        """each error, and whether it was final"""
        self.outbox = Outbox(
            tracker,
            page,
            on_shown=lambda record, place: self.places.update({record.id: place}),
            on_trouble=lambda error, item, final: self.trouble.append((error, final)),
        )

    def send(self, items: Sequence[Told | Item]) -> Delivery:
        """Send, and wait until all is shown or refused."""
        for item in items:
            self.outbox.put(item.record if isinstance(item, Told) else item)
        left = self.outbox.drain(PATIENCE)
        assert left == 0, (
            f"{left} of {len(items)} items were not taken in {PATIENCE:g} s: {self.trouble[-1:]}"
        )
        return self

    def close(self) -> int:
        """End the thread; returns how many items it still had."""
        return self.outbox.close(0.0)


class Failing:
    """An adapter whose every call fails once: in turn before anything was sent, and after all was."""

    def __init__(self, tracker: Tracker) -> None:
        self.kind, self._tracker = tracker.kind, tracker
        self._tried: set[str] = set()
        self.alias, self.requested = tracker.alias, tracker.requested
        self.publish, self.close = tracker.publish, tracker.close

    def show(self, record: Shown, page: Page) -> str | None:
        """Show, or fail."""
        if record.id in self._tried:
            return self._tracker.show(record, page)
        self._tried.add(record.id)
        if len(self._tried) % 2:
            raise TrackerUnavailable("the connection broke before the record was sent")
        self._tracker.show(record, page)
        raise TrackerUnavailable("the connection broke before the answer came")


class Hanging(Failing):
    """An adapter whose calls return only when `released` is set."""

    def __init__(self, tracker: Tracker) -> None:
        super().__init__(tracker)
        self.began, self.released = threading.Event(), threading.Event()

    def show(self, record: Shown, page: Page) -> str | None:
        """Hang, then show."""
        self.began.set()
        self.released.wait()
        return self._tracker.show(record, page)


class TrackerContract:
    """The contract. Fill in `open`, `seen` and `dead`; say with the class attributes what the page leaves out."""

    kind: ClassVar[str]
    """the adapter's `kind`"""
    not_shown: ClassVar[frozenset[str]] = frozenset()
    """kinds of records for which `show` returns None, always; they stand in the ledger only"""
    keeps_history: ClassVar[bool] = True
    """False for a page that has the newest record of each kind only"""

    leaves_machine: ClassVar[bool] = True
    """False for a page that lies in the ledger's own folder: it may say what persons said"""

    def open(self, place: Path) -> Tracker:
        """Open the page of this folder, making it the first time; again it is the same page in a new adapter."""
        raise NotImplementedError

    def seen(self, place: Path) -> Seen:
        """Read the page of this folder back. Called once a page, after the last record."""
        raise NotImplementedError

    def dead(self, place: Path) -> AbstractContextManager[None]:
        """Make the backend of an open page unreachable while the context lasts, as an outage would."""
        raise NotImplementedError

    def held(self, place: Path) -> Held | None:
        """Open the page of this folder for `lineage pull`; None where the adapter cannot read pages back."""
        return None

    def test_it_is_an_adapter_and_knows_its_page_without_a_call(self, tmp_path: Path) -> None:
        """The object has the protocol's methods; its alias names kind and page, also while the backend is dead."""
        tracker = self.open(tmp_path / "page")
        assert plugins.is_tracker(tracker)
        before = tracker.alias()
        with self.dead(tmp_path / "page"):
            alias = tracker.alias()
            tracker.requested()
        assert tracker.kind == alias.tracker == self.kind
        assert alias.id
        assert before.id == alias.id

    def test_each_kind_is_shown_or_declared_as_not_shown(self, tmp_path: Path) -> None:
        """Nothing is passed over in silence: what `show` gives no place for is in `not_shown`, the rest on the page."""
        story = Story()
        told = story.all_kinds(self.kind)
        sent = Delivery(self.open(tmp_path / "page"), story.page()).send(told)
        assert not sent.trouble, sent.trouble
        silent = {t.kind for t in told if sent.places[t.record.id] is None}
        assert silent == self.not_shown & {t.kind for t in told}
        text = _plain(self.seen(tmp_path / "page").text)
        shown = [t for t in told if t.kind not in silent]
        for t in shown if self.keeps_history else {t.kind: t for t in shown}.values():
            absent = [w for w in t.words if _plain(w) not in text]
            assert not absent, f"`show` gave a place for the {t.kind} record, but the page lacks {absent}"

    def test_records_arrive_once_and_in_order(self, tmp_path: Path) -> None:
        """Forty regimes stand on the page once each, in the journal's order."""
        story = Story()
        told = story.regimes(40)
        Delivery(self.open(tmp_path / "page"), story.page()).send(told)
        ids = [t.record.id for t in told]
        found = [i for i in self.seen(tmp_path / "page").order if i in ids]
        assert found == (ids if self.keeps_history else ids[-1:])

    def test_showing_all_again_changes_nothing(self, tmp_path: Path) -> None:
        """`lineage sync` may repeat everything, in another process: the page reads as if shown once."""
        story = Story()
        told = story.all_kinds(self.kind)
        Delivery(self.open(tmp_path / "once"), story.page()).send(told)
        once = self.seen(tmp_path / "once")
        Delivery(self.open(tmp_path / "twice"), story.page()).send(told)
        Delivery(self.open(tmp_path / "twice"), story.page()).send(told)
        _same(once, self.seen(tmp_path / "twice"))

    def test_an_older_verdict_shown_late_never_replaces_a_newer(self, tmp_path: Path) -> None:
        """Records come late after an outage; what the page says now stays the newest."""
        story = Story()
        old, new = story.verdict(1011), story.verdict(2022)
        for place, order in (("in order", [old, new]), ("late", [old, new, old])):
            Delivery(self.open(tmp_path / place), story.page()).send(order)
        _same(self.seen(tmp_path / "in order"), self.seen(tmp_path / "late"))

    def test_a_call_that_failed_is_made_again_and_counts_once(self, tmp_path: Path) -> None:
        """Whether a call failed before it arrived or after, trying again leaves the record there once."""
        story = Story()
        told = [*story.regimes(2), story.verdict(1011)]
        Delivery(self.open(tmp_path / "smooth"), story.page()).send(told)
        sent = Delivery(Failing(self.open(tmp_path / "rough")), story.page()).send(told)
        assert [final for _, final in sent.trouble] == [False] * len(told)
        _same(self.seen(tmp_path / "smooth"), self.seen(tmp_path / "rough"))

    def test_a_dead_backend_raises_only_later_or_never(self, tmp_path: Path) -> None:
        """Of a dead backend the worker hears `TrackerUnavailable`; nothing is claimed as shown, closing ends."""
        story = Story()
        told = [story.verdict(1011), *story.regimes(2)]
        tracker = self.open(tmp_path / "page")
        Delivery(tracker, story.page()).send(told[:1])
        with self.dead(tmp_path / "page"):
            for t in told[1:]:
                place, said = _tried(lambda t=t: tracker.show(t.record, story.page()))  # type: ignore[misc]
                assert isinstance(said, TrackerUnavailable), f"show returned {place!r}, or raised {said!r}"
                assert str(said), "say what was not reached"
            with suppress(TrackerUnavailable, TrackerRefused):
                tracker.close()

    def test_after_an_outage_the_page_is_whole(self, tmp_path: Path) -> None:
        """What an outbox could not show is counted and said; shown again later, everything is there once."""
        story = Story()
        told = [*story.regimes(3), story.verdict(1011)]
        page = story.page()
        Delivery(self.open(tmp_path / "page"), page).send(told[:1]).close()
        tracker = self.open(tmp_path / "page")
        with self.dead(tmp_path / "page"):
            gone = Delivery(tracker, page)
            for t in told[1:]:
                gone.outbox.put(t.record)  # the training thread's part: it returns, whatever the backend does
            heard = threading.Event()
            while not gone.trouble and gone.outbox.pending():
                heard.wait(0.01)
            assert gone.close() == len(told) - 1, gone.trouble
        assert isinstance(gone.trouble[0][0], TrackerUnavailable)
        assert gone.trouble[0][1] is False, "a dead backend is no refusal: the record would be lost"
        Delivery(self.open(tmp_path / "page"), story.page()).send(told)
        Delivery(self.open(tmp_path / "smooth"), story.page()).send(told)
        _same(self.seen(tmp_path / "smooth"), self.seen(tmp_path / "page"))

    def test_closing_does_not_wait_for_a_call_that_hangs(self, tmp_path: Path) -> None:
        """A process may end while the backend keeps a call waiting; what is left is counted."""
        story = Story()
        hanging = Hanging(self.open(tmp_path / "page"))
        sent = Delivery(hanging, story.page())
        for t in story.regimes(3):
            sent.outbox.put(t.record)
        hanging.began.wait(PATIENCE)
        assert sent.close() == 3  # returns although nobody has released the call
        assert not hanging.released.is_set()
        hanging.released.set()

    def test_long_values_are_whole_or_said_to_be_cut(self, tmp_path: Path) -> None:
        """What the page has no room for is refused, or cut with a word that says so; never in silence."""
        story, value = Story(), "a long value, " * 2000
        for n, t in enumerate(
            (story.mitigation("short", value), story.note(value, self.kind), story.verdict(1011, value))
        ):
            if t.kind in self.not_shown:
                continue
            place = tmp_path / str(n)
            sent = Delivery(self.open(place), story.page()).send([t])
            text = self.seen(place).text
            refused = [e for e, final in sent.trouble if final and isinstance(e, TrackerRefused)]
            cut = any(w in text for w in CUT)
            assert refused or value.strip() in text or cut, f"a {t.kind} record was cut without a word"

    def test_unicode_and_odd_characters_arrive_as_they_are(self, tmp_path: Path) -> None:
        """Scripts, emoji, quotes and brackets of a value are on the page as they were."""
        story, odd = Story(), "größe 学習率 🚀 'a' [b](c) 50% <i> a|b \\ ñ"
        told = [story.mitigation("before", odd), story.note(odd, self.kind)]
        told = [t for t in told if t.kind not in self.not_shown] or [story.verdict(1011, odd)]
        sent = Delivery(self.open(tmp_path / "page"), story.page()).send(told)
        assert not sent.trouble, sent.trouble
        text = self.seen(tmp_path / "page").text
        ways = (odd, json.dumps(odd)[1:-1], json.dumps(odd, ensure_ascii=False)[1:-1])
        assert any(way in text for way in ways), f"{odd!r} is not on the page"

    def test_words_of_persons_stay_off_the_page(self, tmp_path: Path) -> None:
        """Reasons, names and messages of exceptions are not sent unless `share` says so (`trackers.plain`)."""
        if not self.leaves_machine:
            _skip("the page does not leave the machine")
        story = Story()
        Delivery(self.open(tmp_path / "page"), story.page()).send(story.all_kinds(self.kind))
        seen = self.seen(tmp_path / "page")
        assert SPOKEN not in seen.text
        assert not [name for name, content in seen.files.items() if SPOKEN.encode() in content]

    def test_nan_and_infinities_are_named(self, tmp_path: Path) -> None:
        """A value that is not finite is in words on the page: as a number it would be hidden or altered."""
        story = Story()
        told = [Told(story.record(story.alarm(float("nan")), step=33), ["nan"])]
        if "mitigation" not in self.not_shown:
            told.append(story.mitigation(float("inf"), float("nan")))
        sent = Delivery(self.open(tmp_path / "page"), story.page()).send(told)
        assert not sent.trouble, sent.trouble
        text = self.seen(tmp_path / "page").text.lower()
        assert "nan" in text
        assert len(told) == 1 or "inf" in text
        assert "1.797" not in text

    def test_files_are_published_by_name_and_the_newest_stays(self, tmp_path: Path) -> None:
        """A published file is there byte by byte; published again, its new content is."""
        tracker, file = self.open(tmp_path / "page"), tmp_path / "report.md"
        file.write_bytes("# größe\r\n".encode())
        tracker.publish(file, "journal/s/w/1-2.jsonl")
        for content in (b"first\n", b"second\n"):
            file.write_bytes(content)
            tracker.publish(file, "report.md")
        files = self.seen(tmp_path / "page").files
        assert files["report.md"] == b"second\n"
        assert files["journal/s/w/1-2.jsonl"] == "# größe\r\n".encode()

    def test_a_file_that_cannot_be_published_is_refused(self, tmp_path: Path) -> None:
        """A name that leaves the page's folder, or a file that is not there, is refused for good, with words."""
        tracker, file = self.open(tmp_path / "page"), tmp_path / "a.txt"
        file.write_text("a")
        for source, name in ((file, "../a.txt"), (file, "/a.txt"), (tmp_path / "absent", "b.txt")):
            _, said = _tried(lambda s=source, n=name: tracker.publish(s, n))  # type: ignore[misc]
            assert isinstance(said, TrackerRefused), f"publishing {source} as {name}: {said!r}"
            assert str(said)

    def test_a_page_reads_back_for_a_pull(self, tmp_path: Path) -> None:
        """Where pages can be read back: run id, newest anchor and the journal's chunks, byte by byte."""
        story, place = Story(), tmp_path / "page"
        tracker, chunk = self.open(place), tmp_path / "1-2.jsonl"
        chunk.write_bytes(b'{"seq": 1}\n')
        Delivery(tracker, story.page()).send([story.run(), (chunk, "journal/s/w/1-2.jsonl"), story.seal(98)])
        Delivery(tracker, story.page()).send([story.seal(99)])
        self.seen(place)  # whatever ends a page has been done
        held = self.held(place)
        if held is None:
            _skip(f"the {self.kind} adapter reads no pages back")
            return
        assert isinstance(held, Held)
        assert held.run() in (RUN, None)
        assert [r.root for r in held.anchors()] == [story.seal(99).words[0]]
        assert [(f.name, f.size) for f in held.files()] == [("journal/s/w/1-2.jsonl", 11)]
        (tmp_path / "fetched").mkdir()
        held.fetch(tmp_path / "fetched")
        assert (tmp_path / "fetched/journal/s/w/1-2.jsonl").read_bytes() == b'{"seq": 1}\n'
        list(held.rows())
        held.configs()
        held.about()


def _plain(text: str) -> str:
    return text.lower().replace(",", "")


def _same(first: Seen, second: Seen) -> None:
    assert second.text == first.text
    assert list(second.order) == list(first.order)
    assert second.files == first.files


def _tried(call: Callable[[], object]) -> tuple[object, Exception | None]:
    """What a call returned, and what it raised."""
    try:
        return call(), None
    except Exception as e:
        return None, e


def _skip(why: str) -> None:
    import pytest  # only here: an adapter's users need no pytest

    pytest.skip(why)
