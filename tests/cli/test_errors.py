"""Errors of the command line arrive as they were written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_brackets_in_an_error_are_text_and_no_markup(tmp_path: Path) -> None:
    """`pip install 'runlineage[mlflow]'` would otherwise lose its extra, and a path its brackets."""
    done = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "show", "runs[bold]/x[mlflow]"],
        capture_output=True,
        text=True,
        env={**os.environ, "LINEAGE_DIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 2
    assert "runs[bold]/x[mlflow]" in done.stderr
