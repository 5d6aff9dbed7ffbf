"""The one thing that is done before an original is called: what W&B still holds of a run that is about to be resumed.

`wandb.init(id=..., resume=...)` overwrites the older config key by key, and nothing else keeps it where no ledger of
this machine knows the run. So it is read, once, within two seconds, by the operation that the client itself begins a
resume with. MLflow needs none of this: `start_run(run_id=...)` brings the older params along.
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..recorder.settings import Settings
from . import known

PATIENCE = 2.0
"""Seconds that `wandb.init` is held up at most."""
RESUMES = (True, "allow", "must", "auto", "true")
_QUERY = """
query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) { bucket(name: $name, missingOk: true) { id name config } }
}
"""


def held(given: Mapping[str, Any], settings: Settings) -> dict[str, Any] | None:
    """The config that W&B holds of the run which this call of `wandb.init` resumes; None where there is none.

    None too where a ledger knows the run, where W&B is offline, and where it does not answer in time.
    """
    run = _resumed(given)
    if run is None:
        return None
    project = str(given.get("project") or os.environ.get("WANDB_PROJECT") or "uncategorized")
    entity = given.get("entity") or os.environ.get("WANDB_ENTITY")
    found: list[dict[str, Any]] = []

    def look() -> None:
        alias = schemas.TrackerAlias(tracker="wandb", id=run, project=project)
        if known.by_alias(Path(str(settings.dir)), alias) is None:
            found.append(_read(project, entity, run))

    thread = threading.Thread(target=_quietly, args=(look,), name="lineage-before-init", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return (found[0] or None) if found else None


def _resumed(given: Mapping[str, Any]) -> str | None:
    """The id of the run that is resumed, as far as the call and the environment say."""
    mode = str(given.get("mode") or os.environ.get("WANDB_MODE") or "online")
    if mode in ("offline", "disabled", "dryrun") or os.environ.get("WANDB_DISABLED", "").lower() == "true":
        return None
    back = given.get("resume_from")
    if isinstance(back, str):
        return back.partition("?")[0] or None
    resume = given.get("resume", os.environ.get("WANDB_RESUME"))
    run = given.get("id") or os.environ.get("WANDB_RUN_ID")
    return str(run) if run and resume in RESUMES else None


def _read(project: str, entity: str | None, run: str) -> dict[str, Any]:
    base = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").rstrip("/")
    variables = {"project": project, "entity": entity, "name": run}
    request = urllib.request.Request(
        f"{base}/graphql",
        data=json.dumps({"query": _QUERY, "variables": variables}).encode(),
        headers={"Content-Type": "application/json", **_authorization(base)},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        model = (json.loads(answer.read()).get("data") or {}).get("model") or {}
    config = json.loads((model.get("bucket") or {}).get("config") or "{}")
    return {
        k: v.get("value") if isinstance(v, dict) else v
        for k, v in config.items()
        if k != "_wandb" and not k.startswith("lineage/")
    }


def _authorization(base: str) -> dict[str, str]:
    """The key that the client would use: from the environment, else from the user's netrc."""
    key = os.environ.get("WANDB_API_KEY")
    if not key:
        entry = netrc.netrc().authenticators(urllib.parse.urlsplit(base).hostname or "")
        key = entry[2] if entry else None
    return {"Authorization": "Basic " + base64.b64encode(f"api:{key}".encode()).decode()} if key else {}


def _quietly(act: Any) -> None:
    """What goes wrong here is no more than an answer that did not come."""
    try:
        act()
    except Exception:
        return
