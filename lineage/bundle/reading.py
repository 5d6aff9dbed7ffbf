"""Reading a bundle: its facts anywhere, its batches, random states and weights where torch is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import FOLDER, MANIFEST, rng, tree
from .verifying import folders, read_manifest


class BundleError(ValueError):
    """A bundle cannot be used; the text says what was found, where, and what to do next."""


class Bundle:
    """One bundle's folder, read. Nothing is loaded before it is asked for, and no pickle ever."""

    def __init__(self, path: Path) -> None:
        """Raises `BundleError` where the folder holds no bundle."""
        self.path = path
        try:
            data = (path / MANIFEST).read_bytes()
        except OSError:
            raise BundleError(
                f"{path} holds no bundle (no {MANIFEST}). Bundles lie in captured/<segment>/ of a ledger; "
                "`lineage bundle show RUN` lists those of a run"
            ) from None
        try:
            self.manifest: schemas.BundleManifest = read_manifest(data)
        except ValueError as e:
            raise BundleError(f"{path}: {e}") from None
        self._files = {f.path for f in self.manifest.files}

    @cached_property
    def root(self) -> str:
        """The digest of the manifest, which names the bundle."""
        return "sha256:" + hashlib.sha256((self.path / MANIFEST).read_bytes()).hexdigest()

    @property
    def step(self) -> int:
        """The first bad step."""
        return self.manifest.step

    @property
    def ledger(self) -> Path | None:
        """The ledger that the bundle lies in, None where it was taken elsewhere."""
        found = self.path.resolve().parents
        return found[2] if len(found) > 2 and (found[2] / "journal").is_dir() else None

    def json(self, name: str) -> Any:
        """A JSON file of the bundle, None where it is not in it. NaN and infinities are numbers again."""
        if name not in self._files:
            return None
        return _numbers(json.loads((self.path / name).read_bytes()))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Signals of the step, and for each kept step its parameter groups, scaler and scheduler."""
        found: dict[str, Any] = self.json("step.json") or {"signals": {}, "steps": {}, "at_alarm": {}}
        return found

    def facts_of(self, step: int) -> dict[str, Any]:
        """What a kept step began with."""
        found: dict[str, Any] = self.facts["steps"].get(str(step), {})
        return found

    @cached_property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of the series before and at the step, by table."""
        found: dict[str, list[dict[str, Any]]] = self.json("series.json") or {}
        return found

    def signals(self, step: int) -> dict[str, float]:
        """The recorded signals of a step."""
        found = {r["signal"]: r["value"] for r in self.rows.get("probes", []) if r["step"] == step}
        return found | (self.facts["signals"] if step == self.step else {})

    def gradients(self, step: int) -> dict[str, dict[str, Any]]:
        """Tensor -> its recorded gradient row of a step."""
        rows = self.rows.get("tensors", [])
        return {r["tensor"]: r for r in rows if r["step"] == step and r["kind"] == "gradient"}

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Payloads of the records of a kind that say how the run was set up."""
        return [r["payload"] for r in self._run.get("records", []) if r["kind"] == kind]

    @cached_property
    def _run(self) -> dict[str, Any]:
        """As it was written: a text "NaN" in a config is not the number."""
        held: dict[str, Any] = (
            json.loads((self.path / "run.json").read_bytes()) if "run.json" in self._files else {}
        )
        return held

    def steps(self) -> list[int]:
        """The steps that can be made again: all of their batches are here."""
        return [s.step for s in self.manifest.steps if s.batches and all(b.kept for b in s.batches)]

    def batches(
        self,
        step: int,
        *,
        device: Callable[[str], Any] = lambda recorded: "cpu",
        notes: list[str] | None = None,
    ) -> list[Any]:
        """The micro-batches of a step. `device`: recorded device -> where tensors go. Raises `BundleError`."""
        kept = next((s for s in self.manifest.steps if s.step == step), None)
        if kept is None or not kept.batches or not all(b.kept for b in kept.batches):
            raise BundleError(f"{self.path} does not hold all batches of step {step:,}{self._why()}")
        return [tree.unpack(n, tensors, device=device, notes=notes) for n, tensors in self._nodes(step, kept)]

    def _nodes(self, step: int, kept: schemas.BundleStep) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Each micro-batch's node and tensors. Those of the bad step have files of their own."""
        name = f"batches/step{step}"
        if f"{name}.json" in self._files:
            tensors = self.tensors(f"{name}.safetensors")
            yield from (
                (n, tensors) for n in json.loads((self.path / f"{name}.json").read_bytes())["batches"]
            )
            return
        for b in kept.batches:
            own = f"{name}-micro{b.micro}"
            yield json.loads((self.path / f"{own}.json").read_bytes()), self.tensors(f"{own}.safetensors")

    def _why(self) -> str:
        held = {**self.manifest.left_out, **self.manifest.absent}
        about = [f"{k}: {v}" for k, v in held.items() if k.startswith("batch")]
        return f" ({'; '.join(about[:2])})" if about else ""

    def tensors(self, name: str) -> dict[str, Any]:
        """The tensors of a safetensors file, on the CPU; none where it is not in the bundle."""
        if name not in self._files:
            return {}
        from safetensors.torch import load

        found: dict[str, Any] = load((self.path / name).read_bytes())
        return found

    def rng(self, step: int, micro: int | None = 0) -> rng.Rng | None:
        """The random states before a micro-batch of a step (None: at the step's beginning), None where not here."""
        held, prefix = f"batches/step{step}", "rng."
        facts: dict[str, Any] = (self.json(f"{held}.json") or {}).get("rng", {})
        if not facts:
            held, prefix, facts = "rng", "", self.json("rng.json") or {}
        first = f"{step}.start."
        name = f"{step}.{micro}." if micro is not None else first if first in facts else f"{step}.0."
        if name not in facts:
            return None
        return rng.from_tensors(self.tensors(f"{held}.safetensors"), facts[name], name, prefix)

    def state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]] | None:
        """(weights, buffers, parameter -> optimizer state) before the step's update, None where they are not here."""
        if self.manifest.state is None:
            return None
        parts: dict[str, dict[str, Any]] = {"weights": {}, "buffers": {}, "optimizer": {}}
        for name in sorted(self._files):
            folder, _, rest = name.partition("/")
            if folder == "state" and rest.endswith(".safetensors"):
                parts[rest.rpartition("-")[0]] |= self.tensors(name)
        optimizer: dict[str, dict[str, Any]] = {
            k: dict(v) for k, v in (self.json("state/plain.json") or {}).items()
        }
        for name, value in parts["optimizer"].items():
            at, _, key = name.rpartition("|")
            optimizer.setdefault(at, {})[key] = value
        return parts["weights"], parts["buffers"], optimizer

    def loop_state(self) -> tuple[dict[str, Any], int]:
        """(states of loader and scheduler as they were at the alarm, how many updates after the step that was)."""
        found = self.json("loop.json")
        if found is None:
            return {}, 0
        raw = json.loads((self.path / "loop.json").read_bytes())["state"]
        state: dict[str, Any] = tree.unpack(raw, self.tensors("loop.safetensors"))
        return state, int(found["updates_after_the_step"])


def _numbers(value: Any) -> Any:
    """The names of NaN and infinities as numbers. No text of ours is one of them alone."""
    if isinstance(value, str):
        return schemas.NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    return [_numbers(v) for v in value] if isinstance(value, list) else value


def choose(path: Path, *, rank: int | None = None, step: int | None = None) -> Bundle:
    """The bundle at a path: a bundle's folder, or one among those of a segment, a ledger, or an evidence folder.

    Of several it is the earliest step's, of this rank where one is given. Raises `BundleError`.
    """
    if (path / MANIFEST).is_file():
        return Bundle(path)
    found = within(path)
    chosen = [
        b for b in found if (rank is None or b.manifest.rank == rank) and (step is None or b.step == step)
    ]
    if not chosen:
        what = "".join(
            [f" of rank {rank}" if rank is not None else "", f" of step {step:,}" if step is not None else ""]
        )
        there = f"it has {_listed(found)}" if found else "it has none: a bundle is written at an alarm"
        raise BundleError(f"{path} holds no bundle{what}; {there}")
    # ranks that differ are no fault of one step: what can be made again comes first
    return min(chosen, key=lambda b: (b.manifest.alarm.abnormal == "differs", b.step, b.manifest.rank))


def within(path: Path) -> list[Bundle]:
    """All bundles in a ledger, a segment's folder or an evidence folder; damaged ones are left out."""
    places = folders(path) if (path / FOLDER).is_dir() else [p.parent for p in sorted(path.rglob(MANIFEST))]
    out = []
    for p in places:
        try:
            out.append(Bundle(p))
        except BundleError:
            continue
    return sorted(out, key=lambda b: (b.manifest.segment, b.step, b.manifest.rank))


def _listed(found: Iterable[Bundle]) -> str:
    names = [f"rank {b.manifest.rank} step {b.step:,}" for b in found]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
