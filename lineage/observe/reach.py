"""Which processes under a command the start-up hook did not reach, by a look at /proc now and then.

Runs in a process of its own beside the command. A process that lives shorter than the pause between two looks is
not noticed; one that is noticed and has left no sign of life is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..capture.secrets import mask_argv
from ..ledger import layout
from ._light import light

SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two looks, at the beginning and later."""
SETTLED = 1.5
"""Seconds that a process must have been seen without a sign of life, where its command line shows no reason."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:-dbg|d|t)?$")
ELSEWHERE = frozenset(("docker", "podman", "nerdctl", "kubectl", "ssh", "pdsh", "enroot"))
"""Commands that start processes which are no children of theirs."""
_REASONS = {
    "E": "-E makes Python ignore PYTHONPATH, which carries the hook",
    "I": "-I makes Python ignore PYTHONPATH, which carries the hook",
    "S": "-S makes Python start without hooks",
}


def kept_out(argv: Sequence[str]) -> str | None:
    """Name the option of the interpreter that keeps a start-up hook out; None where there is none."""
    rest = iter(argv[1:])
    for argument in rest:
        if not argument.startswith("-") or argument in ("-", "--"):
            return None
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for at, letter in enumerate(argument[1:], 2):
            if letter in _REASONS:
                return letter
            if letter in "cm":
                return None
            if letter in "WX":
                if at == len(argument):
                    next(rest, None)
                break
    return None


@dataclass
class Process:
    """A process under the command, as it was seen last."""

    pid: int
    image: str
    argv: list[str]
    program: str
    parent: int
    first: float
    last: float
    container: bool = False
    carries: bool = True
    """whether its environment has the hook"""


@dataclass
class Watch:
    """The processes under one command, and what became of the hook in them."""

    main: int
    folder: Path
    hook: str
    seen: dict[str, Process] = field(default_factory=dict)
    """image -> process"""
    alive: dict[int, str] = field(default_factory=dict)
    """pid -> its image at the last look"""
    _others: set[int] = field(default_factory=set)
    _told: list[str] = field(default_factory=list)
    _own: str = field(default_factory=lambda: _link("/proc/self/ns/mnt"))

    def look(self, now: float) -> None:
        """Look at all processes once."""
        pids = {int(n) for n in os.listdir("/proc") if n.isdigit()}
        self._others &= pids
        self.alive = {p: i for p, i in self.alive.items() if p in pids and _same_process(p, i)}
        for pid in sorted(pids - self._others):
            if pid == os.getpid():
                continue
            if pid in self.alive or self._is_ours(pid):
                self._note(pid, now)
            else:
                self._others.add(pid)

    def _is_ours(self, pid: int) -> bool:
        if pid == self.main or _parent(pid) in self.alive:
            return True
        return f"{light.FOLDER}={self.folder}".encode() in (_environment(pid) or b"").split(b"\0")

    def _note(self, pid: int, now: float) -> None:
        image = light.place.image(pid)
        if image is None:
            self.alive.pop(pid, None)
            return
        argv = [a.decode("utf-8", "replace") for a in _bytes(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]
        if not argv:
            self.alive.pop(pid, None)  # it has ended, and nobody has asked for its exit code yet
            return
        self.alive[pid] = image
        known = self.seen.get(image)
        if known is not None:
            known.last = now
            return
        environ = _environment(pid)
        self.seen[image] = Process(
            pid=pid,
            image=image,
            argv=argv,
            program=os.path.basename(_link(f"/proc/{pid}/exe") or (argv[0] if argv else "")),
            parent=_parent(pid),
            first=now,
            last=now,
            container=_link(f"/proc/{pid}/ns/mnt") not in ("", self._own),
            carries=environ is None or self.hook.encode() in environ,
        )

    def signs(self) -> set[str]:
        """The images that have left a sign of life."""
        return {p.stem for p in self.folder.glob("*.seen")}

    def escaped(self) -> list[str]:
        """One line for each kind of process that was not reached, or that could not record."""
        signs = self.signs()
        lines: dict[str, None] = {}
        for p in self.seen.values():
            why = self._why(p, signs)
            if why:
                lines[f"{_shown(p.argv)}: {why}"] = None
        for file in sorted(self.folder.glob("*.trouble")):
            program, _, text = file.read_text(encoding="utf-8", errors="replace").partition("\n")
            lines[f"{program}: the hook ran, and nothing can be recorded there: {text.strip()}"] = None
        return [f"LIN-O001: not reached: {line}" for line in lines]

    def _why(self, p: Process, signs: set[str]) -> str | None:
        if p.image in signs:
            return None
        if p.program in ELSEWHERE:
            return (
                "what it starts elsewhere is out of reach; put `lineage run --` in front of the command there"
            )
        if not _PYTHON.match(p.program):
            return None
        option = kept_out(p.argv)
        if option is not None:
            return _REASONS[option]
        if self._is_fork(p):
            return None
        if p.last - p.first < SETTLED:
            return None
        if p.container:
            return "it runs in another container, where the hook is not; put `lineage run --` in front of it there"
        if not p.carries:
            return "its environment does not carry the hook: PYTHONPATH was replaced on the way to it"
        return "it left no sign of life; an interpreter of another installation may not read the hook"

    def _is_fork(self, p: Process) -> bool:
        """A fork that runs on in its parent's image: what hooks its parent, hooks it."""
        return any(q.pid == p.parent and q.argv == p.argv for q in self.seen.values() if q is not p)

    def tell(self) -> list[str]:
        """Write what has escaped so far where hooked processes find it; return it."""
        found = self.escaped()
        if found != self._told:
            self._told = found
            with contextlib.suppress(OSError):
                layout.write_durably(self.folder / "escaped.json", json.dumps(found).encode())
        return found


def _same_process(pid: int, image: str) -> bool:
    """Whether a pid is still the process that had this image: `exec` keeps the start, a pid that is used again not."""
    now = light.place.image(pid)
    return now is not None and now.rpartition("-")[0] == image.rpartition("-")[0]


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _environment(pid: int) -> bytes | None:
    """The variables that a process was started with; None where they may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _parent(pid: int) -> int:
    fields = _bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _shown(argv: Sequence[str]) -> str:
    text = " ".join(mask_argv(argv)[0])
    return text if len(text) <= 160 else text[:157] + "..."


def follow(main: int, end: int, folder: Path, hook: str) -> None:
    """Look until the command has ended, say on stderr what escaped, and stay until its last child is gone.

    `end` is a pidfd of the command's process.
    """
    watch = Watch(main, folder, hook)
    pause, began = SHORTEST, time.monotonic()
    ended = False
    while not ended:
        watch.look(time.monotonic())
        watch.tell()
        ended = bool(select.select([end], [], [], pause)[0])
        if time.monotonic() - began > 2.0:
            pause = min(pause * 1.2, LONGEST)
    watch.main = -1  # its pid may be somebody else's from here on
    watch.look(time.monotonic())
    lines = watch.tell()
    if not watch.signs():
        lines = [*lines, "LIN-O001: no Python process of this command was reached: nothing is recorded"]
    _say(lines)
    while watch.alive:
        time.sleep(LONGEST)
        watch.look(time.monotonic())
        watch.tell()
    _clean(folder, keep=bool(watch.escaped()))


def _say(lines: Sequence[str]) -> None:
    """Write to the command's stderr, and let go of it: somebody may wait for its end."""
    with contextlib.suppress(OSError):
        for line in lines:
            os.write(2, f"lineage: {line}\n".encode())
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)


def _clean(folder: Path, *, keep: bool) -> None:
    """Remove the meeting folder, but for what escaped."""
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            if not (keep and file.name == "escaped.json"):
                file.unlink()
        if not keep:
            folder.rmdir()
            folder.parent.rmdir()
