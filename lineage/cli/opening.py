"""Opening the page of a run in its tracker once more, for writing, after the training process has gone."""

from __future__ import annotations

from .._rooms import schemas, trackers
from ..recorder.contain import describe
from .common import CliError


class Gone(CliError):
    """The page cannot be opened; the text says what to do."""


def open_tracker(alias: schemas.TrackerAlias, uri: str | None) -> trackers.Tracker:
    """Open the tracker run of an alias, at `uri` or where the run recorded it. Raises `Gone`."""
    where = uri or alias.uri
    try:
        if alias.tracker == "mlflow":
            from mlflow import MlflowClient

            return trackers.adapter("mlflow", (MlflowClient(where), alias.id))
        if alias.tracker == "wandb":
            return _open_wandb(alias, where)
    except ImportError as e:
        raise Gone(
            f"{alias.tracker} is not installed here: {e}. pip install 'runlineage[{alias.tracker}]'"
        ) from None
    try:
        return trackers.plugins.reopened(alias.tracker, alias)
    except KeyError:
        raise Gone(
            f"no adapter for the tracker {alias.tracker!r} is installed here; install the one that trained with it"
        ) from None
    except Exception as e:  # somebody else's adapter
        raise Gone(f"the {alias.tracker} page {alias.id} cannot be opened: {describe(e)}") from None


def _open_wandb(alias: schemas.TrackerAlias, where: str | None) -> trackers.Tracker:
    """Resume the W&B run for writing; it must not be training at the same time."""
    import wandb

    kind, _, folder = (where or "").partition(":")
    if kind == "offline":
        raise Gone(
            f"a segment of the W&B run {alias.id} was offline: send its log first, `wandb sync wandb/{folder}` in "
            "the folder where it trained, then name the server: `lineage sync --uri https://api.wandb.ai`"
        )
    if kind == "disabled":
        raise Gone(f"the W&B run {alias.id} was disabled: its page does not exist; the ledger has everything")
    entity, _, project = (alias.project or "").rpartition("/")
    settings = wandb.Settings(
        base_url=where or "https://api.wandb.ai",
        console="off",
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    try:
        run = wandb.init(
            id=alias.id,
            entity=entity or None,
            project=project or None,
            resume="must",
            mode="online",
            settings=settings,
        )
    except Exception as e:  # W&B's own kinds, and whatever its service raises
        raise Gone(
            f"the W&B run {alias.id} cannot be opened at {where}: {describe(e)}. Is it there, and are you logged "
            "in (`wandb login`)?"
        ) from None
    return trackers.adapter("wandb", run, sole_writer=True)


def close(tracker: trackers.Tracker) -> None:
    """Let go of the tracker; a W&B run was resumed only for this, so it is finished.

    Raises `TrackerUnavailable` or `TrackerRefused` where its last values do not arrive.
    """
    try:
        tracker.close()
    finally:
        if tracker.kind == "wandb":
            import wandb

            if wandb.run is not None:
                wandb.run.finish()
