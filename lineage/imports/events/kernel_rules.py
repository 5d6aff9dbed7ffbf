"""Lines of a kernel log that are events: errors of GPUs, memory, links, disks, and processes that were ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import xid
from .draft import Draft

PCI = r"(?:PCI:)?(?P<pci>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)"


@dataclass(frozen=True)
class Rule:
    """One shape of line. `search` is tried only where one of the plain `words` stands in the line."""

    words: tuple[str, ...]
    search: re.Pattern[str]
    category: str
    severity: str
    code: str
    meaning: str | None = None
    more: Callable[[re.Match[str], Draft], None] | None = None


def _xid(m: re.Match[str], d: Draft) -> None:
    number = int(m["code"])
    known = xid.table().get(number)
    d.code, d.meaning = str(number), xid.meaning(number)
    if known is not None:
        d.category, d.severity = known.kind, known.severity
    d.values = {"xid": number, **({"process": m["name"]} if m["name"] else {})}


def _sxid(m: re.Match[str], d: Draft) -> None:
    d.code = m["code"]
    fatal = m["fatal"]
    d.severity = "note" if fatal is None else "warning" if fatal.lower().startswith("non") else "fault"
    d.values = {"sxid": int(m["code"]), "nvswitch": int(m["switch"])}


def _link(m: re.Match[str], d: Draft) -> None:
    up = m["state"].lower() in ("up", "active", "ready", "plugged", "becomes ready")
    d.code, d.severity = ("link up", "note") if up else ("link down", "warning")
    d.values = {"device": m["device"]}


def _pci_error(m: re.Match[str], d: Draft) -> None:
    level = m["level"].lower()
    d.severity = (
        "note" if level == "corrected" else "fault" if "fatal" in level and "non" not in level else "warning"
    )


def _memory(m: re.Match[str], d: Draft) -> None:
    d.values = {"errors": int(m["n"])}
    d.severity = "fault" if m["kind"].upper() == "UE" else "note"


def _version(m: re.Match[str], d: Draft) -> None:
    d.values = {"version": m["version"]}


def _rule(
    words: str, pattern: str, category: str, severity: str, code: str, more: Callable[..., None] | None = None
) -> Rule:
    return Rule(tuple(words.split("|")), re.compile(pattern, re.I), category, severity, code, None, more)


RULES: tuple[Rule, ...] = (
    _rule(
        "xid (",
        rf"\bXid \({PCI}\): (?P<code>\d+)(?:, (?:GPU instance ID \d+, )?pid='?(?P<pid>\d+|<unknown>)'?)?"
        r"(?:, name=(?P<name>[^,]+))?",
        "xid",
        "warning",
        "xid",
        _xid,
    ),
    _rule(
        "sxid (",
        rf"nvidia-nvswitch(?P<switch>\d+): SXid \({PCI}\): (?P<code>\d+)(?:, (?P<fatal>non-fatal|fatal))?",
        "nvlink",
        "warning",
        "sxid",
        _sxid,
    ),
    _rule(
        "fallen off the bus",
        rf"NVRM:.*?GPU(?: at)? {PCI}.*fallen off the bus",
        "xid",
        "fault",
        "fallen off the bus",
    ),
    _rule(
        "kernel module",
        r"NVRM: loading NVIDIA UNIX .*?Kernel Module\D*(?P<version>\d+\.\d+(?:\.\d+)?)",
        "driver",
        "note",
        "driver loaded",
        _version,
    ),
    _rule(
        "rminitadapter|rm_init_adapter",
        r"NVRM:.*(?:RmInitAdapter|rm_init_adapter) failed",
        "driver",
        "fault",
        "adapter init failed",
    ),
    _rule(
        "version mismatch",
        r"NVRM: API mismatch|driver/library version mismatch",
        "driver",
        "warning",
        "version mismatch",
    ),
    _rule("api mismatch", r"NVRM: API mismatch", "driver", "warning", "version mismatch"),
    _rule(
        "mlx5_core|mlx4_core|mlx5_ib",
        rf"mlx\d_(?:core|ib) {PCI}.*?(?P<device>[\w.-]+): Link (?P<state>up|down)",
        "network",
        "warning",
        "link",
        _link,
    ),
    _rule(
        "port module event",
        rf"mlx\d_core {PCI}.*Port module event.*?(?P<device>module \d+),? Cable (?P<state>plugged|unplugged)",
        "network",
        "warning",
        "link",
        _link,
    ),
    _rule(
        "port module event",
        rf"mlx\d_core {PCI}.*Port module event.*(?:error|high temp)",
        "network",
        "fault",
        "cable or module error",
    ),
    _rule(
        "port 1|port 2|port:",
        r"(?P<device>(?:mlx\d|bnxt_re|irdma|qedr|hfi1|rdmap|efa)_\w+)\b.*?port:? ?\d.*?(?:link |state |is )"
        r"(?P<state>down|up|active|init|polling)",
        "network",
        "warning",
        "link",
        _link,
    ),
    _rule(
        "link is|link becomes|link down|link up|carrier",
        r"(?P<device>\b(?:ib|eth|en[ops]|bond|hsn|roce|rdma|wl|team)[\w.:-]*?):? .*?"
        r"(?:link (?:is )?|carrier )(?P<state>down|up|becomes ready|lost|acquired)",
        "network",
        "warning",
        "link",
        _link,
    ),
    _rule(
        "health compromised|internal error|health poll|fatal error",
        rf"mlx\d_core {PCI}.*"
        r"(?:health compromised|internal error|poll_health|device's health)",
        "network",
        "fault",
        "adapter health",
    ),
    _rule("edac", r"EDAC .*?(?P<n>\d+) (?P<kind>CE|UE) ", "ecc", "note", "host memory error", _memory),
    _rule("hardware error", r"\[Hardware Error\]|mce: .*Hardware Error", "ecc", "warning", "machine check"),
    _rule(
        "pcie bus error",
        rf"{PCI}: (?:AER: )?PCIe Bus Error: severity=(?P<level>Corrected|Uncorrected \([^)]*\))",
        "other",
        "warning",
        "pcie error",
        _pci_error,
    ),
    _rule(
        "cpu clock throttled|clock throttled",
        r"temperature above threshold, cpu clock throttled",
        "throttle",
        "warning",
        "cpu throttled",
    ),
    _rule(
        "out of memory|oom-kill",
        r"(?:Out of memory|Memory cgroup out of memory): Killed? process (?P<pid>\d+)",
        "process",
        "fault",
        "oom killed",
    ),
    _rule("oom-kill:", r"oom-kill:.*?,task=[^,]*,pid=(?P<pid>\d+)", "process", "fault", "oom killed"),
    _rule(
        "invoked oom-killer", r"(?P<name>\S+) invoked oom-killer", "process", "warning", "oom killer invoked"
    ),
    _rule(
        "segfault at|general protection",
        r"(?P<name>\S+?)\[(?P<pid>\d+)\]:? (?:segfault at|general protection)",
        "process",
        "fault",
        "segfault",
    ),
    _rule(
        "blocked for more than",
        r"task (?P<name>\S+?):(?P<pid>\d+) blocked for more than \d+ seconds",
        "process",
        "warning",
        "task blocked",
    ),
    _rule(
        "soft lockup|hard lockup|rcu_sched",
        r"(?:soft|hard) lockup|rcu\w* .*self-detected stall",
        "node",
        "fault",
        "cpu lockup",
    ),
    _rule("kernel panic", r"Kernel panic - not syncing", "node", "fault", "kernel panic"),
    _rule("linux version", r"Linux version (?P<version>\S+)", "node", "note", "boot", _version),
    _rule(
        "reached target|reboot:|systemd-shutdown",
        r"reboot: (?:Restarting|Power down)|systemd-shutdown\[",
        "node",
        "note",
        "shutdown",
    ),
    _rule(
        "i/o error|i/o timeout|i/o",
        r"(?:nvme\S* .*I/O .*timeout|I/O error, dev \S+|blk_update_request: .*error|"
        r"Buffer I/O error)",
        "storage",
        "warning",
        "disk error",
    ),
    _rule("lustreerror", r"LustreError: ", "storage", "warning", "lustre error"),
    _rule(
        "not responding|nfs:", r"nfs: server \S+ not responding", "storage", "warning", "nfs not responding"
    ),
    _rule("nfs:", r"nfs: server \S+ OK", "storage", "note", "nfs answers again"),
    _rule(
        "-fs error|xfs (",
        r"(?:EXT4|BTRFS|XFS)\S*.*(?:error|shutdown|corruption)",
        "storage",
        "fault",
        "file system error",
    ),
    _rule("no space left", r"No space left on device", "storage", "warning", "disk full"),
)
"""The first that fits stands for a line."""

_WORDS = sorted({w for r in RULES for w in r.words})


def may_match(line: str) -> bool:
    """Whether a line holds a word of any rule: most lines of a log do not, and are left at once."""
    lowered = line.lower()
    return any(word in lowered for word in _WORDS)


def match(message: str) -> Draft | None:
    """The event that a line tells, or None."""
    if not may_match(message):
        return None
    lowered = message.lower()
    for rule in RULES:
        if not any(w in lowered for w in rule.words):
            continue
        m = rule.search.search(message)
        if m is None:
            continue
        d = Draft(rule.category, rule.severity, message.strip(), code=rule.code, meaning=rule.meaning)
        groups = m.groupdict()
        d.device_pci = groups.get("pci")
        pid = groups.get("pid") or ""
        d.pid = int(pid) if pid.isdigit() else None
        if rule.more is not None:
            rule.more(m, d)
        elif groups.get("name"):
            d.values = {"process": groups["name"]}
        return d
    return None
