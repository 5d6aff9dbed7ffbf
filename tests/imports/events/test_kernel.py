"""Kernel logs in the forms in which they come, and the lines of them that are events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lineage.imports import ImportTrouble
from lineage.imports.events import read, xid
from lineage.imports.events.kernel_rules import match

MESSAGE = (
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=python, Timeout after 6s of waiting for RPC response"
)


@pytest.mark.parametrize(
    ("line", "when", "node"),
    [
        (f"2026-11-29T16:00:16.5+01:00 node7 kernel: {MESSAGE}", "2026-11-29T16:00:16.500000+01:00", "node7"),
        (f"2026-11-29T16:00:16+0000 node7 kernel: {MESSAGE}", "2026-11-29T16:00:16+00:00", "node7"),
        (f"Nov 29 16:00:16 node7 kernel: [ 966.503025] {MESSAGE}", "1904-11-29T16:00:16", "node7"),
        (f"[Sun Nov 29 16:00:16 2026] {MESSAGE}", "2026-11-29T16:00:16", None),
        (f"2026-11-29T16:00:16,123456+00:00 {MESSAGE}", "2026-11-29T16:00:16.123456+00:00", None),
        (f"[171167.620236] {MESSAGE}", 171167.620236, None),
        (f"<4>[  171167.620236][ T1234] {MESSAGE}", 171167.620236, None),
        (f"4,1234,171167620236,-;{MESSAGE}", 171167.620236, None),
        (MESSAGE, None, None),
    ],
)
def test_a_line_is_read_in_each_form_of_a_kernel_log(
    tmp_path: Path, line: str, when: str | float | None, node: str | None
) -> None:
    """The time with the zone as far as it is written, the node where there is one, and the same message."""
    path = tmp_path / "log"
    path.write_text(f"{line}\n")
    (event,) = read(path).drafts
    assert event.text == MESSAGE
    assert (event.code, event.category, event.severity) == ("119", "driver", "fault")
    assert (event.device_pci, event.pid) == ("0000:9b:00", 2024380)
    assert event.nodes == ((node,) if node else ())
    if isinstance(when, float):
        assert event.when is not None
        assert event.when.since_boot == pytest.approx(when)
    elif when is None:
        assert event.when is None
    else:
        assert event.when is not None
        assert event.when.at is not None
        assert event.when.at.isoformat() == when


def test_a_journal_as_json_is_read_with_its_own_time(tmp_path: Path) -> None:
    """`journalctl -o json` counts microseconds since 1970; a line that is cut off is said."""
    entry = {"__REALTIME_TIMESTAMP": "1796054416123456", "_HOSTNAME": "node7", "MESSAGE": MESSAGE}
    path = tmp_path / "journal.json"
    path.write_text(json.dumps(entry) + "\n" + json.dumps(entry)[:40])
    found = read(path)
    (event,) = found.drafts
    assert event.when is not None
    assert event.when.at == datetime.fromtimestamp(1796054416, UTC).replace(microsecond=123456)
    assert event.nodes == ("node7",)
    assert found.problems[0] == "line 2 is no entry of a journal: left out"


LINES = [
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
        "remap",
        "63",
        "warning",
    ),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid", "14", "warning"),
    (
        "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "xid",
        "79",
        "fault",
    ),
    ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01", "nvlink", "149", "fault"),
    ("NVRM: Xid (PCI:0000:1a:00): 94, pid=5194, Contained: SM (0x1). RST: No", "ecc", "94", "fault"),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
        "nvlink",
        "12028",
        "warning",
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvlink",
        "20034",
        "fault",
    ),
    (
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  525.60.13  Wed Nov 30",
        "driver",
        "driver loaded",
        "note",
    ),
    ("mlx5_core 0000:5e:00.0 ens3np0: Link down", "network", "link down", "warning"),
    ("mlx5_core 0000:5e:00.0 ens3np0: Link up", "network", "link up", "note"),
    (
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged",
        "network",
        "link down",
        "warning",
    ),
    ("infiniband mlx5_0: Port: 1 Link DOWN", "network", "link down", "warning"),
    ("ib0: link becomes ready", "network", "link up", "note"),
    ("bnxt_en 0000:19:00.0 eth1: NIC Link is Down", "network", "link down", "warning"),
    ("Out of memory: Killed process 4211 (python) total-vm:9kB", "process", "oom killed", "fault"),
    ("Memory cgroup out of memory: Killed process 4211 (python)", "process", "oom killed", "fault"),
    ("python[4211]: segfault at 0 ip 00007f", "process", "segfault", "fault"),
    ("INFO: task python:4211 blocked for more than 120 seconds.", "process", "task blocked", "warning"),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "ecc", "host memory error", "note"),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "ecc", "host memory error", "fault"),
    ("mce: [Hardware Error]: Machine check events logged", "ecc", "machine check", "warning"),
    (
        "pcieport 0000:17:01.0: AER: PCIe Bus Error: severity=Corrected, type=Physical",
        "other",
        "pcie error",
        "note",
    ),
    ("CPU3: Core temperature above threshold, cpu clock throttled", "throttle", "cpu throttled", "warning"),
    ("nvme nvme0: I/O 33 QID 4 timeout, aborting", "storage", "disk error", "warning"),
    ("LustreError: 11-0: scratch-OST0001: operation failed", "storage", "lustre error", "warning"),
    ("nfs: server fs1 not responding, still trying", "storage", "nfs not responding", "warning"),
    ("EXT4-fs error (device sda1): ext4_lookup", "storage", "file system error", "fault"),
    ("Linux version 5.15.0-100-generic (build)", "node", "boot", "note"),
    ("Kernel panic - not syncing: Fatal exception", "node", "kernel panic", "fault"),
]


@pytest.mark.parametrize(("line", "category", "code", "severity"), LINES)
def test_each_kind_of_line_has_its_category_code_and_severity(
    line: str, category: str, code: str, severity: str
) -> None:
    found = match(line)
    assert found is not None
    assert (found.category, found.code, found.severity) == (category, code, severity)


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device number 2",
        "audit: type=1400 apparmor=ALLOWED",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "python[4211]: step 12 loss 2.0",
        "systemd[1]: Started Session 42 of user someone.",
        "NVRM: GPU Board Serial Number: 1650124014249",
    ],
)
def test_lines_of_a_healthy_machine_are_no_events(line: str) -> None:
    assert match(line) is None


def test_a_uuid_that_the_log_names_for_an_address_is_given_to_its_events(tmp_path: Path) -> None:
    """The driver prints the UUID once, above the first Xid of a GPU."""
    path = tmp_path / "dmesg"
    path.write_text(
        "[  10.000000] NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d\n"
        f"[  11.000000] {MESSAGE}\n"
    )
    (event,) = read(path).drafts
    assert event.device_uuid == "GPU-509665ad-b600-ac93-3616-d754b23d636d"


def test_every_code_of_the_table_has_a_meaning_an_action_and_stands_once() -> None:
    """Each is one of our categories and severities; a code that is not published says so."""
    assert len(xid.table()) > 100
    for code, found in xid.table().items():
        assert found.means
        assert found.action
        assert found.kind in ("xid", "ecc", "remap", "nvlink", "driver", "node", "throttle", "other"), code
        assert found.severity in ("note", "warning", "fault")
    assert "has no meaning in NVIDIA's catalogue" in xid.meaning(14)


def test_a_log_in_another_encoding_is_read_and_said(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are replaced, and a cut last line is named."""
    path = tmp_path / "messages"
    path.write_bytes(f"[  11.000000] {MESSAGE}\n[  12.000000] caf\xe9".encode("latin-1"))
    found = read(path)
    assert len(found.drafts) == 1
    assert any("it is no UTF-8 from byte" in p for p in found.problems)
    assert any(p.startswith("LIN-E006: the last line has no newline") for p in found.problems)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02\x03binary", "is no text"),
        (b"dear diary, today the loss went up\n", "is of no format that is known"),
        (b'{"a": 1', "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ImportTrouble, match=f"LIN-E004.*{says}"):
        read(path)
