"""Writing a bundle: into a folder under another name, synced, then renamed. Half a bundle never has the name.

What is most needed comes first: the facts, random states, the step's batches, the rows around it, the conditions,
logs and events, the state where it is there, then earlier steps' batches. What does not fit is left out and named
in the manifest. What only the training process has comes before what may have to be waited for: a process that dies
in its first seconds leaves it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..ledger import layout
from . import FOLDER, MANIFEST, absent, around, rng
from . import held as held_
from . import state as state_
from .folder import Folder, TooBig
from .held import Held, KeptStep
from .tree import Packing, without


def write(held: Held, place: Path | None = None) -> schemas.Bundle:
    """Write the bundle and return its record. The folder is whole and durable when this returns.

    It goes into the ledger, or into another folder, `place`: then the record has its whole path. Raises `OSError`
    where the disk refuses, and leaves nothing behind then.
    """
    parent = layout.make_folder((place or held.ledger) / FOLDER / held.segment)
    temporary = parent / f".rank{held.rank}-step{held.step}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    layout.make_folder(temporary)
    try:
        manifest, folder = _fill(held, temporary)
        data = manifest.model_dump_json(by_alias=True).encode()
        root = hashlib.sha256(data).hexdigest()
        folder.manifest(MANIFEST, data)
        for path in [p for p in temporary.rglob("*") if p.is_dir()]:
            layout.fsync_folder(path)
        layout.fsync_folder(temporary)
        target = parent / f"rank{held.rank}-step{held.step}-{root[:16]}"
        os.rename(temporary, target)
        layout.fsync_folder(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return schemas.Bundle(
        root="sha256:" + root,
        location=str(target if place else target.relative_to(held.ledger)),
        first_bad_step=held.step,
        alarm=held.alarm_record,
        steps=[s.step for s in manifest.steps if any(b.kept for b in s.batches)],
        state=manifest.state is not None,
        files=len(folder.files),
        bytes=folder.size(),
        limit=held.limit,
        left_out=manifest.left_out,
    )


def _fill(held: Held, path: Path) -> tuple[schemas.BundleManifest, Folder]:
    """Write all parts, the most needed first. A part that fails is left out with the reason."""
    folder, left_out, missing = Folder(path, held.limit), dict(held.left_out), dict(held.absent)
    missing |= absent.of_step(held)

    def part(what: str, write_it: Callable[[], Any]) -> Any:
        try:
            return write_it()
        except OSError:
            raise
        except Exception as e:
            left_out[what] = _why(e)
        return None

    part(
        "facts of the step",
        lambda: folder.json("step.json", _facts(held), "signals, parameter groups, scaler, clipping"),
    )
    states = bool(part("random states", lambda: _random(held, folder)))
    steps: dict[int, schemas.BundleStep] = {}
    for kept in [k for k in held.steps if k.step == held.step]:
        steps[kept.step] = _batches(held, kept, folder, left_out, states=states)
    part(
        "rows around the step",
        lambda: _around_step(held, folder, missing),
    )
    if held.differing:
        what = "what this rank holds, at the alarm, of the tensors that differ from other ranks'"
        part(absent.DIFFERING, lambda: folder.tensors("differing.safetensors", held.differing, what))
    held.surroundings()
    records, unread = part(
        "records of the run", lambda: around.records(held.ledger, held.segment, held.rank, held.place.node)
    ) or ([], [])
    if unread:
        left_out["records of the run"] = f"{len(unread)} journal files of this node were not read"
    part("conditions of the run", lambda: _conditions(records, folder, missing))
    part("events", lambda: _events(held, records, folder, missing))
    part("log tails", lambda: _logs(folder, missing))
    part("loader state", lambda: _loop_state(held, folder, left_out))
    part(absent.DIFF, lambda: _code_diff(held, records, folder, missing))
    state, kept_state = None, held.state
    if kept_state is not None:  # with it, no update before the step need be made again
        state = part("weights and optimizer state", lambda: state_.write(kept_state, folder))
    for kept in reversed([k for k in held.steps if k.step != held.step]):
        before = _earlier(kept, folder, left_out)
        if before is None:
            break  # without it no update before it can be made again
        steps[kept.step] = before
    last, first = around.checkpoints(records, held.step, held.parent)
    if last is None:
        missing["last good checkpoint"] = absent.NO_LAST_GOOD
    if first is None:
        missing["first bad checkpoint"] = absent.NO_FIRST_BAD
    manifest = schemas.BundleManifest(
        run=held.run,
        segment=held.segment,
        rank=held.rank,
        world_size=held.world_size,
        place=held.place,
        step=held.step,
        done=held.done,
        at=held.at,
        alarm_record=held.alarm_record,
        alarm=held.alarm,
        steps=[steps[s] for s in sorted(steps)],
        state=state,
        last_good=last,
        first_bad=first,
        contents=folder.contents,
        left_out=left_out,
        absent=missing,
        limit=held.limit,
        files=folder.files,
    )
    return manifest, folder


def _why(error: Exception) -> str:
    """Why a part is not there: ours in words, a package that is missing by its name, others by their class."""
    if isinstance(error, TooBig):
        return str(error)
    if isinstance(error, ImportError):
        return f"{error.name or 'a package'} is not installed"
    return f"could not be written ({type(error).__name__})"


def _facts(held: Held) -> dict[str, Any]:
    """Plain values; numbers that lie on a device are read here, away from the training thread."""
    steps = {k.step: {n: held_.plain(v) for n, v in k.facts.items()} for k in held.steps}
    return {"signals": held.signals, "at_alarm": held.now, "steps": steps}


def _random(held: Held, folder: Folder) -> bool:
    """The random states of the bad step; those of earlier ones lie with their batches. Whether there are any."""
    kept = next((k for k in held.steps if k.step == held.step), None)
    tensors, facts = _states(kept) if kept is not None else ({}, {})
    if tensors:
        folder.tensors(
            "rng.safetensors", tensors, "states of the random-number generators before each micro-batch"
        )
        folder.json("rng.json", facts, "what belongs to these states")
    return bool(tensors)


def _states(kept: KeptStep) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors, plain facts) of a step's random states, under names with the step and the micro-batch."""
    tensors: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    start = [("start", kept.start)] if kept.start is not None else []
    for i, found in [*start, *((str(n), r) for n, r in enumerate(kept.rng))]:
        name = f"{kept.step}.{i}."
        more, facts[name] = rng.to_tensors(found, name)
        tensors |= more
    return tensors, facts


def _batches(
    held: Held, kept: KeptStep, folder: Folder, left_out: dict[str, str], *, states: bool
) -> schemas.BundleStep:
    """The micro-batches of one step, two files each. Of the bad step it is told whether they are what was fed."""
    out = []
    folder.set_aside(len(kept.batches))
    for micro, batch in enumerate(kept.batches):
        what = f"batch of step {kept.step:,}, micro-batch {micro}"
        try:
            node, gone = _batch(kept.step, micro, batch, folder, what)
            left_out.update({f"{what}: {path}": why for path, why in list(gone.items())[:8]})
            whole = _holds(node)
        except OSError:
            raise
        except Exception as e:
            left_out[what] = _why(e)
            whole = False
        # where one of them could not be made, it is not known to which micro-batch the others belong
        known = held.fingerprints[micro] if len(held.fingerprints) == len(kept.batches) else None
        out.append(
            schemas.BundleBatch(
                micro=micro,
                kept=whole,
                rng=states and micro < len(kept.rng),
                fingerprint=known,
                same=_same(held, batch, known) if whole and known is not None else None,
            )
        )
        if out[-1].same is False:
            left_out[f"{what}: as it was fed"] = (
                "the loop wrote into it after it was given; what is kept is its content at the alarm"
            )
    return schemas.BundleStep(step=kept.step, batches=out)


def _earlier(kept: KeptStep, folder: Folder, left_out: dict[str, str]) -> schemas.BundleStep | None:
    """An earlier step's micro-batches with their random states, in two files; None where they could not be kept."""
    packing = Packing()
    what = f"batches of step {kept.step:,}"
    folder.set_aside(len(kept.batches))
    try:
        nodes = [packing.pack(f"{micro}", batch) for micro, batch in enumerate(kept.batches)]
        name = f"batches/step{kept.step}"
        states, facts = _states(kept)
        tensors = packing.tensors | {f"rng.{n}": t for n, t in states.items()}
        lost = (
            folder.tensors(f"{name}.safetensors", tensors, f"{what}, with their random states")
            if tensors
            else {}
        )
        held = {"batches": [without(n, lost) for n in nodes], "rng": facts}
        folder.json(f"{name}.json", held, f"how the {what} are put together")
    except OSError:
        raise
    except Exception as e:
        left_out[f"{what} and before"] = _why(e)
        return None
    left_out.update({f"{what}: {path}": why for path, why in list((packing.left_out | lost).items())[:8]})
    batches = [
        schemas.BundleBatch(micro=i, kept=_holds(n), rng=i < len(kept.rng)) for i, n in enumerate(nodes)
    ]
    return schemas.BundleStep(step=kept.step, batches=batches)


def _holds(node: dict[str, Any]) -> bool:
    """Whether anything of a batch is there: one of a kind that cannot be taken apart is none that is kept."""
    return node.get("t") != "left_out"


def _batch(
    step: int, micro: int, batch: Any, folder: Folder, what: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write one micro-batch. Returns its node, and the parts of it that could not be kept, with why."""
    packing = Packing()
    node = packing.pack("batch", batch)
    gone = dict(packing.left_out)
    name = f"batches/step{step}-micro{micro}"
    if packing.tensors:
        lost = folder.tensors(f"{name}.safetensors", packing.tensors, what)
        node, gone = without(node, lost), gone | lost
    folder.json(f"{name}.json", node, f"how the {what} is put together")
    return node, gone


def _same(held: Held, batch: Any, known: str) -> bool | None:
    try:
        again = held.again(batch)
    except Exception:
        return None
    return None if again is None else again == known


def _rows(held: Held) -> dict[str, list[dict[str, Any]]]:
    """Rows by table. Those of the bad step's tensors come from its frame: they may not be written yet."""
    from .lately import rows_of

    found = {name: held.rows.rows(name) for name in ("probes", "batches", "tensors")}
    columns = held.tensors()
    if columns is not None and not any(r["step"] == held.step for r in found["tensors"]):
        found["tensors"] += rows_of(columns)
    out: dict[str, list[dict[str, Any]]] = {}
    for name, rows in found.items():
        near = [r for r in rows if r["step"] <= held.step]
        out[name] = [{k: _time(v) for k, v in r.items() if k not in ("segment", "rank")} for r in near]
    return out


def _time(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def _around_step(held: Held, folder: Folder, missing: dict[str, str]) -> None:
    rows = _rows(held)
    missing.update(absent.of_rows(rows))
    folder.json("series.json", rows, "rows of the series before and at the step")


def _events(held: Held, records: list[schemas.Record], folder: Folder, missing: dict[str, str]) -> None:
    found = around.events(records, held.at)
    if not found:
        missing["hardware and software events"] = absent.no_event(held.watched)
    folder.json("events.json", found, f"events of machines and software near the alarm: {len(found)}")


def _conditions(records: list[schemas.Record], folder: Folder, missing: dict[str, str]) -> None:
    found = around.conditions(records)
    if not found:
        missing["conditions of the run"] = "no record of them is in this ledger yet"
    missing.update(absent.of_records(records))
    what = "code, environment, config, effective values, topology: records with their ids"
    folder.json("run.json", {"records": found}, what)


def _code_diff(held: Held, records: list[schemas.Record], folder: Folder, missing: dict[str, str]) -> None:
    digest, text = around.diff(held.ledger, records)
    if text is not None:
        folder.json(
            "code_diff.json",
            {"digest": digest, "text": text},
            "what the code differs in from its revision, masked",
        )
    elif digest is not None:
        missing[absent.DIFF] = f"blob {digest} is not in this ledger yet"


def _logs(folder: Folder, missing: dict[str, str]) -> None:
    found = list(around.logs())
    if not found:
        missing["log tails"] = (
            "no log file of this process is known (a handler's file, or output that goes to a file)"
        )
        return
    folder.json("log.json", found, "the last lines of this process's log files, masked")


def _loop_state(held: Held, folder: Folder, left_out: dict[str, str]) -> None:
    """States of loader and scheduler as they were at the alarm, which came `done - step` updates after the step."""
    found = {n: v for n, v in (("loader", held.loader), ("scheduler", held.scheduler)) if v is not None}
    if not found:
        return
    packing = Packing()
    node = packing.pack("state", found)
    if packing.tensors:
        node = without(node, folder.tensors("loop.safetensors", packing.tensors, "tensors of loop.json"))
    left_out.update(list(packing.left_out.items())[:8])
    facts = {"updates_after_the_step": max(0, held.done - held.step), "state": node}
    folder.json("loop.json", facts, "states of loader and scheduler at the alarm")
