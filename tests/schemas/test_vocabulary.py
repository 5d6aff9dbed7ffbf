"""What the words of logbooks stand for: the whole name, else what its noun is about, else nothing."""

from __future__ import annotations

from collections import defaultdict

import pytest

import schemas

WORDS: list[tuple[str, str, str]] = [
    # a part that stands inside another name does not decide
    ("lora_rank", "param_groups", "lever"),
    ("communication_frequency", "local_steps", "lever"),
    ("mtp_loss_weight", "aux_loss", "lever"),
    ("diloco_workers", "local_steps", "lever"),
    ("tensor_parallel_seed", "seed", "lever"),
    ("soap_precondition_frequency", "optimizer", "lever"),
    ("embedding_lr", "learning_rate", "lever"),
    ("gradient_norm_clip", "grad_clip", "lever"),
    ("storage_backend", "save_policy", "operations"),
    ("communication_overhaul", "unclassified", "unknown"),
    ("determinism_budget_plan", "unclassified", "unknown"),
    # what says that nothing changes must be the noun, or stand in front of everything
    ("eval_batch_size", "eval_protocol", "operations"),
    ("validation_sequence_length", "operations", "operations"),
    ("checkpoint_dtype", "operations", "operations"),
    ("pod_failure", "operations", "operations"),
    ("head_node_ip", "operations", "operations"),
    ("nccl_ib_timeout", "operations", "operations"),
    ("communication_backend", "communication", "bitwise"),
    # one word for different things
    ("workers", "world_size", "ambiguous"),
    ("dataloader", "loader_workers", "ambiguous"),
    ("temperature", "none", "ambiguous"),
    ("num_workers", "loader_workers", "operations"),
    # stages, objectives, recipes
    ("stage", "curriculum", "lever"),
    ("phase", "curriculum", "lever"),
    ("mid_training", "curriculum", "lever"),
    ("context_extension", "seq_len", "lever"),
    ("mup", "model", "lever"),
    ("nope_layers", "model", "lever"),
    ("rope_scaling", "position", "lever"),
    ("mip_ratio", "objective", "lever"),
    ("prefix_lm", "objective", "lever"),
    ("distillation_alpha", "objective", "lever"),
    ("dpo_beta", "rl_objective", "lever"),
    ("kl_coef", "rl_objective", "lever"),
    ("local_steps", "local_steps", "lever"),
    ("sync_frequency", "local_steps", "lever"),
    ("router_z_loss", "aux_loss", "lever"),
    ("capacity_factor", "moe_routing", "lever"),
    ("experts_per_token", "moe_routing", "lever"),
    ("ema_decay", "ema_merge", "lever"),
    ("intra_document_masking", "packing", "lever"),
    ("minhash_dedup", "data_filter", "lever"),
    ("chat_template", "tokenizer", "lever"),
    ("replay_ratio", "data_mix", "lever"),
    ("muon", "optimizer", "lever"),
    ("newton_schulz_steps", "optimizer", "lever"),
    ("fp32_softmax", "fp32_islands", "lever"),
    ("stochastic_rounding", "precision", "lever"),
    ("nvfp4", "fp8", "lever"),
    ("dp", "world_size", "topology"),
    ("hsdp", "dp_sharding", "topology"),
    ("zero_bubble", "pipeline_parallel", "topology"),
    # code, machines, operation
    ("fix", "code", "code"),
    ("hotfix", "code", "code"),
    ("firmware", "software", "code"),
    ("libtpu", "software", "code"),
    ("infiniband", "hardware", "hardware"),
    ("node_swap", "operations", "operations"),
    ("checkpoint_cadence", "save_policy", "operations"),
    ("live_recovery", "operations", "operations"),
    ("eval_loss", "none", "operations"),
    ("flux_capacitance", "unclassified", "unknown"),
]


@pytest.mark.parametrize(("name", "concept", "nature"), WORDS)
def test_a_word_stands_for_what_its_noun_is_about(name: str, concept: str, nature: str) -> None:
    """The longest known run of parts decides, the later of two; that nothing changes must be said by the noun."""
    found = schemas.vocabulary().word(name)
    assert (found.concept, found.nature) == (concept, nature)


def test_no_word_stands_under_two_concepts() -> None:
    """Which of two meanings a word has must not depend on the order of a file."""
    told: dict[str, set[str]] = defaultdict(set)
    for concept in schemas.catalogue().concepts.values():
        for word in (concept.id, *concept.words):
            told[schemas.plain_word(word)].add(concept.id)
    assert {w: sorted(ids) for w, ids in told.items() if len(ids) > 1} == {}
