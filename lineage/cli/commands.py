"""Which commands there are."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add every command."""
    from . import (
        demo,
        diff,
        doctor,
        first_bad,
        histories,
        import_,
        incident,
        report,
        schema,
        show,
        sync,
        verdict,
        verify,
    )

    for module in (demo, import_, histories, show, diff, verdict, verify, first_bad, report, sync, schema, doctor):
        app.command(module.NAME)(module.command)
    app.add_typer(incident.app, name="incident")
