"""The watch over one node: threads that look every so often and write what changed, and hold up nothing.

One thread asks NVML, which may hang for as long as the driver does; the other reads the kernel's log, compares and
writes. Both are daemons. Closing waits for the second one only, and for a bounded time.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..._rooms import schemas
from ..contain import describe
from ..writer import Writer

if TYPE_CHECKING:
    from ...imports.events.draft import Draft
    from ...imports.events.into_ledger import Names
    from .changes import Change, Changes, Name
    from .kernel_log import KernelLog
    from .nvml import Absent, Nvml
    from .nvml_values import Look, Xid

LOCAL_RANKS = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
)
"""Where launchers say which process of its node this is: torchrun sets the first, others one of the rest."""
NO_ANSWER = 30.0
"""Seconds after which a call to NVML that has not come back is an event."""
SLICE = 1.0
"""Seconds for which the GPUs' thread waits for Xids at a time, so that it ends soon after the run."""
LONGEST_CLOSE = 2.0
"""Seconds that the end of a run waits for the last look."""
TRIES = 3
"""Looks that may fail one after the other before GPUs are given up."""
NO_GPU = "; no GPU is watched: "
"""Between what was watched and the word that no GPU was: a reader must not take the second for something seen."""
MOST_RECORDS = 10_000
"""Records of one node and segment: a log that floods must not fill the ledger."""


class Watcher:
    """Watches this node for one writer. `load` gives the binding of NVML, or raises `nvml.Absent`."""

    def __init__(self, w: Writer, every: float, load: Callable[[], Any] | None = None) -> None:
        self._w, self._every, self._load = w, every, load
        self._stop = threading.Event()
        self._closed = False
        self._found: deque[Look | Xid] = deque()
        self._gpus: Nvml | None = None
        self._absent: Absent | None = None
        self._ended: str | None = None
        """why the GPUs are no longer watched"""
        self._busy: float | None = None
        """since when a call to NVML is under way"""
        self._log: KernelLog | None = None
        self._changes: Changes | None = None
        self._names: Names | None = None
        self._written: dict[Name, str] = {}
        self._records = 0
        self._said: list[str] = []
        self._nodes: str | None = None
        self._thread = threading.Thread(target=self._contained, name="lineage-hardware", daemon=True)

    def start(self) -> None:
        """Begin; returns at once. What is imported for it is imported on its thread."""
        self._thread.start()

    def close(self, timeout: float = LONGEST_CLOSE) -> None:
        """Write what is left, within `timeout` seconds. What hangs is left hanging."""
        self._stop.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._said.append("hardware events: the last look at this node did not end in time")
        self._closed = True

    # -- what was seen, in words

    def covered(self) -> tuple[list[str], dict[str, str], list[str]]:
        """(what was watched, what was not and the line that would add it, what could not be read)."""
        parts, gaps = [], list(self._said)
        missing: dict[str, str] = {}
        if self._gpus is not None and self._gpus.devices:
            parts.append(f"{len(self._gpus.devices)} GPUs")
            gaps += _refused(self._gpus)
        elif self._absent is not None and self._absent.remedy:
            missing["hardware events"] = f"the binding of NVML: {self._absent.remedy} ({self._absent})"
        if self._log is not None and self._log.source is not None:
            parts.append(f"the kernel's log ({self._log.source})")
        if self._nodes is not None:
            parts.append(self._nodes)
        no_gpu = str(self._absent) if self._absent is not None and not self._absent.remedy else None
        if self._ended:
            gaps.append(f"hardware events: {self._ended}")
        if self._busy is not None and time.monotonic() - self._busy > NO_ANSWER:
            gaps.append(
                f"hardware events: NVML had not answered for {time.monotonic() - self._busy:.0f} s at the end"
            )
        if self._log is not None and self._log.source is None and self._log.refused:
            gaps.append(f"hardware events: the kernel's log cannot be read ({'; '.join(self._log.refused)})")
        if self._log is not None and self._log.lost:
            gaps.append("hardware events: lines of the kernel's log were overwritten before they were read")
        if not parts:
            return [], missing, gaps + ([f"hardware events: {no_gpu}"] if no_gpu else [])
        without = f"{NO_GPU}{no_gpu}" if no_gpu else ""
        return [f"hardware events: {', '.join(parts)}{without}"], missing, gaps

    # -- the thread that writes

    def _contained(self) -> None:
        try:
            self._run()
        except Exception as e:
            if not self._closed:
                self._w.trouble("hardware", e, "events of this node are no longer recorded")

    def _run(self) -> None:
        from ...imports.events.into_ledger import Names
        from . import scheduler
        from .changes import Changes
        from .kernel_log import KernelLog

        self._names = Names(self._w.ids.run, {self._w.place.node})
        self._changes = Changes()
        threading.Thread(target=self._ask_gpus, name="lineage-nvml", daemon=True).start()
        self._log = KernelLog()
        self._log.open()
        if self._w.world.rank == 0:
            draft, why = scheduler.nodes()
            if draft is not None:
                self._nodes = f"Slurm's {draft.text}"
                self._write_one(draft, "slurm-nodes")
            self._said += [f"hardware events: {why}"] if why else []
        while not self._stop.wait(self._every):
            self._look()
        self._look(last=True)
        self._log.close()

    def _look(self, *, last: bool = False) -> None:
        assert self._changes is not None
        assert self._log is not None
        if self._w._closed:  # handed over to another writer
            self._stop.set()
            return
        from .nvml_values import Xid

        devices = self._gpus.devices if self._gpus is not None else []
        while self._found:
            one = self._found.popleft()
            if isinstance(one, Xid):
                self._write(self._changes.xid(one, devices), "nvml")
            elif self._changes.started:
                self._write(self._changes.see(one, devices), "nvml")
            else:
                self._write(self._changes.start(one, devices), "nvml")
        if self._busy is not None and time.monotonic() - self._busy > NO_ANSWER:
            self._write(self._changes.no_answer(schemas.now(), NO_ANSWER), "nvml")
        for about, draft in self._log.read(now=last):
            assert draft.when is not None
            at = draft.when.at or schemas.now()
            self._identify(draft)
            self._write(self._changes.lasting.seen(("kernel", *about), draft, at), "kernel")
        now = schemas.now()
        self._write(self._changes.end(now) if last else self._changes.lasting.sweep(now), None)
        self._written = {k: v for k, v in self._written.items() if k in self._changes.lasting}

    def _identify(self, draft: Draft) -> None:
        """The kernel names a GPU by its PCI address; NVML knows its UUID."""
        from ...imports.events.kernel import short_pci

        if draft.device_pci is None or self._gpus is None:
            return
        wanted = short_pci(draft.device_pci)
        for d in self._gpus.devices:
            if d.pci is not None and short_pci(d.pci) == wanted:
                draft.device_uuid, draft.device_index = d.uuid, d.index

    def _write(self, changes: Iterable[Change], format_: str | None) -> None:
        for c in changes:
            source = format_ or ("kernel" if c.name[0] == "kernel" else "nvml")
            until = c.until
            if until is not None and c.draft.when is not None and c.draft.when.at is not None:
                until = max(until, c.draft.when.at)
            before = None if c.begins else self._written.get(c.name)
            record = self._write_one(c.draft, source, until, c.count, before)
            if record is not None:
                self._written[c.name] = record

    def _write_one(
        self, draft: Draft, format_: str, until: Any = None, count: int = 1, supersedes: str | None = None
    ) -> str | None:
        from ...imports.events.into_ledger import Told, event_of

        if self._closed or self._w._closed:
            return None
        self._records += 1
        if self._records > MOST_RECORDS:
            if self._records == MOST_RECORDS + 1:
                self._said.append(f"hardware events: more than {MOST_RECORDS:,}; later ones are not recorded")
            return None
        assert self._names is not None
        if not draft.nodes:
            draft.nodes = (socket.gethostname(),)
        for host in draft.nodes:
            self._names.of(host)
        event = event_of(draft, None, format_, Told(offset=0.0), self._names, schemas.now())
        event = event.model_copy(update={"until": until, "count": max(1, count)})
        return self._w.write(event, supersedes=supersedes).id

    # -- the thread that asks NVML

    def _ask_gpus(self) -> None:
        from . import nvml

        self._busy = time.monotonic()
        try:
            gpus = nvml.Nvml((self._load or nvml.load)())
            gpus.begin()
            self._gpus = gpus
            self._watch_gpus(gpus)
        except nvml.Absent as e:
            self._absent = e
        except Exception as e:  # a binding of another version than any that is known
            self._ended = f"the GPUs cannot be watched ({describe(e)})"
        self._busy = None

    def _watch_gpus(self, gpus: Nvml) -> None:
        failed = 0
        while not self._stop.is_set():
            try:
                self._round(gpus)
                failed = 0
            except Exception as e:
                failed += 1
                if failed >= TRIES:
                    self._ended = f"the GPUs are no longer watched ({describe(e)})"
                    return
                self._again(gpus)
                self._stop.wait(self._every)
            self._busy = None
        gpus.end()

    def _round(self, gpus: Nvml) -> None:
        """One look, and the wait for Xids until the next. `_busy` holds since when a call is under way."""
        self._busy = time.monotonic()
        self._found.append(gpus.look())
        end = time.monotonic() + self._every
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            self._busy = time.monotonic()
            self._found.extend(gpus.wait(min(SLICE, left)))

    def _again(self, gpus: Nvml) -> None:
        """Somebody else shut NVML down in this process: it is begun again."""
        try:
            gpus.begin()
        except Exception as e:
            self._ended = f"NVML could not be begun again ({describe(e)})"
        else:
            self._ended = None


def first_of_its_node(local_rank: int) -> bool:
    """Whether this process is the one of its node that watches: each launcher numbers them in a variable of its own."""
    told = [os.environ.get(name, "0") for name in LOCAL_RANKS]
    return local_rank == 0 and all(t.strip() in ("", "0") for t in told)


def start(w: Writer) -> Watcher | None:
    """Begin to watch the node of a writer's process; None where another process does, or nobody is to."""
    every = float(w.settings.hardware_every)
    if every <= 0 or not first_of_its_node(w.world.local_rank):
        return None
    found = Watcher(w, max(every, 0.05))
    found.start()
    return found


def _refused(gpus: Nvml) -> list[str]:
    """What devices do not give, one line for each reason."""
    by: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for what, reasons in gpus.refused.items():
        for why, indices in reasons.items():
            by.setdefault((why, tuple(sorted(indices))), []).append(what)
    out = []
    for (why, numbers), asked in by.items():
        which = f"GPU {numbers[0]} does" if len(numbers) == 1 else f"GPUs {', '.join(map(str, numbers))} do"
        out.append(f"hardware events: {which} not give {', '.join(asked)}: {why}")
    return out
