"""From looks at GPUs to records: what began, what doubled, what is over, and nothing while nothing happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lineage.recorder.hardware.changes import Change, Changes
from lineage.recorder.hardware.nvml_values import Device, Look, State, Xid

BEGAN = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
GPU = Device(3, None, "GPU-0f", "00000000:8b:00.0", "NVIDIA H200", hottest=87.0)


class Watch:
    """Looks each 15 seconds at one device."""

    def __init__(self, **first: object) -> None:
        self.changes, self.at = Changes(), BEGAN
        self.first = list(self.changes.start(self._look(State(**first)), [GPU]))

    def _look(self, state: State, driver: str = "580.65") -> Look:
        self.at += timedelta(seconds=15)
        return Look(self.at, driver, {3: state}, 15.0)

    def see(self, driver: str = "580.65", **held: object) -> list[Change]:
        return list(self.changes.see(self._look(State(**held), driver), [GPU]))


def test_a_healthy_device_gives_one_note_at_the_start_and_no_more() -> None:
    watch = Watch(counters={"ecc volatile corrected": 0.0}, reasons=1, limit=700.0)
    (start,) = watch.first
    assert (start.draft.severity, start.draft.text) == ("note", "driver 580.65, 1 x NVIDIA H200")
    held = {"counters": {"ecc volatile corrected": 0.0}, "reasons": 1, "limit": 700.0}
    assert [watch.see(**held) for _ in range(200)] == [[]] * 200


def test_what_was_counted_before_the_run_is_told_once_and_is_no_change() -> None:
    watch = Watch(counters={"remapped rows uncorrected": 2.0, "ecc aggregate corrected": 9.0})
    told = [c.draft.text for c in watch.first[1:]]
    assert any("remapped rows uncorrected 2 (as counted when the run began)" in t for t in told)
    assert watch.see(counters={"remapped rows uncorrected": 2.0, "ecc aggregate corrected": 9.0}) == []


def test_a_counter_that_rises_is_told_at_once_then_when_doubled_and_when_it_stopped() -> None:
    """A thousand looks with one more error each are no thousand records, and the last has the whole count."""
    watch = Watch(counters={"ecc volatile uncorrected": 5.0})
    records = []
    for n in range(1, 1001):
        records += watch.see(counters={"ecc volatile uncorrected": 5.0 + n})
    first = records[0]
    assert (first.begins, first.count, first.draft.severity, first.draft.code) == (
        True,
        1,
        "fault",
        "counter",
    )
    assert first.draft.values == {"counter": "ecc volatile uncorrected", "value": 6, "before": 5}
    assert len(records) < 15
    last_rise = watch.at
    for _ in range(10):
        records += watch.see(counters={"ecc volatile uncorrected": 1005.0})
    over = records[-1]
    assert (over.count, over.until, over.begins) == (1000, last_rise, False)
    assert over.draft.values["value"] == 1005
    assert over.draft.when == first.draft.when


def test_the_record_of_something_later_supersedes_no_earlier_one() -> None:
    watch = Watch(counters={"ecc volatile uncorrected": 0.0})
    (one,) = watch.see(counters={"ecc volatile uncorrected": 1.0})
    for _ in range(10):  # over after a minute, of which nothing is left to say
        assert watch.see(counters={"ecc volatile uncorrected": 1.0}) == []
    (two,) = watch.see(counters={"ecc volatile uncorrected": 2.0})
    assert (one.begins, two.begins, two.count) == (True, True, 1)
    assert one.draft.when != two.draft.when


def test_an_aggregate_counter_is_not_told_beside_the_volatile_one_that_says_the_same() -> None:
    watch = Watch(counters={"ecc volatile corrected": 0.0, "ecc aggregate corrected": 7.0})
    found = watch.see(counters={"ecc volatile corrected": 1.0, "ecc aggregate corrected": 8.0})
    assert [c.draft.values["counter"] for c in found] == ["ecc volatile corrected"]
    alone = Watch(counters={"ecc aggregate corrected": 7.0})
    assert [c.draft.values["counter"] for c in alone.see(counters={"ecc aggregate corrected": 8.0})] == [
        "ecc aggregate corrected"
    ]


def test_a_counter_that_was_reset_is_no_rise() -> None:
    watch = Watch(counters={"nvlink replay errors": 50.0})
    assert watch.see(counters={"nvlink replay errors": 0.0}) == []
    (again,) = watch.see(counters={"nvlink replay errors": 2.0})
    assert (again.count, again.draft.category) == (2, "nvlink")


def test_clocks_that_are_held_down_have_a_beginning_and_an_end() -> None:
    watch = Watch()
    (on,) = watch.see(reasons=0x40, temperature=85.0, power=640.0, limit=700.0, clock=1100.0)
    assert on.draft.text == "clocks held down: hardware thermal slowdown"
    assert on.draft.values == {"temperature_c": 85, "power_w": 640, "limit_w": 700, "sm_clock_mhz": 1100}
    told = [c for _ in range(7) for c in watch.see(reasons=0x40, temperature=86.0)]
    last = watch.at
    told += [c for _ in range(6) for c in watch.see(reasons=0)]
    assert (told[-1].until, told[-1].count, told[-1].begins) == (last, 1, False)
    assert len(told) == 3 + 1  # at looks 2, 4 and 8, and the end


def test_a_power_cap_that_comes_and_goes_is_one_event() -> None:
    """It is what a busy device does all day: a note, and not one for each look."""
    watch = Watch()
    told = [c for n in range(400) for c in watch.see(reasons=0x4 * (n % 2))]
    assert {c.draft.severity for c in told} == {"note"}
    assert sum(c.begins for c in told) == 1
    assert len(told) < 12


@pytest.mark.parametrize(
    ("before", "after", "category", "text"),
    [
        ({"limit": 700.0}, {"limit": 500.0}, "throttle", "power limit lowered from 700 W"),
        ({}, {"temperature": 88.0}, "throttle", "at or above 87 C, at which it slows down by itself"),
        ({"links": {2: True}}, {"links": {2: False}}, "nvlink", "NVLink 2 is down"),
        (
            {},
            {"lost": "GPU is lost (NVML 15)"},
            "driver",
            "NVIDIA H200 answers no more: GPU is lost (NVML 15)",
        ),
        ({}, {"odd": "power: Unknown Error (NVML 999)"}, "driver", "could not be read: power: Unknown Error"),
    ],
)
def test_each_condition_is_told_when_it_begins_with_its_device(
    before: dict[str, object], after: dict[str, object], category: str, text: str
) -> None:
    (found,) = Watch(**before).see(**after)
    assert (found.draft.category, found.begins) == (category, True)
    assert text in found.draft.text
    assert (found.draft.device_uuid, found.draft.device_index, found.draft.device_pci) == (
        "GPU-0f",
        3,
        "00000000:8b:00.0",
    )
    assert found.draft.when is not None
    assert found.draft.when.precision == 15.0  # it may have begun at any time since the look before


def test_a_link_that_was_never_up_is_not_wired_and_no_event() -> None:
    assert Watch(links={2: False}).see(links={2: False}) == []


def test_another_driver_under_a_running_process_is_told() -> None:
    (found,) = Watch().see(driver="581.10")
    assert (found.draft.severity, found.draft.text) == ("warning", "driver 580.65 -> 581.10")


def test_an_xid_is_told_with_what_nvidia_says_that_it_stands_for() -> None:
    watch = Watch()
    (found,) = watch.changes.xid(Xid(watch.at, 3, 79, 1.0), [GPU])
    assert (found.draft.category, found.draft.severity, found.draft.code) == ("xid", "fault", "79")
    assert "fallen off the bus" in (found.draft.meaning or "")
    assert found.draft.device_uuid == "GPU-0f"
    (unknown,) = watch.changes.xid(Xid(watch.at, None, 999, 1.0), [GPU])
    assert (unknown.draft.device_uuid, unknown.draft.severity) == (None, "warning")


def test_what_still_goes_on_at_the_end_is_told_as_last_seen_then() -> None:
    watch = Watch()
    watch.see(reasons=0x80)
    watch.see(reasons=0x80)
    watch.see(reasons=0x80)
    (end,) = watch.changes.end(watch.at + timedelta(seconds=3))
    assert end.until == watch.at
