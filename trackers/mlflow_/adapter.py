"""MLflow as a tracker: each record where people look for it.

| record | place |
|---|---|
| run, segment, config, code | tags `lineage/run`, `fork_of`, `segment/<NNN>`; `lineage/config_<NNN>.json`; `campaign` |
| drift, mitigation | tags `lineage/drift/<NNN>`, `lineage/mitigation/<NNN>`: params never change |
| regime | metric `lineage/regime` at its step, tags `lineage/regime/<NNN>`, `lineage/regimes.json`, a dataset |
| verdict | the description, tags `lineage/{status,verdict,advice,broken_since_step}`, `lineage/claims/<claim>` |
| alarm, first bad | tags `lineage/first_non_finite`, `lineage/first_bad`, `lineage/alarm/<NNN>` |
| checkpoint | a LoggedModel without weights; parents as inputs of the run |
| checkpoint mark | tags `lineage/mark/<checkpoint>/<mark>`, `lineage/quarantined`, the LoggedModel, the description |
| seal | tag `lineage/anchor`: the newest root |
| segment_end | the last point of the metric `lineage/regime` |
| coverage, finding, degraded, tracker note | tags in words |

No key is the folder of another (`lineage/verdict`, `lineage/verdicts/001`): MLflow's folder store keeps each
tag as a file of that path.
"""

from __future__ import annotations

import contextvars
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from .. import text
from .._rooms import schemas
from ..base import PREFIX, Page, Shown, TrackerRefused
from . import altered, checkpoints, datasets, flag, layout
from .campaign import Campaign
from .limits import TAG_LIMIT, dumps, fit_json, fit_text, key, size
from .numbered import content, find, find_same, following, held, segment_number, slot
from .store import Point, RunFacts, Store, is_http, mask_uri, open_store

FOLDER = PREFIX.rstrip("/")
"""The artifact folder of everything that is published."""
_SEGMENT_FACT = {"segment": "start", "config": "config", "code": "code"}
"""Kind of record -> the fact of a segment that it tells."""
ALARMS_SHOWN = 100
"""Alarms with a tag of their own; a run in a storm of them keeps a page that one can read."""


class MlflowTracker:
    """Shows records in one MLflow run.

    `run` is an `mlflow.ActiveRun`, an `mlflow.entities.Run`, or `(MlflowClient, run_id)`; the last is due
    where the run is not in the store that `mlflow.get_tracking_uri()` names. Construct it on the thread
    that started the run: the tracking URI and MLflow's context are taken there. Nothing is sent then.
    """

    kind = "mlflow"

    def __init__(self, run: Any) -> None:
        self._context = contextvars.copy_context()  # MLflow keeps its workspace there
        self._params: Mapping[str, Any] | None = None
        self._experiment: str | None = None
        if isinstance(run, tuple):
            client, self._run_id = run
            self._uri = str(client.tracking_uri)
        elif hasattr(getattr(run, "info", None), "run_id"):
            import mlflow

            self._uri = str(mlflow.get_tracking_uri())
            self._run_id = str(run.info.run_id)
            self._experiment = str(run.info.experiment_id)
            self._params = dict(run.data.params) if run.data is not None else None
        else:
            raise TypeError(
                f"{type(run).__name__} is no MLflow run. Pass what mlflow.start_run() returned, "
                "an mlflow.entities.Run, or (MlflowClient, run_id)."
            )
        self._made: Store | None = None
        self._asked: dict[str, str] = {}
        self._campaign = Campaign(self._uri, self._run_id)

    def alias(self) -> schemas.TrackerAlias:
        """Name the run, and the page that a person opens where there is a server.

        Of an `(MlflowClient, run_id)` pair the experiment is known once the first record was shown.
        """
        uri, url = mask_uri(self._uri), None
        if is_http(self._uri):
            inside = f"experiments/{self._experiment}/" if self._experiment else ""
            url = f"{uri.rstrip('/')}/#/{inside}runs/{self._run_id}"
        return schemas.TrackerAlias(
            tracker="mlflow", id=self._run_id, project=self._experiment, uri=uri, url=url
        )

    def requested(self) -> Mapping[str, Any] | None:
        """Return the params that the passed run object holds, as text; None where it holds none.

        A run object is a snapshot: one that `start_run` has just made holds none, and one that it has
        resumed holds those of the first segment.
        """
        return self._params or None

    def show(self, record: Shown, page: Page) -> str | None:
        """Show one record; see the table of this module for where."""
        method = _SHOWS.get(record.payload.kind)
        if method is None:
            return None
        return self._context.copy().run(method, self, record, page)

    def publish(self, file: Path, name: str) -> None:
        """Upload a file as artifact `lineage/<name>`; MLflow renders `.html` and `.md`."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise TrackerRefused(f"{name!r} does not stay in the artifact folder {FOLDER}/")
        if not file.is_file():
            raise TrackerRefused(f"{file} is not there to be published as {FOLDER}/{name}")
        folder = str(PurePosixPath(FOLDER) / path.parent)
        self._context.copy().run(self._store.upload, file, folder, path.name)

    def close(self) -> None:
        """Let go of the store. The run stays as its owner left it."""
        self._made = None

    @property
    def _store(self) -> Store:
        if self._made is None:
            self._made = open_store(self._uri, self._run_id)
        return self._made

    def _facts(self) -> RunFacts:
        """Read the run anew: other processes, and people, write to it too."""
        facts = self._store.facts()
        self._experiment = facts.experiment
        return facts

    def _number(self, facts: RunFacts, record: Shown, page: Page) -> int:
        return segment_number(facts.tags, record.segment, page.number(record.segment))

    def _upload_json(self, name: str, data: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="lineage-") as scratch:
            file = Path(scratch) / name
            file.write_text(dumps(data), encoding="utf-8")
            self._store.upload(file, FOLDER, name)

    def _fitting(self, data: Mapping[str, Any], name: str) -> str:
        """Return JSON for a tag; what does not fit is uploaded whole first, as artifact `name`."""
        value, cut = fit_json(data, f"{FOLDER}/{name}")
        if cut:
            self._upload_json(name, data)
        return value

    def _append(
        self,
        facts: RunFacts,
        kind: str,
        data: dict[str, Any],
        more: Mapping[str, str] = MappingProxyType({}),
        points: Sequence[Point] = (),
    ) -> str:
        """Append a numbered tag unless it is there, with what goes with it; return its key."""
        present = held(facts.tags, kind)
        number = find_same(present, data)
        if number is not None:
            return slot(kind, number)
        number = following(present)
        value = self._fitting(data, f"{kind}_{number:03d}.json")
        self._store.log({slot(kind, number): value, **more}, points)
        return slot(kind, number)

    # -- segments and drift

    def _run(self, record: Shown, page: Page) -> str:
        payload: Any = record.payload
        fork_of = (
            {key("fork_of"): payload.fork_of} if payload.fork_of else {}
        )  # later segments do not say it again
        self._store.log({key("run"): fit_text(payload.uid), **fork_of})
        return f"tag {key('run')}"

    def _segment(self, record: Shown, page: Page) -> str | None:
        facts = self._facts()
        number = self._number(facts, record, page)
        name = slot("segment", number)
        before = held(facts.tags, "segment").get(number, {})
        payload: Any = record.payload
        if record.rank != 0 and _SEGMENT_FACT[payload.kind] in before:
            return f"tag {name}"  # rank 0 speaks for its segment
        data = layout.segment_facts(record, before)
        if payload.kind == "segment" and payload.parent_checkpoint:
            parent = checkpoints.resumed_from(self._store, facts, payload.parent_checkpoint)
            data |= {"parent_model": parent} if parent else {}
        if payload.kind == "config":
            values = {k: layout.value(v) for k, v in payload.values.items()}
            self._upload_json(f"config_{number:03d}.json", values)
            self._asked = {k: str(v) for k, v in values.items()}
        if data != before:
            self._store.log({name: self._fitting(data, f"segment_{number:03d}.json")})
        if payload.kind == "segment":
            self._campaign.segment(facts, record, number, data)
        return f"tag {name}"

    def _drift(self, record: Shown, page: Page) -> str:
        facts = self._facts()
        data = layout.drift(record, self._number(facts, record, page))
        return f"tag {self._append(facts, 'drift', data)}"

    def _mitigation(self, record: Shown, page: Page) -> str:
        return f"tag {self._append(self._facts(), 'mitigation', layout.mitigation(record))}"

    def _mitigation_effect(self, record: Shown, page: Page) -> str:
        data = layout.mitigation_effect(record)
        return f"tag {self._append(self._facts(), 'mitigation_effect', data)}"

    # -- regimes and verdicts

    def _regime(self, record: Shown, page: Page) -> str:
        """Show a regime.

        The point before it, at the regime that it follows, makes the series a step and not a slope.
        """
        facts = self._facts()
        payload: Any = record.payload
        data = layout.regime(record, self._number(facts, record, page))
        regimes = held(facts.tags, "regime")
        metric, at = key("regime"), int(record.at.timestamp() * 1000)
        points = [Point(metric, float(payload.index), at, payload.from_step)]
        if payload.because and payload.index > 0 and payload.from_step > 0:
            points.insert(0, Point(metric, float(payload.index - 1), at, payload.from_step - 1))
        now = {key("regime_now"): f"{payload.index} from step {payload.from_step:,}"}
        if find_same(regimes, data) is None:
            self._upload_json("regimes.json", [*regimes.values(), data])
        shown = self._append(facts, "regime", data, now, points)
        datasets.show(self._store, record, data["segment"])
        return f"metric {metric}, tag {shown}"

    def _verdict(self, record: Shown, page: Page) -> str | None:
        """Flag the run by its newest verdict, or a checkpoint's LoggedModel by the checkpoint's."""
        payload: Any = record.payload
        what, _, uid = payload.subject.partition(":")
        facts = self._facts()
        if what == "checkpoint":
            return checkpoints.tag(self._store, facts, uid, {key("status"): payload.status})
        if payload.subject != f"run:{record.run}":
            return None  # another run's page is its own tracker's business
        headline = text.headline(payload)
        data = layout.verdict(record, headline)
        present = held(facts.tags, "verdicts")
        last = max(present, default=0)
        number = find(present, record.id)
        if number is not None and number != last:
            return f"tag {slot('verdicts', number)}"  # shown once, and followed by a newer one
        flag.flag(self._store, facts, payload, headline)
        self._campaign.verdict(facts, record, headline)
        if number is None:  # last of all: a verdict counts as shown when all of it is
            number = self._remember_verdict(present, data)
        return f"description, tag {slot('verdicts', number)}"

    def _remember_verdict(self, present: Mapping[int, Mapping[str, Any]], data: dict[str, Any]) -> int:
        """Append a verdict to the history; one that repeats the last adds only its record to that one's."""
        last = max(present, default=0)
        if last and content(present[last]) == content(data):
            again = dict(present[last])
            again["again"] = [*again.get("again", []), data["record"]]
            if size(dumps(again)) <= TAG_LIMIT:
                self._store.log({slot("verdicts", last): dumps(again)})
                return last
        number = last + 1
        value = self._fitting(data, f"verdicts_{number:03d}.json")
        self._store.log({slot("verdicts", number): value})
        return number

    # -- alarms

    def _alarm(self, record: Shown, page: Page) -> str:
        facts = self._facts()
        data = layout.alarm(record, self._number(facts, record, page))
        words = layout.first_non_finite(facts.tags, data)
        more = {key("first_non_finite"): fit_text(words)} if words else {}
        present = held(facts.tags, "alarm")
        if len(present) >= ALARMS_SHOWN and find_same(present, data) is None:
            further = f"Alarms after the first {ALARMS_SHOWN} are in the ledger: lineage show"
            self._store.log({key("alarms_not_shown"): further, **more})
            return f"tag {key('alarms_not_shown')}"
        return f"tag {self._append(facts, 'alarm', data, more)}"

    def _first_bad(self, record: Shown, page: Page) -> str:
        payload: Any = record.payload
        return self._text("first_bad", layout.first_bad(payload))

    # -- checkpoints and anchors

    def _checkpoint(self, record: Shown, page: Page) -> str | None:
        facts = self._facts()
        page.know(record)
        return checkpoints.show(self._store, facts, record, self._number(facts, record, page))

    def _mark(self, record: Shown, page: Page) -> str:
        place = checkpoints.mark(self._store, self._facts(), record, page)
        flag.warn(self._store, self._facts())
        return place

    def _seal(self, record: Shown, page: Page) -> str | None:
        """Anchor the newest root, which covers all before it, in one tag; None where a newer one stands there."""
        name, data = key("anchor"), layout.seal(record)
        now = json.loads(self._facts().tags.get(name, "{}"))
        if str(now.get("at", "")) > data["at"]:
            return None
        self._store.log({name: dumps(data)})
        return f"runs/{self._run_id}/tags/{name}"

    def _segment_end(self, record: Shown, page: Page) -> str | None:
        """Draw the regime's line to the end of the segment, so that charts show where it still held."""
        if record.rank != 0 or record.step is None:
            return None
        facts = self._facts()
        altered.say(self._store, facts, self._asked)
        segment = self._number(facts, record, page)
        # Shown late, the page may know of later regimes: they are not this segment's.
        found = [
            r
            for _, r in sorted(held(facts.tags, "regime").items())
            if r.get("segment", 0) <= segment and r.get("from_step", 0) <= record.step
        ]
        if not found:
            return None
        index = float(found[-1].get("index", 0))
        self._store.log({}, [Point(key("regime"), index, int(record.at.timestamp() * 1000), record.step)])
        return f"metric {key('regime')}"

    # -- what the layer says about itself

    def _coverage(self, record: Shown, page: Page) -> str:
        payload: Any = record.payload
        return self._text("coverage", layout.coverage(payload))

    def _degraded(self, record: Shown, page: Page) -> str:
        """Say what failed, part by part, and list the parts in one tag that a search can reach."""
        payload: Any = record.payload
        name, folder = key("degraded", payload.part), key("degraded") + "/"
        names = {n for n in self._facts().tags if n.startswith(folder)} | {name}
        parts = ", ".join(sorted(n.removeprefix(folder) for n in names))
        words = fit_text(text.degraded(record, message="text" in page.share))
        self._store.log({name: words, key("degraded_parts"): fit_text(parts)})
        return f"tag {name}"

    def _finding(self, record: Shown, page: Page) -> str:
        """Say what a check found; a resume from a quarantined checkpoint stands in the description too."""
        payload: Any = record.payload
        place = self._text(*text.finding(record))
        if payload.code == text.RESUMED_BAD:
            flag.warn(self._store, self._facts())
        return place

    def _tracker_note(self, record: Shown, page: Page) -> str | None:
        """Add a line to the tag of its code, once; of a code that tells how things stand, the newest alone."""
        payload: Any = record.payload
        if payload.tracker != self.kind:
            return None
        name = key("note", payload.code)
        before = self._facts().tags.get(name, "")
        after = layout.note(before, payload)
        if after != before:
            self._store.log({name: after})
        return f"tag {name}"

    def _text(self, name: str, content: str) -> str:
        self._store.log({key(name): fit_text(content)})
        return f"tag {key(name)}"


_SHOWS: dict[str, Callable[[MlflowTracker, Shown, Page], str | None]] = {
    "run": MlflowTracker._run,
    "segment": MlflowTracker._segment,
    "config": MlflowTracker._segment,
    "code": MlflowTracker._segment,
    "drift": MlflowTracker._drift,
    "mitigation": MlflowTracker._mitigation,
    "mitigation_effect": MlflowTracker._mitigation_effect,
    "regime": MlflowTracker._regime,
    "verdict": MlflowTracker._verdict,
    "alarm": MlflowTracker._alarm,
    "first_bad": MlflowTracker._first_bad,
    "checkpoint": MlflowTracker._checkpoint,
    "checkpoint_mark": MlflowTracker._mark,
    "seal": MlflowTracker._seal,
    "segment_end": MlflowTracker._segment_end,
    "coverage": MlflowTracker._coverage,
    "finding": MlflowTracker._finding,
    "degraded": MlflowTracker._degraded,
    "tracker_note": MlflowTracker._tracker_note,
}
"""Kind of record -> how it is shown. Other kinds stand in the ledger and the report only."""
