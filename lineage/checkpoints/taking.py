"""Taking a file apart for a checkpoint: what goes wrong becomes a finding, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import ends, safetensors_file, torch_file
from .contents import Contents, Severity
from .errors import CheckpointError, CutOff, Damaged, Hostile, Refused, TooBig
from .folder import Folder
from .sources import AHEAD

T = TypeVar("T")
MOST = 32
"""Files of one kind that are taken apart."""
_AGAIN = (
    "Do not resume from it; take an earlier checkpoint, or copy the file again from where it was written."
)


def failed(
    c: Contents, error: CheckpointError, name: str, component: str | None, severity: Severity = "fails"
) -> None:
    """Add the finding for a file that could not be read."""
    text = str(error)
    if isinstance(error, TooBig):
        c.facts["left_out"] = text
    elif isinstance(error, Hostile):
        c.find(
            "LIN-K013",
            "fails",
            f"the pickle in {name} would run {text}; it was not run, and nothing else in that file was read",
            "Do not load this file with torch.load or pickle in any way. Ask where it came from.",
            component,
        )
    elif isinstance(error, Refused):
        c.find("LIN-K014", severity, text, "Ask where it came from; do not load it.", component)
    elif isinstance(error, CutOff | Damaged):
        c.find("LIN-K002", severity, text, _AGAIN, component)
    else:
        remedy = "Make it readable, or wait until it is written, and look again."
        c.find("LIN-K015", severity, text, remedy, component)


def attempt(
    c: Contents, name: str, component: str | None, act: Callable[[], T], severity: Severity = "fails"
) -> T | None:
    """What `act` gives; None and a finding where it cannot read the file."""
    try:
        return act()
    except CheckpointError as e:
        failed(c, e, name, component, severity)
        return None


def torch(
    c: Contents, folder: Folder, name: str, component: str | None, severity: Severity = "fails"
) -> torch_file.TorchFile | None:
    """A file of torch.save, taken apart; None and a finding where that fails."""
    made = attempt(c, name, component, lambda: torch_file.read(folder, name), severity)
    for problem in made.problems if made else ():
        c.find("LIN-K002", severity, problem, _AGAIN, component)
    return made


def each(
    c: Contents, folder: Folder, names: list[str], component: str | None, severity: Severity = "fails"
) -> dict[str, torch_file.TorchFile]:
    """Files of one kind, such as one for each rank: up to `MOST` are taken apart, of the others the ends are read."""
    some = names if len(names) <= MOST else [*names[: MOST - 4], *names[-4:]]
    folder.ahead(some, first=48, last=AHEAD)
    found = {n: made for n in some if (made := torch(c, folder, n, component, severity)) is not None}
    rest = [n for n in names if n not in set(some)]
    if cut := attempt(c, names[0], component, lambda: ends.cut_off(folder, rest), severity) if rest else None:
        c.find("LIN-K002", severity, ends.said(folder, cut), _AGAIN, component)
    return found


def safetensors(c: Contents, folder: Folder, name: str) -> safetensors_file.Header | None:
    """The header of a safetensors file; None and a finding where that fails."""
    made = attempt(c, name, "weights", lambda: safetensors_file.read(folder, name))
    for problem in made.problems if made else ():
        c.find("LIN-K002", "fails", problem, _AGAIN, "weights")
    return made


def json(c: Contents, folder: Folder, name: str, component: str | None = None) -> Any:
    """A JSON file; None and a finding where it cannot be read."""
    return attempt(c, name, component, lambda: folder.json(name))


def torn(c: Contents) -> None:
    """A component is not all there when a file of it cannot be read, whatever else was found of it."""
    for f in c.findings:
        part = c.parts.get(f.component or "")
        if f.code in ("LIN-K002", "LIN-K013", "LIN-K014", "LIN-K015") and part and part.status == "present":
            part.status = "partial"


def refusals(c: Contents, folder: Folder) -> None:
    """Say what of the folder was not looked into."""
    for name, why in sorted(folder.refused.items()):
        unreadable = why.startswith("cannot")
        c.find(
            "LIN-K015" if unreadable else "LIN-K014",
            "fails" if unreadable else "differs",
            f"{name}: {why}",
            "Make it readable, and look again."
            if unreadable
            else "Put the file itself in its place if a resume needs it.",
        )
