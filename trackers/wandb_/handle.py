"""A `wandb.Run` as the adapter uses it: only calls that touch nothing of the user's.

Of the run's page we own config and summary keys under `lineage/`, tags that begin with `lineage:`, and
rows on a step column of our own. W&B merges config key by key on a resume and replaces nested values, so
each fact has a top-level key of its own, written by one record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base import PREFIX, Page, Shown, TrackerUnavailable
from . import offline_log
from .series import Points

STATE = f"{PREFIX}state"
VERDICT = f"{PREFIX}verdict"
STEP = f"{PREFIX}step"
SHOWN = f"{PREFIX}shown"

OUR_TAG = "lineage:"
LONGEST_TITLE = 63
"""W&B's limit for the title of an alert, in characters."""


def payload(record: Shown) -> Any:
    """Return a record's payload; which kind it is has been decided by then."""
    return record.payload


class Handle:
    """The calls, and what the page is known to show: segment numbers, alerts sent, newest of each kind.

    That knowledge stands in the config key `lineage/state`, so that a later process which resumes the run
    neither repeats an alert nor lets an older record replace a newer one. It also holds the lines of the summary
    and the user's tags: a process that rewinds the run gets its config, and neither of those.
    """

    def __init__(self, run: Any, *, sole_writer: bool = False) -> None:
        self.run = run
        known = run.config.get(STATE)
        known = known if isinstance(known, Mapping) else {}
        self.segments: dict[str, int] = {str(k): int(v) for k, v in dict(known.get("segments", {})).items()}
        self.newest: dict[str, str] = dict(known.get("newest", {}))
        self.alerted: list[str] = list(known.get("alerted", []))
        self.first: list[int] = list(known.get("first_non_finite", []))
        self.lines: dict[str, str] = dict(known.get("lines", {}))
        self.rewound = self.taken_back_to is not None and not getattr(run, "resumed", False)
        self._tags_before: list[str] = list(known.get("tags", [])) if self.rewound else []
        self.points = Points(run, shown=known.get("points", []), sole_writer=sole_writer)
        self._prepared = False

    @property
    def online(self) -> bool:
        """Whether the run talks to a server."""
        return not getattr(self.run, "offline", False)

    @property
    def shared(self) -> bool:
        """Whether several processes write to this run (`mode="shared"`): it then has no steps of its own."""
        return bool(getattr(self.run.settings, "mode", None) == "shared")

    @property
    def taken_back_to(self) -> int | None:
        """The step of W&B's own to which `resume_from` took the run back in this process."""
        moment = getattr(self.run.settings, "resume_from", None)
        return None if moment is None else int(moment.value)

    def place(self, key: str) -> str:
        """Name a place on the run's page."""
        parts = (getattr(self.run, "entity", "") or "", project_of(self.run) or "", self.run.id)
        return "wandb:" + "/".join(p for p in parts if p) + "#" + key

    def number(self, record: Shown, page: Page) -> int:
        """Return the number of the record's segment on this page, from 1.

        Once given it stays, even where a later process counts differently: its keys must not be reused.
        """
        if record.segment not in self.segments:
            number = page.number(record.segment)
            taken = set(self.segments.values())
            self.segments[record.segment] = max(taken) + 1 if number in taken else number
        return self.segments[record.segment]

    def outdated(self, topic: str, record: Shown) -> bool:
        """Tell whether the page already shows a newer record on this topic. Record ids sort by time."""
        return self.newest.get(topic, "") > record.id

    def prepare(self) -> None:
        """Once per process: give our series its own step axis, and pin again what a resume unpinned."""
        if self._prepared:
            return
        # More specific than the "*" that Hugging Face's trainer registers, so it decides for our keys.
        self.run.define_metric(STEP, hidden=True)
        self.run.define_metric(f"{PREFIX}regime", step_metric=STEP, step_sync=False)
        if VERDICT in self.run.config:
            self.pin()
        if self.rewound and self.lines:
            self.run.summary.update(self.lines)
        self._prepared = True

    def config(self, values: Mapping[str, Any]) -> None:
        """Set config keys of ours, and what is known about the page beside them."""
        state = {
            "segments": dict(self.segments),
            "newest": dict(self.newest),
            "alerted": list(self.alerted),
            "first_non_finite": list(self.first),
            "points": list(self.points.shown),
            "lines": dict(self.lines),
            "tags": self._users_tags(),
        }
        self.run.config.update({**values, STATE: copy.deepcopy(state)}, allow_val_change=True)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set summary keys of ours: columns of the run table."""
        self.run.summary.update(dict(values))
        self.lines |= {k: v for k, v in values.items() if isinstance(v, str) and k != SHOWN}

    def own_key(self, base: str, record: Shown, suffix: str) -> str:
        """Return the config key for a record: `base`, unless another record already stands there."""
        ours = {record.id, record.supersedes}
        for n in range(1, 10_000):
            key = base if n == 1 else f"{base}/{suffix}" if n == 2 else f"{base}/{suffix}-{n - 1}"
            held = self.run.config.get(key)
            if not isinstance(held, Mapping) or held.get("record") in ours:
                return key
        raise TrackerUnavailable(f"no free config key after {base}/{suffix}")

    def tags(self, wanted: Iterable[str]) -> None:
        """Have exactly these tags of ours beside the user's, which stay as they are and in their order."""
        self.run.tags = (*self._users_tags(), *wanted)

    def _users_tags(self) -> list[str]:
        """The user's tags. A run that was rewound does not know the earlier ones, and setting tags replaces all."""
        now = [t for t in (self.run.tags or ()) if not t.startswith(OUR_TAG)]
        return [*(t for t in self._tags_before if t not in now), *now]

    def alert(self, token: str, title: str, text: str, level: str) -> bool:
        """Send an alert, once per token over all processes of the run. Returns whether it was sent."""
        if token in self.alerted:
            return False
        self.run.alert(title=title[:LONGEST_TITLE], text=text, level=level)
        self.alerted.append(token)
        return True

    def pin(self) -> None:
        """Pin the verdict on the run's overview, where Markdown is rendered, keeping the user's pins.

        The run object does not tell which keys are pinned, but its local log does. Older W&B (0.24) cannot
        pin: the text is then an ordinary config value.
        """
        pin = getattr(self.run, "pin_config_keys", None)
        if pin is None:
            return
        log = Path(str(getattr(self.run.settings, "sync_file", "")))
        pinned = [k for k in offline_log.pinned_keys(log) if k != VERDICT]
        pin([VERDICT, *pinned])

    def confirm(self, record: Shown) -> None:
        """Have wandb-core repeat what it was just told.

        Its socket buffers what a hanging process never reads, so without this a record could be noted as
        shown that nobody has received. Raises `TrackerUnavailable`.
        """
        self.summary({SHOWN: record.id})
        if not self.shared and self.run.summary.get(SHOWN) != record.id:
            raise TrackerUnavailable("wandb-core did not confirm the record in time; it is sent again later")


def project_of(run: Any) -> str | None:
    """The run's project; None for one made without, whose property asserts that there is one."""
    try:
        return run.project or None
    except AssertionError:
        return None
