"""The page of public faults names tests that exist, codes that exist, and leaves no test of a fault out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import schemas

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "public-faults.md").read_text()


def names_in(path: Path) -> set[str]:
    return {
        f"{path.name}::{node.name}"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


EVERY = set().union(*(names_in(p) for p in HERE.glob("test_*.py")))


def test_each_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"test_\w+\.py::test_\w+", PAGE))
    assert len(named) > 40
    assert named <= EVERY
    for path in re.findall(r"tests/\w+/test_\w+\.py", PAGE):
        assert (HERE.parents[1] / path).is_file(), path


def test_each_code_on_the_page_exists() -> None:
    assert set(re.findall(r"LIN-[A-Z]\d{3}", PAGE)) <= set(schemas.CODES)


def test_each_test_that_cites_a_report_stands_on_the_page() -> None:
    """A docstring with a report's number is that of a fault."""
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            if re.search(r"#\d", ast.get_docstring(node) or ""):
                assert f"{path.name}::{node.name}" in PAGE, node.name
