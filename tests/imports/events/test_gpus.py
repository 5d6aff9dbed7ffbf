"""nvidia-smi and DCGM: only what is an error, changed or holds the clocks down is an event."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.imports import ImportTrouble
from lineage.imports.events import read

REAL = Path(__file__).parents[4] / "shared" / "files" / "m4" / "gpu.query.0.txt"
needs_real = pytest.mark.skipif(not REAL.exists(), reason="the real query is not at hand")


@needs_real
def test_the_real_query_says_that_counters_are_zero_and_that_seven_gpus_are_not_in_it() -> None:
    """A healthy GPU of eight: a note of its driver, a note of its counters, and the seven others named as missing."""
    found = read(REAL)
    driver, healthy = found.drafts
    assert found.format == "nvidia-smi-q"
    assert driver.values == {"driver": "525.60.13", "cuda": "12.0"}
    assert (healthy.category, healthy.severity, healthy.code) == ("ecc", "note", "no error")
    assert healthy.values["ECC Errors / Volatile / DRAM Uncorrectable"] == 0
    assert healthy.when is not None
    assert healthy.when.at is not None
    assert healthy.when.at.isoformat() == "2023-03-04T04:56:17"
    assert [p[:53] for p in found.problems] == ["LIN-E006: line 2: 8 GPUs are attached, and 1 are in t"]


@needs_real
def test_errors_in_the_real_query_are_events_of_their_kind(tmp_path: Path) -> None:
    """The same file with an uncorrectable error, a pending row and a hot GPU."""
    text = REAL.read_text()
    text = text.replace("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2", 1)
    text = text.replace(
        "Pending                           : No", "Pending                           : Yes", 1
    )
    text = text.replace(
        "HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown           : Active", 1
    )
    path = tmp_path / "gpu.query"
    path.write_text(text)
    by = {d.category: d for d in read(path).drafts}
    assert set(by) == {"driver", "ecc", "remap", "throttle"}
    assert (by["ecc"].severity, by["ecc"].values) == (
        "fault",
        {"ECC Errors / Volatile / DRAM Uncorrectable": 2},
    )
    assert (by["remap"].severity, by["remap"].values) == ("warning", {"Remapped Rows / Pending": 1})
    assert by["throttle"].text == "clocks held down: hardware thermal slowdown"
    assert by["throttle"].values["SM clock"] == "1155 MHz"


CSV = """timestamp, index, uuid, driver_version, clocks_throttle_reasons.active, \
ecc.errors.uncorrected.volatile.total, ecc.errors.corrected.aggregate.total, temperature.gpu
2026/11/29 16:00:00.000, 0, GPU-a, 535.1, 0x0000000000000000, 0, 7, 40
2026/11/29 16:00:10.000, 0, GPU-a, 535.1, 0x0000000000000040, 0, 7, 88
2026/11/29 16:00:20.000, 0, GPU-a, 535.1, 0x0000000000000040, 2, 7, 89
2026/11/29 16:00:30.000, 0, GPU-a, 550.2, 0x0000000000000001, 2, 9, [N/A]
2026/11/29 16:00:40.000, 0, GP"""


def test_samples_become_events_where_something_changed(tmp_path: Path) -> None:
    """Driver, counters that rose by how much, and one event for as long as the clocks are held down."""
    path = tmp_path / "gpus.csv"
    path.write_text(CSV)
    found = read(path)
    assert (found.format, found.read) == ("nvidia-smi-csv", 4)
    told = [(d.line, d.category, d.severity, d.text) for d in found.drafts]
    assert told == [
        (2, "driver", "note", "driver 535.1"),
        (2, "ecc", "note", "ecc.errors.corrected.aggregate.total 7 (at the first sample)"),
        (3, "throttle", "warning", "clocks held down: hardware thermal slowdown"),
        (4, "ecc", "fault", "ecc.errors.uncorrected.volatile.total 2 (more than at the sample before)"),
        (5, "driver", "warning", "driver 535.1 -> 550.2"),
        (5, "ecc", "note", "ecc.errors.corrected.aggregate.total 2 (more than at the sample before)"),
    ]
    throttle = found.drafts[2]
    assert throttle.until is not None
    assert throttle.until.text == "2026/11/29 16:00:20.000"
    assert any("1 rows have another number of cells" in p for p in found.problems)


def test_samples_that_name_no_gpu_are_refused_with_the_query_to_make(tmp_path: Path) -> None:
    path = tmp_path / "gpus.csv"
    path.write_text("timestamp, temperature.gpu, utilization.gpu [%]\n2026/11/29 16:00:00.000, 40, 9 %\n")
    with pytest.raises(ImportTrouble, match="no column names the GPU; query index, uuid or pci"):
        read(path)


def test_dcgm_samples_tell_an_xid_when_it_changes_and_counters_when_they_rise(tmp_path: Path) -> None:
    """The header is repeated, and a row that does not fit is said."""
    path = tmp_path / "dmon.txt"
    path.write_text(
        "#Entity   XIDER  EDVTL  NRELT  DVCCTR  TMPTR  POWER\nID                               C      W\n"
        "GPU 0     0      0      0      0       40     300.5\n"
        "GPU 1     0      0      N/A    8       91     N/A\n"
        "#Entity   XIDER  EDVTL  NRELT  DVCCTR  TMPTR  POWER\nID\n"
        "GPU 0     79     1      3      0       41     300.5\n"
        "GPU 1     0      0      N/A    8       91     N/A\n"
        "GPU 0     79     1\n"
    )
    found = read(path)
    assert (found.format, found.read) == ("dcgm-dmon", 4)
    assert [(d.device_index, d.category, d.severity, d.code) for d in found.drafts] == [
        (1, "throttle", "warning", "clocks"),
        (0, "xid", "fault", "79"),
        (0, "ecc", "fault", "counter"),
        (0, "nvlink", "warning", "counter"),
    ]
    assert any(p.startswith("LIN-E002") for p in found.problems)
    assert any("1 lines do not fit the header" in p for p in found.problems)


HEALTH = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | Warning                                                  |
|                           | Detected more than 8 PCIe replays per minute for         |
|                           | GPU 0.                                                   |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Failure                                                  |
|                           | A contained error occurred.                              |
+---------------------------+----------------------------------------------------------+
"""


def test_dcgm_health_is_told_system_by_system(tmp_path: Path) -> None:
    path = tmp_path / "health.txt"
    path.write_text(HEALTH)
    found = read(path)
    assert [(d.device_index, d.category, d.severity, d.code) for d in found.drafts] == [
        (None, "node", "fault", "health"),
        (0, "other", "warning", "PCIe system"),
        (3, "ecc", "fault", "Memory system"),
    ]
    assert found.drafts[1].text == (
        "DCGM: GPU 0, PCIe system: warning: Detected more than 8 PCIe replays per minute for GPU 0."
    )
