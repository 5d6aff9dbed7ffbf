"""Edits of live objects between two saves: found with their step, without reading the content of tensors."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage.capture import edits
from lineage.ledger.reader import Ledger

from .loop import Loop, Plain, attach, only

Act = Callable[[Loop, Any], None]


def run(
    root: Path, act: Act, *, at: int = 5, steps: int = 9, loop: Loop | None = None, **options: Any
) -> Ledger:
    """A run in which something is done before one step, outside of the step block."""
    loop = loop or Loop()
    with attach(loop, root, **options) as rec:
        loop.run(rec, steps, before=lambda step: act(loop, rec) if step == at else None)
    return only(root)


def drifts(ledger: Ledger) -> list[schemas.Drift]:
    return [r.payload for r in ledger.of("drift")]


def one(ledger: Ledger) -> schemas.Drift:
    """The only drift of a run."""
    (found,) = drifts(ledger)
    assert found.moment == "in_run"
    return found


def concepts(drift: schemas.Drift) -> list[str]:
    return [c.concept for c in drift.changes]


# -- optimizer state


def test_cleared_optimizer_state_is_found_at_the_step(tmp_path: Path) -> None:
    """opt.state.clear() between two updates: undeclared, a regime of its own, broken from that step on."""
    ledger = run(tmp_path, lambda loop, rec: loop.optimizer.state.clear())
    drift = one(ledger)
    assert (drift.from_step, concepts(drift), drift.undeclared) == (
        5,
        ["optimizer_state"],
        ["optimizer_state"],
    )
    text = "optimizer state dropped before step 5: of 4 parameters with state 0 are left"
    assert drift.changes[0].text == text
    assert [r.payload.index for r in ledger.of("regime")] == [0, 1]
    assert (ledger.last("verdict").payload.status, ledger.last("verdict").payload.since_step) == ("broken", 5)


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")
def test_optimizer_state_cleared_within_the_step_block_is_found_by_its_counter(tmp_path: Path) -> None:
    """The update makes it anew at once, and its step counter begins again."""
    loop = Loop()
    original = loop.optimizer.step

    def step(*args: Any) -> Any:
        if loop.done == 6:
            loop.optimizer.state.clear()
        return original(*args)

    loop.optimizer.step = step
    drift = one(run(tmp_path, lambda loop, rec: None, loop=loop))
    assert (drift.from_step, concepts(drift)) == (7, ["optimizer_state"])
    assert "its step counter went from 6 to 1" in drift.changes[0].text


def test_an_older_optimizer_state_that_is_loaded_while_the_run_goes_on_is_found(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}
    loop = Loop()

    def act(step: int) -> None:
        if step == 3:
            kept.update(copy.deepcopy(loop.optimizer.state_dict()))
        if step == 7:
            loop.optimizer.load_state_dict(kept)

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 9, before=act)
    found = [d for d in drifts(only(tmp_path)) if "optimizer_state" in concepts(d)]
    assert [d.from_step for d in found] == [7]
    assert "its step counter went from 6 to 3" in found[0].changes[0].text


def test_a_declared_reset_of_the_optimizer_state_is_in_effect_at_its_step(tmp_path: Path) -> None:
    """Declared, and seen: a change with its mitigation, and no undeclared one."""

    def act(loop: Loop, rec: Any) -> None:
        rec.mitigate("optimizer_state", why="moments are poisoned")
        loop.optimizer.state.clear()

    ledger = run(tmp_path, act)
    drift = one(ledger)
    assert (drift.undeclared, drift.unproven) == ([], [])
    assert drift.changes[0].mitigation == ledger.last("mitigation").payload.uid
    effect = ledger.last("mitigation_effect").payload
    assert (effect.in_effect, effect.from_step) == ("yes", 5)


def test_another_optimizer_in_the_place_of_the_first_is_told_as_far_as_it_shows(tmp_path: Path) -> None:
    """The old object stands still while the weights move: its values and state are not shown any more."""

    def act(loop: Loop, rec: Any) -> None:
        loop.optimizer = torch.optim.AdamW(loop.model.parameters(), lr=0.1)

    ledger = run(tmp_path, act)
    drift = one(ledger)
    assert (drift.from_step, drift.changes) == (5, [])
    assert "another one took its place" in drift.unclassified[0].text
    assert {"optimizer", "learning_rate", "optimizer_state"} <= set(drift.not_shown)
    assert ledger.last("verdict").payload.status == "not_shown"


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "with the old state"])
def test_an_optimizer_that_is_given_anew_is_compared_with_the_first(tmp_path: Path, fresh: bool) -> None:
    """rec.watch(optimizer=...): its exact state against the old one's; nothing where they are equal."""

    def act(loop: Loop, rec: Any) -> None:
        old = loop.optimizer
        loop.optimizer = torch.optim.AdamW(loop.model.parameters(), lr=0.1)
        if not fresh:
            loop.optimizer.load_state_dict(copy.deepcopy(old.state_dict()))
        loop.scheduler.optimizer = loop.optimizer
        rec.watch(optimizer=loop.optimizer)

    found = [d for d in drifts(run(tmp_path, act)) if "optimizer_state" in concepts(d)]
    assert [d.from_step for d in found] == ([5] if fresh else [])


def test_an_optimizer_of_another_kind_is_a_change_of_the_optimizer(tmp_path: Path) -> None:
    loop = Loop()
    loop.scheduler = None

    def act(loop: Loop, rec: Any) -> None:
        loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1)
        rec.watch(optimizer=loop.optimizer)

    class NoSchedule:
        def step(self) -> None: ...

    loop.scheduler = NoSchedule()
    with attach(loop, tmp_path) as rec:
        rec.watch(scheduler=None)
        loop.run(rec, 9, before=lambda step: act(loop, rec) if step == 5 else None)
    found = {c for d in drifts(only(tmp_path)) for c in concepts(d)}
    assert {"optimizer", "optimizer_state"} <= found


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.01),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=False),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
        lambda p: torch.optim.Adadelta(p, lr=0.01),
        lambda p: torch.optim.NAdam(p, lr=0.01),
        lambda p: torch.optim.RAdam(p, lr=0.01),
        lambda p: torch.optim.Rprop(p, lr=0.01),
        lambda p: torch.optim.Adamax(p, lr=0.01),
        lambda p: torch.optim.ASGD(p, lr=0.01),
    ],
)
def test_no_optimizer_is_taken_for_an_edit(tmp_path: Path, make: Any) -> None:
    """Each of torch's, with updates that are skipped now and then, an epoch of validation, and saves."""
    loop = Loop()
    loop.optimizer = make(loop.model.parameters())
    loop.scheduler = torch.optim.lr_scheduler.LinearLR(loop.optimizer, 0.1, 1.0, 20)
    original = loop.optimizer.step
    loop.optimizer.step = lambda *a: None if loop.done % 4 == 2 else original(*a)

    def between(step: int) -> None:
        if step % 5 == 0:
            loop.model.eval()
            with torch.no_grad():
                loop.model(torch.ones(2, 3))
            loop.model.train()
            rec.checkpoint(loop.save(tmp_path / f"ck{step}"), step=step - 1)

    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 16, before=between)
    assert drifts(only(tmp_path / "runs")) == []
    assert only(tmp_path / "runs").of("degraded") == []


# -- parameters


def freeze(loop: Loop, on: bool = True) -> None:
    loop.model[0].requires_grad_(not on)


def test_parameters_frozen_while_the_run_goes_on_are_found(tmp_path: Path) -> None:
    drift = one(run(tmp_path, lambda loop, rec: freeze(loop)))
    assert (drift.from_step, concepts(drift)) == (5, ["param_groups"])
    assert "2 tensors frozen" in drift.changes[0].effective_after.text()
    assert "frozen" not in drift.changes[0].effective_before.text()


def test_parameters_set_free_while_the_run_goes_on_are_found(tmp_path: Path) -> None:
    loop = Loop()
    freeze(loop)
    drift = one(run(tmp_path, lambda loop, rec: freeze(loop, on=False), loop=loop))
    assert (drift.from_step, concepts(drift)) == (5, ["param_groups"])
    assert "frozen" not in drift.changes[0].effective_after.text()


def test_freezing_other_parameters_of_the_same_number_is_found(tmp_path: Path) -> None:
    loop = Loop()
    freeze(loop)

    def act(loop: Loop, rec: Any) -> None:
        freeze(loop, on=False)
        loop.model[2].requires_grad_(False)

    drift = one(run(tmp_path, act, loop=loop))
    assert concepts(drift) == ["param_groups"]


def test_a_layer_that_is_added_is_known_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameters are listed anew now and then; freezing one that came late is found from then on."""
    from lineage.capture.watched import Watched

    monkeypatch.setattr(edits.Parameters, "EVERY", 3)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    parameters = edits.Parameters(Watched(model))
    before = parameters.frozen()
    model.append(torch.nn.Linear(2, 2).requires_grad_(False))
    assert [parameters.frozen() == before for _ in range(5)] == [True, True, True, False, False]


def test_a_parameter_group_that_is_added_is_found(tmp_path: Path) -> None:
    def act(loop: Loop, rec: Any) -> None:
        loop.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(7))], "lr": 0.1})

    loop = Loop()
    drift = one(run(tmp_path, act, loop=loop))
    assert drift.from_step == 5
    assert "param_groups" in concepts(drift)
    change = next(c for c in drift.changes if c.concept == "param_groups")
    assert change.effective_after.plain()[1] == "1 tensors, 7 values"


def test_a_resume_with_frozen_parameters_is_a_change_of_what_is_trained(tmp_path: Path) -> None:
    """Not of the architecture: names and shapes are as they were."""
    loop, ck, root = Loop(), tmp_path / "ck", tmp_path / "runs"
    with attach(loop, root) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
    again = Loop().load(ck)
    freeze(again)
    with attach(again, root, resumed_from=ck) as rec:
        again.run(rec, 7)
    assert "param_groups" in concepts(drifts(only(root))[-1])
    assert "model" not in concepts(drifts(only(root))[-1])


# -- weights


def other_weights(loop: Loop, rec: Any) -> None:
    loop.model.load_state_dict({k: v + 1 for k, v in loop.model.state_dict().items()})


def swapped(loop: Loop, rec: Any) -> None:
    """What an averaged copy does for an evaluation: in, and out again."""
    own = copy.deepcopy(loop.model.state_dict())
    other_weights(loop, rec)
    loop.model.load_state_dict(own)


def test_weights_that_are_replaced_between_two_updates_are_found(tmp_path: Path) -> None:
    ledger = run(tmp_path, other_weights)
    drift = one(ledger)
    assert (drift.from_step, concepts(drift)) == (5, ["state_edit"])
    assert (
        "before step 5, outside of the optimizer: 4 of 4 tensors, the first 0.weight" in drift.changes[0].text
    )
    assert ledger.last("verdict").payload.since_step == 5
    assert [r.payload.index for r in ledger.of("regime")] == [0, 1]


def test_weights_swapped_for_an_evaluation_and_back_are_no_drift(tmp_path: Path) -> None:
    """The kept elements have the bits that they had: nothing is told, however often it happens."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 16, before=lambda step: swapped(loop, rec) if step % 4 == 0 else None)
    assert drifts(only(tmp_path)) == []
    assert only(tmp_path).last("coverage").payload.gaps == []


def test_a_write_to_a_parameter_of_which_nothing_is_kept_is_not_shown(tmp_path: Path) -> None:
    """One layer is initialised anew: it was written to; whether its values are others, nothing shows."""
    ledger = run(tmp_path, lambda loop, rec: torch.nn.init.normal_(loop.model[2].weight))
    drift = one(ledger)
    assert (drift.from_step, drift.changes) == (5, [])
    assert "1 of 4 tensors, the first 2.weight; nothing shows whether" in drift.unclassified[0].text
    assert set(drift.not_shown) == {"weights"}
    assert ledger.last("verdict").payload.status == "not_shown"


def test_a_declared_edit_of_the_state_is_the_write_that_was_seen(tmp_path: Path) -> None:
    def act(loop: Loop, rec: Any) -> None:
        rec.mitigate("state_edit", why="the last layer is initialised anew")
        torch.nn.init.normal_(loop.model[2].weight)

    drift = one(run(tmp_path, act))
    assert (concepts(drift), drift.undeclared, drift.unproven) == (["state_edit"], [], [])


def test_a_loop_that_updates_between_the_blocks_is_said_once_and_never_judged(tmp_path: Path) -> None:
    """optimizer.step() after the block: an edit could not be told from an update."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 12):
            with rec.step(step, next(loop.loader)):
                loop.model(torch.ones(2, 3)).pow(2).mean().backward()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
            if step == 6:
                other_weights(loop, rec)
    assert drifts(only(tmp_path)) == []
    gaps = [g for g in only(tmp_path).last("coverage").payload.gaps if "between the step blocks" in g]
    assert len(gaps) == 1


def test_writes_through_data_are_not_seen_and_the_next_checkpoint_has_them(tmp_path: Path) -> None:
    """Torch does not count them. It is a limit, and the exact digests at saves and resumes do not have it."""
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 4)
        rec.checkpoint(loop.save(tmp_path / "a"), step=4)
        loop.model[0].weight.data.mul_(0.5)
        rec.checkpoint(loop.save(tmp_path / "b"), step=4)
        loop.run(rec, 8)
    ledger = only(tmp_path / "runs")
    assert drifts(ledger) == []
    weights = {
        next(c.digest for c in r.payload.live if c.component == "weights") for r in ledger.of("checkpoint")
    }
    assert len(weights) == 2


def test_edits_at_every_step_are_told_a_few_times_and_then_counted(tmp_path: Path) -> None:
    loop = Loop()

    def act(step: int) -> None:
        if step >= 5 and step % 3 == 0:
            loop.optimizer.state.clear()

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 30, before=act)
    assert [d.from_step for d in drifts(only(tmp_path))] == [6, 9, 12]
    gaps = " ".join(only(tmp_path).last("coverage").payload.gaps)
    assert "edited beside the updates 9 times, of which the first 3 are on record" in gaps


def test_several_edits_before_one_step_are_one_confounded_drift(tmp_path: Path) -> None:
    """State dropped, decay set, data skipped: one record, three changes, and the verdict has all of them."""

    def act(loop: Loop, rec: Any) -> None:
        loop.optimizer.state.clear()
        loop.optimizer.param_groups[0]["weight_decay"] = 0.0
        loop.loader.position += 10

    ledger = run(tmp_path, act, at=7)
    drift = one(ledger)
    assert (drift.from_step, sorted(concepts(drift))) == (
        7,
        ["batch_skip", "optimizer_state", "weight_decay"],
    )
    assert drift.confounded
    chain = {k.concept for c in ledger.last("verdict").payload.claims for k in c.chain}
    assert chain == {"batch_skip", "optimizer_state", "weight_decay"}


def test_an_object_whose_counters_cannot_be_read_costs_the_edits_alone(tmp_path: Path) -> None:
    """Said once in the ledger; steps, series and the other values are recorded as ever."""

    class Stubborn(defaultdict):  # type: ignore[type-arg]
        def __len__(self) -> int:
            raise RuntimeError("no length")

    loop = Loop()
    loop.optimizer.state = Stubborn(dict)
    with attach(loop, tmp_path) as rec:
        assert len(loop.run(rec, 6)) == 6
    ledger = only(tmp_path)
    assert [r.payload.part for r in ledger.of("degraded")] == ["edits"]
    assert len([r for r in ledger.series("probes").to_pylist() if r["signal"] == "loss"]) == 6


# -- the loader


def jump(by: int) -> Act:
    def act(loop: Loop, rec: Any) -> None:
        loop.loader.position += by

    return act


def test_a_loader_that_jumps_ahead_is_skipped_data(tmp_path: Path) -> None:
    ledger = run(tmp_path, jump(10), at=7)
    drift = one(ledger)
    assert (drift.from_step, concepts(drift)) == (7, ["batch_skip"])
    assert "after step 6 the loader's counter went from 6 to 17; 1 further is usual" in drift.changes[0].text
    verdict = {c.claim: c.status for c in ledger.last("verdict").payload.claims}
    assert verdict["data_exposure"] == "broken"


def test_a_loader_that_goes_back_reads_data_twice(tmp_path: Path) -> None:
    drift = one(run(tmp_path, jump(-4), at=8))
    assert concepts(drift) == ["loader_position"]
    assert "the loader went back: after step 7 the loader's counter went from 7 to 4" in drift.changes[0].text


def test_a_new_epoch_is_no_jump(tmp_path: Path) -> None:
    """The counter begins again: that is silent, since an epoch's end looks like it."""

    def act(loop: Loop, rec: Any) -> None:
        loop.loader.position = 0

    assert drifts(run(tmp_path, act, at=8, steps=14)) == []


def test_a_counter_that_moves_as_it_likes_is_not_judged(tmp_path: Path) -> None:
    """A loader that counts documents, of which a batch takes more or fewer."""
    loop = Loop()
    sizes = iter([1, 2, 1, 1, 3, 2, 2, 1, 4, 1, 1, 2, 5, 1])
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 14, before=lambda step: jump(next(sizes))(loop, rec))
    assert drifts(only(tmp_path)) == []


def test_a_loader_without_a_counter_stays_unjudged_within_a_segment(tmp_path: Path) -> None:
    """A plain loader: nothing can be seen, and nothing is claimed."""
    assert drifts(run(tmp_path, jump(10), at=7, loop=Loop(loader=Plain()))) == []


def test_micro_batches_move_a_counter_in_proportion(tmp_path: Path) -> None:
    """Accumulation changes from two to three micro-batches: a change of the batch, and no jump of the loader."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 12):
            with rec.step(step) as st:
                for _ in range(2 if step < 7 else 3):
                    batch = next(loop.loader)
                    st.batch(batch)
                    loop.model(batch["x"]).pow(2).mean().backward()
                loop.optimizer.step()
                loop.optimizer.zero_grad()
                loop.scheduler.step()
    found = {c for d in drifts(only(tmp_path)) for c in concepts(d)}
    assert found == {"grad_accum", "global_batch"}


# -- what it costs, and what it touches


def test_looking_for_edits_reads_no_tensor_but_a_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters only, a copy of some elements of one parameter, and never a device's step counter."""
    model = torch.nn.Linear(1000, 1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    from lineage.capture.watched import Watched

    watched = Watched(model, optimizer)
    weights, state = edits.Weights(watched, edits.Parameters(watched)), edits.State(watched)
    copied: list[int] = []
    later = edits.Later

    def counted(tensor: Any) -> Any:
        copied.append(tensor.numel())
        return later(tensor)

    monkeypatch.setattr(edits, "Later", counted)
    for step in range(1, 6):
        weights.before_block(step)
        list(state.before_block(step))
        model(torch.ones(1, 1000)).sum().backward()
        optimizer.step()
        list(state.after_block(step))
        list(weights.found())
        weights.after_block()
    assert copied == [edits.SAMPLE * 4] * 5

    class OnDevice:
        device = torch.device("cuda")

        def item(self) -> int:
            raise AssertionError("reading this would wait for the device")

    assert edits._count(OnDevice()) is None


def test_another_rank_records_the_jump_of_its_own_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and weights are told by rank 0 for all; a loader is each rank's own."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def act(loop: Loop, rec: Any) -> None:
        jump(10)(loop, rec)
        loop.optimizer.state.clear()

    ledger = run(tmp_path, act, at=7)
    (record,) = ledger.of("drift")
    assert (record.rank, record.payload.from_step) == (1, 7)
    assert [c.text[:8] for c in record.payload.changes] == ["rank 1: "]
    assert concepts(record.payload) == ["batch_skip"]


def test_the_kept_elements_are_taken_by_views_whatever_the_strides() -> None:
    """Flattening a transposed weight would copy all of it at each step; the last element kept counts too."""
    from lineage.capture.watched import Watched

    model = torch.nn.Linear(70, 90, bias=False)
    model.weight = torch.nn.Parameter(torch.randn(70, 90).t())
    weights = edits.Weights(Watched(model), edits.Parameters(Watched(model)))
    for step in range(1, 5):
        weights.before_block(step)
        weights.after_block()
    with torch.no_grad():
        model.weight[0, edits.SAMPLE - 1] += 1
    weights.before_block(5)
    assert [f.concept for f in weights.found()] == ["state_edit"]
