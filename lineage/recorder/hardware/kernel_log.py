"""The kernel's log of this node, followed where this process may read it.

/dev/kmsg is tried first: it gives each line once, and reading never waits. Where it is refused or not there, as in most
containers, `journalctl` and `dmesg` are asked now and then. Who may read: https://man7.org/linux/man-pages/man1/dmesg.1.html
(`kernel.dmesg_restrict`); the lines of /dev/kmsg: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..._rooms import schemas
from ...imports.events import kernel, kernel_rules
from ...imports.events.draft import Draft, Written

KMSG = Path("/dev/kmsg")
RARELY = 60.0
"""Seconds between two calls of a command: each is a process."""
PATIENCE = 5.0
"""Seconds after which a command is given up."""
MOST_LINES = 5_000
"""Lines that one reading takes; a storm is read on at the next."""
_LINE = re.compile(r"^(\d+),(\d+),(\d+),[^;]*;(.*)$")
_DMESG = re.compile(r"^\[\s*(\d+\.\d+)\](?:\[\s*[TC]\d+\])? (.*)$")
_VARIES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]*\d[0-9a-f]*\b", re.I)


class KernelLog:
    """Gives the events that the kernel logged since the last reading."""

    def __init__(self, kmsg: Path = KMSG) -> None:
        self._kmsg = kmsg
        self._fd: int | None = None
        self._command: str | None = None
        self._since = schemas.now()
        self._asked = 0.0
        self._last = -1.0
        """seconds since boot of the newest line that `dmesg` gave"""
        self.source: str | None = None
        """what is read; None where nothing can be"""
        self.refused: list[str] = []
        self.lost = 0
        """lines that were overwritten before they were read"""

    def open(self) -> None:
        """Find what can be read. What cannot is in `refused`, with the reason."""
        try:
            self._fd = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
            self.source = str(self._kmsg)
            return
        except OSError as e:
            self.close()
            self.refused.append(f"{self._kmsg}: {e.strerror or e}")
        for name, arguments in (("journalctl", ("-n", "1")), ("dmesg", ())):
            lines, why = self._run(name, *arguments)
            if lines:
                self._command = self.source = name
                if name == "dmesg":
                    self._last = max((at for at, _ in self._dmesg(lines)), default=-1.0)
                return
            self.refused.append(f"{name}: {why or 'it shows no line of the kernel'}")

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, *, now: bool = False) -> Iterator[tuple[tuple[str, ...], Draft]]:
        """(what it is about, event) of what was logged since. A command is asked rarely, else `now`."""
        if self._fd is not None:
            yield from _events(self._followed())
        elif self._command is not None and (now or time.monotonic() - self._asked >= RARELY):
            self._asked = time.monotonic()
            yield from _events(self._commanded())

    # -- /dev/kmsg

    def _followed(self) -> Iterator[tuple[str, Written]]:
        """Each read gives one line; where the kernel overwrote lines that were not read, it says so once."""
        assert self._fd is not None
        boot = _booted()
        for _ in range(MOST_LINES):
            try:
                data = os.read(self._fd, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten; the next read goes on at the oldest line that is left
                self.lost += 1
                continue
            if not data:
                return
            for line in data.decode("utf-8", "replace").splitlines():
                found = _LINE.match(line)
                if found:  # else a line of values that belong to the one before
                    yield found[4], _since_boot(int(found[3]) / 1e6, boot)

    # -- commands

    def _commanded(self) -> Iterator[tuple[str, Written]]:
        if self._command == "dmesg":
            lines, _ = self._run("dmesg")
            boot = _booted()
            fresh = [(at, text) for at, text in self._dmesg(lines) if at > self._last]
            self._last = max((at for at, _ in fresh), default=self._last)
            yield from ((text, _since_boot(at, boot)) for at, text in fresh)
            return
        since, self._since = self._since, schemas.now()
        lines, _ = self._run("journalctl", "--since", f"@{since.timestamp():.6f}")
        for line in lines:
            try:
                entry = json.loads(line)
                text, micro = entry["MESSAGE"], int(entry["__REALTIME_TIMESTAMP"])
            except (ValueError, KeyError, TypeError):
                continue
            at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micro)
            if isinstance(text, str) and at > since:
                yield text, Written(at.isoformat(), at, 1e-6)

    def _dmesg(self, lines: list[str]) -> list[tuple[float, str]]:
        return [(float(m[1]), m[2]) for line in lines if (m := _DMESG.match(line))]

    def _run(self, name: str, *arguments: str) -> tuple[list[str], str | None]:
        """(lines, why there are none)."""
        command = [
            name,
            *(("-k", "-q", "--no-pager", "-o", "json") if name == "journalctl" else ()),
            *arguments,
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=PATIENCE,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return [], f"no answer within {PATIENCE:g} s"
        except OSError as e:
            return [], e.strerror or str(e)
        said = done.stderr.strip().splitlines()
        return done.stdout.splitlines(), said[0].removeprefix(f"{name}: ") if said else None


def _booted() -> datetime:
    """When this machine booted, by its clock of today, which may have been set since."""
    return schemas.now() - timedelta(seconds=time.clock_gettime(time.CLOCK_MONOTONIC))


def _since_boot(seconds: float, boot: datetime) -> Written:
    """A line's time. The kernel stamps lines by a clock of its own, which drifts a little from the one that is read."""
    at = min(boot + timedelta(seconds=seconds), schemas.now())
    return Written(f"{seconds:.6f}", at, 1.0)


def _events(lines: Iterator[tuple[str, Written]]) -> Iterator[tuple[tuple[str, ...], Draft]]:
    """The lines that are events; those that differ in numbers only are about one thing."""
    for text, when in lines:
        event = kernel_rules.match(text)
        if event is None:
            continue
        event.when = when
        place = kernel.short_pci(event.device_pci) if event.device_pci else ""
        about = (event.category, event.code or "", place, str(event.pid or ""), _VARIES.sub("#", text)[:200])
        yield about, event
