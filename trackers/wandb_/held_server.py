"""A W&B run read back from its server, through W&B's public API. Reading changes nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base import PREFIX, TrackerRefused, TrackerUnavailable
from ..held import About, Asked, Held, HeldFile, HeldRoot, Logged, bounded
from . import rows
from .errors import is_away, masked, masked_url
from .held import anchors_of, run_of

PATIENCE = 20
"""Seconds that the server has for one answer."""


class WandbServerHeld:
    """One run on a W&B server, the one of the settings where `base` is None. It takes a login (`wandb login`)."""

    tracker = "wandb"

    def __init__(self, base: str | None, entity: str, project: str, run: str) -> None:
        import wandb

        self.id, self._path = run, f"{entity}/{project}/{run}"
        # as W&B's client resolves it: environment, settings files, its own default
        self._base = base or str(wandb.setup().settings.base_url)
        self.place = masked_url(self._base)
        self.source = f"wandb://{self.place}/{self._path}" if base else f"wandb://{self._path}"

    @cached_property
    def _api(self) -> Any:
        import wandb

        with _reading(f"logging in at {self.place}"):
            return wandb.Api(overrides={"base_url": self._base}, timeout=PATIENCE)

    @cached_property
    def _run(self) -> Any:
        api = self._api
        with _reading(f"run {self._path} at {self.place}"):
            run = api.run(self._path)
            run.load()
        return run

    @property
    def _config(self) -> dict[str, Any]:
        return dict(self._run.config)

    def run(self) -> str | None:
        """The config key `lineage/run`."""
        return run_of(self._config)

    def about(self) -> About:
        """What the page says beside its values."""
        run = self._run
        tags = ", ".join(t for t in run.tags or () if not t.startswith("lineage:"))
        return About(
            name=run.name or "",
            status=str(run.state or ""),
            tags={"tags": tags} if tags else {},
            commit=run.commit or "",
            gaps=[
                "the server keeps the newest config only: what earlier segments asked for stands in their local logs"
            ],
        )

    def anchors(self) -> list[HeldRoot]:
        """The config key `lineage/anchor`: the newest root."""
        return anchors_of(self._config, self._path, self.place)

    @cached_property
    def _files(self) -> list[Any]:
        run = self._run
        with _reading(f"listing the files of {self._path} at {self.place}"):
            return [f for f in run.files(per_page=500) if f.name.startswith(f"{PREFIX}journal/")]

    def files(self) -> list[HeldFile]:
        """The chunks of the journal among the run's files."""
        found = [HeldFile(f.name.removeprefix(PREFIX), int(f.size or 0)) for f in self._files]
        return bounded(found, self.place)

    def fetch(self, folder: Path) -> None:
        """Download them; W&B's client refuses a name that leaves the folder."""
        inside = folder / ".download"
        inside.mkdir(mode=0o700)
        for f in self._files:
            with _reading(f"the file {f.name} of {self._path}"):
                f.download(root=str(inside), replace=True).close()
        if self._files:
            (inside / PREFIX / "journal").rename(folder / "journal")

    def rows(self) -> Iterator[Logged]:
        """All rows of the history, as far as the server gives them."""
        run = self._run
        with _reading(f"the history of {self._path} at {self.place}"):
            history = list(run.scan_history(use_cache=False))
        return rows.rows(history)

    def configs(self) -> list[Asked]:
        """The config as it is now."""
        values = {k: v for k, v in self._config.items() if not k.startswith((PREFIX, "_"))}
        return [Asked(values, 1, tuple(values))] if values else []

    def others(self) -> list[Held]:
        """A W&B run that is resumed keeps its page, so there is one."""
        return []


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise W&B's exceptions as `TrackerUnavailable` or `TrackerRefused`, credentials masked."""
    try:
        yield
    except (TrackerUnavailable, TrackerRefused):
        raise
    except Exception as e:  # W&B's own kinds, and whatever its service raises
        text = f"{what}: {type(e).__name__}: {masked(str(e))}"
        if is_away(e):
            raise TrackerUnavailable(text) from None
        raise TrackerRefused(text) from None
