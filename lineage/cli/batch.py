"""`lineage batch`: a batch as the model sees it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..report import batch_page, batch_rows
from . import rung
from .common import CliError, Exit, Json, console

if TYPE_CHECKING:
    from ..ladder.batch import Shown

NAME = "batch"


def command(
    with_: rung.With = "",
    bundle: Annotated[
        str | None,
        typer.Option(
            help="A bundle, or a run: the batch of its first bad step, instead of the loader's first one."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="A folder or name for transformers, tiktoken:NAME, or your_module:object that decodes."
        ),
    ] = None,
    shifts: Annotated[
        bool | None,
        typer.Option(
            "--shifts/--no-shifts", help="Whether the model shifts labels by itself.", show_default=False
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 1,
    width: Annotated[int, typer.Option(min=1, help="Places of each row to print.")] = 48,
    html: Annotated[Path | None, typer.Option(help="Write the page to this file too.")] = None,
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Tokens, labels, masks, positions and documents beside each other; beneath it, what is odd about them."""
    built = rung.build(with_, device) if with_ else None
    if built is None and bundle is None:
        raise CliError(
            "name where the batch is: --with your_module:build, whose `batches` gives it, or --bundle BUNDLE or a run"
        )
    rung.torch()
    from ..ladder.batch import NoTokens, show_batch

    batch = _of_bundle(bundle) if bundle is not None else rung.batches(built)[0]  # type: ignore[arg-type]
    try:
        found, shown = show_batch(
            batch,
            tokenizer=_tokenizer(tokenizer),
            model=built.model if built is not None else None,
            shifts=shifts,
            built_by=with_ or None,
        )
    except NoTokens as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    if html is not None:
        html.write_text(batch_page.page(found, shown, rows=max(rows, 8)), encoding="utf-8")
    if not as_json:
        show(shown, rows, width)
    rung.finish(found, run, record=record, as_json=as_json)


def _of_bundle(name: str) -> Any:
    from ..bundle import reading
    from .bundle import folder_of

    try:
        found = reading.choose(folder_of(name))
        return found.batches(found.step)[0]
    except (reading.BundleError, IndexError) as e:
        raise CliError(f"no batch of a bundle: {e}", Exit.CANNOT_TELL) from None


def _tokenizer(name: str | None) -> Any:
    """What decodes. Raises `CliError`."""
    if name is None:
        return None
    kind, _, rest = name.partition(":")
    try:
        if kind == "tiktoken":
            return importlib.import_module("tiktoken").get_encoding(rest)
        if rest and not Path(name).exists():
            return getattr(importlib.import_module(kind), rest)
        return importlib.import_module("transformers").AutoTokenizer.from_pretrained(name)
    except (ImportError, AttributeError, OSError, ValueError) as e:
        raise CliError(
            f"--tokenizer {name}: {type(e).__name__}: {str(e).splitlines()[0]}. It takes a folder or a name that "
            "transformers loads, tiktoken:NAME, or your_module:object with `decode`, or a function from ids to text"
        ) from None


def show(shown: Shown, rows: int, width: int) -> None:
    """Print the first rows: a line for each place."""
    for row in range(min(rows, len(shown.tokens.ids))):
        table = Table(
            *batch_rows.columns(shown.tokens),
            box=None,
            pad_edge=False,
            title=f"row {row}",
            title_justify="left",
        )
        for p in batch_rows.places(shown.tokens, shown.meaning, shown.text, row):
            if p.place >= width:
                break
            if p.begins:
                table.add_section()
            label = "green" if p.counts else "dim"
            cells = [
                Text(str(p.place)),
                Text(str(p.id), "bold red" if p.odd else ""),
                Text(batch_rows.visible(p.text)),
            ]
            if p.label is not None:
                cells += [Text(str(p.label), label), Text(batch_rows.visible(p.label_text), label)]
            cells += [Text(str(v)) for v in (p.mask, p.position, p.segment) if v is not None]
            table.add_row(*cells, style="" if p.held else "dim", end_section=False)
        console.print(table)
        more = len(shown.tokens.ids[row]) - width
        if more > 0:
            console.print(f"and {more:,} further places: --width", style="dim")
    more = len(shown.tokens.ids) - rows
    if more > 0:
        console.print(f"and {more:,} further rows: --rows", style="dim")
    console.print(f"the batch holds {escape('; '.join(shown.fields))}", style="dim")
