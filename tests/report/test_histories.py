"""The page of public histories is what the command makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page, made anew."""
    out = tmp_path_factory.mktemp("page") / "histories.md"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        result = CliRunner().invoke(app, ["histories", "tests/data/histories", "--markdown", str(out)])
    assert result.exit_code == 1, result.output
    return out.read_text(encoding="utf-8")


def test_the_page_in_the_docs_is_the_one_that_the_command_makes(page: str) -> None:
    """`lineage histories tests/data/histories --markdown docs/histories.md` writes it."""
    assert (ROOT / "docs" / "histories.md").read_text(encoding="utf-8") == page


def test_each_run_of_several_phases_has_its_phase_table_and_its_branches(page: str) -> None:
    """Marin 32B went through nine phases on its surviving branch, and left three rescues behind."""
    marin = page.split("## Marin 32B")[1].split("\n## ", maxsplit=1)[0]
    assert "| Phase | Steps |" in marin
    assert "8,192 (until step 18,500" in marin
    assert "nothing goes on from it" in marin
    assert marin.count("77,097") >= 2


def test_nothing_on_the_page_is_said_to_be_in_effect(page: str) -> None:
    """Values are as reported."""
    assert "no mitigation is shown to have been in effect" in page
