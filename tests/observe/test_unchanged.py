"""Wrapped calls are the calls that they were: results, exceptions, signatures, pickles, warnings, identities."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
import torch.distributed.checkpoint as dcp
import wandb
from mlflow import MlflowClient

import lineage.observe
from lineage.observe import Options
from lineage.observe.light import targets

from .conftest import Observed
from .test_wandb import start

light = lineage.observe.light

CALLS = (
    (wandb, "init"),
    (wandb.Run, "log"),
    (wandb.Run, "define_metric"),
    (wandb.Run, "finish"),
    (wandb.sdk.Config, "update"),
    (wandb.sdk.Config, "__setitem__"),
    (MlflowClient, "log_metric"),
    (MlflowClient, "log_batch"),
    (MlflowClient, "create_run"),
    (mlflow, "start_run"),
    (torch, "save"),
    (torch, "load"),
    (dcp, "save"),
    (dcp, "async_save"),
    (dcp, "load"),
)


@pytest.fixture
def plain() -> Iterator[dict[tuple[Any, str], Any]]:
    """The originals, as they stand without the observer."""
    lineage.observe.uninstall()
    yield {(owner, name): vars(owner)[name] for owner, name in CALLS}
    lineage.observe.uninstall()


def test_the_light_part_is_one_by_whatever_name_it_is_imported() -> None:
    assert sys.modules["lineage.observe.light.events"] is sys.modules["_lineage_light.events"]
    assert lineage.observe.light is sys.modules["_lineage_light"]


def test_every_watched_module_has_its_wrapper() -> None:
    assert set(targets._WRAPPERS) == set(targets.WATCHED)


def test_names_documentation_signatures_and_pickles_are_the_originals(plain: Any, observed: Observed) -> None:
    for (owner, name), original in plain.items():
        ours = vars(owner)[name]
        assert ours is not original, name
        assert (ours.__name__, ours.__qualname__, ours.__module__, ours.__doc__) == (
            original.__name__,
            original.__qualname__,
            original.__module__,
            original.__doc__,
        )
        assert inspect.signature(ours) == inspect.signature(original)
        if not hasattr(original, "__wrapped__"):  # of W&B's own decorators it shows (*args, **kwargs) anyway
            assert inspect.getfullargspec(ours) == inspect.getfullargspec(original)
        assert inspect.unwrap(ours) is inspect.unwrap(original)
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert copy.deepcopy(ours) is ours


def test_one_function_under_two_names_stays_one(observed: Observed) -> None:
    assert wandb.init is wandb.sdk.init
    assert torch.save is torch.serialization.save
    assert mlflow.start_run is mlflow.tracking.fluent.start_run
    assert vars(wandb.sdk.Config)["__setattr__"] is vars(wandb.sdk.Config)["__setitem__"]


def test_installing_twice_wraps_once_and_uninstalling_puts_every_original_back(
    plain: Any, tmp_path: Path
) -> None:
    before = list(sys.meta_path)
    options = Options(dir=str(tmp_path / "runs"), quiet=True, capture=False)
    lineage.observe.install(options)
    ours = {key: vars(key[0])[key[1]] for key in plain}
    lineage.observe.install(options)
    assert ours == {key: vars(key[0])[key[1]] for key in plain}
    assert lineage.observe.installed()
    lineage.observe.uninstall()
    lineage.observe.uninstall()
    assert {key: vars(key[0])[key[1]] for key in plain} == plain
    assert sys.meta_path == before
    assert not lineage.observe.installed()


def test_what_somebody_wrapped_after_the_observer_stays_and_the_observer_inside_is_mute(
    plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage.observe.install(Options(dir=str(tmp_path / "runs"), quiet=True, capture=False))
    inner, calls = torch.save, []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return inner(*args, **kwargs)

    monkeypatch.setattr(torch, "save", theirs)
    lineage.observe.uninstall()
    assert torch.save is theirs
    torch.save({"a": 1}, tmp_path / "x.pt")
    assert len(calls) == 1
    assert not light.events.EVENTS
    assert not (tmp_path / "runs").exists()


def test_results_and_exceptions_are_the_same_objects(tmp_path: Path, observed: Observed) -> None:
    frames = light.targets.around
    thing, problem = object(), ValueError("the user's own")

    def call(fail: bool) -> object:
        if fail:
            raise problem
        return thing

    for made in (
        frames(call, lambda *a: None),
        frames(call, lambda *a: None, lambda *a: None, lambda *a: None),
    ):
        assert made(False) is thing
        with pytest.raises(ValueError, match="own") as caught:
            made(True)
        assert caught.value is problem
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
    with pytest.raises(RuntimeError) as gone:
        torch.save({"a": 1}, tmp_path / "no" / "such" / "folder.pt")
    assert traceback.extract_tb(gone.value.__traceback__)[-1].filename == torch.serialization.__file__


def test_a_copy_that_fails_is_counted_and_the_call_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = light.events.SWITCH
    monkeypatch.setattr(switch, "on", True)
    monkeypatch.setattr(switch, "failures", 0)

    def broken(*args: Any) -> None:
        raise RuntimeError("inside the observer")

    def refuse(value: int) -> int:
        if value < 0:
            raise KeyError(value)
        return value

    made = light.targets.around(refuse, broken, broken, broken)
    assert made(3) == 3
    with pytest.raises(KeyError) as caught:
        made(-1)
    assert caught.value.__context__ is None
    assert switch.failures == 4  # before and after the first call, before and at the refusal of the second
    assert "inside the observer" in switch.first_failure


def test_a_warning_points_at_the_user_s_line_and_not_at_the_wrapper(observed: Observed) -> None:
    def warns() -> None:
        warnings.warn("look here", stacklevel=2)

    made = light.targets.around(warns, lambda *a: None)
    both = light.targets.around(warns, lambda *a: None, lambda *a: None, lambda *a: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made()
        both()
    assert [w.filename for w in caught] == [__file__, __file__]


def test_what_the_caller_changes_after_the_call_does_not_reach_the_record(
    home: Path, observed: Observed
) -> None:
    run = start()
    row: dict[str, Any] = {"loss": 1.0, "deep": {"a": 1.0}}
    total = torch.tensor(2.0)
    run.log({**row, "total": total})
    run.log(row)
    row["loss"], row["deep"]["a"] = 9.0, 9.0
    total.zero_()
    run.finish()
    found = {(r["key"], r["value"]) for r in observed.only().series("metrics").to_pylist()}
    assert found == {("loss", 1.0), ("deep.a", 1.0), ("total", 2.0)}


def test_a_run_object_stays_what_it_is(home: Path, observed: Observed) -> None:
    run = start()
    assert type(run) is wandb.Run
    assert wandb.run is run
    assert wandb.log.__self__ is run
    run.finish()
    assert wandb.run is None


def test_training_under_observation_gives_the_same_losses_and_weights_bit_for_bit(
    home: Path, tmp_path: Path, plain: Any
) -> None:
    def train(folder: Path) -> tuple[list[float], bytes]:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run = start(config={"lr": 0.01})
        losses = []
        for step in range(1, 21):
            loss = model(torch.randn(16, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss}, step=step)
            losses.append(loss.item())
            torch.save({"model": model.state_dict(), "step": step}, folder / "ck.pt")
        run.finish()
        return losses, b"".join(p.detach().numpy().tobytes() for p in model.parameters())

    without = train(tmp_path)
    lineage.observe.install(Options(dir=str(tmp_path / "runs"), quiet=True, capture=False))
    watched = train(tmp_path)
    lineage.observe.uninstall()
    assert watched == without
