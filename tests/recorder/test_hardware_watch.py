"""The watch over a node while a real loop trains: what it writes, and that it holds up nothing.

The GPUs are the stand-in of `nvml_fake.py`; recorder, threads, ledger and processes are real.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lineage.ledger import events as ledger_events
from lineage.ledger.reader import Ledger
from lineage.recorder.hardware import kernel_log, nvml, watcher

from .loop import Loop, attach, only
from .nvml_fake import NOT_SUPPORTED, FakeNvml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNvml:
    """Two GPUs, and an empty file in the place of the kernel's log."""
    made = FakeNvml()
    monkeypatch.setattr(nvml, "load", lambda: made)
    (tmp_path / "kmsg").touch()
    monkeypatch.setattr(kernel_log.KernelLog.__init__, "__defaults__", (tmp_path / "kmsg",))
    return made


def until(there: Callable[[], object]) -> None:
    """Wait for another thread; the test's own limit ends a wait that has no end."""
    while not there():
        time.sleep(0.005)


def looked(fake: FakeNvml, times: int = 2) -> None:
    """Wait for whole looks that begin from now on."""
    while fake.looks.acquire(blocking=False):
        pass
    for _ in range(times):
        fake.looks.acquire()


def told(root: Path, category: str) -> list[str]:
    """The texts of the events of a category, as they stand on disk."""
    return [r.payload.text for r in only(root).of("event") if r.payload.category == category]


def test_an_xid_a_rising_counter_and_a_line_of_the_kernel_stand_in_the_ledger_while_it_trains(
    fake: FakeNvml, tmp_path: Path
) -> None:
    """Written before the run ends, in the form that `lineage events import` gives, each with its device and node."""
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 3)
        looked(fake)
        fake.gpus[1].ecc[1, 0] = 2
        fake.xids.append((0, 48))
        with (tmp_path / "kmsg").open("a") as f:
            boot = time.clock_gettime(time.CLOCK_MONOTONIC)
            f.write(f"4,101,{int(boot * 1e6)},-;NVRM: Xid (PCI:0000:08:00): 94, pid=77, Contained\n")
        until(lambda: {"48", "94", "counter"} <= codes(root))
        loop.run(rec, 6)
    ledger = only(root)
    by_code = {r.payload.code: r.payload for r in ledger.of("event")}
    (node,) = {r.payload.place.node for r in ledger.of("segment")}
    ecc = next(r.payload for r in ledger.of("event") if r.payload.code == "counter")
    assert (ecc.severity, ecc.count, ecc.device_uuid) == ("fault", 2, fake.gpus[1].uuid)
    assert (ecc.source.format, ecc.source.file, ecc.zone, ecc.shift) == ("nvml", None, "stated", 0.0)
    assert (by_code["48"].nodes, by_code["48"].device_uuid) == ([node], fake.gpus[0].uuid)
    assert by_code["94"].source.format == "kernel"
    assert by_code["94"].device_uuid == fake.gpus[1].uuid  # by the PCI address that NVML names
    placed = ledger_events.read(ledger).placed
    assert {p.segment for p in placed} == {ledger.segments[0].uid}
    assert {p.ranks for p in placed} == {(0,)}


def codes(root: Path) -> set[str]:
    """The codes of all events on disk."""
    return {r.payload.code for r in only(root).of("event")}


def test_what_lasts_is_one_event_with_an_end(fake: FakeNvml, tmp_path: Path) -> None:
    """The later record supersedes the first, and a reader sees one event."""
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        looked(fake)
        fake.gpus[0].reasons = 0x40
        until(lambda: told(root, "throttle"))
        looked(fake, 4)
    records = [r for r in only(root).of("event") if r.payload.category == "throttle"]
    assert [records[0].supersedes, records[1].supersedes] == [None, records[0].id]
    assert len({r.payload.key for r in records}) == 1
    (seen,) = [p.event for p in ledger_events.read(only(root)).placed if p.event.category == "throttle"]
    assert seen.until is not None
    assert seen.until > seen.when
    assert seen.text == "clocks held down: hardware thermal slowdown"


def test_nothing_happens_and_nothing_but_the_driver_is_written(fake: FakeNvml, tmp_path: Path) -> None:
    root, loop = tmp_path / "runs", Loop()
    fake.gpus[1].errors["nvmlDeviceGetTotalEccErrors"] = NOT_SUPPORTED
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        looked(fake, 5)
    ledger = only(root)
    assert [r.payload.text for r in ledger.of("event")] == ["driver 580.65.06, 2 x NVIDIA H200"]
    coverage = ledger.last("coverage").payload
    assert f"hardware events: 2 GPUs, the kernel's log ({tmp_path / 'kmsg'})" in coverage.recorded
    assert "hardware events: GPU 1 does not give ECC counters: Not Supported (NVML 3)" in coverage.gaps
    assert fake.initialised == 0  # let go of, as often as it was taken


def test_training_is_bit_for_bit_the_same_with_the_watch(fake: FakeNvml, tmp_path: Path) -> None:
    found = []
    for every in (0, 0.05):
        loop = Loop()  # seeds
        with attach(loop, tmp_path / str(every), hardware_every=every) as rec:
            losses = loop.run(rec, 20)
            assert (rec.hardware is not None) == (every > 0)
        found.append((losses, [p.tolist() for p in loop.model.parameters()]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "where", ["nvmlInit", "nvmlDeviceGetTotalEccErrors", "nvmlEventSetWait", "nvmlShutdown"]
)
def test_a_call_that_never_comes_back_holds_up_neither_the_run_nor_its_end(
    fake: FakeNvml, tmp_path: Path, where: str
) -> None:
    fake.hang = where
    loop = Loop()
    try:
        with attach(loop, tmp_path / "runs", hardware_every=0.05) as rec:
            loop.run(rec, 1)
            if where != "nvmlShutdown":
                fake.hanging.wait()
            loop.run(rec, 5)
    finally:
        fake.release.set()
    assert only(tmp_path / "runs").last("segment_end").payload.last_step == 5


def test_a_driver_that_does_not_answer_is_an_event_with_an_end_once_it_does(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "NO_ANSWER", 0.1)
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        looked(fake, 1)
        fake.hang = "nvmlDeviceGetTotalEccErrors"
        until(lambda: [t for t in told(root, "driver") if "has not answered" in t])
        fake.hang = None
        fake.release.set()
        looked(fake)
    (seen,) = [p.event for p in ledger_events.read(only(root)).placed if p.event.code == "no answer"]
    assert seen.severity == "fault"


def test_a_driver_that_never_answers_is_said_in_the_coverage(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "NO_ANSWER", 0.05)
    fake.hang = "nvmlDeviceGetRemappedRows"
    loop = Loop()
    with attach(loop, tmp_path / "runs", hardware_every=0.05) as rec:
        loop.run(rec, 2)
        until(lambda: told(tmp_path / "runs", "driver"))
    fake.release.set()
    gaps = only(tmp_path / "runs").last("coverage").payload.gaps
    assert any("NVML had not answered for" in g for g in gaps)


def test_nvml_that_somebody_else_shut_down_is_begun_again(fake: FakeNvml, tmp_path: Path) -> None:
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        looked(fake)
        fake.initialised = 0
        looked(fake)
        fake.xids.append((1, 63))
        until(lambda: "63" in codes(root))
    assert not [g for g in only(root).last("coverage").payload.gaps if "hardware" in g]


def test_a_binding_that_misbehaves_ends_the_watch_of_gpus_and_nothing_else(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("another signature")

    monkeypatch.setattr(fake, "nvmlDeviceGetTotalEccErrors", broken, raising=False)
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        until(lambda: rec.hardware is not None and rec.hardware.covered()[2])
    coverage = only(root).last("coverage").payload
    assert any("no longer watched (TypeError: another signature)" in g for g in coverage.gaps)
    assert only(root).of("degraded") == []


SCRIPT = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {root!r})
from lineage.recorder.hardware import nvml
from tests.recorder.loop import Loop, attach
from tests.recorder.nvml_fake import FakeNvml
fake = FakeNvml()
fake.hang = "nvmlDeviceGetTotalEccErrors"
nvml.load = lambda: fake
loop = Loop()
rec = attach(loop, Path(sys.argv[1]), hardware_every=0.05)
loop.run(rec, 3)
fake.hanging.wait()
print("trained", flush=True)
"""


def test_a_process_whose_driver_hangs_ends_by_itself(tmp_path: Path) -> None:
    """Nobody closes the recorder, and the call is still under way when the interpreter goes."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(root=str(ROOT)), str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert only(tmp_path / "runs").last("segment_end").payload.last_step == 3


def test_a_machine_without_gpu_says_so_once_and_goes_on(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise nvml.Absent("no NVIDIA driver on this node")

    monkeypatch.setattr(nvml, "load", none)
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 4)
    coverage = only(root).last("coverage").payload
    about = [t for t in [*coverage.recorded, *coverage.gaps, *coverage.missing] if "hardware" in t]
    assert about == [
        f"hardware events: the kernel's log ({tmp_path / 'kmsg'}); no GPU is watched: no NVIDIA driver on this node",
    ]
    assert only(root).of("event") == []
    (said,) = ledger_events.watch(only(root))
    assert said.startswith("segment 1: ")
    assert said.endswith("no GPU is watched: no NVIDIA driver on this node")


def test_what_was_watched_is_said_of_each_segment_where_no_event_is_on_record(
    fake: FakeNvml, tmp_path: Path
) -> None:
    """A watch that was off, or of which no word is left, is not told as a machine on which nothing happened."""
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0) as rec:
        loop.run(rec, 2)
    assert ledger_events.watch(only(root)) == ["segment 1: no watch over its nodes is on record"]


def test_a_gpu_without_the_binding_is_missing_with_the_line_that_adds_it(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise nvml.Absent("the binding of NVML cannot be imported (ModuleNotFoundError)", nvml.INSTALL)

    monkeypatch.setattr(nvml, "load", none)
    loop = Loop()
    with attach(loop, tmp_path / "runs", hardware_every=0.05) as rec:
        loop.run(rec, 2)
    missing = only(tmp_path / "runs").last("coverage").payload.missing
    assert "pip install 'runlineage[nvml]'" in missing["hardware events"]


@pytest.mark.parametrize("variable", watcher.LOCAL_RANKS)
def test_one_process_of_a_node_watches_whatever_launcher_numbers_them(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in watcher.LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    assert watcher.first_of_its_node(0)
    monkeypatch.setenv(variable, "3")
    assert not watcher.first_of_its_node(0)
    monkeypatch.setenv(variable, "0")
    assert watcher.first_of_its_node(0)


def test_zero_seconds_switches_the_watch_off(fake: FakeNvml, tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path, hardware_every=0) as rec:
        loop.run(rec, 2)
    assert fake.calls == {}
    assert not [t for t in only(tmp_path).last("coverage").payload.recorded if "hardware" in t]


def test_a_flood_of_events_ends_at_a_bound_and_is_said(
    fake: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MOST_RECORDS", 3)
    root, loop = tmp_path / "runs", Loop()
    with attach(loop, root, hardware_every=0.05) as rec:
        loop.run(rec, 2)
        fake.xids += [(0, code) for code in range(1000, 1010)]
        until(lambda: rec.hardware is not None and any("more than 3" in g for g in rec.hardware.covered()[2]))
    found = Ledger(only(root).path)
    assert len(found.of("event")) == 3
    assert any("more than 3; later ones are not recorded" in g for g in found.last("coverage").payload.gaps)
