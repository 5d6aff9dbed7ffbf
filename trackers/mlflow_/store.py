"""The few calls to MLflow that the adapter needs, and which way they go."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

TAGS_PER_BATCH = 100
"""MLflow refuses more tags in one request."""


class ModelsUnsupported(Exception):
    """This MLflow (before 3.0, or a store without them) has no LoggedModels."""


@dataclass(frozen=True)
class Point:
    """One point of a metric. MLflow drops a second point equal in all four, so sending twice is safe."""

    key: str
    value: float
    timestamp: int
    """milliseconds since 1970"""
    step: int


@dataclass(frozen=True)
class DatasetInput:
    """What a part of the run was trained on. MLflow keeps one per name and digest, so sending twice is safe."""

    name: str
    digest: str
    """36 characters at most"""
    source_type: str
    source: str
    context: str
    """where in the run it was used, in words"""


@dataclass
class RunFacts:
    """What the tracker holds about the run now."""

    experiment: str
    artifacts: str
    """the artifact URI"""
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """the latest values"""
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    """ids of the LoggedModels that go in and come out"""


class Store(Protocol):
    """One MLflow run. Every call may raise `TrackerUnavailable` or `TrackerRefused`."""

    def facts(self) -> RunFacts:
        """Read the run."""
        ...

    def log(self, tags: Mapping[str, str], points: Sequence[Point] = ()) -> None:
        """Set tags and log metric points."""
        ...

    def delete_tag(self, key: str) -> None:
        """Remove a tag that is there."""
        ...

    def upload(self, file: Path, folder: str, name: str) -> None:
        """Put a file under the artifact folder with that name."""
        ...

    def find_model(self, experiment: str, uid: str) -> str | None:
        """Return the id of the LoggedModel whose tag `lineage/uid` is `uid`. Raises `ModelsUnsupported`."""
        ...

    def create_model(
        self, experiment: str, name: str, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> str:
        """Create a LoggedModel of type `checkpoint` and return its id. Raises `ModelsUnsupported`."""
        ...

    def finish_model(self, model: str) -> None:
        """Mark a LoggedModel as ready."""
        ...

    def tag_model(self, model: str, tags: Mapping[str, str]) -> None:
        """Set tags of a LoggedModel."""
        ...

    def add_output(self, model: str, step: int) -> None:
        """Say that the run wrote this LoggedModel at that step. Calling it twice adds it twice."""
        ...

    def add_input(self, model: str) -> None:
        """Say that the run started from this LoggedModel. Calling it twice adds it twice."""
        ...

    def add_dataset(self, dataset: DatasetInput) -> None:
        """Say what a part of the run was trained on."""
        ...


def is_http(uri: str) -> bool:
    """Tell whether a tracking URI is a server's address."""
    return urlsplit(uri).scheme in ("http", "https")


def mask_uri(uri: str) -> str:
    """Return a URI without `user:token@`, query and fragment, all of which may hold credentials."""
    parts = urlsplit(uri)
    if not parts.scheme or not parts.netloc:
        return uri.partition("?")[0]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def mask_text(text: object) -> str:
    """Return the text of an error without the credentials that a URL in it may hold."""
    return re.sub(r"(?<=://)[^/\s@]*@", "", str(text))


def open_store(tracking_uri: str, run_id: str) -> Store:
    """Return the store for a tracking URI: bounded REST calls for a server, else MLflow's own client."""
    if is_http(tracking_uri):
        from .rest import RestStore

        return RestStore(tracking_uri, run_id)
    from .client import ClientStore

    return ClientStore(tracking_uri, run_id)
