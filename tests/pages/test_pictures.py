"""The pictures in the documentation: each is shown, small, and made by the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyte")
pytest.importorskip("mlflow")
pytest.importorskip("wandb")

from .__main__ import LIMIT, PICTURES

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_every_picture_that_the_command_makes_and_no_other() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(pages/([\w-]+)\.png\)", (DOCS / "pages.md").read_text())
    assert sorted(shown) == sorted(PICTURES)
    assert sorted(p.stem for p in (DOCS / "pages").iterdir()) == sorted(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_a_small_png(name: str) -> None:
    data = (DOCS / "pages" / f"{name}.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < LIMIT
