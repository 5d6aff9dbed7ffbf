"""The catalogue: what a key or a word stands for, what a change does, and that its own tables are sound."""

from __future__ import annotations

from pathlib import Path

import pytest

import schemas

CATALOGUE = schemas.catalogue()
FRAMEWORKS = [f for f in CATALOGUE.frameworks if f != "launchers"]


def meaning(
    key: str, frameworks: tuple[str, ...] = (), present: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    """(concept, setting) of a key."""
    found = CATALOGUE.meaning(key, frameworks, present)
    return (found.concept.id, found.setting) if found else None


def test_every_reason_and_condition_completes_a_sentence() -> None:
    """They are read aloud after "... changed, and", so they begin small and end without a full stop."""
    for concept in CATALOGUE.concepts.values():
        texts = [concept.reason, concept.condition, concept.otherwise and concept.otherwise.reason]
        for text in filter(None, texts):
            assert not text.endswith("."), concept.id
            assert text[0].islower(), concept.id


def test_a_class_that_depends_on_something_says_on_what_and_differs_from_the_other() -> None:
    """Change.cls alone tells which of the two holds, so they cannot be the same."""
    for concept in CATALOGUE.concepts.values():
        if concept.otherwise is not None:
            assert concept.condition, concept.id
            assert concept.otherwise.cls != concept.cls, concept.id


def test_a_noisy_concept_has_no_effect_on_any_claim() -> None:
    """What is no part of drift cannot decide a verdict."""
    noisy = [c for c in CATALOGUE.concepts.values() if c.noise]
    assert {c.id for c in noisy} == {"eval_interval", "save_policy", "logging", "names", "limits", "place"}
    assert not [c.id for c in noisy if c.breaks or c.caveats]


def test_a_key_means_one_thing_in_all_frameworks_but_for_two_that_are_known() -> None:
    """Two meanings of one name are told apart by the framework, or by what else the config has."""
    meanings: dict[str, set[tuple[str, str]]] = {}
    for key in CATALOGUE.keys:
        if not CATALOGUE.concepts[key.concept].noise:
            meanings.setdefault(schemas.plain_key(key.name), set()).add((key.concept, key.setting))
    assert {n for n, m in meanings.items() if len(m) > 1} == {"batch_size", "model.vocab_size"}


def test_only_a_concept_without_a_part_in_the_update_takes_keys_by_the_shape_of_their_names() -> None:
    """A pattern that hid a change of the update would make the tool silent about it."""
    with pytest.raises(schemas.CatalogueError, match="only a concept that has no part in the update"):
        schemas.extended_catalogue(
            (
                "site",
                {"concept": [{"id": "x", "title": "x", "class": "R", "reason": "x", "patterns": ["lr_*"]}]},
            )
        )


@pytest.mark.parametrize(
    ("key", "frameworks", "expected"),
    [
        ("--log-energy", ("megatron",), ("logging", "log_energy")),
        ("--log-energy", (), None),
        ("--logits-load-kd-loss-alpha", ("megatron",), None),
        ("training.gc_debug", ("torchtitan",), ("logging", "gc_debug")),
        ("trainer.callbacks.profiler.wait", ("olmo_core",), ("logging", "profiler.wait")),
        ("callbacks.lr_monitor", (), ("logging", "lr_monitor")),
        ("wandb_watch", (), ("logging", "wandb_watch")),
        ("--inprocess-active-world-size", ("megatron",), ("world_size", "active")),
    ],
)
def test_a_key_without_a_part_in_the_update_is_known_by_the_shape_of_its_name(
    key: str, frameworks: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    """In its own framework, and behind every key that is known by itself."""
    assert meaning(key, frameworks) == expected


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_keys_of_a_framework_are_recognised_as_its_own(framework: str) -> None:
    """A config that has them all belongs to it before any other, and each key means what its row says."""
    keys = [k for k in CATALOGUE.keys if k.framework == framework]
    told = CATALOGUE.frameworks_of(k.name for k in keys)
    assert told[0] == framework
    for key in keys:
        assert meaning(key.name, told) == (key.concept, key.setting), key.name


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("lr", ("learning_rate", "")),
        ("--lr", ("learning_rate", "")),
        ("config.training.optim.lr", ("learning_rate", "")),
        ("optimizer.param_groups.3.optimizer_kwargs.lr", ("learning_rate", "")),
        ("optimizer.nonesuch", ("optimizer", "optimizer.nonesuch")),
        ("name", ("names", "name")),
        ("dataset.name", ("data_mix", "dataset.name")),
        ("model.name", ("model", "")),
        ("evaluators.4.data.num_workers", ("eval_protocol", "evaluators.data.num_workers")),
        ("data.num_workers", ("loader_workers", "")),
        ("sbatch:--nodes", ("world_size", "nodes")),
        ("env:SEQ_LEN", ("seq_len", "")),
        ("trainer.callbacks.wandb.project", ("names", "wandb.project")),
        ("frobnicate", None),
        ("deep.down.frobnicate", None),
    ],
)
def test_a_key_is_found_whole_by_its_tail_or_by_its_section(
    key: str, expected: tuple[str, str] | None
) -> None:
    """`name` is a run's name at the top of a config and the data's name inside its section."""
    assert meaning(key) == expected


def test_a_batch_size_is_a_micro_batch_where_something_is_accumulated() -> None:
    """What else the config has decides what the word means."""
    assert meaning("batch_size") == ("global_batch", "")
    assert meaning("batch_size", present=("grad_accum",)) == ("micro_batch", "")
    assert meaning("batch_size", ("nanogpt",)) == ("micro_batch", "")


@pytest.mark.parametrize(
    ("word", "concept"),
    [
        ("learning_rate", "learning_rate"),
        ("lr", "learning_rate"),
        ("clip", "grad_clip"),
        ("Gradient Clipping", "grad_clip"),
        ("batch size", "global_batch"),
        ("wd", "weight_decay"),
        ("beta2", "betas"),
        ("data skip", "batch_skip"),
        ("seq-len", "seq_len"),
        ("parallel_topology", "world_size"),
        ("--global-batch-size", "global_batch"),
        ("training.max_norm", "grad_clip"),
    ],
)
def test_a_concept_is_found_by_its_id_by_what_people_call_it_and_by_a_key(word: str, concept: str) -> None:
    """Case, hyphens and underscores make no difference."""
    found = CATALOGUE.find(word)
    assert found is not None
    assert found.id == concept


def test_a_compound_word_names_several_concepts_and_an_unknown_one_none() -> None:
    """As logbooks write them: `weight_decay+adam_beta2+learning_rate`."""
    ids = [c.id for c in CATALOGUE.find_all("weight_decay+adam_beta2+learning_rate")]
    assert ids == ["weight_decay", "betas", "learning_rate"]
    assert CATALOGUE.find_all("the weather") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.5", [(2.5, None, None)]),
        ("1e-4", [(1e-4, None, None)]),
        ("wd .05, beta2 .98", [(0.05, None, "weight_decay"), (0.98, None, "betas")]),
        ("6e-5, warmup 216320", [(6e-5, None, None), (216320, None, "warmup")]),
        ("13251-14000", [([[13251, 14000]], "range", None)]),
        ("13251-14000 + 16652-18500", [([[13251, 14000], [16652, 18500]], "range", None)]),
        ("V100 | A100", [(["V100", "A100"], "alternatives", None)]),
        ("48 nodes", [(48, "nodes", "world_size")]),
        ("0.75 x initial", [(0.75, "x initial", None)]),
        ("flash on, batch 768", [(True, None, "attn_kernel"), (768, None, "global_batch")]),
        ("off", [(None, None, None)]),
        ("93e9307", [("93e9307", None, None)]),
        ("64 (96 refused)", [("64 (96 refused)", None, None)]),
        ("PR 272 branch", [("PR 272 branch", None, None)]),
    ],
)
def test_a_value_that_a_person_wrote_becomes_scalars_where_it_can_and_stays_text_where_not(
    text: str, expected: list[tuple[object, str | None, str | None]]
) -> None:
    """Nothing is guessed: a commit that looks like a number is text, and so is a remark."""
    found = CATALOGUE.read_value(text)
    assert [(p.value.plain(), p.unit, p.concept) for p in found] == expected
    assert all(p.text in text for p in found)


def test_a_default_holds_in_the_versions_that_it_is_said_for() -> None:
    """Where versions differ and the version is not known, there is no default."""
    assert CATALOGUE.default("learning_rate", "", ("hf",), {}) is not None
    of = [
        CATALOGUE.default("optimizer", "early_step", ("torchtitan",), {"torchtitan": v})
        for v in ("0.2.2", "0.3.0")
    ]
    assert (of[0] is not None, of[1]) == (True, None)
    assert CATALOGUE.default("learning_rate", "", (), {}) is None


def test_versions_are_compared_by_their_numbers() -> None:
    """0.10 comes after 0.9, a suffix is left out, and 5 is 5.0."""
    order = ["0.2.2", "0.3", "0.3.1rc2", "0.9", "0.10", "5", "5.15.0"]
    assert sorted(order, key=schemas.version_of) == order
    assert schemas.version_of("5.0.0+cu12") == schemas.version_of("5")
    assert schemas.version_of("main") == ()


def test_the_effect_of_a_change_follows_the_class_that_it_was_given() -> None:
    """A horizon that no rate depends on breaks nothing; an averaged micro-batch leaves a caveat."""
    horizon, micro = CATALOGUE.concept("horizon"), CATALOGUE.concept("micro_batch")
    assert (horizon.effect("loss_curve"), horizon.effect("loss_curve", "O")) == ("broken", "holds")
    assert (micro.effect("loss_curve", "B"), micro.effect("loss_curve", "C")) == ("holds", "caveat")
    assert CATALOGUE.concept("warmup").effect("loss_curve", "O") == "holds"
    assert "averaged micro-batch means" in micro.why("C")
    assert micro.conditional


def test_the_page_of_the_catalogue_is_as_the_catalogue_is() -> None:
    """`lineage catalogue --write docs/catalogue.md` writes it."""
    page = Path(__file__).parents[2] / "docs" / "catalogue.md"
    assert page.read_text(encoding="utf-8") == schemas.catalogue_page(schemas.extended_catalogue())
