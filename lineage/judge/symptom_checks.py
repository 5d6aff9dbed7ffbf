"""What to check next for each class of symptom, with where each check is from. Data only.

A check belongs here when its outcome tells explanations apart: each says what which outcome speaks for.
"""

from __future__ import annotations

from .._rooms import schemas

GUIDE = "mlmentorship, Debug a frontier LLM training run that suddenly diverges"
DEEP = "mlmentorship, LLM training debugging, in depth"
BYTEROBUST = "ByteRobust, arXiv 2509.16293"
MEGATRON = "Megatron-LM, rerun state machine (megatron/core/rerun_state_machine.py)"
BLOOM = "BLOOM-176B training chronicles"
IDEFICS = "IDEFICS-80B training log"
OLMO = "allenai/OLMo-core issue 319"
LIGHTNING = "Lightning issue 18780"


def _check(text: str, source: str, command: str | None = None) -> schemas.Check:
    return schemas.Check(text=text, source=source, command=command)


CHECKS: dict[str, tuple[schemas.Check, ...]] = {
    "global": (
        _check(
            "What changed for all ranks at or just before this step: learning rate, schedule, data "
            "mix, batch, code? "
            "A change at that step comes before any suspicion of a sample",
            GUIDE,
            "lineage diff",
        ),
        _check(
            "The batch of the step beside those before it: tokens, lengths, mask, ids out of range, "
            "domains. An odd "
            "batch speaks for data, a usual one for optimizer or numerics",
            GUIDE,
            "lineage show",
        ),
        _check(
            "Which norm moved first in the steps before: outputs, gradients by layer, updates? A "
            "slow growth before the "
            "jump speaks for optimizer and schedule, none for the batch or a change",
            DEEP,
        ),
        _check(
            "The same batch from the last good checkpoint, in FP32 and with fused kernels off, one "
            "at a time. Clean in "
            "FP32 speaks for numerics; still bad speaks for data or model",
            GUIDE,
        ),
    ),
    "one_rank": (
        _check(
            "This rank's batch on another rank, and another rank's batch on this one: if it goes "
            "with the batch it is "
            "data, if it stays with the device it is hardware, kernels or this rank's state",
            BYTEROBUST,
        ),
        _check(
            "The same step again on the same device, then on another one: a result that differs on "
            "the same device is "
            "transient, one that repeats there and not elsewhere is the device",
            MEGATRON,
        ),
        _check(
            "This rank's weights and moments beside its replicas at the last good step: if they "
            "differed before, it "
            "began earlier than the first bad cell",
            DEEP,
        ),
        _check(
            "Events of its node and device around the step (ECC, Xid, throttling, links): they lend "
            "weight, and are no "
            "proof",
            GUIDE,
        ),
    ),
    "some_ranks": (
        _check(
            "What these ranks share and the others do not: node, switch, pipeline stage, expert, "
            "data shard. A shared "
            "node speaks for hardware, a shared stage for the model, a shared shard for data",
            GUIDE,
        ),
        _check(
            "Their batches on other ranks: if it goes with the batches it is data",
            BYTEROBUST,
        ),
        _check(
            "Their weights beside their replicas at the last good step: a skipped collective or a "
            "partial restore "
            "leaves a group of ranks that agree with each other and not with the rest",
            DEEP,
        ),
    ),
    "one_tensor": (
        _check(
            "How many of its elements are bad: a single one with all others as usual speaks for a "
            "bit flip or a "
            "transfer, many for arithmetic (overflow, division, log of zero)",
            GUIDE,
            "lineage first-bad",
        ),
        _check(
            "The step again with every module's output read: the largest finite magnitude before the "
            "first bad output "
            "tells an overflow (near the type's largest value) from a NaN made there",
            DEEP,
        ),
        _check(
            "The same step with this layer's fused kernel off, then in FP32: which of the two makes it clean",
            GUIDE,
        ),
        _check(
            "Its optimizer moments at the last good step: a broken moment makes a bad update out of "
            "a good gradient",
            GUIDE,
        ),
    ),
    "after_restart": (
        _check(
            "What was restored and what was not: moments, scheduler step, scaler, random state, "
            "loader position. A "
            "component that is not as saved comes first",
            IDEFICS,
            "lineage show",
        ),
        _check(
            "What changed at this restart beside the state: settings, code, packages, world size, "
            "devices. Several "
            "changes at once are confounded",
            BLOOM,
            "lineage diff",
        ),
        _check(
            "The position in the data: repeated or skipped samples after the restart change the loss "
            "without any fault "
            "of the state",
            LIGHTNING,
            "lineage show",
        ),
        _check(
            "Resumed again from the same checkpoint under the conditions before: bad again speaks "
            "for the checkpoint, "
            "clean for what changed",
            GUIDE,
        ),
        _check(
            "Whether replicas agreed before the save: a restart loads one of them everywhere, and "
            "can hide or spread "
            "what was wrong in it",
            OLMO,
        ),
    ),
    "evaluation_only": (
        _check(
            "The same checkpoint evaluated again with the evaluator, its data and settings of the "
            "evaluation before: "
            "back to normal speaks for the evaluator",
            GUIDE,
            "lineage diff",
        ),
        _check(
            "The checkpoint before, evaluated now: bad too speaks for the evaluator, not for training",
            GUIDE,
        ),
        _check(
            "What evaluation alone uses: eval mode of dropout and norms, running statistics, "
            "averaged weights, "
            "generation length, precision",
            DEEP,
        ),
    ),
    "unknown": (
        _check(
            "The step again from the last good checkpoint with every rank recording its loss and its "
            "gradient before "
            "the reduction: then the class is known",
            GUIDE,
        ),
    ),
}
"""Class -> its checks, the one that tells most first."""
