"""docs/detectors.md says what was measured, with the parameters that the code has."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from benchmarks import page


def test_the_page_holds_the_newest_results_and_the_parameters_in_force() -> None:
    """A rule that changed, or a newer measurement, makes the page stale: `python -m benchmarks.page`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert set(page.newest()) == set(page.SHOWN)
    assert page.put(text) == text


def test_a_page_without_its_marks_is_refused() -> None:
    """Nothing is written in a place that nobody named."""
    with pytest.raises(ValueError, match="has no lines"):
        page.put("# Detectors\n")
