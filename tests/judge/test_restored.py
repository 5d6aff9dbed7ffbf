"""Judgements of resumes and saves, on records: what is claimed, and what is not."""

from __future__ import annotations

import pytest

import schemas
from lineage.judge import first_updates, loss_continued, restored_from, restored_whole, same_bytes
from lineage.judge.first_updates import Update
from lineage.judge.resharded import Component, Resharded

from .builders import History, uid

NAMED, OLDER = 900, 901


def digest(component: str, value: str, scope: str = "replicated") -> schemas.ComponentDigest:
    return schemas.ComponentDigest(component=component, digest=f"sha256:{value * 64}"[:71], scope=scope)  # type: ignore[arg-type]


def differing(*components: tuple[str, str]) -> schemas.Restore:
    return schemas.Restore(
        checkpoint=uid(NAMED),
        components=[
            schemas.ComponentRestore(component=c, status="differs", live=digest(c, v).digest, text="x")
            for c, v in components
        ],
    )


def history(*components: tuple[str, str]) -> list[schemas.Record]:
    """Two saves, the older one with digests of `a`, the named one of `b`; then a resume that holds these."""
    h = History()
    for number, step, value in ((OLDER, 10, "a"), (NAMED, 20, "b")):
        live = [digest(c, value) for c in ("weights", "grad_scaler", "optimizer_step")]
        h.add(schemas.Checkpoint(uid=uid(number), step=step, status="complete", live=live), 1)
    h.add(differing(*components), 2)
    return h.records


def test_a_loss_scale_that_an_earlier_save_had_too_is_no_sign_that_it_was_loaded() -> None:
    assert restored_from.findings(history(("grad_scaler", "a")), uid(2)) == []
    (found,) = restored_from.findings(history(("grad_scaler", "a"), ("weights", "a")), uid(2))
    assert found.names == ["grad_scaler", "weights"]


def test_a_state_that_no_save_had_is_not_explained() -> None:
    assert restored_from.origins(history(("weights", "c")), uid(2)) == []


def test_the_tensors_of_all_ranks_decide_only_what_the_rank_left_open() -> None:
    """A rank that found its own to differ keeps that, though the tensors that were compared are equal."""
    own = schemas.Restore(
        checkpoint=uid(NAMED),
        components=[
            schemas.ComponentRestore(component="weights", status="not_recorded", text="cut otherwise"),
            schemas.ComponentRestore(
                component="buffers", status="differs", text="model buffers not as at the save"
            ),
        ],
    )
    found = Resharded((0, 1, 2, 3), (0, 1), {})
    found.components = {"weights": Component("restored", equal=5), "buffers": Component("restored", equal=1)}
    told = restored_whole.whole(own, found)
    got = {c.component: (c.status, c.text) for c in restored_whole.merged(own, told).components}
    assert got["weights"] == (
        "restored",
        "model weights as at the save over 2 ranks, saved on 4 (5 tensors equal bit for bit)",
    )
    assert got["buffers"] == ("differs", "model buffers not as at the save")


def test_what_cannot_be_told_over_all_ranks_leaves_the_rank_s_word() -> None:
    own = schemas.Restore(
        checkpoint=uid(NAMED),
        components=[
            schemas.ComponentRestore(component="weights", status="not_recorded", text="cut otherwise")
        ],
    )
    found = Resharded((0,), (0,), {}, {"weights": Component("not_recorded", unknown={"a": "half of it"})})
    assert restored_whole.whole(own, found) is None
    assert restored_whole.merged(own, None) == own


def updates(sizes: list[float], first: int = 1) -> list[Update]:
    return [Update(first + n, 0.01 * size, 0.01) for n, size in enumerate(sizes)]


def test_the_size_of_an_update_is_taken_per_unit_of_its_rate() -> None:
    """A warm-up multiplies the rate, and the update with it: nothing is odd about that."""
    found = first_updates.sizes(updates([1.0, 1.1, 0.9]), [Update(4, 0.1, 0.1), Update(5, 0.2, 0.2)])
    assert found is not None
    assert found.ratios == pytest.approx({4: 1.0, 5: 1.0})
    assert first_updates.finding(found, first_updates.Lost((0.9, 0.95), 3, 0)) is None


def test_two_updates_before_the_save_are_too_few_to_compare_with() -> None:
    assert first_updates.sizes(updates([1.0, 1.1]), updates([9.0], 3)) is None


@pytest.mark.parametrize(
    ("betas", "was", "factor"),
    [
        ((0.9, 0.95), 100_000, 2.23607),
        ((0.9, 0.999), 100_000, 0.316228),
        ((0.9, 0.999), 20, 1.95313),  # after few updates it is on the other side of one
        ((0.9, 0.95), 0, 1.0),
    ],
)
def test_the_factor_of_a_counter_that_begins_again_follows_from_the_betas_and_from_the_counter(
    betas: tuple[float, float], was: int, factor: float
) -> None:
    assert first_updates.begins_again(betas, was) == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize(("betas", "was"), [((0.9, 0.95), 16), ((0.9, 0.999), 20)])
def test_the_factor_is_the_one_that_torch_s_adam_makes(betas: tuple[float, float], was: int) -> None:
    """With one gradient at each step the moments' corrections are all that the size of an update depends on."""
    torch = pytest.importorskip("torch")

    def update(now: int) -> float:
        p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        optimizer = torch.optim.Adam([p], lr=1.0, betas=betas, eps=0.0)
        for n in range(was + 1):
            if n == was:
                optimizer.state[p]["step"].fill_(now)
                before = p.detach().clone()
            p.grad = torch.ones_like(p)
            optimizer.step()
        return float((p.detach() - before).norm())

    assert update(0) / update(was) == pytest.approx(first_updates.begins_again(betas, was), rel=1e-5)


def test_updates_that_vary_as_much_before_the_save_are_not_odd_after_it() -> None:
    usual = updates([1.0, 3.0, 0.4, 1.0])
    found = first_updates.sizes(usual, updates([4.0], 5))
    assert found is not None
    assert not found.odd
    beyond = first_updates.sizes(usual, updates([5.0], 5))
    assert beyond is not None
    assert beyond.odd


B, C = ["b"], ["c"]


def test_losses_are_compared_only_on_the_same_batches() -> None:
    assert loss_continued.continued({6: (B, 1.0)}, {6: (C, 1.0)}, [], 6) is None
    found = loss_continued.continued({6: (B, 1.0), 7: (B, 2.0)}, {6: (B, 1.0), 7: (C, 2.0)}, [], 6)
    assert found is not None
    assert found.text() == "the loss of step 6 is bit for bit that of the other branch, on the same batch"


def test_a_first_loss_that_lies_beyond_the_usual_change_is_a_finding_and_one_within_is_told_only() -> None:
    before = [2.0, 2.1, 1.9, 2.0, 2.1, 2.0]
    small = loss_continued.continued({7: (B, 2.0)}, {7: (B, 2.05)}, before, 7)
    large = loss_continued.continued({7: (B, 2.0)}, {7: (B, 2.4)}, before, 7)
    assert loss_continued.finding(small) is None
    found = loss_continued.finding(large)
    assert found is not None
    assert found.code == "LIN-C014"
    assert found.values["usual_change"].plain() == pytest.approx(0.1)
    assert "was 2 on the other branch and is 2.4 (0.2 apart; 0.1 is the usual change" in found.text


def saved(number: int, step: int, files: dict[str, int], value: str) -> schemas.Checkpoint:
    entries = [
        schemas.FileEntry(path=f"{n}", size=size, digest="blake3:" + f"{name:0>64}"[-64:])
        for n, (name, size) in enumerate(files.items())
    ]
    manifest = schemas.Manifest(root="sha256:" + "0" * 64, files=entries)
    live = [digest("weights", value)]
    return schemas.Checkpoint(uid=uid(number), step=step, status="complete", manifest=manifest, live=live)


@pytest.mark.parametrize(
    ("files", "value", "found"),
    [
        ({"aa": 100_000, "ff": 5000}, "b", 1),
        ({"aa": 100_000, "ff": 50_000}, "b", 0),
        ({"aa": 100_000}, "a", 0),
        ({"11": 400}, "b", 0),
    ],
    ids=["a counter is new", "a third is new", "the state did not move", "only small files"],
)
def test_a_repeated_save_is_one_whose_bytes_are_an_earlier_one_s_while_the_state_moved(
    files: dict[str, int], value: str, found: int
) -> None:
    h = History()
    h.add(saved(1, 10, {"aa": 100_000, "ee": 5000, "11": 400}, "a"), 1)
    h.add(saved(2, 20, files, value), 1)
    assert len(same_bytes.findings(h.records, uid(1))) == found
