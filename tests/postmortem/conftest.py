"""One real incident for all tests of the post-mortem: closed, with a cause that a replay shows."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .story import Story


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The run, its incident closed."""
    made = Story(tmp_path_factory.mktemp("story"))
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.folder)  # so that no git repository that is being worked on is captured
        made.to_the_end()
    assert Path.cwd() == before
    return made


@pytest.fixture(scope="session")
def pages(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its post-mortem."""
    out = tmp_path_factory.mktemp("pages")
    story.postmortem(out)
    return out
