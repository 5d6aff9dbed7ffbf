"""Real Trainer loops on a tiny model, whole and broken. As a script it is one of several gloo ranks."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers import trainer as trainer_module

from lineage.integrations.hf_trainer import LineageCallback


class Tokens(Dataset):
    """Sequences of made tokens, each its own."""

    def __init__(self, size: int = 40) -> None:
        self.rows = torch.randint(0, 64, (size, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[at], "labels": self.rows[at]}


class Stream(IterableDataset):
    """The same, one after the other, without a length."""

    def __iter__(self) -> Any:
        tokens = Tokens()
        return iter([tokens[i] for i in range(len(tokens))])


def model(kind: type[GPT2LMHeadModel] = GPT2LMHeadModel) -> GPT2LMHeadModel:
    """One layer with dropout, whose embedding and head are tied."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return kind(config)


class Counting(GPT2LMHeadModel):
    """A model with a buffer that training changes and no checkpoint holds."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.register_buffer("seen", torch.zeros(4), persistent=False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.mul_(0.9).add_(1.0)
        return super().forward(*args, **kwargs)


class Averaged(TrainerCallback):
    """Keeps an average of the weights, as many training scripts do."""

    def __init__(self, saved: dict[str, torch.Tensor] | None = None) -> None:
        self.held: dict[str, torch.Tensor] = {k: v.clone() for k, v in (saved or {}).items()}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, p in model.named_parameters():
            self.held.setdefault(name, p.detach().clone())

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, p in model.named_parameters():
            self.held[name].lerp_(p.detach(), 0.1)


class Scaled(Trainer):
    """Gradients are scaled, by torch's own scaler on the CPU. Accelerate itself makes one for devices only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)


class Stop(TrainerCallback):
    """Ends the training after a step, as a kill would, with the schedule of the whole."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.at


class OwnNumbers(TrainerCallback):
    """Each rank draws random numbers of its own, as loops with random augmentation do. Trainer seeds all alike."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.global_step:
            torch.manual_seed(100 + args.process_index)


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    """Eight steps within an epoch of ten, a save every three."""
    given: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 4,
        "max_steps": 8,
        "save_steps": 3,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 5,
    }
    return TrainingArguments(**(given | more))


def trainer(
    folder: Path,
    *,
    kind: type[Trainer] = Trainer,
    net: Any = None,
    stop: int | None = None,
    before: tuple[TrainerCallback, ...] = (),
    observed: bool = True,
    options: dict[str, Any] | None = None,
    data: Any = None,
    evaluated: Dataset | None = None,
    **more: Any,
) -> Trainer:
    """A trainer with the callback on it. `more`: arguments of the training."""
    ours = [LineageCallback(dir=folder / "runs", quiet=True, report=False, **(options or {}))]
    return kind(
        model=model() if net is None else net,
        args=arguments(folder, **more),
        train_dataset=Tokens() if data is None else data,
        eval_dataset=evaluated,
        callbacks=[*before, *(ours if observed else ()), *([Stop(stop)] if stop else ())],
    )


def losses(made: Trainer) -> list[float]:
    """The loss of each step, those before the checkpoint among them."""
    return [x["loss"] for x in made.state.log_history if "loss" in x]


def saved(folder: Path, step: int) -> Path:
    """Where Trainer puts a checkpoint."""
    return folder / "out" / f"checkpoint-{step}"


# -- what goes wrong at a resume: each changes a trainer that is about to resume


def after_load(made: Trainer, act: Callable[[], None]) -> None:
    """Do something when weights, optimizer and scheduler were loaded."""
    load = made._load_optimizer_and_scheduler

    def loaded(checkpoint: str | None) -> None:
        load(checkpoint)
        act()

    made._load_optimizer_and_scheduler = loaded  # type: ignore[method-assign]


def scheduler_restarted(made: Trainer) -> None:
    """The schedule begins anew, over the optimizer that was loaded."""

    def act() -> None:
        for group in made.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        made.lr_scheduler = None
        made.create_scheduler(made.args.max_steps)

    after_load(made, act)


def untied(made: Trainer) -> None:
    """Embedding and head have a tensor each."""

    def act() -> None:
        made.model.lm_head.weight = torch.nn.Parameter(made.model.lm_head.weight.detach().clone())

    after_load(made, act)


def other_type(made: Trainer) -> None:
    """The weights come back in bfloat16."""
    load = made._load_from_checkpoint

    def loaded(*args: Any, **kwargs: Any) -> None:
        load(*args, **kwargs)
        made.model.to(torch.bfloat16)

    made._load_from_checkpoint = loaded  # type: ignore[method-assign]


def counter_reset(made: Trainer) -> None:
    """The moments are there, and the optimizer counts its updates from 0."""

    def act() -> None:
        for state in made.optimizer.state.values():
            state["step"].zero_()

    after_load(made, act)


def stale_optimizer(made: Trainer) -> None:
    """The optimizer holds the parameters of a model that is not the one that trains."""

    def act() -> None:
        other = model()
        groups = made.optimizer.param_groups
        theirs = dict(zip(made.model.parameters(), other.parameters(), strict=True))
        for group in groups:
            group["params"] = [theirs[p] for p in group["params"]]

    after_load(made, act)


def one_too_many(made: Trainer) -> None:
    """The loader skips one batch more than were trained on."""
    skip = trainer_module.skip_first_batches

    def more(loader: Any, n: int = 0) -> Any:
        trainer_module.skip_first_batches = skip
        return skip(loader, n + 1)

    trainer_module.skip_first_batches = more


def one_lost(made: Trainer) -> None:
    """A batch is drawn from the loader and thrown away."""
    draw, drawn = made.get_batch_samples, []

    def get(batches: Any, *args: Any) -> Any:
        if not drawn:
            drawn.append(next(batches))
        return draw(batches, *args)

    made.get_batch_samples = get  # type: ignore[method-assign]


def optimizer_of_another_step(made: Trainer) -> None:
    """Rank 1 reads its optimizer and schedule from the save before."""
    if made.args.process_index == 1:
        load = made._load_optimizer_and_scheduler
        made._load_optimizer_and_scheduler = lambda path: load(path.replace("-6", "-3"))  # type: ignore


FAULTS: dict[str, Callable[[Trainer], None]] = {
    f.__name__: f
    for f in (
        scheduler_restarted,
        untied,
        other_type,
        counter_reset,
        stale_optimizer,
        one_too_many,
        one_lost,
        optimizer_of_another_step,
    )
}


def main(folder: str, resume: str, *more: str) -> None:
    """One segment of this rank. `more`: name=value of the arguments, fault=name among them."""
    given: dict[str, Any] = {}
    for name, _, value in (m.partition("=") for m in more):
        given[name] = value if name == "fault" else ast.literal_eval(value)
    fault = given.pop("fault", None)
    made = trainer(Path(folder), before=(OwnNumbers(),), ddp_backend="gloo", **given)
    if fault:
        FAULTS[fault](made)
    made.train(resume_from_checkpoint=resume or None)
    torch.distributed.destroy_process_group()


def copied(made: Path, to: Path) -> Path:
    """A copy of a run's folder, whose checkpoints and ledger a test may break."""
    shutil.copytree(made, to, symlinks=True)
    return to


if __name__ == "__main__":
    main(*sys.argv[1:])
