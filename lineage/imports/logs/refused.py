"""What a file is that is no log, and which command reads it."""

from __future__ import annotations

import re
from pathlib import Path

from . import tables, text
from .rows import Told

KNOWN = (
    "logs of Megatron-LM and Megatron-DeepSpeed, torchtitan, llm.c, nanoGPT, modded-nanogpt; trainer_state.json; "
    "Megatron's golden values; TensorBoard event files; CSV or JSON lines with a step and a loss; two columns of step "
    "and loss"
)
_CONFIGS = "a config is read by `lineage import --format configs OLD NEW`"
_EVENTS = (
    "no log of training, but events of machines, which `lineage events import` reads into the ledger of a run"
)
_TORCH = (
    "a checkpoint is no log: `lineage import` reads what was logged, and `lineage.attach` records checkpoints"
)


def why(path: Path) -> str | None:
    """What the file is, in words, where that is known; None where it may be a logbook or anything else."""
    start = text.head(path)
    if not start.strip():
        return "it is empty" if not start else "it holds nothing but blanks"
    return _binary(start) or _text(path, start.decode("utf-8", "replace"))


def _binary(start: bytes) -> str | None:
    if start.startswith(b"version https://git-lfs.github.com/spec"):
        return (
            "it is a Git-LFS pointer of 130 bytes or so, not the file itself: `git lfs pull` fetches that (a "
            "checkpoint of pointers cannot be resumed from)"
        )
    if b"pg_config" in start[:512] or b"nccl_version" in start[:512]:
        return f"it is a dump of the NCCL flight recorder: {_EVENTS}"
    if start.startswith(b"PK\x03\x04") and (b"data.pkl" in start or b"/version" in start):
        return f"it is a file of torch.save: {_TORCH}"
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return f"it is a pickle, which is not opened because that could run code; {_TORCH}"
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < 1 << 30:
        return f"it is a safetensors file: {_TORCH}"
    if b"\0" in start and start[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return "it is binary, and no TensorBoard event file"
    return None


def _text(path: Path, start: str) -> str | None:
    lines = [x for x in start.splitlines() if x.strip()]
    if "NVSMI LOG" in start:
        return f"it is the output of nvidia-smi -q: {_EVENTS}"
    if '"_wandb"' in start[:2048] or (start.lstrip().startswith("{") and '"_runtime"' in start):
        return "it is a W&B summary, the last value of each key: the history is in the .wandb file or on the server"
    if start.lstrip().startswith("{") and '"program"' in start and '"python"' in start:
        return "it is W&B's metadata of a run (host, command, git): no values of steps"
    if len(lines) > 2 and all(re.match(r"[\w.\-]+(\[.*\])?\s*(==|@|>=|~=)", x) for x in lines[:20]):
        return "it is a list of packages; `lineage.attach` and `lineage run` record those of a run"
    if path.suffix.lower() in (".yaml", ".yml") and _is_mapping(lines):
        return _CONFIGS
    if path.suffix.lower() in (".csv", ".tsv") and lines:
        return _csv(lines[0])
    if re.search(r"(?im)^Fault (?:ranks|delay):|fault_type:", start):
        return f"it is a list of injected faults by rank, without a step: {_EVENTS}"
    if lines and lines[0].lstrip().startswith("{") and '"Timestamp"' in lines[0]:
        return (
            "its lines are measurements of a machine by time"
            + (", the last one cut off" if not lines[-1].rstrip().endswith("}") else "")
            + f", and none names a step: {_EVENTS}"
        )
    return None


def _is_mapping(lines: list[str]) -> bool:
    """A YAML mapping of settings, not a list of entries, by the lines that stand at the margin."""
    margin = [x for x in lines if x[0] not in " #\t" and not x.startswith(("---", "%"))]
    keyed = [x for x in margin if re.match(r"[\w.\-\"']+\s*:", x)]
    return (
        len(keyed) >= 2
        and len(keyed) == len([x for x in margin if not x.startswith("- ")])
        and (len(keyed) > sum(x.startswith("- ") for x in margin))
    )


def _csv(head: str) -> str | None:
    names = [n.strip().lower() for n in re.split("[,;\t|]", head)]
    if tables.step_column(names) and any("checkpoint" in n for n in names):
        return (
            "it is a list of checkpoints by step: it holds no value of a step, and their files are not here"
        )
    return None


def without_step(path: Path) -> str:
    """Why a text that nothing else explains is refused."""
    told = Told()
    n = sum(1 for _ in text.lines(path, told)) if path.stat().st_size < 1 << 26 else 0
    lines = f"none of its {n:,} lines" if n else "none of the lines looked at"
    return f"{lines} is of a format that is known, with a step and values. Known are {KNOWN}"
