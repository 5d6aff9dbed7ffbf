"""Two states side by side: which rows are shown, which are folded, and what stands in them."""

from __future__ import annotations

from typing import Any

import schemas
from lineage.judge import columns, pairs
from lineage.judge.conditions import Conditions
from lineage.judge.drift import Side

from .builders import CODE, config, effective, environment


def rows(a: Side, b: Side) -> dict[str, columns.Row]:
    one, two = Conditions(a), Conditions(b)
    return {r.title: r for r in columns.rows(one, two, pairs.difference(one, two))}


def side(asked: dict[str, Any], packages: str = "2.13", **live: Any) -> Side:
    return Side(config(**asked), effective(**live), CODE, environment(torch=packages), {})


def test_what_differs_stands_first_with_requested_and_effective_of_both() -> None:
    """Asked for 0.2 on both sides, and in effect only on one."""
    found = rows(side({"max_grad_norm": 0.2}, grad_clip=0.2), side({"max_grad_norm": 0.2}, grad_clip=1.0))
    first = next(iter(found.values()))
    assert first.title == "gradient clipping"
    assert (first.a_requested, first.a_effective, first.b_requested, first.b_effective) == (
        "0.2",
        "0.2",
        "0.2",
        "1",
    )
    assert first.kind == "differs"


def test_what_was_asked_for_and_did_not_happen_says_so() -> None:
    """Another weight decay in the config, the same in the optimizer."""
    found = rows(side({"weight_decay": 0.1}), side({"weight_decay": 0.2}))
    assert found["weight decay"].note == "asked for, not in effect"
    assert (found["weight decay"].a_effective, found["weight decay"].b_effective) == ("0.1", "0.1")


def test_noise_is_folded_and_counted_by_kind() -> None:
    """Bitwise, operational, names and paths, equal keys without a concept: none of them is shown by default."""
    asked = {"output_dir": "/a", "my_own_key": 7, "gradient_checkpointing": False, "learning_rate": 1e-3}
    other = {**asked, "output_dir": "/b", "gradient_checkpointing": True}
    found = rows(side(asked, micro_batch=4), side(other, micro_batch=8))
    kinds = {r.title: r.kind for r in found.values()}
    assert kinds["micro-batch size"] == "bitwise"
    assert kinds["activation checkpointing"] == "operational"
    assert kinds["names and paths"] == "names"
    assert kinds["my_own_key"] == "equal_unclassified"
    assert [r.title for r in found.values() if r.kind in columns.SHOWN] == []
    counted = dict(columns.folded(list(found.values())))
    assert (counted["bitwise"], counted["operational"], counted["names"], counted["equal_unclassified"]) == (
        1,
        1,
        1,
        1,
    )
    assert sum(counted.values()) == len(found)


def test_an_unclassified_key_that_differs_is_shown() -> None:
    """Nobody knows what it does."""
    found = rows(side({"my_own_key": 7}), side({"my_own_key": 8}))
    assert (found["my_own_key"].kind, found["my_own_key"].a_requested) == ("differs", "7")


def test_what_only_one_side_shows_is_not_called_equal() -> None:
    """Precision is on record for A alone."""
    found = rows(side({}), side({}, precision=None))
    row = found["numeric precision"]
    assert (row.kind, row.note, row.b_effective) == ("one_sided", "only A shows it", None)


def test_software_is_shown_by_the_packages_that_differ() -> None:
    """A digest would tell a person nothing."""
    found = rows(side({}, packages="2.12"), side({}, packages="2.13"))
    assert (found["software versions"].a_effective, found["software versions"].b_effective) == (
        "torch 2.12",
        "torch 2.13",
    )


def test_masked_values_are_never_shown() -> None:
    """Neither is either called equal."""
    secret = schemas.Config(source="dict", values={"my_token": schemas.MASKED}, digest="sha256:00")
    a = Side(secret, effective(), CODE, environment(), {})
    text = str(rows(a, a))
    assert "(masked)" in text
