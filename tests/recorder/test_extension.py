"""What a site and a run add to the catalogue: later ones win, an override has a name on it, damage is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import schemas
from lineage.recorder import extension
from lineage.recorder.settings import resolve

SITE = """
[[concept]]
id = "augmentation"
title = "data augmentation"
class = "R"
reason = "the training distribution is another one"
breaks = ["loss_curve"]
keys = ["augment.strength"]

[[key]]
key = "trainer.super_lr"
concept = "learning_rate"

[[policy]]
concept = "grad_clip"
claim = "scaling_law"
status = "broken"
who = "scaling team"
why = "our fits assume one threshold"
"""
RUN = """
[[catalogue.policy]]
concept = "grad_clip"
claim = "scaling_law"
status = "holds"
who = "me"
why = "this run is in no fit"
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("LINEAGE_SITE", "LINEAGE_CATALOGUE"):
        monkeypatch.delenv(name, raising=False)
    yield
    schemas.install_catalogue(None)


def install(folder: Path, **arguments: object) -> list[str]:
    """Install what settings in a folder ask for."""
    return extension.install(resolve(arguments, start=folder), start=folder)


def test_the_run_wins_over_the_site_and_the_site_over_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell; each override keeps who, why, what it was and where it stands."""
    (tmp_path / "site.toml").write_text(SITE)
    monkeypatch.setenv("LINEAGE_SITE", str(tmp_path / "site.toml"))
    shipped = schemas.catalogue().digest
    assert install(tmp_path / "nowhere") == []
    assert schemas.catalogue().concept("grad_clip").effect("scaling_law") == "broken"
    (tmp_path / "lineage.toml").write_text(RUN)
    assert install(tmp_path) == []
    catalogue = schemas.catalogue()
    assert catalogue.concept("grad_clip").effect("scaling_law") == "holds"
    told = [(o.who, o.status, o.was, o.weaker, Path(o.source).name) for o in catalogue.overrides]
    assert told == [
        ("scaling team", "broken", "caveat", False, "site.toml"),
        ("me", "holds", "broken", True, "lineage.toml"),
    ]
    assert [o.who for o in catalogue.weakened] == ["me"]
    assert catalogue.digest != shipped


def test_concepts_and_keys_of_ones_own_are_found_like_the_shipped_ones(tmp_path: Path) -> None:
    """By key, with class and effect."""
    (tmp_path / "own.toml").write_text(SITE)
    assert install(tmp_path, catalogue=str(tmp_path / "own.toml")) == []
    own = schemas.catalogue().of_key("augment.strength")
    assert own is not None
    assert (own.id, own.effect("loss_curve")) == ("augmentation", "broken")
    assert schemas.catalogue().of_key("trainer.super_lr") == schemas.catalogue().concept("learning_rate")


def test_a_file_that_lineage_toml_names_is_looked_for_beside_it(tmp_path: Path) -> None:
    """Hydra changes the working directory; the file stays where it was."""
    (tmp_path / "lineage.toml").write_text('catalogue = "own.toml"\n')
    (tmp_path / "own.toml").write_text(SITE)
    assert install(tmp_path) == []
    assert "augmentation" in schemas.catalogue().concepts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[policy]]\nconcept = "grad_clip"\nclaim = "ablation"\nstatus = "holds"\nwhy = "x"\n',
            "needs 'who'",
        ),
        (SITE.replace('"scaling_law"\nstatus', '"beauty"\nstatus'), "there is no cell grad_clip x beauty"),
        (SITE.replace("augmentation", "learning_rate"), "learning_rate is there already"),
        (SITE.replace('class = "R"', 'class = "Q"'), "there are R, C, B, O and H"),
        (SITE.replace('concept = "learning_rate"', 'concept = "speed"'), "names the concept 'speed'"),
        ("[[policy]\n", "is no TOML"),
    ],
)
def test_an_addition_that_is_wrong_is_left_out_whole_and_said(tmp_path: Path, text: str, said: str) -> None:
    """Nothing raises: training goes on under the shipped catalogue."""
    (tmp_path / "own.toml").write_text(text)
    (problem,) = install(tmp_path, catalogue=str(tmp_path / "own.toml"))
    assert said in problem
    assert schemas.catalogue().digest == schemas.extended_catalogue().digest


def test_a_missing_file_of_the_site_is_said_and_the_runs_own_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One addition that fails takes no other with it."""
    monkeypatch.setenv("LINEAGE_SITE", str(tmp_path / "gone.toml"))
    (tmp_path / "lineage.toml").write_text(RUN)
    (problem,) = install(tmp_path)
    assert "gone.toml cannot be read: No such file" in problem
    assert schemas.catalogue().concept("grad_clip").effect("scaling_law") == "holds"


def test_the_command_line_judges_by_the_same_catalogue(tmp_path: Path) -> None:
    """`lineage catalogue` in the folder of the run shows what the run added."""
    (tmp_path / "lineage.toml").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "catalogue", "clip", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert '"scaling_law": "holds"' in done.stdout
