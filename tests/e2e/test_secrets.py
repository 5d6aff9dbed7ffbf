"""Fifty secrets in twelve places, real training on real trackers: none is in anything that the layer wrote.

The places: config key, config value, command line, environment variable, git remote, tracker URI, pip's
direct_url, uncommitted diff, untracked file (name and content), log of the layer, exception text (a failure of
training's, and one of the layer's), notebook name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lineage.ledger.reader import Ledger
from tests.secret_samples import SAMPLES, planted

from . import plants

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["wandb", "mlflow"])
def trained(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mlflow_database: Callable[[Path], str],
) -> Path:
    """All output of one training process in a repository of its own; the folder above holds what was planted."""
    base = tmp_path_factory.mktemp(f"secrets-{request.param}")
    plants.repository(base / "repository", Path(__file__).with_name("secret_training.py"))
    plants.distributions(base / "site")
    out = base / "out"
    out.mkdir()
    if request.param == "mlflow":
        mlflow_database(out)
    own = {k: str(base / "home") for k in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    environment = plants.variables(
        os.environ,
        PYTHONPATH=f"{REPOSITORY}:{base / 'site'}",
        WANDB_ERROR_REPORTING="false",
        MLFLOW_DISABLE_TELEMETRY="true",
        **own,
    )
    done = subprocess.run(
        [sys.executable, "train.py", request.param, str(out), *plants.argv()],
        cwd=base / "repository",
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (out / "stderr.txt").write_text(done.stderr)
    return out


def page(out: Path) -> list[Path]:
    """What the tracker keeps: the W&B run's folder, or MLflow's database and artifacts."""
    return [p for p in (out / "wandb", out / "mlflow.db", out / "artifacts") if p.exists()]


def canaries(folders: list[Path]) -> set[str]:
    """The places whose harmless word stands below some folders."""
    found = set()
    for _, text in plants.texts(folders):
        parts = text.split(plants.CANARY)[1:]
        found |= {p for p in PLACES for part in parts if part.startswith(p)}
    return found


PLACES = {
    *("config-key", "config-value", "argv", "variable", "git-remote", "direct-url"),
    *("diff", "untracked-file", "exception", "notebook", "tracker-uri"),
}


def test_no_part_of_any_secret_is_in_what_was_written(trained: Path) -> None:
    """Ledgers, blobs, sidecars, reports, logs; the .wandb file raw and decoded, or SQLite raw and dumped."""
    assert plants.leaks([trained]) == {}


def test_no_digest_of_a_secret_is_kept(trained: Path) -> None:
    """Nor of a file that holds one: a short secret could be guessed from it."""
    raw = [f for n in SAMPLES for f in (SAMPLES[n], planted(n), f"see {planted(n)}\n")]
    digests = {hashlib.sha256(t.encode()).hexdigest() for t in raw}
    written = "\n".join(text for _, text in plants.texts([trained / "ledgers"]))
    assert [d for d in digests if d in written] == []


def test_the_harmless_words_beside_the_secrets_are_recorded_in_every_place(trained: Path) -> None:
    """So the places were read, and the search finds what stands there."""
    expected = PLACES if (trained / "dead").exists() else PLACES - {"tracker-uri"}
    assert canaries([p for p in (trained / "ledgers", trained / "dead") if p.exists()]) == expected
    assert "exception" in canaries([trained / "lineage.log"])
    reports = list(trained.glob("ledgers/*/report/report.html"))
    assert len(reports) >= 4
    config = next(r.payload for r in Ledger(trained / "ledgers" / "all").records if r.kind == "config")
    assert config.masked == 101  # fifty keys, fifty values, one list


def test_the_page_shows_config_and_remote_and_keeps_all_that_is_private_at_home(trained: Path) -> None:
    """By default command line, values of variables, diffs and messages of exceptions stay on the machine."""
    shown = canaries(page(trained))
    assert {"config-key", "config-value", "git-remote"} <= shown
    assert shown & {"diff", "argv", "variable", "exception"} == set()


def test_the_search_finds_every_secret_where_it_was_planted(trained: Path) -> None:
    """The same search over the planted files, the config, the environment and the command line."""
    base = trained.parent
    for folder in ("repository", "site"):
        found = set().union(*plants.leaks([base / folder]).values())
        assert found == set(SAMPLES)
    for planted_here in (plants.config(), plants.environment(), plants.argv()):
        assert plants.found_in(str(planted_here)) == set(SAMPLES)
