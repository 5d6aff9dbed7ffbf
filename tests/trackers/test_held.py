"""Reading pages back: what is taken of a row, a config and a folder, and what is not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from trackers import FolderHeld, Held, HeldFile, TrackerRefused, open_held
from trackers.held import MOST_BYTES, bounded
from trackers.wandb_ import rows
from trackers.wandb_.offline_log import ConfigChange


def test_a_row_gives_its_numbers_by_flat_key_and_nothing_of_ours_or_of_wandb_itself() -> None:
    history = [
        {"_step": 3, "_timestamp": 0.0, "loss": math.nan, "opt": {"lr": 1}, "ok": True, "text": "x"},
        {"_step": 4, "lineage/regime": 1, "_runtime": 2.0},
        {"loss": 1.0},  # without a step
        {"_step": 5, "image": {"_type": "image-file", "size": 7}, "loss": math.inf},
    ]
    found = list(rows.rows(history, [10, 11, 12, 13]))
    assert [(r.step, r.number, sorted(r.values)) for r in found] == [
        (3, 10, ["loss", "opt.lr"]),
        (5, 13, ["loss"]),
    ]
    assert math.isnan(found[0].values["loss"])
    assert found[1].values["loss"] == math.inf


def test_changes_of_the_config_between_two_rows_are_one_config_and_parts_change_in_their_mapping() -> None:
    changes = [
        ConfigChange(1, "opt", {"lr": 1.0, "clip": 1.0}),
        ConfigChange(2, "seed", 1),
        ConfigChange(3, "_wandb", {"t": 1}),
        ConfigChange(4, "lineage/run", {"id": "x"}),
        ConfigChange(8, "opt.lr", 0.5),
        ConfigChange(9, "a.b", 2),  # a key with a dot, and no mapping
        ConfigChange(12, "opt", {"lr": 0.1}),  # replaces all of it, as W&B does
    ]
    found = rows.configs(changes, [5, 7, 10])
    assert [(a.values, a.before_row, tuple(a.changed)) for a in found] == [
        ({"opt": {"lr": 1.0, "clip": 1.0}, "seed": 1}, 5, ("opt", "seed")),
        ({"opt": {"lr": 0.5, "clip": 1.0}, "seed": 1, "a.b": 2}, 10, ("opt.lr", "a.b")),
        ({"opt": {"lr": 0.1}, "seed": 1, "a.b": 2}, 12, ("opt",)),
    ]


def test_a_page_that_claims_more_than_a_ledger_can_have_is_refused() -> None:
    with pytest.raises(TrackerRefused, match="Nothing was written"):
        bounded([HeldFile("journal/a", MOST_BYTES), HeldFile("journal/b", 1)], "here")


def test_a_download_is_read_without_following_links(tmp_path: Path) -> None:
    part = tmp_path / "lineage" / "journal" / "s" / "w" / "000000-000000.jsonl"
    part.parent.mkdir(parents=True)
    part.write_text("{}\n")
    (part.parent / "000001-000001.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "lineage" / "journal" / "far").symlink_to("/etc")
    page = open_held("folder", tmp_path)
    assert isinstance(page, Held)
    assert isinstance(page, FolderHeld)
    assert page.files() == [HeldFile("journal/s/w/000000-000000.jsonl", 3)]
    page.fetch(tmp_path / "to")
    assert (tmp_path / "to" / "journal" / "s" / "w" / "000000-000000.jsonl").read_text() == "{}\n"
    assert (page.anchors(), page.configs(), list(page.rows())) == ([], [], [])
