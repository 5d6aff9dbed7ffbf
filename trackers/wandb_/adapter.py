"""The adapter around a `wandb.Run`. Called on the outbox's worker thread only."""

from __future__ import annotations

import copy
import glob
import hashlib
import inspect
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from .._rooms import schemas
from ..base import PREFIX, Page, Shown, TrackerRefused
from . import facts, hidden, verdicts
from .checkpoints import Checkpoints
from .errors import masked_url, translated
from .handle import Handle, project_of

Show: TypeAlias = Callable[[Handle, Shown, Page], str | None]

_SHOWS: Mapping[str, Show] = {
    "run": facts.run,
    "segment": facts.segment,
    "segment_end": hidden.segment_end,
    "config": facts.config,
    "code": facts.code,
    "environment": facts.environment,
    "restore": facts.restore,
    "drift": facts.drift,
    "regime": facts.regime,
    "mitigation": facts.mitigation,
    "mitigation_effect": facts.mitigation_effect,
    "verdict": verdicts.verdict,
    "alarm": verdicts.alarm,
    "first_bad": verdicts.first_bad,
    "incident": facts.incident,
    "degraded": facts.degraded,
    "finding": facts.finding,
    "tracker_note": facts.tracker_note,
    "coverage": facts.coverage,
    "seal": facts.seal,
}
"""Payload kind -> how it is shown. Other kinds stay in the ledger."""


class WandbTracker:
    """Shows records on the page of a `wandb.Run`, and nothing of the user's is touched.

    The run may be online, offline, shared or disabled; it stays the user's: it is never finished here.
    `sole_writer=True` is for a run that was opened only to show records (`lineage sync`): rows are then
    committed, since no row of the user's can be open.
    """

    kind = "wandb"

    def __init__(self, run: Any, *, sole_writer: bool = False) -> None:
        self._run = run
        self._disabled = bool(getattr(run, "disabled", False))
        self._handle = Handle(run, sole_writer=sole_writer)
        self._checkpoints = Checkpoints(self._handle)
        self._shows: dict[str, Show] = {**_SHOWS, "checkpoint": self._checkpoints.show}
        self._shows["checkpoint_mark"] = self._checkpoints.mark
        self._pages: dict[str, str] = {}  # name -> sha256 of the HTML that its panel shows

    def alias(self) -> schemas.TrackerAlias:
        """Name the run. An offline run is named by its folder, since each process has its own log."""
        run, settings = self._run, self._run.settings
        if self._disabled:
            return schemas.TrackerAlias(tracker=self.kind, id=run.id, uri="disabled:")
        project = "/".join(p for p in (getattr(settings, "entity", None), project_of(run)) if p) or None
        if not self._handle.online:
            folder = os.path.basename(str(getattr(settings, "sync_dir", "")).rstrip("/"))
            return schemas.TrackerAlias(
                tracker=self.kind, id=run.id, project=project, uri=f"offline:{folder}"
            )
        url = run.url
        return schemas.TrackerAlias(
            tracker=self.kind,
            id=run.id,
            project=project,
            uri=masked_url(str(settings.base_url)),
            url=masked_url(str(url)) if url else None,
        )

    def requested(self) -> Mapping[str, Any] | None:
        """Return the run's config without our own keys, as a copy. No call leaves the process."""
        config: dict[str, Any] = {
            str(k): v for k, v in self._run.config.items() if not str(k).startswith(PREFIX)
        }
        return copy.deepcopy(config)

    @property
    def taken_back_to(self) -> int | None:
        """The step to which W&B itself took this run back (`resume_from`), so that its rows end there; else None."""
        return self._handle.taken_back_to

    @property
    def secondary(self) -> bool:
        """Whether this is one of several processes that write to the run, and not the one that owns its config."""
        return self._handle.shared and not getattr(self._run.settings, "x_primary", True)

    def show(self, record: Shown, page: Page) -> str | None:
        """Show one record; showing it again changes nothing."""
        kind = str(record.payload.kind)
        shows = self._shows.get(kind)
        if shows is None or self._disabled or isinstance(record.payload, schemas.Opaque):
            return None
        with translated(f"the {kind} record {record.id}"):
            self._handle.prepare()
            place = shows(self._handle, record, page)
            if kind in ("finding", "checkpoint_mark"):
                verdicts.warn(self._handle)
            self._handle.points.flush()
            if place is not None:
                self._handle.confirm(record)
            # Last, since these calls wait for the server.
            self._checkpoints.relate(record)
        return place

    def publish(self, file: Path, name: str) -> None:
        """Upload a file as `lineage/<name>`; an HTML page is also shown as a panel of its own."""
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise TrackerRefused(f"{name!r} is no name for a file on the run's page: give a relative one")
        if self._disabled:
            return
        with translated(f"the file {name}"):
            home = Path(self._run.dir)
            target = home / PREFIX / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name}.tmp")
            shutil.copyfile(file, beside)
            os.replace(beside, target)
            self._save(home, PREFIX + str(relative))
            if relative.suffix == ".html":
                self._panel(target, str(relative.with_suffix("")))

    def close(self) -> None:
        """Write the last point of the regime series. The user's run is not finished by it."""
        if self._disabled:
            return
        with translated("the last point of the regime series"):
            shown = list(self._handle.points.shown)
            self._handle.points.close()
            if shown != self._handle.points.shown:
                self._handle.config({})

    def _save(self, home: Path, name: str) -> None:
        """Upload a file of the run's folder. W&B reads names as patterns unless told not to, where it can be."""
        options = {"base_path": str(home), "policy": "now"}
        if "glob" in inspect.signature(self._run.save).parameters:
            self._run.save(str(home / name), **options, glob=False)
        else:
            self._run.save(str(home / glob.escape(name)), **options)

    def _panel(self, page: Path, name: str) -> None:
        import wandb

        digest = hashlib.sha256(page.read_bytes()).hexdigest()
        if self._pages.get(name) == digest:
            return
        # inject=False: our page has its own style and a policy that forbids fetching W&B's.
        html = wandb.Html(str(page), inject=False)
        self._run.log({f"{PREFIX}{name}": html}, commit=False)
        self._pages[name] = digest
