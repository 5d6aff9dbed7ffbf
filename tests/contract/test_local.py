"""The contract on the local store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trackers.contract import Seen, TrackerContract
from trackers.contract_story import Story
from trackers.local import LocalTracker


class TestLocal(TrackerContract):
    kind = "local"
    keeps_history = False  # the ledger itself lies beside it
    leaves_machine = False
    not_shown = frozenset(
        {
            *("run", "segment", "config", "code", "drift", "mitigation", "mitigation_effect", "finding"),
            *("degraded", "tracker_note", "coverage", "seal", "segment_end"),
        }
    )

    def open(self, place: Path) -> LocalTracker:
        return LocalTracker(place)

    def seen(self, place: Path) -> Seen:
        files = {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}
        state = json.loads(files.get("state.json", b"{}"))
        told = [v["record"] for v in state.values() if "record" in v]
        return Seen("\n".join(v.decode() for _, v in sorted(files.items())), sorted(told), files)

    @contextmanager
    def dead(self, place: Path) -> Iterator[None]:
        """A file stands where the folder is due, as when a disk has gone."""
        aside = place.with_name(place.name + ".aside")
        if place.exists():
            place.rename(aside)
        place.write_text("no folder")
        yield
        place.unlink()
        if aside.exists():
            aside.rename(place)


def test_what_an_earlier_process_left_in_the_view_stays_there(tmp_path: Path) -> None:
    story = Story()
    LocalTracker(tmp_path).show(story.verdict(1011).record, story.page())
    LocalTracker(tmp_path).show(story.regimes(1)[0].record, story.page())
    assert {"verdict", "regime"} <= set(json.loads((tmp_path / "state.json").read_text()))


def test_a_damaged_state_file_is_written_anew(tmp_path: Path) -> None:
    story = Story()
    (tmp_path / "state.json").write_text('{"verdict": ')
    LocalTracker(tmp_path).show(story.verdict(1011).record, story.page())
    assert json.loads((tmp_path / "state.json").read_text())["verdict"]["since_step"] == 1011
