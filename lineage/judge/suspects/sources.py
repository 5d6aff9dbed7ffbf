"""Where the rules are from: papers, public incidents, documentation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One source."""

    title: str
    url: str | None = None


GUIDE = Source("mlmentorship, Debug a frontier LLM training run that suddenly diverges")
DEEP = Source("mlmentorship, LLM training debugging, in depth")

PALM = Source(
    "Chowdhery et al., PaLM, section 5.1: the same batches did not spike from another checkpoint",
    "https://arxiv.org/abs/2204.02311",
)
REPEATED = Source(
    "Hernandez et al., Scaling Laws and Interpretability of Learning from Repeated Data",
    "https://arxiv.org/abs/2205.10487",
)
IDEFICS = Source(
    "IDEFICS-80B training log: state that was not restored at a resume",
    "https://github.com/huggingface/m4-logs",
)
LIGHTNING = Source(
    "Lightning issue 18780: data is read again after a resume",
    "https://github.com/Lightning-AI/pytorch-lightning/issues/18780",
)
EMBEDDING = Source(
    "torch.nn.Embedding: ids index a table of fixed size",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
)

MIXED = Source(
    "Micikevicius et al., Mixed Precision Training: the range of float16, and loss scaling",
    "https://arxiv.org/abs/1710.03740",
)
NUMERICAL = Source(
    "PyTorch, Numerical accuracy: which operations overflow, and what differs between devices",
    "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
)
SCALER = Source(
    "PyTorch, torch.amp.GradScaler: the scale is halved and the step skipped at infinities",
    "https://docs.pytorch.org/docs/stable/amp.html",
)
WORTSMAN = Source(
    "Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities",
    "https://arxiv.org/abs/2309.14322",
)

ADAM = Source(
    "Kingma and Ba, Adam, algorithm 1: both moments and their counters make the update",
    "https://arxiv.org/abs/1412.6980",
)
MOLYBOG = Source(
    "Molybog et al., A Theory on Adam Instability in Large-Scale Machine Learning",
    "https://arxiv.org/abs/2304.09871",
)
MARIN = Source(
    "Marin-32B retrospective: the update's norm rose before gradient norm and loss",
    "https://github.com/marin-community/marin",
)
OPT = Source(
    "OPT-175B logbook: a loaded optimizer state put old settings back",
    "https://github.com/facebookresearch/metaseq/tree/main/projects/OPT/chronicles",
)
CLIPPING = Source(
    "Pascanu et al., On the difficulty of training recurrent neural networks: clipping of the norm",
    "https://arxiv.org/abs/1211.5063",
)

DDP = Source(
    "PyTorch, DistributedDataParallel: gradients are averaged, parameters are never exchanged afterwards",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
BLOOM = Source(
    "BLOOM-176B chronicles: clipping on some tensor-parallel ranks only, unseen for two weeks",
    "https://github.com/bigscience-workshop/bigscience/blob/master/train/tr11-176B-ml/chronicles.md",
)
OLMO = Source(
    "OLMo-core issue 319: replicas differed, and a restart from one of them hid it",
    "https://github.com/allenai/OLMo-core/issues/319",
)
LEMIRE = Source(
    "Lemire and Kaser, Strongly universal string hashing is fast: the sums that the digests are",
    "https://arxiv.org/abs/1202.4961",
)

SDC = Source("Dixit et al., Silent Data Corruptions at Scale", "https://arxiv.org/abs/2102.11245")
SDC_LLM = Source(
    "Ma et al., Understanding Silent Data Corruption in LLM Training", "https://arxiv.org/abs/2502.12340"
)
LLAMA = Source(
    "Grattafiori et al., The Llama 3 Herd of Models, section 3.3.4: interruptions and their causes",
    "https://arxiv.org/abs/2407.21783",
)
XID = Source("NVIDIA, Xid errors", "https://docs.nvidia.com/deploy/xid-errors/index.html")
MEGATRON = Source(
    "Megatron-LM, rerun state machine: the step again on the same device, then on another",
    "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/rerun_state_machine.py",
)
BYTEROBUST = Source(
    "ByteRobust: replays that change which machine computes which batch", "https://arxiv.org/abs/2509.16293"
)
RANDOMNESS = Source(
    "PyTorch, Reproducibility: results differ between releases, platforms and kernels",
    "https://docs.pytorch.org/docs/stable/notes/randomness.html",
)
