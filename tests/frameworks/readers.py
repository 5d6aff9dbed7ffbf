"""The keys of each framework, read off its source: one function per framework, `root` is where it was unpacked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import syntax
from .syntax import UNKNOWN, Keys


def hf(root: Path) -> Keys:
    return syntax.fields(root / "transformers/training_args.py", "TrainingArguments")


def lightning(root: Path) -> Keys:
    base = root / "lightning/pytorch"
    return {
        **syntax.parameters(base / "callbacks/model_checkpoint.py", "__init__", "ModelCheckpoint"),
        **syntax.parameters(base / "trainer/trainer.py", "__init__", "Trainer"),
    }


def litgpt(root: Path) -> Keys:
    args = root / "litgpt/args.py"
    top = syntax.parameters(root / "litgpt/pretrain.py", "setup")
    out = {k: v for k, v in top.items() if k not in ("train", "eval", "log")}
    for prefix, name in (("train", "TrainArgs"), ("eval", "EvalArgs"), ("log", "LogArgs")):
        out |= syntax.fields(args, name, prefix=f"{prefix}.")
    # Pretraining gives some of these other defaults than the classes have.
    pretrain = (root / "litgpt/pretrain.py").read_text(encoding="utf-8")
    said = [k for k in out if "." in k and f"{k.rpartition('.')[2]}=" in pretrain]
    return {k: UNKNOWN if k in said else v for k, v in out.items()}


def composer(root: Path) -> Keys:
    return syntax.parameters(root / "composer/trainer/trainer.py", "__init__", "Trainer")


def llm_foundry(root: Path) -> Keys:
    return syntax.fields(root / "llmfoundry/utils/config_utils.py", "TrainConfig")


def deepspeed(root: Path) -> Keys:
    base = next(root.glob("**/deepspeed/runtime"))
    words: set[str] = set()
    for file in (
        *("constants.py", "data_pipeline/constants.py", "lr_schedules.py"),
        *("activation_checkpointing/config.py", "config.py", "config_utils.py"),
    ):
        words |= {v for v in syntax.assignments(base / file).values() if isinstance(v, str)}
    out: Keys = dict.fromkeys(words, UNKNOWN)
    zero, precision = base / "zero", base / "precision_config.py"
    out |= syntax.fields(zero / "config.py", "DeepSpeedZeroConfig", prefix="zero_optimization.")
    for name, kind in (("offload_param", "Param"), ("offload_optimizer", "Optimizer")):
        file, cls = zero / "offload_config.py", f"DeepSpeedZeroOffload{kind}Config"
        out |= syntax.fields(file, cls, prefix=f"zero_optimization.{name}.")
    out |= syntax.fields(precision, "DeepSpeedBF16Config", prefix="bf16.")
    return out | syntax.fields(precision, "DeepSpeedFP16Config", prefix="fp16.")


_CORE = (
    ("optimizer/optimizer_config.py", "OptimizerConfig"),
    ("distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig"),
    ("model_parallel_config.py", "ModelParallelConfig"),
    ("transformer/transformer_config.py", "TransformerConfig"),
)


def megatron_core(root: Path) -> Keys:
    out: Keys = {}
    for file, name in _CORE:
        out |= syntax.fields(root / "megatron/core" / file, name)
    return out


def megatron(root: Path) -> Keys:
    out = megatron_core(root)
    for file in ("training_config", "common_config", "resilience_config"):
        out |= syntax.fields(root / f"megatron/training/config/{file}.py")
    # A field that is on by default is switched off with --no-...
    out |= {f"no_{k}": v for k, v in out.items() if v is True}
    return out | syntax.options(root / "megatron/training/arguments.py")


def megatron_deepspeed(root: Path) -> Keys:
    return syntax.options(root / "megatron/arguments.py")


def nanogpt(root: Path) -> Keys:
    return syntax.assignments(root / "train.py")


def olmo(root: Path) -> Keys:
    return syntax.nested([root / "olmo/config.py"], "TrainConfig")


def olmo_core(root: Path) -> Keys:
    base = root / "olmo_core"
    out: Keys = syntax.fields(base / "internal/experiment.py", "ExperimentConfig")
    data = ("data/numpy_dataset.py", "data/data_loader.py")
    parts: list[tuple[str, str, list[str]]] = [
        ("trainer.", "train/config.py", ["TrainerConfig"]),
        ("train_module.", "train/train_module/transformer/config.py", ["TransformerTrainModuleConfig"]),
        ("train_module.scheduler.", "optim/scheduler.py", []),
        ("dataset.", data[0], []),
        ("data_loader.", data[1], ["NumpyDataLoaderConfig"]),
        ("model.", "nn/transformer/config.py", ["TransformerConfig"]),
        ("model.block.", "nn/transformer/config.py", ["TransformerBlockConfig"]),
        ("model.block.attention.", "nn/attention/__init__.py", ["AttentionConfig"]),
        ("model.block.attention.rope.", "nn/rope.py", ["RoPEConfig"]),
        ("dataset.instance_filter_config.", data[0], ["InstanceFilterConfig"]),
        ("train_module.float8_config.", "float8/__init__.py", ["Float8Config"]),
    ]
    parts += [
        ("train_module.optim.", f"optim/{f}.py", []) for f in ("config", "adam", "adamw", "lion", "muon")
    ]
    for part, file in (
        *(("dp", "data"), ("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert")),
    ):
        parts.append((f"train_module.{part}_config.", f"distributed/parallel/{file}_parallel.py", []))
    for part, kind in (("dp", "DataParallel"), ("ac", "ActivationCheckpointing")):
        names = [f"Transformer{kind}Config"]
        parts.append((f"train_module.{part}_config.", "train/train_module/transformer/config.py", names))
    for prefix, file, names in parts:
        found = syntax.fields(base / file, *names, prefix=prefix)
        # Several classes share a prefix, so their defaults may differ from each other.
        out |= {k: v if out.get(k, v) == v else UNKNOWN for k, v in found.items()}
    return out


def torchtitan_options(root: Path) -> Keys:
    """Before its first release the keys were options of argparse."""
    return syntax.options(root / "torchtitan/config_manager.py")


def torchtitan(root: Path) -> Keys:
    base = root / "torchtitan"
    if (base / "config_manager.py").exists():
        return syntax.nested([base / "config_manager.py"], "JobConfig")
    if (base / "config/job_config.py").exists():
        return syntax.nested([base / "config/job_config.py"], "JobConfig")
    out = syntax.fields(base / "trainer.py", "Trainer.Config")
    shared = base / "config/configs.py"
    for prefix, name in (
        *(("training.", "TrainingConfig"), ("parallelism.", "ParallelismConfig")),
        *(("compile.", "CompileConfig"), ("comm.", "CommConfig"), ("debug.", "DebugConfig")),
    ):
        out |= syntax.fields(shared, name, prefix=prefix)
    components = base / "components"
    optim, ckpt = components / "optimizer/optimizer.py", components / "checkpointer"
    for prefix, file, name in (
        ("optimizer.", optim, "OptimizersContainer.Config"),
        ("optimizer.param_groups.", optim, "ParamGroupConfig"),
        ("lr_scheduler.", components / "optimizer/lr_scheduler.py", "LRSchedulersContainer.Config"),
        ("checkpoint.", ckpt / "base.py", "BaseCheckpointManager.Config"),
        ("checkpoint.", ckpt / "dcp.py", "CheckpointManager.Config"),
        ("metrics.", components / "metrics.py", "MetricsProcessor.Config"),
        ("validator.", components / "validate.py", "Validator.Config"),
    ):
        out |= syntax.fields(file, name, prefix=prefix)
    return out


READERS: dict[str, Callable[[Path], Keys]] = {
    "hf": hf,
    "lightning": lightning,
    "litgpt": litgpt,
    "composer": composer,
    "llm_foundry": llm_foundry,
    "deepspeed": deepspeed,
    "megatron_core": megatron_core,
    "megatron": megatron,
    "megatron_deepspeed": megatron_deepspeed,
    "nanogpt": nanogpt,
    "olmo": olmo,
    "olmo_core": olmo_core,
    "torchtitan": torchtitan,
    "torchtitan_options": torchtitan_options,
}
