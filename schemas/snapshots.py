"""Snapshots: config, effective values, code and environment at one moment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Digest, Model, Scalar

Moment = Literal["attach", "after_load", "after_first_step", "in_run", "save"]


class Config(Model):
    """What was asked for: the flattened config, key by key."""

    kind: Literal["config"] = "config"
    source: str = Field(
        description="what it was read from: dict, argparse, dataclass, pydantic, omegaconf, wandb.config, mlflow, "
        "yaml, json, toml, namespace, to_dict"
    )
    values: dict[str, Scalar] = Field(description="dotted leaf -> value; secrets masked")
    digest: Digest = Field(description="sha256 over the canonical JSON of the masked values")
    masked: int = Field(default=0, description="how many values looked like secrets")
    argv: list[str] = Field(default=[], description="the command line, masked")
    problems: list[str] = Field(default=[], description="what of the config was left out or is odd, and why")


class EffectiveValue(Model):
    """One concept as a live object holds it."""

    value: Scalar
    read_from: str = Field(description="the object and attribute, such as optimizer.param_groups[0].lr")


class Effective(Model):
    """What live objects hold: the values in effect, whatever the config asked for."""

    kind: Literal["effective"] = "effective"
    moment: Moment
    values: dict[str, EffectiveValue] = Field(description="concept -> value")
    unseen: dict[str, str] = Field(default={}, description="concept -> why it could not be read")
    lr_ahead: dict[int, list[float]] = Field(
        default={}, description="step -> learning rate per group that the scheduler will give"
    )


class UntrackedFile(Model):
    """A file that git does not track; content is kept only under declared source roots."""

    path: str
    size: int
    digest: Digest | None = None


class CodeState(Model):
    """The code that runs."""

    kind: Literal["code"] = "code"
    repository: bool = Field(description="False: no git repository at all")
    revision: str | None = None
    branch: str | None = Field(default=None, description="None on a detached head")
    remote: str | None = Field(default=None, description="credentials masked")
    dirty: bool = False
    diff: Digest | None = Field(
        default=None, description="digest of the masked diff, kept in the local blob store"
    )
    diff_bytes: int = 0
    diff_replayable: bool = Field(default=True, description="False where a secret was masked in it")
    submodules: dict[str, str] = Field(default={}, description="path -> revision")
    untracked: list[UntrackedFile] = []
    modules: dict[str, Digest] = Field(
        default={}, description="imported module files outside site-packages and the repository -> digest"
    )
    loaded: dict[str, Digest] = Field(
        default={},
        description="path in the repository -> digest of the module files loaded from it by then, and of the entry "
        "script: git's blob id, or over the masked text where a secret stands in it",
    )
    loaded_whole: bool = Field(
        default=False,
        description="True where every file loaded from the repository by then stands in `loaded`",
    )
    entry: str | None = Field(default=None, description="the script or notebook that runs")
    note: str | None = None
    unread: list[str] = Field(
        default=[],
        description="repository, revision, diff: what git did not tell in time, so it cannot be compared",
    )


class Device(Model):
    """One accelerator."""

    name: str
    uuid: str | None = None
    memory: int | None = Field(default=None, description="bytes")
    capability: str | None = None


class Environment(Model):
    """Packages, builds, drivers, devices and switches."""

    kind: Literal["environment"] = "environment"
    python: str
    platform: str
    packages: dict[str, str] = Field(description="distribution -> version")
    direct_urls: dict[str, str] = Field(
        default={}, description="distribution -> where pip took it from, masked"
    )
    builds: dict[str, str] = Field(
        default={}, description="torch, cuda, cudnn, nccl, driver, triton -> version"
    )
    devices: list[Device] = []
    variables: dict[str, str] = Field(default={}, description="allow-listed variables, masked")
    switches: dict[str, Scalar] = Field(
        default={}, description="determinism, TF32, SDPA backends, compile and kernel switches"
    )
    world_size: int = 1
    digest: Digest = Field(
        description="sha256 over all of the above but device UUIDs: a node swap is no drift"
    )


Snapshot = Config | Effective | CodeState | Environment
