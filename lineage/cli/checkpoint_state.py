"""`lineage checkpoint verify --state` and `lineage checkpoint compare`: what the tensors in files are, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from ..checkpoints import CheckpointError, Contents, at_rest, named
from ..checkpoints.errors import NoStore
from ..checkpoints.listing import open_place
from ..checkpoints.reading import look_into
from ..judge import at_rest as judged
from ..judge.at_rest import AtRest, Held
from ..judge.whole_state import Whole
from ..ledger import at_rest as saved
from .checkpoint_recorded import saves, sidecar_of
from .common import CliError, Exit, Json, console, emit
from .progress import meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..judge.graph import Node
    from ..ledger.file_check import Place
    from ..ledger.reader import Ledger

_SHOWN = 8
_STYLE = {"equal": "green", "differs": "bold red", "absent": "yellow", "cannot_tell": "yellow"}


@dataclass
class Files:
    """The tensors of a checkpoint at rest."""

    contents: Contents
    held: list[Held]
    untold: dict[str, str]

    @property
    def unread(self) -> dict[str, str]:
        """Tensor -> why it has no digest."""
        return {h.name: h.why or "" for h in self.held if h.digest is None}


def read(path: str, threads: int | None, *, everything: bool = False) -> Files:
    """Digest the tensors in a checkpoint's files. Raises `CliError`."""
    try:
        folder = open_place(path)
        folder.every = True
        contents = look_into(folder, path)
    except CheckpointError as e:
        code = Exit.CANNOT_TELL if isinstance(e, NoStore) else Exit.USAGE
        raise CliError(f"{e}. Name a checkpoint's folder or file.", code) from None
    kinds = ("weights", "optimizer_state")
    tensors = [t for t in contents.tensors if everything or t.component in kinds]
    if not tensors:
        raise CliError(
            f"no tensor is known of {contents.path} ({contents.title}). `lineage checkpoint PATH` says what there is.",
            Exit.CANNOT_TELL,
        )
    try:
        with _progress(contents.name, at_rest.size(tensors)) as tell:
            found = at_rest.digests(folder, tensors, threads=threads or os.cpu_count() or 1, tell=tell)
    except ImportError as e:
        raise CliError(
            f"reading the tensors in files needs NumPy ({e}). pip install 'runlineage[read]'",
            Exit.CANNOT_TELL,
        ) from None
    return Files(contents, named.held(found, everything=everything), named.untold(contents))


@contextmanager
def _progress(what: str, total: int) -> Iterator[Any]:
    with meter() as bar:
        task = bar.add_task(escape(f"reading {what}"), total=total)
        yield lambda n: bar.update(task, advance=n)


def verify(place: Place, path: str, ledger: Path | None, threads: int | None, *, as_json: bool) -> NoReturn:
    """Hold the tensors in the files against the live state at the save, and end the command."""
    sidecar = sidecar_of(place)
    with_rows = [(b, n, s) for b, n in saves(sidecar, path, ledger) if (s := saved.live(b, n)).tensors]
    if not with_rows and (sidecar is None or not any(c.digest for c in sidecar.checkpoint.live)):
        raise CliError(
            f"nothing is recorded of the live state at the save to {path}. It takes lineage.attach(run, model=model, "
            "optimizer=optimizer), and the run's ledger (--ledger FOLDER) or the lineage.json beside the checkpoint.",
            Exit.CANNOT_TELL,
        )
    files = read(path, threads)
    if not with_rows:
        assert sidecar is not None
        _roots(
            files, saved.by_roots(sidecar.checkpoint, files.held), sidecar.checkpoint.step, as_json=as_json
        )
    book, node, state = with_rows[0]
    found = saved.against(node, state, files.held, files.untold)
    other = None
    if found.status == "differs":
        other = next(saved.others(book, node, files.held, files.untold), None)
    if as_json:
        emit(_data(files, book, node, found, other))
    else:
        _print(files, book, node, found, other)
    raise typer.Exit(_code(found))


def _code(found: AtRest) -> Exit:
    return {"equal": Exit.OK, "differs": Exit.FOUND}.get(found.status, Exit.CANNOT_TELL)


def _data(
    files: Files, book: Ledger, node: Node, found: AtRest, other: tuple[Node, AtRest] | None
) -> dict[str, object]:
    return {
        "checkpoint": files.contents.path,
        "step": node.checkpoint.step,
        "uid": node.uid,
        "recorded_in": str(book.path),
        "status": found.status,
        "is_the_state_of": None
        if other is None
        else {"step": other[0].checkpoint.step, "uid": other[0].uid, "segment": other[0].segment},
        "components": {name: {"status": c.status, **asdict(c)} for name, c in found.components.items()},
        "not_read": files.unread,
    }


_HEADS = {
    "equal": "the live state of its save",
    "differs": "NOT THE LIVE STATE OF ITS SAVE",
    "absent": "the files hold none of what was live",
    "cannot_tell": "cannot tell whether it is the live state of its save",
}


def _print(files: Files, book: Ledger, node: Node, found: AtRest, other: tuple[Node, AtRest] | None) -> None:
    step = node.checkpoint.step
    console.print(
        f"[{_STYLE[found.status]}]{_HEADS[found.status]}[/] (step {step:,})  {escape(files.contents.path)}"
    )
    if other is not None:
        there = other[0]
        console.print(
            f"  [bold red]LIN-C022[/] the files hold the state of step {there.checkpoint.step:,}, and not of step "
            f"{step:,}: {other[1].equal:,} tensors are those that were live at that save ({there.uid[-8:]})\n"
            "  do: do not resume from it as step "
            f"{step:,}; look at what the save stages: a cached state dict, or a buffer that is filled once"
        )
    for line in found.lines(_SHOWN):
        console.print(f"  {escape(line)}")
    _unread(files)
    console.print(
        f"  [dim]recorded in {escape(str(book.path))}; tensors were read by ranges, no code was run[/]"
    )


def _unread(files: Files) -> None:
    missing = [f for f in files.contents.findings if f.severity == "fails"]
    for f in missing[:_SHOWN]:
        console.print(f"  [bold]{f.code}[/] {escape(f.text)}")


def _roots(files: Files, found: dict[str, tuple[str, str]], step: int, *, as_json: bool) -> NoReturn:
    """What a sidecar alone can tell."""
    equal = any(status == "equal" for status, _ in found.values())
    if as_json:
        components = {name: {"status": s, "text": why} for name, (s, why) in found.items()}
        status = "equal" if equal else "cannot_tell"
        data = {"checkpoint": files.contents.path, "step": step, "recorded_in": "lineage.json"}
        emit({**data, "status": status, "components": components, "not_read": files.unread})
    else:
        status = "equal" if equal else "cannot_tell"
        console.print(f"[{_STYLE[status]}]{_HEADS[status]}[/] (step {step:,})  {escape(files.contents.path)}")
        for name, (_, why) in found.items():
            console.print(f"  {name}: {escape(why)}")
        console.print("  [dim]recorded in lineage.json, which has one digest for each component[/]")
    raise typer.Exit(Exit.OK if equal else Exit.CANNOT_TELL)


Where = Annotated[str, typer.Argument(help="A checkpoint's folder, file or URL.", show_default=False)]


def compare(
    a: Where,
    b: Where,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Tensors that are read at a time; all cores by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the tensors of two checkpoints bit for bit: which differ, are missing, changed type or shape.

    Formats, shards and numbers of ranks may differ. Nothing need be recorded; neither torch nor the frameworks are
    needed. Exit code 0 where all tensors are equal, 1 where they are not, 4 where nothing could be compared.
    """
    first, second = read(a, threads, everything=True), read(b, threads, everything=True)
    found = judged.compare(second.held, _as_state(first.held), first.untold | second.untold)
    same = found.status == "equal" and not any(c.new for c in found.components.values())
    code = Exit.OK if same else Exit.CANNOT_TELL if not _compared(found) else Exit.FOUND
    if as_json:
        sides = {
            n: {"path": f.contents.path, "step": f.contents.step} for n, f in (("a", first), ("b", second))
        }
        components = {name: {**asdict(c), "status": c.status} for name, c in found.components.items()}
        emit(
            {**sides, "equal": same, "components": components, "not_read": {**first.unread, **second.unread}}
        )
        raise typer.Exit(code)
    for letter, f in (("A", first), ("B", second)):
        step = "step not told" if f.contents.step is None else f"step {f.contents.step:,}"
        console.print(f"{letter}  {escape(f.contents.path)}  ({escape(f.contents.title)}, {step})")
    head = {Exit.OK: "[green]equal, bit for bit[/]", Exit.FOUND: "[bold red]NOT EQUAL[/]"}
    console.print(head.get(code, "[yellow]nothing could be compared[/]"))
    for line in found.lines(_SHOWN, "in B", "in A"):
        console.print(f"  {escape(line)}")
    for f in (first, second):
        _unread(f)
    raise typer.Exit(code)


def _as_state(held: Sequence[Held]) -> dict[tuple[str, str], Whole]:
    """One side as the state that the other one is held against."""
    out: dict[tuple[str, str], Whole] = {}
    for h in held:
        found = Whole(h.digest, h.why, h.head)
        known = out.setdefault((h.kind, h.name), found)
        if known.digest != found.digest:
            out[h.kind, h.name] = Whole(None, "it stands in A more than once, with other values", h.head)
    return out


def _compared(found: AtRest) -> bool:
    return any(c.equal or c.differing or c.retyped for c in found.components.values())
