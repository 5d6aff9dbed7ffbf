"""The commands of an incident beside `preserve`."""

from __future__ import annotations

import typer

from . import (
    incident_cause,
    incident_close,
    incident_contain,
    incident_note,
    incident_open,
    incident_walk,
)


def add(app: typer.Typer) -> None:
    """Register them, in the order of the first hour."""
    for module in (
        incident_walk,
        incident_open,
        incident_note,
        incident_contain,
        incident_cause,
        incident_close,
    ):
        module.add(app)
