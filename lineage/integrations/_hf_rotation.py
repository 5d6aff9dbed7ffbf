"""Trainer's rotation (`save_total_limit`) must not delete a checkpoint that an open incident needs.

Trainer asks nobody before it deletes. Its one function that does, `transformers.trainer.rotate_checkpoints`, is
called after each save with all that decides; so it is watched there, and what must be kept is renamed out of its
reach just before. A callback would come too late (`on_save` is after the deletion) or could not know (which
checkpoint is the best is settled within the save).
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..recorder.protection import Protection
from ._wrapped import Wrapped

PATTERN = "checkpoint-*"


def watch(wrapped: Wrapped, ask: Callable[[], Protection | None]) -> bool:
    """Protect from now on, until `wrapped.undo()`. False where this version of transformers rotates otherwise."""
    import transformers.trainer as module

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def rotate_checkpoints(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                names = ("output_dir", "save_total_limit", "best_model_checkpoint")
                given = dict(zip(names, args, strict=False)) | kwargs
                before_rotation(
                    ask,
                    Path(given["output_dir"]),
                    given.get("save_total_limit"),
                    given.get("best_model_checkpoint"),
                )
            return original(*args, **kwargs)

        return rotate_checkpoints

    return wrapped.wrap(module, "rotate_checkpoints", make)


def before_rotation(
    ask: Callable[[], Protection | None], folder: Path, limit: int | None, best: str | None
) -> None:
    """Take out of reach what must be kept, where there are more checkpoints than the limit allows.

    The newest and the best one are left where they are: the rotation keeps these itself.
    """
    there = _saved(folder)
    if not limit or limit < 0 or len(there) <= limit:
        return
    newest = max(there, key=lambda p: p.stat().st_mtime)
    if newest != max(there, key=_number):
        newest = (
            Path()
        )  # by time and by number it is another one: which of them the rotation takes is not known
    _keep(ask, (p for p in there if p != newest and (best is None or p != Path(best))))


def before_the_end(ask: Callable[[], Protection | None], folder: Path, best: str | None) -> None:
    """At the end of a training with `save_total_limit=1` Trainer deletes all but the best one."""
    if best is not None:
        _keep(ask, (p for p in _saved(folder) if not p.samefile(best)))


def _saved(folder: Path) -> list[Path]:
    return [p for p in folder.glob(PATTERN) if p.is_dir()]


def _number(path: Path) -> int:
    found = re.search(r"checkpoint-([0-9]+)", path.name)
    return int(found[1]) if found else -1


def _keep(ask: Callable[[], Protection | None], paths: Iterable[Path]) -> None:
    protection = ask()
    for path in paths if protection is not None else ():
        if protection is not None and (why := protection.holds(path)):
            protection.keep(path, why)
