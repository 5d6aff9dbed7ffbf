"""`lineage replay`: a bad step made again from its bundle, with at most one thing changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._rooms import schemas
from ..bundle import reading, verifying
from . import replay_shown
from .bundle import folder_of
from .common import CliError, Exit, Json, emit

if TYPE_CHECKING:
    from ..replay.where import Where

NAME = "replay"


def command(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="BUNDLE",
            help="A bundle's folder; or a folder of bundles, or a run, of which the earliest one is taken.",
            show_default=False,
        ),
    ] = None,
    with_: Annotated[
        str,
        typer.Option(
            "--with", help="Your function that gives model and loss, as your_module:build. It is run."
        ),
    ] = "",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            help="Exactly one of fp32, math-sdpa, no-compile, deterministic, other-rank-batch[:RANK], "
            "without-sample:N, single-device, anomaly-mode, eager-hooks, optimizer-reset.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How often each is made, for the spread.")] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Begin with this checkpoint, and not with what the bundle names.")
    ] = None,
    checkpoint_step: Annotated[
        int | None,
        typer.Option(help="Updates that this checkpoint has seen, where its sidecar does not tell."),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Of several bundles, the one of this step.")] = None,
    rank: Annotated[int | None, typer.Option(help="Of several bundles, the one of this rank.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda:N; as in the run by default.")] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep/--no-deep", help="Look at every module and operator of a step that is not finite."
        ),
    ] = True,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Make the step with nothing changed first.")
    ] = True,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Change several things at once (recorded as confounded); use a damaged bundle."
        ),
    ] = False,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Write the result into the ledger.")
    ] = True,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger to write into, where the bundle was taken out of its own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bad step again, from its batches, random states and the state it began with; change one thing at most."""
    if not with_:
        raise CliError(
            "--with names the function of yours that gives model and loss: --with your_module:build. "
            "examples/replay_build.py is one to begin with; docs/replay.md says what it returns"
        )
    if change and any(c.startswith("deterministic") for c in change):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA begins
    bundle = _bundle(place, rank, step, force)
    try:
        import torch
    except ImportError:
        raise CliError("a replay needs torch: `pip install 'runlineage[torch]'`", Exit.CANNOT_TELL) from None
    from ..replay import building, conditions, recording, where
    from ..replay.run import Asked, Replaying

    try:
        changes = conditions.parse(change or [])
        if len(changes) > 1 and not force:
            raise CliError(
                f"--change was given {len(changes)} times: with {' and '.join(c.name for c in changes)} at once, no "
                "effect can be traced to one. Change one, or add --force, and it is recorded as confounded"
            )
        here = where.begin(bundle, device)
        if any(c.name == "single-device" for c in changes) and here.world > 1:
            raise CliError("single-device is one process: run it without torchrun")
        count = where.threads(bundle)
        if count is not None and here.device == "cpu":
            torch.set_num_threads(count)
        asked = Asked(
            function=building.find(with_),
            changes=changes,
            repeat=repeat,
            deep=deep,
            checkpoint=checkpoint,
            checkpoint_step=checkpoint_step,
            spec=with_,
        )
        replaying = Replaying(bundle, asked, here)
        alone = [c.name for c in changes] == ["single-device"]
        known = replaying.at_size() if alone and control else None
        found = [replaying.control()] if known is None and (control or not changes) else []
        if changes:
            found.append(replaying.changed())
    except (building.BuildError, conditions.ConditionError, reading.BundleError) as e:
        raise CliError(str(e)) from None
    target = ledger or bundle.ledger
    if record and target is not None:
        recording.record(target, bundle, found, here.rank)
    if as_json:
        emit(found)
    else:
        replay_shown.show(bundle, here, found, recorded=target if record else None, known=known)
    _leave(found, here)


def _bundle(place: str | None, rank: int | None, step: int | None, force: bool) -> reading.Bundle:
    """The bundle that is meant; under torchrun each rank takes its own. Raises `CliError`."""
    if rank is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        rank = int(os.environ["RANK"])
    try:
        bundle = reading.choose(folder_of(place), rank=rank, step=step)
    except reading.BundleError as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    wrong = verifying.verify(bundle.path).wrong
    if wrong and not force:
        raise CliError(
            f"{bundle.path} is damaged ({wrong[0]}): what is made from it is not the recorded step. "
            "`lineage bundle verify` says more; --force uses it all the same",
            Exit.DAMAGED,
        )
    return bundle


def _leave(found: list[schemas.Replay], here: Where) -> None:
    if here.world > 1:
        import torch

        torch.distributed.destroy_process_group()
    last = found[-1].result
    code = {"reproduced": Exit.FOUND, "not_reproduced": Exit.OK, "inconclusive": Exit.CANNOT_TELL}[last]
    sys.stdout.flush()
    raise typer.Exit(code)
