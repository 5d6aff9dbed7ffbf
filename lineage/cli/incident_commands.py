"""The group `incident` with all its commands, in the order of the first hour."""

from __future__ import annotations

from . import (
    incident_cause,
    incident_close,
    incident_contain,
    incident_note,
    incident_open,
    incident_walk,
)
from .incident import app

for module in (
    incident_walk,
    incident_open,
    incident_note,
    incident_contain,
    incident_cause,
    incident_close,
):
    module.add(app)
