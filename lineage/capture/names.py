"""Fully qualified names of parameters, without the prefixes that wrappers put in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def clean(name: str) -> str:
    """Remove wrapper prefixes wherever they stand: `module.block.0._orig_mod.w` -> `block.0.w`."""
    for prefix in WRAPPERS:
        name = name.replace("." + prefix, ".")
        while name.startswith(prefix):
            name = name.removeprefix(prefix)
    return name


def patterns(names: Iterable[str]) -> str:
    """Names with their numbers left out, each with how often it comes: `layers.*.norm.weight x24, head.weight`.

    Layers of one kind are one pattern, so that a group of thousands stays a line.
    """
    found = Counter(re.sub(r"\d+", "*", name) for name in names)
    return ", ".join(f"{p} x{n}" if n > 1 else p for p, n in sorted(found.items()))
