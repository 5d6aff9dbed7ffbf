"""Which part of a tensor this rank holds, and which ranks must hold the same: what placement declares.

A `DistributedDataParallel` wrapper declares that the ranks of its group hold the same parameters. A distributed
tensor declares it by its placements: along the dimensions of the mesh on which it is replicated (the replicated
dimension of hybrid sharding, norms under tensor parallelism) all ranks hold the same, along those on which it is
sharded each has a part of its own. Megatron marks its parameters. Of a plain tensor that no wrapper holds nothing
is declared; whether ranks agree on it can still be observed.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ..judge import rank_sets
from . import digest, digest_shards
from .names import clean
from .watched import Watched

WHOLE = "whole"
How = Literal["ddp", "mesh", "fsdp", "declared"]


@dataclass(frozen=True, eq=False)
class Group:
    """Ranks that must hold the same, and what says so.

    It is asked for once for each tensor of a model: what is made of thousands of ranks is made once, and kept.
    """

    how: How
    ranks: tuple[int, ...]
    text: str

    @cached_property
    def id(self) -> str:
        """A short name of the set of ranks, the same on all of them."""
        return hashlib.sha256(rank_sets.text(self.ranks).encode()).hexdigest()[:12]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return self is other or (self.id, self.how, self.text) == (other.id, other.how, other.text)

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True)
class Placed:
    """One tensor of the state: this rank's local part of it, and the groups that must agree on that part."""

    kind: str
    """`weight`, `buffer`, `moment1`, `moment2`, or `state:<key>` for what else an optimizer holds"""
    name: str
    tensor: Any
    part: str = WHOLE
    groups: tuple[Group, ...] = ()
    """none: nothing declares who must hold the same"""
    whole: str | None = None
    """type and shape of the whole tensor, as `digest.header` gives them; None where the part's place is not known"""
    shape: tuple[int, ...] = ()
    """of the whole tensor, where it is known"""
    held: tuple[digest_shards.Ranges, ...] | None = None
    """the places of each of its dimensions that this rank holds; None where it is all, or not known"""
    source: int = 0
    """`id` of the object that the training loop holds"""
    elements: int = 0
    """of this rank's part"""

    def lies_as(self, other: Placed) -> Placed:
        """The same tensor, placed as another one of its shape is."""
        whole = None if other.whole is None else digest.header_of(self.tensor.dtype, other.shape)
        return replace(
            self,
            part=other.part,
            groups=other.groups,
            whole=whole,
            shape=other.shape,
            held=other.held,
            source=self.source if self.held == other.held else 0,  # else it does not say itself where it lies
        )


Known = dict[tuple[int, tuple[str, ...]], Group]
"""The groups that a look has made: by the id of a mesh and the placements on it, of a process group and its text."""


@dataclass
class Placements:
    """All tensors of the state, and those that are left out, with the reason."""

    placed: list[Placed] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    groups: Known = field(default_factory=dict)


FIRST, SECOND = ("exp_avg", "momentum_buffer"), ("exp_avg_sq",)
OWN_STATISTICS = "each rank keeps running statistics of its own batches (BatchNorm)"


def look(watched: Watched, replicas: Sequence[Sequence[int]] | None = None) -> Placements:
    """Read the placement of parameters, buffers and optimizer state as they are now. Issues no collective.

    Args:
        watched: the live objects.
        replicas: groups of ranks that hold copies of one another, where the user declares them.
    """
    out = Placements()
    if watched.model is None:
        return out
    asked = _declared(replicas)
    wrapped = dict(_wrapped(watched.model))
    cut = set(cut_up(watched.model))
    homes: dict[int, Placed] = {}
    for name, p in watched.parameters():
        found = _place(out, "weight", name, p, wrapped.get(id(p)), asked)
        if found is not None:
            if id(p) in cut:
                found = out.placed[-1] = replace(found, whole=None)
            homes[id(p)] = found
    for name, b, reason in _buffers(watched.model):
        if reason is not None:
            out.left_out[name] = reason
        else:
            _place(out, "buffer", name, b, wrapped.get(id(b)), ())
    if watched.optimizer is not None:
        _moments(out, watched, homes)
    return out


def _place(
    out: Placements,
    kind: str,
    name: str,
    tensor: Any,
    wrapper: tuple[Group, ...] | None,
    asked: tuple[Group, ...],
) -> Placed | None:
    """Add one tensor, or the reason why it is left out."""
    try:
        part, own = _part(tensor, out.groups)
        megatron = _megatron(tensor, out.groups) if part == WHOLE else None
        if megatron is not None:
            part, own = megatron
        held = tensor.to_local() if hasattr(tensor, "placements") else tensor
        if held.device.type == "meta" or held.layout is not _torch().strided or held.is_quantized:
            raise _Left("it holds no plain data")
        if held.numel() == 0:
            return None  # an empty shard agrees with nothing and differs from nothing
        groups = tuple(g for g in (*own, *(wrapper or ()), *asked) if len(g.ranks) > 1)
        whole, places = _in_the_whole(tensor, part) if megatron is None else (None, None)
        found = Placed(
            kind,
            name,
            held.detach(),
            part,
            tuple(dict.fromkeys(groups)),
            whole=whole,
            shape=tuple(tensor.shape),
            held=places,
            source=id(tensor),
            elements=held.numel(),
        )
    except _Left as e:
        out.left_out[name] = str(e)
        return None
    except Exception as e:
        out.left_out[name] = f"{type(e).__name__} while its placement was read"
        return None
    out.placed.append(found)
    return found


def _in_the_whole(tensor: Any, part: str) -> tuple[str | None, tuple[digest_shards.Ranges, ...] | None]:
    """Type and shape of the whole tensor, and the places that this rank holds; (None, None) where it is not known."""
    if part == WHOLE:
        return digest.header(tensor), None
    try:
        return digest.header(tensor), tuple(digest_shards.ranges(tensor))
    except Exception:  # of a kind that is not known: its digest is of the part alone
        return None, None


class _Left(Exception):
    """A tensor that is left out, with the reason."""


def _torch() -> Any:
    return sys.modules["torch"]


def _part(tensor: Any, known: Known) -> tuple[str, tuple[Group, ...]]:
    """The part that a distributed tensor's shard is, and the ranks with the same; a plain tensor is whole."""
    if not hasattr(tensor, "placements"):
        return WHOLE, ()
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(p.is_partial() for p in placements):
        raise _Left("it is a partial sum, which no two ranks need share")
    at = mesh.get_coordinate()
    if at is None:
        raise _Left("this rank is not on its mesh")
    names = mesh.mesh_dim_names or tuple(str(i) for i in range(len(placements)))
    parts, index, alike = [], [], []
    for placement, place, size, name in zip(placements, at, mesh.mesh.shape, names, strict=True):
        replicated = placement.is_replicate()
        index.append(slice(None) if replicated else place)
        if replicated:
            alike.append(name)
        else:
            parts.append(f"{placement} {place + 1} of {size}")
    part = ", ".join(parts) or WHOLE
    if not alike:
        return part, ()
    key = (id(mesh), tuple(map(str, placements)))
    if key not in known:
        ranks = tuple(mesh.mesh[tuple(index)].flatten().tolist())
        known[key] = Group("mesh", ranks, f"replicated along {', '.join(alike)} of the device mesh")
    return part, (known[key],)


def _declared(replicas: Sequence[Sequence[int]] | None) -> tuple[Group, ...]:
    """The groups that a user declared and this rank is in."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if not replicas or dist is None or not dist.is_initialized():
        return ()
    me = dist.get_rank()
    return tuple(Group("declared", tuple(sorted(g)), "declared as replicas") for g in replicas if me in g)


def _wrapped(model: Any) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """id of a tensor -> the groups of the wrapper that holds it."""
    torch = _torch()
    for module in model.modules():
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            yield from _under_ddp(module)
        elif type(module).__name__ == "FullyShardedDataParallel":
            group = _between_nodes(module)
            for p in module.parameters():
                yield id(p), group


def cut_up(model: Any) -> Iterator[int]:
    """id of the parameters of which FullyShardedDataParallel keeps a piece on each rank, as a plain tensor."""
    for module in model.modules():
        whole = str(getattr(module, "sharding_strategy", "")).endswith("NO_SHARD")
        if type(module).__name__ == "FullyShardedDataParallel" and not whole:
            yield from map(id, module.parameters())


def _under_ddp(module: Any) -> Iterator[tuple[int, tuple[Group, ...]]]:
    torch = _torch()
    ranks = _ranks(module.process_group)
    groups = (Group("ddp", ranks, "under one DistributedDataParallel"),)
    ignored = set(getattr(module, "parameters_to_ignore", ()))
    for name, p in module.module.named_parameters():
        if name not in ignored:
            yield id(p), groups
    for inner in module.module.modules():
        if isinstance(inner, torch.nn.SyncBatchNorm):
            for b in inner.buffers(recurse=False):
                yield id(b), groups


def _between_nodes(module: Any) -> tuple[Group, ...]:
    """The ranks that hold the same shard under FullyShardedDataParallel; none where every rank has its own."""
    if str(getattr(module, "sharding_strategy", "")).endswith("NO_SHARD"):
        return (Group("fsdp", _ranks(module.process_group), "not sharded under FullyShardedDataParallel"),)
    between = getattr(module, "_inter_node_pg", None)
    if between is None:
        return ()
    return (Group("fsdp", _ranks(between), "the same shard on other nodes under FullyShardedDataParallel"),)


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(sorted(_torch().distributed.get_process_group_ranks(group)))


def _buffers(model: Any) -> Iterator[tuple[str, Any, str | None]]:
    """(clean name, buffer, why it need not agree or None), each buffer once."""
    torch = _torch()
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        own = norm and not isinstance(module, torch.nn.SyncBatchNorm)
        for name, b in module.named_buffers(recurse=False):
            if id(b) in seen:
                continue
            seen.add(id(b))
            statistics = own and name in ("running_mean", "running_var")
            yield clean(f"{prefix}.{name}" if prefix else name), b, OWN_STATISTICS if statistics else None


def _moments(out: Placements, watched: Watched, homes: dict[int, Placed]) -> None:
    """What the optimizer holds for each parameter, placed as the parameter is where it has no placement of its own."""
    for p, state in list(watched.optimizer.state.items()):
        home = homes.get(id(p))
        if home is None or not isinstance(state, dict):
            continue
        for key, held in state.items():
            if key == "step" or not hasattr(held, "element_size"):
                continue
            found = _place(out, kind_of(key), home.name, held, None, ())
            if found is None:
                continue
            own = hasattr(held, "placements")
            if found.tensor.shape == home.tensor.shape and (not own or found.part == home.part):
                out.placed[-1] = found.lies_as(home)  # it lies as its parameter does
            elif (
                not own and home.part != WHOLE
            ):  # of another shape than the shard it belongs to: of the shard alone
                out.placed[-1] = replace(found, whole=None)


def kind_of(key: str) -> str:
    """The kind of a tensor that an optimizer holds under a key."""
    return "moment1" if key in FIRST else "moment2" if key in SECOND else f"state:{key}"


def _megatron(p: Any, known: Known) -> tuple[str, tuple[Group, ...]] | None:
    """Part and groups of a parameter as Megatron-LM marks it; None where it is not marked, or Megatron is not there."""
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None or not hasattr(p, "tensor_model_parallel"):
        return None
    expert = not getattr(p, "allreduce", True)
    if expert:
        data, whose = state.get_expert_data_parallel_group(), " of these experts"
    else:
        data, whose = state.get_data_parallel_group(with_context_parallel=True), ""
    groups = [_of(known, data, f"data-parallel ranks{whose} (Megatron)")]
    at, of = state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()
    parts = [f"stage {state.get_pipeline_model_parallel_rank() + 1}"]
    if expert:
        parts.append(f"experts {state.get_expert_model_parallel_rank() + 1}")
    if expert or p.tensor_model_parallel:
        parts.append(f"tensor {at + 1} of {of}")
    else:
        alike = state.get_tensor_model_parallel_group()
        groups.append(_of(known, alike, "replicated over tensor parallelism (Megatron)"))
    return ", ".join(parts), tuple(groups)


def _of(known: Known, process_group: Any, text: str) -> Group:
    """The group of a process group, made once in a look."""
    key = (id(process_group), (text,))
    if key not in known:
        known[key] = Group("mesh", _ranks(process_group), text)
    return known[key]
