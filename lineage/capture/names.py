"""Fully qualified names of parameters, without the prefixes that wrappers put in."""

from __future__ import annotations

WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def clean(name: str) -> str:
    """Remove wrapper prefixes wherever they stand: `module.block.0._orig_mod.w` -> `block.0.w`."""
    for prefix in WRAPPERS:
        name = name.replace("." + prefix, ".")
        while name.startswith(prefix):
            name = name.removeprefix(prefix)
    return name
