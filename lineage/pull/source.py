"""What `lineage pull` is pointed at: a run's page in a tracker, a W&B run folder, or a download."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .._rooms import trackers

FORMS = (
    "mlflow://TRACKING-URI/RUN-ID (such as mlflow://https://ml.example.org/0123abcd, mlflow://localhost:5000/0123abcd, "
    "mlflow://sqlite:////data/mlflow.db/0123abcd or mlflow:///data/mlruns/0123abcd), the address of an MLflow run's "
    "page, wandb://ENTITY/PROJECT/RUN, the address of a W&B run's page, a folder offline-run-* or run-* of W&B, or a "
    "folder into which a run's lineage/ was downloaded"
)
"""What a source may be."""

_MLFLOW_PAGE = re.compile(r"^(?P<uri>https?://[^#]+?)/?#/experiments/[^/]+/runs/(?P<run>[^/?#]+)")
_WANDB_PAGE = re.compile(
    r"^(?P<base>https?://[^/]+)/(?P<entity>[^/]+)/(?P<project>[^/]+)/runs/(?P<run>[^/?#]+)"
)
_RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class PullTrouble(ValueError):
    """Nothing can be pulled: what was found, where, and what to do next. `away`: it may be another time."""

    def __init__(self, text: str, *, away: bool = False) -> None:
        super().__init__(text)
        self.away = away


@dataclass(frozen=True)
class Source:
    """A source as it was understood."""

    kind: str
    """as `trackers.open_held` knows it"""
    arguments: tuple[Any, ...]
    text: str
    """as it was given"""


def is_source(text: str) -> bool:
    """Whether a text names something to pull, and no ledger, run or checkpoint."""
    if text.startswith(("mlflow:", "wandb:")) or _MLFLOW_PAGE.match(text) or _WANDB_PAGE.match(text):
        return True
    if "://" in text:
        return text.partition("://")[0] in trackers.plugins.installed()
    return _folder(Path(text).expanduser()) is not None


def parse(text: str) -> Source:
    """Understand a source. Raises `PullTrouble` that says which forms there are."""
    if text.startswith("mlflow:"):
        return _mlflow(text)
    if text.startswith("wandb:"):
        return _wandb(text)
    if page := _MLFLOW_PAGE.match(text):
        return Source("mlflow", (page["uri"], page["run"]), text)
    if page := _WANDB_PAGE.match(text):
        return Source("wandb", (page["base"], page["entity"], page["project"], page["run"]), text)
    scheme, _, rest = text.partition("://")
    if rest and scheme in trackers.plugins.installed():
        return Source(scheme, (rest,), text)
    if "://" in text:
        raise PullTrouble(f"{text} is no page of a run. Give {FORMS}.")
    path = Path(text).expanduser()
    if not path.exists():
        raise PullTrouble(f"{path} is not there. Give {FORMS}.")
    kind = _folder(path)
    if kind is None:
        raise PullTrouble(f"{path} holds no W&B log (run-*.wandb) and no chunks of a journal. Give {FORMS}.")
    return Source(kind, (path.absolute(),), text)


def _mlflow(text: str) -> Source:
    rest = text.removeprefix("mlflow:").removeprefix("//")
    uri, _, run = rest.rstrip("/").rpartition("/")
    if not _RUN_ID.match(run):
        raise PullTrouble(f"{text} does not end in the id of a run: {run!r} is none. Give {FORMS}.")
    if not uri:
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not uri:
            raise PullTrouble(
                f"{text} names no server or store, and MLFLOW_TRACKING_URI is not set: mlflow://TRACKING-URI/{run}"
            )
    elif "://" not in uri and not uri.startswith(("/", ".")):
        host = uri.partition("/")[0].rpartition("@")[2]
        plain = host.partition(":")[0] if not host.startswith("[") else host.partition("]")[0] + "]"
        uri = f"{'http' if plain in _LOOPBACK else 'https'}://{uri}"
    return Source("mlflow", (uri, run), text)


def _wandb(text: str) -> Source:
    rest = text.removeprefix("wandb:").removeprefix("//").rstrip("/")
    base = None
    if rest.startswith(("http://", "https://")):
        parts = urlsplit(rest)
        base, rest = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    names = rest.split("/")
    if len(names) != 3 or not all(names):
        raise PullTrouble(
            f"{text} does not name entity, project and run: wandb://ENTITY/PROJECT/RUN, or with a server of one's own "
            "wandb://https://HOST/ENTITY/PROJECT/RUN"
        )
    return Source("wandb", (base, *names), text)


def _folder(path: Path) -> str | None:
    """Which kind of folder it is; None for any other, a ledger too."""
    if path.is_file():
        return "wandb-folder" if path.suffix == ".wandb" else None
    if not path.is_dir():
        return None
    if any(path.glob("run-*.wandb")):
        return "wandb-folder"
    for home in (path, path / "lineage", path / "files" / "lineage"):
        # in a ledger a journal file stands where its chunks have a folder in a download
        if any(p.is_dir() for p in home.glob("journal/*/*")):
            return "folder"
    return None
