"""Configs of public runs, as their teams wrote them, compared pair by pair: exactly what differs, and nothing else.

The files are not part of this repository; they are looked for beside it, or where LINEAGE_PUBLIC_FILES says.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

import schemas
from lineage.capture import config
from lineage.judge import drift as d
from lineage.judge.requested import compare

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "files"
FILES = Path(os.environ.get("LINEAGE_PUBLIC_FILES") or BESIDE)

pytestmark = pytest.mark.skipif(
    not (FILES / "olmo").is_dir(), reason=f"no configs of public runs in {FILES} (LINEAGE_PUBLIC_FILES)"
)


@cache
def bloom() -> list[schemas.Config]:
    """Every version of BLOOM's launch script, oldest first."""
    versions = json.loads((FILES / "bigscience" / "tr11_176B_launch_args_history.json").read_text())
    return [config.capture(v["args"]) for v in reversed(versions)]


def found(
    before: schemas.Config, after: schemas.Config
) -> tuple[dict[str, str], set[str], set[str], set[str]]:
    """(changes with class, unclassified keys, concepts the configs leave open, concepts folded away)."""
    one, two = d.Side(config=before), d.Side(config=after)
    drift, same = d.drift(one, two, from_step=1), d.drift(one, one, from_step=1)
    opened = {k for k, v in drift.not_shown.items() if same.not_shown.get(k) != v}
    aside = {c.concept for c in compare(before, after).aside}
    return {c.concept: c.cls for c in drift.changes}, {c.title for c in drift.unclassified}, opened, aside


def bloom_pair(number: int) -> tuple[dict[str, str], set[str], set[str], set[str]]:
    """What the n-th edit of BLOOM's script changed, counted from the oldest."""
    versions = bloom()
    return found(versions[number], versions[number + 1])


NOTHING: set[str] = set()
BLOOM = {
    29: ("a pure rename of the flag", {}, NOTHING, NOTHING, NOTHING),
    28: ("48 to 24 nodes", {"world_size": "B", "replica_sync": "C"}, NOTHING, NOTHING, NOTHING),
    25: ("a reservation", {}, NOTHING, NOTHING, {"limits"}),
    24: ("validation workers", {"loader_workers": "O"}, NOTHING, NOTHING, NOTHING),
    23: ("workers at their default", {}, NOTHING, NOTHING, NOTHING),
    22: ("save interval 200 to 100", {}, NOTHING, NOTHING, {"save_policy"}),
    20: ("save interval 250 to 200", {}, NOTHING, NOTHING, {"save_policy"}),
    18: ("a micro-batch set elsewhere", {}, NOTHING, {"micro_batch"}, NOTHING),
    17: ("other data ratios", {}, {"env:CATALOGUE_JSON_PATH"}, NOTHING, NOTHING),
    14: ("fewer evaluation batches", {"eval_protocol": "O"}, NOTHING, NOTHING, NOTHING),
    10: ("ramp and micro-batch", {"global_batch": "R", "micro_batch": "B"}, NOTHING, NOTHING, NOTHING),
    9: ("a log file", {}, NOTHING, NOTHING, {"logging"}),
    7: ("ramp, paths, limits", {"global_batch": "R"}, NOTHING, {"model"}, {"limits", "names", "save_policy"}),
}


@pytest.mark.parametrize("number", BLOOM, ids=[v[0] for v in BLOOM.values()])
def test_each_edit_of_the_launch_script_of_bloom_is_told_as_what_it_is(number: int) -> None:
    """A rename opens no regime, 48 to 24 nodes is topology, a save interval is policy."""
    _, changes, unclassified, opened, aside = BLOOM[number]
    assert bloom_pair(number) == (changes, unclassified, opened, aside)


def test_two_thirds_of_the_edits_of_that_script_changed_nothing_that_bears_on_results() -> None:
    """Edits that touch no key, a save interval, a queue or a path stay silent."""
    silent = [n for n in range(len(bloom()) - 1) if not any(bloom_pair(n)[:3])]
    assert len(silent) == 19, silent
    assert len(bloom()) == 31


def olmo(name: str) -> schemas.Config:
    """A config of OLMo."""
    return config.capture(FILES / "olmo" / f"{name}.yaml")


PAIRS = {
    ("mitchish70_s3_clip0.5", "mitchish70_s3_clip1.0"): ({"grad_clip": "R"}, NOTHING, NOTHING),
    ("mitchish70_s3_clip1.0", "mitchish70_s3_planb"): ({"weight_decay": "R"}, NOTHING, NOTHING),
    ("mitchish70_s3_planb", "mitchish70_s3_filter"): ({"data_filter": "R"}, NOTHING, NOTHING),
    ("mitchish70_mcli_20240410", "mitchish70_mcli_20240418_608gpu"): (
        {"world_size": "B", "micro_batch": "B"},
        NOTHING,
        {"place"},
    ),
    ("mitchish70_mcli_20240418_608gpu", "mitchish70_mcli_20240419_hybrid"): (
        {"global_batch": "R", "world_size": "B", "micro_batch": "B", "dp_sharding": "B"},
        NOTHING,
        NOTHING,
    ),
    ("mitchish70_mcli_20240419_hybrid", "mitchish70_mcli_20240426_planb"): (
        {"global_batch": "R", "micro_batch": "B", "software": "C"},
        NOTHING,
        {"names"},
    ),
    ("mitchish70_mcli_20240426_planb", "mitchish70_mcli_20240503_planc"): (
        {"global_batch": "R", "micro_batch": "B"},
        NOTHING,
        {"names"},
    ),
    ("OLMo2-7B-stage2-seed42", "OLMo2-7B-stage2-seed666"): ({"seed": "C"}, NOTHING, {"names"}),
}


@pytest.mark.parametrize("names", PAIRS, ids=[f"{a} to {b}" for a, b in PAIRS])
def test_the_configs_of_olmo_differ_in_exactly_what_was_changed(names: tuple[str, str]) -> None:
    """A clip, a decay group, a filter, a seed; 912 to 608 GPUs at the same global batch is no regime."""
    changes, opened, aside = PAIRS[names]
    assert found(*map(olmo, names)) == (changes, NOTHING, opened, aside)


def test_two_runs_of_one_commit_differ_in_epochs_and_warm_up_and_leave_open_what_one_does_not_state() -> None:
    """The pages of two W&B runs with one commit: the older config has no `min_lr`, and no default is known for it."""
    before, after = (
        config.capture(FILES / "wandb" / f"tinylm_{n}_config.yaml") for n in ("kj3gdsjx", "eziofh0f")
    )
    assert (before.source, before.values["lr"]) == ("wandb.config", schemas.Scalar.of(0.0005))
    assert found(before, after) == (
        {"horizon": "R", "warmup": "R"},
        NOTHING,
        {"min_lr"},
        {"eval_interval", "logging", "names"},
    )


def test_each_real_config_is_read_as_the_framework_it_was_written_for() -> None:
    """What a key means depends on the framework, and on nothing that a person has to say."""
    told = schemas.catalogue().frameworks_of
    assert told(bloom()[-1].values)[0] == "megatron_deepspeed"
    assert told(olmo("mitchish70_s3_filter").values) == ("olmo",)
    assert told(config.capture(FILES / "megatron" / "resume_model_config.yaml").values) == ("megatron",)
    assert told(config.capture(FILES / "wandb" / "tinylm_kj3gdsjx_config.yaml").values) == ()
