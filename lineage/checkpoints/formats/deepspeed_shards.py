"""The files of one DeepSpeed tag, by rank; and whether each ends as a file of torch.save does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .. import ends
from ..contents import Contents
from ..errors import Unreadable
from ..folder import Folder

MOST = 32
"""Files of one kind that are taken apart; of the others only the end is read."""
_OPTIM = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
_MODEL = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_MODEL_DP = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
_EXPERT = re.compile(r"layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt")
_LAYER = re.compile(r"layer_(\d+)-model_(\d+)-model_states\.pt")


@dataclass
class Shards:
    """File names of a tag: by (data-parallel rank, model-parallel rank), by expert, by pipeline layer."""

    most: int = MOST
    model: dict[int, str] = field(default_factory=dict)
    model_by_dp: dict[tuple[int, int], str] = field(default_factory=dict)
    optim: dict[tuple[int, int], str] = field(default_factory=dict)
    experts: dict[int, set[int]] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    all: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Folder, tag: str) -> Shards:
        """The files of a tag; `tag` is "" where the folder is the tag's own."""
        made = cls(len(folder.entries) if folder.every else MOST)
        for name in folder.names(tag):
            base = name.rpartition("/")[2]
            if m := _OPTIM.fullmatch(base):
                made.optim[int(m[1]), int(m[2])] = name
            elif m := _MODEL_DP.fullmatch(base):
                made.model_by_dp[int(m[1]), int(m[2])] = name
            elif m := _MODEL.fullmatch(base):
                made.model[int(m[1])] = name
            elif m := _EXPERT.fullmatch(base):
                made.experts.setdefault(int(m[1]), set()).add(int(m[2]))
            elif _LAYER.fullmatch(base):
                made.layers.append(name)
            elif not base.endswith("_optim_states.pt"):
                continue
            made.all.append(name)
        return made

    @property
    def dp_seen(self) -> int:
        """Data-parallel ranks that files tell of."""
        return max((d for d, _ in [*self.optim, *self.model_by_dp]), default=0) + 1

    @property
    def mp_seen(self) -> int:
        """Model-parallel ranks that files tell of."""
        return max([*self.model, *(m for _, m in [*self.optim, *self.model_by_dp])], default=0) + 1

    def model_files(self) -> list[str]:
        """The model_states files, experts and layers left out."""
        return [self.model[m] for m in sorted(self.model)] + [
            self.model_by_dp[k] for k in sorted(self.model_by_dp)
        ]

    def looked(self, names: list[str]) -> list[str]:
        """The files that are taken apart: all, or the first and last ones of very many."""
        return names if len(names) <= self.most else [*names[: self.most - 4], *names[-4:]]


def whole(folder: Folder, c: Contents, shards: Shards) -> None:
    """Every file that is not taken apart must end as a file of torch.save does."""
    looked = {*shards.looked(shards.model_files()), *shards.looked(sorted(shards.optim.values()))}
    try:
        cut = ends.cut_off(folder, [n for n in shards.all if n not in looked])
    except Unreadable as e:
        c.find("LIN-K015", "fails", str(e), "Make it readable, and look again.")
        return
    if cut:
        c.find(
            "LIN-K002",
            "fails",
            ends.said(folder, cut),
            "Copy them again from the nodes that wrote them, or take an earlier tag.",
            "optimizer_state" if "optim" in cut[0] else "weights",
        )
