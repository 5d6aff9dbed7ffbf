"""From looks at devices to what is worth a record: what began, what has doubled, what is over.

Pure: it is given looks and times, and returns what to write. A healthy node gives one line at the start and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ...imports.events import counters, xid
from ...imports.events.draft import Draft, Written
from .nvml_values import Device, Look, State, Xid

Name = tuple[str | int, ...]
"""What something is about: the same for as long as it lasts."""

QUIET = timedelta(minutes=1)
"""How long something must be away before it counts as over."""
LONG_QUIET = timedelta(minutes=10)
"""The same for what a healthy device does all the time: reaching its power cap, correcting an error."""


@dataclass(frozen=True)
class Change:
    """One record to write: of something that begins, or what became of it, which supersedes the record before."""

    name: Name
    draft: Draft
    until: datetime | None = None
    count: int = 1
    begins: bool = False


@dataclass
class _Going:
    """Something that goes on."""

    draft: Draft
    quiet: timedelta
    last: datetime
    count: int = 1
    told: int = 1
    looks: int = 1
    due: int = 2


class Lasting:
    """What lasts or repeats: told when it begins, when it has doubled, and when it is over."""

    def __init__(self) -> None:
        self._going: dict[Name, _Going] = {}

    def seen(
        self, name: Name, draft: Draft, at: datetime, *, more: int = 1, quiet: timedelta = QUIET
    ) -> Iterator[Change]:
        """It is there, `more` times since the last word. `draft` counts only where it begins."""
        g = self._going.get(name)
        if g is None:
            self._going[name] = _Going(draft, quiet, at, count=more, told=more)
            yield Change(name, draft, count=more, begins=True)
            return
        g.last, g.count, g.looks = at, g.count + more, g.looks + 1
        if "value" in draft.values:  # a counter's; all else stays as it was when it began
            g.draft = replace(g.draft, values={**g.draft.values, "value": draft.values["value"]})
        if g.count >= 2 * g.told or g.looks >= g.due:
            g.told, g.due = g.count, 2 * g.looks
            yield Change(name, g.draft, at, g.count)

    def lasting(
        self, name: Name, draft: Draft, at: datetime, *, quiet: timedelta = QUIET
    ) -> Iterator[Change]:
        """It holds still. Its count stays one."""
        yield from self.seen(name, draft, at, more=1 if name not in self._going else 0, quiet=quiet)

    def sweep(self, at: datetime, *, all_of_it: bool = False) -> Iterator[Change]:
        """What has been away for so long that it is over; at the end, everything."""
        for name, g in list(self._going.items()):
            if all_of_it or at - g.last >= g.quiet:
                del self._going[name]
                if g.looks > 1:  # else it was there once, and that is said already
                    yield Change(name, g.draft, g.last, g.count)

    def __contains__(self, name: Name) -> bool:
        return name in self._going


@dataclass
class _Known:
    """What was last seen of a device."""

    counters: dict[str, float] = field(default_factory=dict)
    up: set[int] = field(default_factory=set)
    limit: float | None = None


class Changes:
    """Holds each look against the one before."""

    def __init__(self) -> None:
        self.lasting = Lasting()
        self._known: dict[int, _Known] = {}
        self._driver: str | None = None
        self.started = False

    def start(self, look: Look, devices: list[Device]) -> Iterator[Change]:
        """The first look: which driver, which devices, and what their counters held already."""
        self._driver, self.started = look.driver, True
        kinds = sorted({d.name for d in devices})
        text = f"driver {look.driver or 'of unknown version'}, {len(devices)} x {', '.join(kinds)}"
        values = {"driver": look.driver or "unknown", "devices": len(devices)}
        draft = Draft("driver", "note", text, code="driver version", values=values)
        yield Change(("driver", 0), _at(draft, look), begins=True)
        for d in devices:
            state = look.states[d.index]
            known = self._known[d.index] = _Known(dict(state.counters), limit=state.limit)
            known.up = {link for link, up in state.links.items() if up}
            for draft in counters.events(state.counters, "as counted when the run began"):
                yield Change((d.index, "before", draft.category), _of(draft, d, look), begins=True)

    def see(self, look: Look, devices: list[Device]) -> Iterator[Change]:
        """A later look."""
        if look.driver and self._driver and look.driver != self._driver:
            text = f"driver {self._driver} -> {look.driver}"
            values = {"driver": look.driver, "before": self._driver}
            draft = Draft("driver", "warning", text, code="driver version", values=values)
            yield Change(("driver", look.driver), _at(draft, look), begins=True)
        self._driver = look.driver or self._driver
        for d in devices:
            state = look.states[d.index]
            yield from self._trouble(d, state, look)
            if state.lost is None:
                yield from self._counters(d, state, look)
                yield from self._throttled(d, state, look)
                yield from self._heat(d, state, look)
                yield from self._limit(d, state, look)
                yield from self._links(d, state, look)
        yield from self.lasting.sweep(look.at)

    def xid(self, found: Xid, devices: list[Device]) -> Iterator[Change]:
        """An Xid, with what NVIDIA says that it stands for."""
        known = xid.table().get(found.code)
        draft = Draft(
            known.kind if known else "xid",
            known.severity if known else "warning",
            f"Xid {found.code}",
            code=str(found.code),
            meaning=xid.meaning(found.code),
            values={"xid": found.code},
            when=Written(found.at.isoformat(), found.at, found.precision),
        )
        d = next((d for d in devices if d.index == found.index), None)
        if d is not None:
            draft = _placed(draft, d)
        yield from self.lasting.seen((-1 if d is None else d.index, "xid", found.code), draft, found.at)

    def no_answer(self, at: datetime, seconds: float) -> Iterator[Change]:
        """A call to NVML has not come back for so long; it is over with the next look."""
        text = f"NVML has not answered for {seconds:g} s or more"
        draft = Draft("driver", "fault", text, code="no answer")
        draft.when = Written(at.isoformat(), at, seconds)
        yield from self.lasting.lasting(("no answer",), draft, at, quiet=timedelta(seconds=1))

    def end(self, at: datetime) -> Iterator[Change]:
        """The watch ends: what still goes on was last seen before."""
        yield from self.lasting.sweep(at, all_of_it=True)

    # -- one kind of change each

    def _trouble(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        if state.lost is not None:
            draft = Draft("driver", "fault", f"{d.name} answers no more: {state.lost}", code="device lost")
            yield from self.lasting.lasting((d.index, "lost"), _of(draft, d, look), look.at)
        elif state.odd is not None:
            draft = Draft("driver", "warning", f"{d.name} could not be read: {state.odd}", code="unreadable")
            yield from self.lasting.lasting((d.index, "odd"), _of(draft, d, look), look.at)

    def _counters(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        known = self._known.setdefault(d.index, _Known())
        for name, value in state.counters.items():
            before = known.counters.get(name)
            known.counters[name] = value
            if before is None or value <= before or _told_by_another(name, state.counters):
                continue
            category, severity = counters.severity_of(name) or ("other", "note")
            draft = Draft(category, severity, f"more counted: {name}", code="counter")
            draft.values = {"counter": name, "value": counters.plain(value), "before": counters.plain(before)}
            quiet = LONG_QUIET if severity == "note" else QUIET
            yield from self.lasting.seen(
                (d.index, name), _of(draft, d, look), look.at, more=round(value - before), quiet=quiet
            )

    def _throttled(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        for name, severity in counters.reasons(state.reasons or 0):
            draft = counters.throttled([(name, severity)], _around(state))
            quiet = LONG_QUIET if severity == "note" else QUIET
            yield from self.lasting.lasting(
                (d.index, "clocks", name), _of(draft, d, look), look.at, quiet=quiet
            )

    def _heat(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        if d.hottest and state.temperature is not None and state.temperature >= d.hottest:
            text = f"at or above {d.hottest:g} C, at which it slows down by itself"
            draft = Draft("throttle", "warning", text, code="temperature", values=_around(state))
            yield from self.lasting.lasting((d.index, "heat"), _of(draft, d, look), look.at)

    def _limit(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        known = self._known.setdefault(d.index, _Known())
        first = known.limit = known.limit if known.limit is not None else state.limit
        if state.limit is not None and first is not None and state.limit < first:
            text = f"power limit lowered from {first:g} W"
            values = {"limit_w": counters.plain(state.limit), "before_w": counters.plain(first)}
            draft = Draft("throttle", "warning", text, code="power limit", values=values)
            yield from self.lasting.lasting((d.index, "limit"), _of(draft, d, look), look.at)

    def _links(self, d: Device, state: State, look: Look) -> Iterator[Change]:
        known = self._known.setdefault(d.index, _Known())
        for link, up in state.links.items():
            if up:
                known.up.add(link)
            elif link in known.up:  # one that was never up is not wired
                draft = Draft("nvlink", "warning", f"NVLink {link} is down", code="link down")
                draft.values = {"link": link}
                yield from self.lasting.lasting((d.index, "link", link), _of(draft, d, look), look.at)


def _told_by_another(name: str, held: Mapping[str, float]) -> bool:
    """Aggregate counts go up with the volatile ones: one of the two is told."""
    return name.startswith("ecc aggregate") and name.replace("aggregate", "volatile") in held


def _around(state: State) -> dict[str, Any]:
    """Temperature, power and clock beside what holds the clocks down."""
    found = {
        "temperature_c": state.temperature,
        "power_w": state.power,
        "limit_w": state.limit,
        "sm_clock_mhz": state.clock,
    }
    return {k: counters.plain(float(v)) for k, v in found.items() if v is not None}


def _at(draft: Draft, look: Look) -> Draft:
    """Give it the time of a look: it came about within the seconds since the look before."""
    draft.when = Written(look.at.isoformat(), look.at, max(1.0, round(look.seconds, 1)))
    return draft


def _placed(draft: Draft, d: Device) -> Draft:
    draft.device_uuid, draft.device_index, draft.device_pci = d.uuid, d.index, d.pci
    return draft


def _of(draft: Draft, d: Device, look: Look) -> Draft:
    return _placed(_at(draft, look), d)
