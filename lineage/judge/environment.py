"""Changes of code, software and hardware between two sides."""

from __future__ import annotations

from collections.abc import Mapping

from .._rooms import schemas
from .change import effective_change

SWITCH_CONCEPTS = {
    "sdpa": "attn_kernel",
    "sdp": "attn_kernel",
    "deterministic": "determinism",
    "cudnn": "determinism",
    "tf32": "precision",
    "matmul": "precision",
    "reduced_precision": "precision",
    "compile": "compile",
    "dynamo": "compile",
}
"""Part of a switch's name -> the concept that it belongs to; others belong to `fused_kernels`."""


COUNTS = ("LOCAL_WORLD_SIZE", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE")
"""Variables in which a launcher says how many processes it starts: `world_size` tells that, and it is no software."""


def _pairs(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _variables(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names of variables that differ. Their values stay in the environment records: this text goes to trackers too."""
    return [
        f"variable {name} {'set' if name not in before else 'unset' if name not in after else 'changed'}"
        for name in sorted({*before, *after} - {*COUNTS})
        if before.get(name) != after.get(name)
    ]


def _few(parts: list[str], limit: int = 6) -> str:
    more = len(parts) - limit
    return ", ".join(parts[:limit]) + (f" and {more} more" if more > 0 else "")


def environment_changes(
    before: schemas.Environment | None, after: schemas.Environment | None
) -> list[schemas.Change]:
    """Software, hardware and kernel switches that differ."""
    if before is None or after is None:
        return []
    out = []
    software = _variables(before.variables, after.variables)
    software += _pairs(
        {"python": before.python, **before.builds, **before.packages},
        {"python": after.python, **after.builds, **after.packages},
    )
    if software:
        text = f"software differs: {_few(software)}"
        out.append(
            effective_change(
                "software", text, before.digest, after.digest, "installed packages, builds, variables"
            )
        )
    a, b = ([d.name for d in e.devices] for e in (before, after))
    if sorted(a) != sorted(b):
        text = f"devices differ: {', '.join(a) or 'none'} -> {', '.join(b) or 'none'}"
        out.append(effective_change("hardware", text, str(a), str(b), "torch.cuda devices"))
    return out + _switch_changes(before, after)


def _switch_changes(before: schemas.Environment, after: schemas.Environment) -> list[schemas.Change]:
    by_concept: dict[str, list[str]] = {}
    for name in sorted({*before.switches, *after.switches}):
        a, b = before.switches.get(name), after.switches.get(name)
        if a is not None and b is not None and a != b:
            concept = next(
                (c for part, c in SWITCH_CONCEPTS.items() if part in name.lower()), "fused_kernels"
            )
            by_concept.setdefault(concept, []).append(f"{name} {a.text()} -> {b.text()}")
    return [
        effective_change(
            concept, f"switches differ: {_few(parts)}", "before", "after", "process-wide switches"
        )
        for concept, parts in by_concept.items()
    ]


def code_change(before: schemas.CodeState | None, after: schemas.CodeState | None) -> list[schemas.Change]:
    """The code that ran, where it differs."""
    if before is None or after is None:
        return []
    parts = []
    unread = {*before.unread, *after.unread}
    if "repository" in unread:
        unread |= {"revision", "diff"}
    if before.revision != after.revision and "revision" not in unread:
        parts.append(f"revision {_short(before.revision)} -> {_short(after.revision)}")
    if before.diff != after.diff and "diff" not in unread:
        parts.append(f"uncommitted diff {_size(before)} -> {_size(after)}")
    parts += [
        f"{m} {_word(before.modules, m, after.modules)}" for m in _changed(before.modules, after.modules)
    ]
    parts += [f"submodule {p}" for p in _changed(before.submodules, after.submodules)]
    if not parts and not unread:  # an untracked file that ran shows in no revision and in no diff
        parts = [f"loaded file {n}" for n in _changed(before.loaded, after.loaded)]
    if not parts:
        return []
    text = f"code differs: {_few(parts)}"
    a, b = _name(before), _name(after)
    if a == b:
        # Code that differs is in effect: equal names would say that it was asked for only.
        a, b = (f"{name} ({_few(parts)}): {side}" for name, side in ((a, "before"), (b, "after")))
    change = effective_change("code", text, a, b, "git and imported files")
    return [_by_loaded(change, before, after)]


def _by_loaded(change: schemas.Change, before: schemas.CodeState, after: schemas.CodeState) -> schemas.Change:
    """Class and text of a code change by the files that ran. Where one side has no whole list, it stays as it is."""
    differing = _changed(before.loaded, after.loaded)
    if differing:
        return change.model_copy(update={"text": f"{change.text}; loaded files differ: {_few(differing, 4)}"})
    whole = before.loaded_whole and after.loaded_whole
    if not whole or _changed(before.modules, after.modules):
        return change
    one_sided = sorted({*before.loaded} ^ {*after.loaded})
    if one_sided:
        return change.model_copy(
            update={"text": f"{change.text}; loaded on one side only: {_few(one_sided, 4)}"}
        )
    other = schemas.catalogue().concept("code").otherwise
    if other is None:
        return change
    return change.model_copy(update={"cls": other.cls, "text": f"{change.text}; no loaded file differs"})


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names on both sides with other values. A file that only one side imported is not told: which files
    are imported by a given moment depends on the moment."""
    return [n for n in sorted(set(before) & set(after)) if before[n] != after[n]]


def _word(before: Mapping[str, str], name: str, after: Mapping[str, str]) -> str:
    return f"({before[name][:14]} -> {after[name][:14]})"


def _short(revision: str | None) -> str:
    return revision[:10] if revision else "none"


def _size(code: schemas.CodeState) -> str:
    return f"{code.diff_bytes:,} bytes" if code.diff else "none"


def _name(code: schemas.CodeState) -> str:
    return f"{_short(code.revision)}{'+diff' if code.dirty else ''}" if code.repository else "no repository"
