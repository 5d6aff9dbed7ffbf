"""The local store: the same page as a tracker would show, as plain files in the ledger folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import text
from ._rooms import schemas
from .base import Page, Shown


class LocalTracker:
    """Writes `view/` in the ledger: `verdict.md`, `first-bad.md`, `state.json`, and what is published.

    For runs without a tracker, so that an auditor with only the folder sees the same page.
    """

    kind = "local"

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._state: dict[str, Any] = {}

    def alias(self) -> schemas.TrackerAlias:
        """Name the folder."""
        return schemas.TrackerAlias(tracker="local", id=str(self._folder))

    def requested(self) -> Mapping[str, Any] | None:
        """A folder holds no config of the user's."""
        return None

    def show(self, record: Shown, page: Page) -> str | None:
        """Keep the newest of each kind in `state.json`; verdict and first bad cell also as Markdown."""
        payload = record.payload
        if isinstance(payload, schemas.CheckpointMark):
            told = self._state.setdefault("marks", {}).setdefault(payload.checkpoint, {})
            told[payload.mark] = {"record": record.id, "why": payload.why}
            self._write("state.json", json.dumps(self._state, indent=1))
            return str(self._folder / "state.json")
        if payload.kind not in ("verdict", "regime", "alarm", "checkpoint", "seal", "first_bad"):
            return None
        self._state[payload.kind] = {
            "step": record.step,
            "record": record.id,
            **json.loads(payload.model_dump_json(by_alias=True, exclude={"live", "manifest", "lr_ahead"})),
        }
        self._write("state.json", json.dumps(self._state, indent=1))
        if isinstance(payload, schemas.Verdict):
            self._write("verdict.md", text.markdown(payload))
        if isinstance(payload, schemas.FirstBad):
            self._write("first-bad.md", text.first_bad(payload))
        return None if payload.kind == "seal" else str(self._folder / "state.json")

    def publish(self, file: Path, name: str) -> None:
        """Copy a file into the view."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(file, target)

    def close(self) -> None:
        """Nothing to let go of."""

    def _write(self, name: str, content: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._folder / f".{name}.tmp"
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, self._folder / name)
