"""A folder of Hugging Face's Trainer: `checkpoint-N`.

transformers 5.24, trainer.py. Written by `_save_checkpoint` in this order: model, optimizer.pt and scheduler.pt
(`_save_optimizer_and_scheduler`), scaler.pt (`_save_scaler`, only with fp16), rng_state.pth or rng_state_<rank>.pth
(`_save_rng_state`), trainer_state.json last. `save_only_model` leaves out all but the model and trainer_state.json.
On a resume: no weights is an error (`_load_from_checkpoint`), no trainer_state.json is one (`TrainerState.load_from_
json`); without optimizer.pt or without scheduler.pt neither is loaded, in silence (`_load_optimizer_and_scheduler`); no
scaler.pt is silent (`_load_scaler`); no RNG file is a line of info (`_load_rng_state`). Data are replayed and skipped.
"""

from __future__ import annotations

import re
from typing import Any

from .. import optimizer, taking, weights
from ..contents import Contents
from ..folder import Folder
from ..pickle_values import Made
from . import deepspeed, fsdp, ranks

NAME = "hf_trainer"
STATE = "trainer_state.json"
_REMEDY = "Take an earlier checkpoint, or declare in the record that this is not restored."


def looks(folder: Folder) -> bool:
    """trainer_state.json, or what the Trainer writes before it when a save was cut short.

    Loops of other people name their files optimizer.pt and scheduler.pt too: the folder's name, or training_args.bin,
    which the Trainer writes with the weights, tells them apart.
    """
    if folder.only:
        return False
    own = folder.has("training_args.bin") or re.fullmatch(r"checkpoint-\d+", folder.root.name)
    return folder.has(STATE) or (folder.has("optimizer.pt") and bool(own))


def read(folder: Folder, c: Contents) -> None:
    """What is there of a checkpoint of the Trainer, and what a resume would do without the rest."""
    c.title = "Hugging Face Trainer"
    args = _arguments(folder, c)
    _step(folder, c)
    fp16 = bool(args.get("fp16"))
    sharded = _sharded(folder, c)
    if "weights" not in sharded:
        weights.read(c, folder)
    if c.parts["weights"].status == "missing":
        c.find(
            "LIN-K004",
            "fails",
            "there are no weights (model.safetensors, pytorch_model.bin, or shards with an index): Trainer stops with "
            "`Can't find a valid checkpoint`",
            "Take an earlier checkpoint.",
            "weights",
        )
    only_model = bool(args.get("save_only_model"))
    if only_model:
        _only_model(c)
    else:
        _optimizer(folder, c, fp16, sharded)
        _scaler(folder, c, fp16, sharded)
        _rng(folder, c, args)
    _position(c, args)
    _names(folder, c)


def _arguments(folder: Folder, c: Contents) -> dict[str, Any]:
    """training_args.bin: a pickled TrainingArguments, of which the fields are read."""
    if not folder.has("training_args.bin"):
        return {}
    made = taking.torch(c, folder, "training_args.bin", None)
    value = made.value if made else None
    args = value.state if isinstance(value, Made) and isinstance(value.state, dict) else {}
    shared = args.get("distributed_state")
    count = shared.get("num_processes") if isinstance(shared, Made) else None
    if isinstance(count, int):
        c.facts["ranks_at_save"] = count
    for key in ("fp16", "bf16", "save_only_model", "ignore_data_skip", "seed", "max_steps"):
        if isinstance(args.get(key), bool | int):
            c.facts[key] = args[key]
    return args


def _step(folder: Folder, c: Contents) -> None:
    if not folder.has(STATE):
        c.find(
            "LIN-K010",
            "fails",
            f"{STATE} is missing: Trainer writes it last, so this save was cut short, or the file "
            "was left behind in a copy",
            "Take an earlier checkpoint. Trainer stops on this one; `resume_from_checkpoint=True` may choose it.",
        )
    data = taking.json(c, folder, STATE) if folder.has(STATE) else None
    step = data.get("global_step") if isinstance(data, dict) else None
    named = re.fullmatch(r"checkpoint-(\d+)", c.name)
    if isinstance(step, int):
        c.step, c.step_from = step, f"{STATE}: global_step"
        if named and int(named[1]) != step:
            c.find(
                "LIN-K012",
                "differs",
                f"{STATE} says step {step:,}, and the folder is named {c.name}",
                "Look which of the two is true of the weights; a resume believes the file.",
                certain=False,
            )
    elif named:
        c.step, c.step_from = int(named[1]), f"the folder's name {c.name}"


def _sharded(folder: Folder, c: Contents) -> set[str]:
    """FSDP's folders and files; DeepSpeed's lie beside `latest`."""
    done = fsdp.read(folder, c)
    if deepspeed.looks(folder):
        inner = Contents(c.path, deepspeed.NAME, "", step=c.step)
        deepspeed.read(folder, inner)
        kept = {"weights", "optimizer_state", "optimizer_step", "grad_scaler"}
        c.world = inner.world
        c.facts |= inner.facts
        if not folder.has("scheduler.pt"):
            kept |= {
                "lr_scheduler"
            }  # with a scheduler of DeepSpeed's own Trainer writes none (trainer.py, 3899)
        inner.findings = [f for f in inner.findings if f.component in kept or f.component is None]
        ranks.absorb(c, inner, folder, "", kept, folder)
        done |= kept
    return done


def _only_model(c: Contents) -> None:
    for component in ("optimizer_state", "optimizer_step", "lr_scheduler", "grad_scaler", "rng"):
        c.part(component, "by_design", "save_only_model leaves it out")
    c.find(
        "LIN-K005",
        "differs",
        "the run was set to save_only_model: there is no optimizer, scheduler, scaler or RNG, and "
        "Trainer resumes without "
        "a word, with new moments and the schedule from its start",
        "Set save_only_model=False for checkpoints that a run shall go on from.",
        "optimizer_state",
    )


def _optimizer(folder: Folder, c: Contents, fp16: bool, sharded: set[str]) -> None:
    name = next((n for n in ("optimizer.pt", "optimizer.bin") if folder.has(n)), None)
    has_scheduler = folder.has("scheduler.pt")
    if name:
        made = taking.torch(c, folder, name, "optimizer_state")
        if made and optimizer.looks(made.value):
            state = optimizer.state(made.value, made, folder)
            optimizer.check(c, state, name, skips=fp16)
            optimizer.shapes(c, state, name)
            c.tensors += made.tensors("optimizer_state", made.value["state"])
            c.shards.append(name)
        else:
            c.part("optimizer_state", "partial", f"{name} could not be read as an optimizer's state", name)
    elif "optimizer_state" not in sharded:
        c.part("optimizer_state", "missing", "no optimizer.pt")
        c.part("optimizer_step", "missing", "no optimizer.pt")
        tail = ", and Trainer then does not load scheduler.pt either" if has_scheduler else ""
        c.find(
            "LIN-K005",
            "differs",
            f"optimizer.pt is missing{tail}: it resumes without a word, with new moments",
            _REMEDY,
            "optimizer_state",
        )
    if has_scheduler:
        made = taking.torch(c, folder, "scheduler.pt", "lr_scheduler")
        if made:
            optimizer.scheduler(c, made.value, "scheduler.pt", skips=fp16)
    elif "lr_scheduler" not in sharded:
        c.part("lr_scheduler", "missing", "no scheduler.pt")
        tail = ", and Trainer then does not load optimizer.pt either" if name else ""
        c.find(
            "LIN-K006",
            "differs",
            f"scheduler.pt is missing{tail}: the learning rate starts from the beginning of its schedule",
            _REMEDY,
            "lr_scheduler",
        )


def _scaler(folder: Folder, c: Contents, fp16: bool, sharded: set[str]) -> None:
    if folder.has("scaler.pt"):
        made = taking.torch(c, folder, "scaler.pt", "grad_scaler")
        scale = made.value.get("scale") if made and isinstance(made.value, dict) else None
        if made and made.value == {}:
            c.part("grad_scaler", "present", "scaler.pt, of a scaler that was switched off", "scaler.pt")
        elif made:
            c.part("grad_scaler", "present", f"scaler.pt: scale {scale}", "scaler.pt")
    elif fp16 and "grad_scaler" not in sharded:
        c.part("grad_scaler", "missing", "no scaler.pt, and training_args.bin says fp16")
        c.find(
            "LIN-K007",
            "differs",
            "scaler.pt is missing and the run trains in fp16: the scale starts at 65,536 again, and "
            "the first steps may "
            "overflow and be skipped, without a word from Trainer",
            _REMEDY,
            "grad_scaler",
        )
    elif "grad_scaler" not in c.parts:
        c.part("grad_scaler", "by_design", "only fp16 has one")


def _rng(folder: Folder, c: Contents, args: dict[str, Any]) -> None:
    numbered = {int(m[1]): n for n in folder.names() if (m := re.fullmatch(r"rng_state_(\d+)\.pth", n))}
    known = c.facts.get("ranks_at_save")
    if numbered:
        c.world = c.world or max(known or 0, max(numbered) + 1)
        ranks.rng(c, numbered, c.world, "rng_state_{}.pth", "Trainer says so in one line of info")
        names = [numbered[r] for r in sorted(numbered)]
    elif folder.has("rng_state.pth"):
        c.world = c.world or known or 1
        ranks.rng(c, {0: "rng_state.pth"}, c.world, "rng_state_{}.pth", "Trainer says so in one line of info")
        names = ["rng_state.pth"]
    else:
        c.world = c.world or known
        c.part("rng", "missing", "no rng_state.pth and no rng_state_<rank>.pth")
        c.find(
            "LIN-K008",
            "differs",
            "the random states are missing (rng_state.pth, or rng_state_<rank>.pth for each rank): dropout and "
            "augmentation go other ways, and Trainer says so in one line of info",
            _REMEDY,
            "rng",
        )
        return
    for one, made in taking.each(c, folder, names, "rng").items():
        held = made.value if isinstance(made.value, dict) else {"python": 0, "numpy": 0, "cpu": 0}
        gone = [k for k in ("python", "numpy", "cpu") if k not in held]
        if gone:
            c.find("LIN-K008", "fails", f"{one} has no state for {', '.join(gone)}", _REMEDY, "rng")


def _position(c: Contents, args: dict[str, Any]) -> None:
    if args.get("ignore_data_skip"):
        c.part("loader_position", "missing", "ignore_data_skip: the data begin anew")
        c.find(
            "LIN-K009",
            "differs",
            "the run was set to ignore_data_skip: after a resume the data begin at the start of the epoch again",
            "Set ignore_data_skip=False, or count these samples as seen twice.",
            "loader_position",
        )
    else:
        c.part(
            "loader_position", "by_design", "Trainer keeps none: it replays the epoch and skips to the step"
        )


def _names(folder: Folder, c: Contents) -> None:
    """trainer_state.json is written last: what is much newer than it was written by something else."""
    if folder.has(STATE):
        names = [
            n
            for n in folder.names()
            if n.startswith(("model", "pytorch_model", "optimizer", "scheduler", "rng"))
        ]
        ranks.times(c, folder, STATE, names)
