"""The command line. The same verbs as the Python API, for a person at a terminal."""

from __future__ import annotations


def main() -> None:
    """Run the command `lineage`."""
    from .app import run

    run()
