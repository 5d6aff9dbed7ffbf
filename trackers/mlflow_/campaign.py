"""A campaign of many segments: the parent run shows how the runs beneath it follow each other, and what holds.

Where the user nests the runs of a campaign (`mlflow.start_run(nested=True, parent_run_id=...)`), each segment has a
page of its own. The parent's has a tag `lineage/campaign/<lineage run>/<NNN>` for each, the newest verdict of each
lineage run, and in `lineage/status` and `lineage/verdict` the worst of them, so that one row of the run list tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._rooms import schemas
from ..base import Shown, TrackerRefused
from .limits import dumps, fit_json, fit_text, key
from .store import RunFacts, Store, open_store

PARENT = "mlflow.parentRunId"


class Campaign:
    """The run above this one, if there is one. Each call writes to it what the child's page already shows."""

    def __init__(self, uri: str, run_id: str) -> None:
        self._uri, self._run_id = uri, run_id
        self._above: tuple[str, Store] | None = None

    def segment(self, facts: RunFacts, record: Shown, number: int, facts_shown: Mapping[str, Any]) -> None:
        """Show a segment of this run: how it began, and on which page it is."""
        data = {"text": facts_shown.get("text", ""), "run": self._run_id, "segment": record.segment}
        value, _ = fit_json({**data, "parent_step": facts_shown.get("parent_step")}, "lineage/")
        self._write(facts, lambda tags: {key("campaign", record.run, f"{number:03d}"): value})

    def verdict(self, facts: RunFacts, record: Shown, headline: str) -> None:
        """Show the newest verdict of a lineage run, and the worst of all of them in the parent's own row."""
        v: Any = record.payload
        mine = key("campaign", record.run, "status")
        said = {
            "text": fit_text(headline, 2000),
            "status": v.status,
            "run": self._run_id,
            "record": record.id,
        }

        def wanted(tags: Mapping[str, str]) -> dict[str, str]:
            if str(_json(tags.get(mine)).get("record", "")) > record.id:
                return {}
            out = {mine: dumps(said)}
            if key("run") in tags:
                return out  # the parent is a page of its own: its row is about itself
            folder = key("campaign") + "/"
            every = [
                _json(t) for n, t in {**tags, **out}.items() if n.startswith(folder) and n.endswith("/status")
            ]
            order = [s for s in every if s.get("status") in schemas.STATUS_ORDER]
            worst = max(order, key=lambda s: schemas.STATUS_ORDER.index(s["status"]))
            return {
                **out,
                key("status"): worst["status"],
                key("verdict"): fit_text(str(worst.get("text", ""))),
            }

        self._write(facts, wanted)

    def _write(self, facts: RunFacts, wanted: Any) -> None:
        """Write to the parent. One that takes nothing is said on this run's own page: the child has it all anyway."""
        parent = facts.tags.get(PARENT)
        if not parent or parent == self._run_id:
            return
        if self._above is None or self._above[0] != parent:
            self._above = parent, open_store(self._uri, parent)
        store = self._above[1]
        try:
            tags = store.facts().tags
            new = {k: v for k, v in wanted(tags).items() if tags.get(k) != v}
            if new:
                store.log(new)
        except TrackerRefused as e:
            text = fit_text(f"The parent run {parent} took no overview of its segments: {e}", 1000)
            open_store(self._uri, self._run_id).log({key("note", "campaign"): text})


def _json(value: str | None) -> dict[str, Any]:
    try:
        found = json.loads(value or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
