"""A config of any size takes bounded work: what does not fit is left out, and said."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from lineage.capture import canonical, config, plain
from lineage.imports import read, read_configs
from schemas import Config, Scalar

BOMB = "\n".join(
    [
        'a: &a ["x","x","x","x","x","x","x","x","x","x"]',
        *(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
        "lr: 0.1",
    ]
)
"""Ten anchors of ten: 10^10 values in 400 bytes."""


@pytest.fixture(autouse=True)
def _less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bounds, nearer."""
    monkeypatch.setattr(config, "MOST", 2_000)
    monkeypatch.setattr(config, "MOST_TEXT", 2**20)


def nested(levels: int, leaf: Any) -> Any:
    """The same object ten times in itself, level upon level."""
    for _ in range(levels):
        leaf = [leaf] * 10 if isinstance(leaf, list) else {f"k{i}": leaf for i in range(10)}
    return leaf


def kept(found: Config) -> int:
    """How many values a record holds, those in lists too."""

    def of(value: Scalar) -> int:
        return sum(map(of, value.value)) if value.type == "list" else 1

    return sum(map(of, found.values.values()))


@pytest.mark.parametrize(
    "leaf",
    [["x"] * 10, [{"x": 1}] * 10, {f"k{i}": 1 for i in range(10)}, [1.5] * 10],
    ids=["lists", "lists of sections", "sections", "numbers"],
)
def test_shared_parts_are_followed_no_further_than_there_is_room(leaf: Any) -> None:
    """10^10 values: the record ends at its limit, what stands before them is whole, and what is left out is said."""
    found = config.capture({"lr": 0.1, "a": nested(9, leaf)})
    assert found.values["lr"] == Scalar.of(0.1)
    assert kept(found) <= config.MOST + 1
    assert any("left out" in p for p in found.problems)


def test_an_alias_bomb_in_a_file_is_read_and_said(tmp_path: Path) -> None:
    """As one of two configs of a run, in which the learning rate changed."""
    (tmp_path / "bomb.yaml").write_text(BOMB)
    (tmp_path / "plain.yaml").write_text("lr: 0.2\n")
    book = read_configs([tmp_path / "plain.yaml", tmp_path / "bomb.yaml"])
    assert any("left out" in p for p in book.configs[1][1].problems)
    rate = next(e for e in book.entries if e.concept == "learning_rate")
    assert rate.after is not None
    assert (rate.keys, rate.after.plain()) == (["lr"], 0.1)


def test_merges_of_merges_do_not_grow(tmp_path: Path) -> None:
    """Ten merges of ten merges, eleven levels deep, are ten keys."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 10)}], z: {i}}}" for i in range(1, 12)]
    (tmp_path / "merge.yaml").write_text("\n".join(lines))
    got = {k: v.plain() for k, v in config.capture(tmp_path / "merge.yaml").values.items()}
    assert {k: v for k, v in got.items() if k.startswith("a11.")} == {"a11.x": 1, "a11.y": 2, "a11.z": 11}


def test_a_long_list_is_left_out_by_itself(tmp_path: Path) -> None:
    """Keys before and after it are whole."""
    found = config.capture({"a": 1, "ids": list(range(config.MOST + 1)), "b": 2})
    assert (found.values["a"], found.values["b"]) == (Scalar.of(1), Scalar.of(2))
    assert found.values["ids"] == Scalar(type="repr", value="<a list that is too long to be kept: cut>")
    assert len(found.problems) == 1
    assert found.problems[0].startswith("ids is a list that does not fit")


def test_many_keys_end_at_the_limit_with_a_word() -> None:
    """One more than fits."""
    whole = config.capture({f"k{i}": i for i in range(config.MOST)})
    assert (len(whole.values), whole.problems) == (config.MOST, [])
    more = config.capture({f"k{i}": i for i in range(config.MOST + 1)})
    assert len(more.values) == config.MOST + 1
    assert more.values["..."].value == f"<more than {config.MOST:,} values: cut>"
    assert more.problems == [
        f"the config has more than {config.MOST:,} values: k{config.MOST} and what comes after it is left out"
    ]


def test_text_has_a_limit_of_its_own() -> None:
    """Forty texts of 60,000 characters do not fit into 2^20."""
    found = config.capture({f"s{i}": "lorem ipsum " * 5_000 for i in range(40)})
    assert sum(len(str(v.value)) for v in found.values.values()) <= config.MOST_TEXT
    assert any("characters" in p for p in found.problems)


@pytest.mark.parametrize("value", [set(range(20_000)), deque(range(20_000))], ids=["set", "deque"])
def test_a_large_container_is_shown_by_its_number_of_entries(value: object) -> None:
    """Its text would be as long as it is."""
    assert "of 20,000 entries: cut>" in plain.describe(value)


def test_the_digest_leaf_by_leaf_is_the_digest_of_the_whole() -> None:
    """Numbers, texts, keys beyond ASCII, lists and secrets, in the order that RFC 8785 asks for."""
    held = {
        "b": 1e-5,
        "a": 1.0,
        "big": 2**60,
        "nan": float("nan"),
        "n": None,
        "t": True,
        "s": 'quote " back \\ line \n \x01 \x7f ä \U0001f600',
        "\ufffd": 1,
        "\U0001f600": 2,
        "l": [1, [2.5, None, "x"], []],
    }
    values = {k: Scalar.of(v) for k, v in held.items()} | {
        "m": Scalar(type="masked"),
        "r": Scalar(type="repr", value="<x>"),
    }
    assert canonical.digest_of(values) == canonical.digest(
        {k: v.model_dump(mode="json") for k, v in values.items()}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("c.json", '{"lr": 0.1, "m": {"x": 1}, "lr": 0.2}'), ("c.yaml", "lr: 0.1\nm: {x: 1}\nlr: 0.2\n")],
)
def test_a_key_that_stands_twice_in_a_file_is_said(name: str, text: str, tmp_path: Path) -> None:
    """The last is used, as every parser does; the other is named."""
    (tmp_path / name).write_text(text)
    found = config.capture(tmp_path / name)
    assert found.values["lr"].plain() == 0.2
    assert found.problems == ["the key lr stands 2 times: the last is used; also written: 0.1"]


def test_a_secret_that_stands_twice_leaves_no_trace(tmp_path: Path) -> None:
    """What is said of it is masked too."""
    (tmp_path / "c.json").write_text('{"password": "hunter2hunter2", "password": "x"}')
    assert "hunter2" not in config.capture(tmp_path / "c.json").model_dump_json()


def test_a_secret_within_a_list_is_masked_and_its_neighbours_are_kept() -> None:
    """Only the value that is one."""
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    found = config.capture({"tags": ["base", ["deep", token], 3]})
    text = found.model_dump_json()
    assert token not in text
    assert "base" in text
    assert "deep" in text
    assert found.masked == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.json", '[{"step": 5, "concept": "lr", "before": 3, "after": 1, "after": 2}]'),
        ("log.jsonl", '{"step": 5, "concept": "lr", "before": 3, "after": 1, "after": 2}\n'),
        ("log.yaml", "- {step: 5, concept: lr, before: 3, after: 1, after: 2}\n"),
        ("log.csv", "step,concept,before,after,after\n5,lr,3,1,2\n"),
    ],
)
def test_a_field_that_stands_twice_in_an_entry_is_kept_both_times(
    name: str, text: str, tmp_path: Path
) -> None:
    """The last is judged, the other stands in `extra`, and the entry says so."""
    (tmp_path / name).write_text(text)
    (book,) = read(tmp_path / name)
    (entry,) = book.entries
    assert entry.after is not None
    assert (entry.after.text(), entry.extra["after_also"].text()) == ("2", "1")
    assert [p for p in entry.problems if p.startswith("after stands 2 times")]


def test_an_alias_bomb_in_a_logbook_is_left_out_of_its_entry(tmp_path: Path) -> None:
    """In a value, in prose, and as an entry of its own."""
    anchors = "\n".join(f"  {line}" for line in BOMB.splitlines()[:-1])
    (tmp_path / "log.yaml").write_text(
        f"defs:\n{anchors}\nentries:\n  - {{step: 5, concept: lr, before: 1, after: *j, note: *j}}\n  - *j\n"
    )
    (book,) = read(tmp_path / "log.yaml")
    first, second = book.entries
    assert first.step == 5
    assert sum("left out" in p for p in first.problems) == 2
    assert second.text is not None
    assert "left out" in second.text


def test_a_value_that_holds_itself_is_left_out_of_its_entry(tmp_path: Path) -> None:
    """YAML can say so."""
    (tmp_path / "log.yaml").write_text("- step: 5\n  concept: lr\n  after: &x\n    up: *x\n")
    (book,) = read(tmp_path / "log.yaml")
    assert any("or itself: left out" in p for p in book.entries[0].problems)
