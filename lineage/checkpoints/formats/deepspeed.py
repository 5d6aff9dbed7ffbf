"""A folder of DeepSpeed: `latest`, and a folder for each tag; or the folder of one tag.

deepspeed 0.19, runtime/engine.py. `save_checkpoint` writes `<tag>/mp_rank_XX_model_states.pt` (stage 3:
`zero_pp_rank_D_mp_rank_XX_model_states.pt` for every data-parallel rank, `_get_ckpt_name`),
`<tag>/[bf16_]zero_pp_rank_D_mp_rank_XX_optim_states.pt` for every rank (`_get_rank_zero_ckpt_name`), then `latest`
with the tag. Experts: `layer_L_expert_E_mp_rank_XX_model_states.pt` and `expp_rank_E_mp_rank_XX_optim_states.pt`;
pipeline: `layer_LL-model_MM-model_states.pt` (runtime/pipe/module.py). model_states: module, lr_scheduler,
global_steps, skipped_steps, dp_world_size, mp_world_size, ds_config, what the caller added. No random states and no
loader. Without `latest`, `load_checkpoint` warns and returns (None, None); a missing optim_states file is an error
today and was a warning once (gpt-neox #750).
"""

from __future__ import annotations

import re
from typing import Any

from .. import optimizer, taking, torch_file, words
from ..contents import Contents
from ..folder import Folder
from ..pickle_values import Made, TensorRef
from ..sources import AHEAD
from . import ranks
from .deepspeed_shards import Shards, whole

NAME = "deepspeed"
_STATES = re.compile(r"(?:.*_)?(?:model|optim)_states\.pt|.*-model_states\.pt")
_REMEDY = "Copy the missing files again from the nodes that wrote them, or take an earlier tag."


def tag_looks(folder: Folder) -> bool:
    """Whether a folder is one tag's."""
    return any(_STATES.fullmatch(n) for n in folder.names())


def looks(folder: Folder) -> bool:
    """A tag's folder, or the folder of tags."""
    if folder.only:
        return False
    return tag_looks(folder) or any(tag_looks(folder.sub(n)) for n in folder.folders())


def read(folder: Folder, c: Contents) -> None:
    """What is there of a tag, and what a resume would do without the rest."""
    c.title = "DeepSpeed"
    c.facts["deepspeed"] = True
    tag = "" if tag_looks(folder) else _tag(folder, c)
    if tag is None:
        c.part("weights", "unknown", "no tag was chosen")
        return
    c.facts["tag"] = tag or c.name
    shards = Shards.of(folder, tag)
    first = _model(folder, c, shards)
    _grid(c, shards, first)
    _optimizer(folder, c, shards, first)
    _rest(folder, c, first, shards)
    whole(folder, c, shards)


def _tag(folder: Folder, c: Contents) -> str | None:
    """The tag that `latest` names; the newest one, and a finding, where it names none that is there."""
    tags = [n for n in folder.folders() if tag_looks(folder.sub(n))]
    newest = max(tags, key=lambda t: max(e.mtime for n, e in folder.entries.items() if n.startswith(t + "/")))
    if not folder.has("latest"):
        c.find(
            "LIN-K011",
            "fails",
            "`latest` is missing: load_checkpoint warns and returns (None, None), and a caller that "
            "goes on trains from "
            f"its first weights; the tags {', '.join(sorted(tags)[-3:])} are there",
            f"Pass tag={newest!r} after looking at it, or write the tag into `latest`.",
            certain=False,  # save_latest=False leaves it out
        )
        return newest
    raw = taking.attempt(c, "latest", None, lambda: folder.read("latest", most=4096))
    name = (raw or b"").decode("utf-8", "replace").strip()
    if name in tags:
        return name
    shown = taking.attempt(c, "latest", None, lambda: folder.named_inside(name)) if name else ""
    if shown is not None:
        what = f"names {name[:80]!r}, and no such tag is there" if name else "is empty"
        c.find(
            "LIN-K011",
            "fails",
            f"`latest` {what}; there are {', '.join(sorted(tags)[-3:])}",
            f"Pass tag={newest!r} after looking at it, or write the tag into `latest`.",
        )
    return newest


def _model(folder: Folder, c: Contents, shards: Shards) -> dict[str, Any]:
    """The first model_states file tells of the run; the steps of the others must be the same."""
    names = shards.model_files()
    if not names:
        c.part("weights", "missing", "no model_states file")
        c.find(
            "LIN-K004", "fails", "there is no *_model_states.pt: load_checkpoint stops", _REMEDY, "weights"
        )
        return {}
    first: dict[str, Any] = {}
    steps: dict[int, str] = {}
    folder.ahead(shards.looked(names), first=48, last=AHEAD)
    for name in shards.looked(names):
        made = taking.torch(c, folder, name, "weights")
        value = made.value if made and isinstance(made.value, dict) else {}
        first = first or value
        step = words.whole(value.get("global_steps"))
        if step is not None:
            steps.setdefault(step, name)
        if made:
            c.tensors += made.tensors("weights", value.get("module") or {})
    for name in shards.layers:
        made = taking.torch(c, folder, name, "weights") if len(shards.layers) <= shards.most else None
        c.tensors += made.tensors("weights") if made else []
    c.shards += [*names, *shards.layers]
    if steps:
        c.step, c.step_from = min(steps), f"{steps[min(steps)]}: global_steps"
    if len(steps) > 1:
        said = ", ".join(f"{n} at {s:,}" for s, n in sorted(steps.items())[:3])
        c.find(
            "LIN-K012",
            "fails",
            f"the model_states files are of several steps: {said}",
            "Take a tag whose files are of one save.",
            "weights",
        )
    tagged = re.fullmatch(r"global_step(\d+)", c.facts["tag"])
    if tagged and c.step is not None and int(tagged[1]) != c.step:
        c.find(
            "LIN-K012",
            "differs",
            f"the tag is {c.facts['tag']} and its files say global_steps {c.step:,}",
            "Look which of the two the run meant; a resume believes the file.",
            certain=False,
        )
    return first


def _grid(c: Contents, shards: Shards, first: dict[str, Any]) -> None:
    """Every rank's file must be there: dp_world_size times mp_world_size, as the first file says."""
    dp = words.whole(first.get("dp_world_size")) or shards.dp_seen
    mp = words.whole(first.get("mp_world_size")) or shards.mp_seen
    mp = max(mp, shards.mp_seen)
    c.world = dp * mp
    c.facts |= {"dp_world_size": dp, "mp_world_size": mp}
    gone = [f"mp_rank_{m:02d}" for m in range(mp) if m not in shards.model] if shards.model else []
    if shards.model_by_dp:
        gone += [
            f"zero_pp_rank_{d}_mp_rank_{m:02d}"
            for m in range(mp)
            for d in range(dp)
            if (d, m) not in shards.model_by_dp
        ]
    if gone:
        c.find(
            "LIN-K001",
            "fails",
            f"model_states of {len(gone):,} of "
            f"{max(len(shards.model) + len(shards.model_by_dp) + len(gone), 1):,} ranks "
            f"are missing: {', '.join(gone[:3])}",
            _REMEDY,
            "weights",
        )
    for layer, have in sorted(shards.experts.items()):
        lost = [e for e in range(max(have) + 1) if e not in have]
        if lost:
            text = f"experts {ranks.some(lost)} of layer {layer} are missing"
            c.find("LIN-K001", "fails", text, _REMEDY, "weights")
    if shards.model or shards.model_by_dp:
        files = len(shards.model_files()) + len(shards.layers)
        c.part(
            "weights",
            "partial" if gone else "present",
            f"{files:,} model_states files",
            *shards.model_files()[:8],
        )
    if not shards.optim:
        return
    lost_optim = [
        f"zero_pp_rank_{d}_mp_rank_{m:02d}"
        for m in range(mp)
        for d in range(dp)
        if (d, m) not in shards.optim
    ]
    if lost_optim:
        c.find(
            "LIN-K001",
            "fails",
            f"optim_states of {len(lost_optim):,} of {dp * mp:,} ranks are missing ({', '.join(lost_optim[:3])}): "
            "load_checkpoint stops, and old releases went on with a warning, without moments and fp32 weights",
            _REMEDY,
            "optimizer_state",
        )
        c.facts["optim_lost"] = len(lost_optim)


def _optimizer(folder: Folder, c: Contents, shards: Shards, first: dict[str, Any]) -> None:
    names = sorted(shards.optim.values())
    if not names:
        _unsharded(folder, c, shards, first)
        return
    skipped = words.whole(first.get("skipped_steps")) or 0
    states = []
    folder.ahead(shards.looked(names), first=48, last=AHEAD)
    for name in shards.looked(names):
        made = taking.torch(c, folder, name, "optimizer_state")
        value = made.value.get("optimizer_state_dict") if made and isinstance(made.value, dict) else None
        if not isinstance(value, dict) or made is None:
            continue
        stage = value.get("zero_stage")
        c.facts["zero_stage"] = stage.args[0] if isinstance(stage, Made) and stage.args else stage
        if isinstance(value.get("loss_scaler"), Made):
            c.facts["loss_scaler"] = value["loss_scaler"].of.rpartition(".")[2]
        c.tensors += made.tensors("optimizer_state", value)
        states.append((name, _base(value), made))
    c.shards += names
    counters: dict[float, str] = {}
    moments = 0
    for name, base, made in states:
        found = optimizer.state(base, made, folder) if optimizer.looks(base) else None
        moments += bool(found and found.kinds)
        for s in found.steps if found else ():
            counters.setdefault(s, name)
    lost = c.facts.get("optim_lost", 0)
    text = f"{len(names):,} of {(c.world or len(names)):,} ranks, stage {c.facts.get('zero_stage', '?')}"
    c.part("optimizer_state", "partial" if lost else "present", text, *names[:8])
    if states and not moments and c.step:
        c.part("optimizer_state", "missing", f"{len(names):,} files without moments")
        c.find(
            "LIN-K005",
            "differs",
            f"the optim_states files hold no moments at step {c.step:,} (such as {states[0][0]})",
            "Take an earlier tag, or declare that the moments start anew.",
            "optimizer_state",
        )
    _counters(c, counters, skipped)


def _base(value: dict[str, Any]) -> Any:
    """Stages 1 and 2 keep it as base_optimizer_state (or a list of it), stage 3 as optimizer_state_dict."""
    base = value.get("base_optimizer_state", value.get("optimizer_state_dict"))
    if isinstance(base, list):  # elastic form: one dict of flat tensors for each group
        return {"state": dict(enumerate(base)), "param_groups": [{"params": list(range(len(base)))}]}
    return base


def _counters(c: Contents, counters: dict[float, str], skipped: int) -> None:
    if not counters:
        c.part("optimizer_step", "unknown", "no step counter was found")
        return
    low, high = min(counters), max(counters)
    c.part("optimizer_step", "present", f"step counter {low:g}" + (f" to {high:g}" if high > low else ""))
    due = (c.step or 0) - skipped
    if high > low:
        c.find(
            "LIN-K012",
            "fails",
            f"the optim_states files are of several steps: {counters[low]} counts {low:g} updates, "
            f"{counters[high]} {high:g}",
            "Take a tag whose files are of one save.",
            "optimizer_step",
        )
    elif c.step and high != due:
        c.find(
            "LIN-K012",
            "differs",
            f"the optimizer counts {high:g} updates, and model_states says {due:,} were made ({skipped:,} skipped)",
            "Take a tag whose files are of one save; if the optimizer was reset on purpose, declare it.",
            "optimizer_step",
            certain=high > due,
        )


def _unsharded(folder: Folder, c: Contents, shards: Shards, first: dict[str, Any]) -> None:
    """Stage 0: the optimizer lies in model_states."""
    inner = first.get("optimizer")
    config = first.get("ds_config")
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    if optimizer.looks(inner):
        made = torch_file.read(folder, shards.model_files()[0])
        value = made.value.get("optimizer")
        optimizer.check(c, optimizer.state(value, made, folder), "the optimizer in model_states", skips=True)
        c.tensors += made.tensors("optimizer_state", value["state"])
        return
    if isinstance(inner, dict) and any(isinstance(v, TensorRef | list | dict) for v in inner.values()):
        c.part("optimizer_state", "present", f"in model_states: {', '.join(map(str, list(inner)[:4]))}")
        return
    c.part("optimizer_state", "missing", "no optim_states file")
    c.part("optimizer_step", "missing", "no optim_states file")
    c.find(
        "LIN-K001" if stage else "LIN-K005",
        "fails" if stage else "differs",
        f"there is no *_optim_states.pt, and the run used ZeRO stage {stage}"
        if stage
        else "there is no state of an optimizer, neither in model_states nor beside it",
        _REMEDY,
        "optimizer_state",
    )


def _rest(folder: Folder, c: Contents, first: dict[str, Any], shards: Shards) -> None:
    if not first:
        return
    config = first.get("ds_config")
    fp16 = config.get("fp16", {}) if isinstance(config, dict) else {}
    enabled = isinstance(fp16, dict) and fp16.get("enabled") is True
    scaler = c.facts.get("loss_scaler")
    inner = first.get("optimizer")
    unsharded = isinstance(inner, dict) and ("loss_scaler" in inner or "cur_scale" in inner)
    if scaler or unsharded:
        c.part("grad_scaler", "present", f"{scaler or 'in model_states'}")
    elif enabled:
        c.part("grad_scaler", "missing", "ds_config says fp16, and no loss scaler is kept")
        text = "ds_config says fp16, and no file keeps the loss scaler: its scale starts anew"
        c.find("LIN-K007", "differs", text, _REMEDY, "grad_scaler", certain=False)
    else:
        c.part("grad_scaler", "by_design", "only fp16 has one")
    if first.get("lr_scheduler"):
        at = first["lr_scheduler"].get("last_epoch") if isinstance(first["lr_scheduler"], dict) else None
        c.part("lr_scheduler", "present", "in model_states" + (f": at {at}" if at is not None else ""))
    else:
        c.part("lr_scheduler", "missing", "model_states has none")
        c.find(
            "LIN-K006",
            "differs",
            "model_states holds no lr_scheduler: DeepSpeed was not given it, and a resume starts it anew",
            "Pass the scheduler to deepspeed.initialize, or keep its state in client_state.",
            "lr_scheduler",
            certain=False,
        )
    for component, code, what in (
        ("rng", "LIN-K008", "random states"),
        ("loader_position", "LIN-K009", "position of the loader"),
    ):
        held = [k for k in first if words.component(k) == component and first[k] is not None]
        if held or (component == "loader_position" and first.get("data_sampler")):
            c.part(component, "present", f"in client_state: {', '.join(held) or 'data_sampler'}")
            if component == "rng":
                _once(c, shards, [first[k] for k in held])
            continue
        c.part(component, "by_design", "DeepSpeed keeps none unless the loop puts it into client_state")
        c.find(
            code,
            "differs",
            f"DeepSpeed keeps no {what}, and client_state has none: a resume goes on without",
            "Put it into client_state for each rank, or declare that it is not restored.",
            component,
        )


def _once(c: Contents, shards: Shards, held: list[Any]) -> None:
    """Below stage 3 one data-parallel rank writes model_states, with the random states of that rank alone."""
    files, world = len(shards.model_files()), c.world or 1
    gathered = any(isinstance(v, list | dict) and len(v) >= world for v in held)
    if files >= world or gathered:
        return
    part = c.parts["rng"]
    part.status, part.text = "partial", f"{part.text}; {files} of {world:,} ranks"
    c.find(
        "LIN-K008",
        "differs",
        f"the random states in client_state are those of {ranks.count(files)}, and {ranks.count(world)} ran: "
        "model_states is written by one data-parallel rank, and the others would take its numbers for theirs",
        "Gather the states of all ranks into client_state, or save them in a file for each rank.",
        "rng",
        certain=False,
    )
