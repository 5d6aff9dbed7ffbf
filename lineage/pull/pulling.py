"""One pull, from what was named to the ledger."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from .._rooms import trackers
from .adopt import adopt
from .rebuild import Done, fetch, folder_name, open_pages, rebuild
from .source import PullTrouble, Source


def pull(
    sources: Sequence[Source],
    root: Path,
    *,
    out: Path | None = None,
    anchors: Sequence[str] = (),
    with_values: bool = True,
) -> Done:
    """Rebuild the ledger of a run from its pages into `out`, or `root/<run id>`.

    Of a run without the layer its page is read as far as it goes. Raises `PullTrouble`, and `AnchorsDiffer` where what
    was pulled before would be replaced by what does not fit; in both cases nothing is written.
    """
    try:
        pages, notes = open_pages(sources)
        chunks = fetch(pages)
        where = functools.partial(_target, out, root)
        if chunks.lines:
            done = rebuild(pages, chunks, where, anchors=anchors, with_values=with_values)
        else:
            done = adopt(pages, where)
    except trackers.TrackerUnavailable as e:
        raise PullTrouble(f"the tracker cannot be reached: {e}. Nothing was written.", away=True) from None
    except trackers.TrackerRefused as e:
        raise PullTrouble(f"the tracker refuses: {e}. Nothing was written.") from None
    done.notes += notes
    return done


def _target(out: Path | None, root: Path, run: str) -> Path:
    return out if out is not None else root / folder_name(run)
