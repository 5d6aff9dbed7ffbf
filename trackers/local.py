"""The local store: the same page as a tracker would show, as plain files in the ledger folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from . import text
from ._rooms import schemas
from .base import Page, Shown, TrackerRefused, TrackerUnavailable


class LocalTracker:
    """Writes `view/` in the ledger: `verdict.md`, `first-bad.md`, `state.json`, and what is published.

    For runs without a tracker, so that an auditor with only the folder sees the same page.
    """

    kind = "local"

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: dict[str, Any] | None = None

    def alias(self) -> schemas.TrackerAlias:
        """Name the folder."""
        return schemas.TrackerAlias(tracker="local", id=str(self._folder))

    def requested(self) -> Mapping[str, Any] | None:
        """A folder holds no config of the user's."""
        return None

    def show(self, record: Shown, page: Page) -> str | None:
        """Keep the newest of each kind in `state.json`; verdict and first bad cell also as Markdown."""
        payload, place = record.payload, str(self._folder / "state.json")
        with _outcomes(f"the {payload.kind} record {record.id}"):
            if isinstance(payload, schemas.CheckpointMark):
                told = self._state.setdefault("marks", {}).setdefault(payload.checkpoint, {})
                if not _newer(told.get(payload.mark), record):
                    told[payload.mark] = {"record": record.id, "why": payload.why}
                    self._write("state.json", json.dumps(self._state, indent=1))
                return place
            if payload.kind not in ("verdict", "regime", "alarm", "checkpoint", "seal", "first_bad"):
                return None
            if not _newer(self._state.get(payload.kind), record):
                self._keep(record)
        return None if payload.kind == "seal" else place

    def _keep(self, record: Shown) -> None:
        payload = record.payload
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

    def publish(self, file: Path, name: str) -> None:
        """Copy a file into the view."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise TrackerRefused(f"{name!r} does not stay in the folder {self._folder}: give a relative name")
        if not file.is_file():
            raise TrackerRefused(f"{file} is not there to be published as {name}")
        with _outcomes(f"the file {name}"):
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(file, target)

    def close(self) -> None:
        """Nothing to let go of."""

    @property
    def _state(self) -> dict[str, Any]:
        """What `state.json` says: also what an earlier process of the run left there."""
        if self._read is None:
            try:
                found = json.loads((self._folder / "state.json").read_text(encoding="utf-8"))
            except FileNotFoundError:
                found = {}
            except ValueError:
                found = {}  # a file that somebody damaged: the ledger has everything, and it is written anew
            self._read = found if isinstance(found, dict) else {}
        return self._read

    def _write(self, name: str, content: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._folder / f".{name}.tmp"
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, self._folder / name)


def _newer(held: Any, record: Shown) -> bool:
    """Whether what stands there is of a later record. Record ids sort by time."""
    return isinstance(held, Mapping) and str(held.get("record", "")) > record.id


@contextmanager
def _outcomes(what: str) -> Iterator[None]:
    """A folder that cannot be written now may be later."""
    try:
        yield
    except OSError as e:
        raise TrackerUnavailable(f"{what} cannot be written into the view: {type(e).__name__}: {e}") from None
