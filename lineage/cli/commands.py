"""Which commands there are."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add every command."""
    from . import (
        catalogue,
        check,
        checkpoint,
        compact,
        compare,
        demo,
        diff,
        doctor,
        events,
        first_bad,
        histories,
        import_,
        incident,
        phases,
        ranks,
        report,
        run,
        schema,
        show,
        sync,
        tree,
        verdict,
        verify,
    )

    for module in (
        demo,
        run,
        import_,
        histories,
        show,
        tree,
        phases,
        diff,
        compare,
        verdict,
        verify,
        compact,
        first_bad,
        ranks,
        check,
        report,
        sync,
        schema,
        catalogue,
        doctor,
    ):
        app.command(module.NAME, context_settings=getattr(module, "CONTEXT", None))(module.command)
    app.add_typer(incident.app, name="incident")
    app.add_typer(events.app, name="events")
    app.add_typer(checkpoint.app, name=checkpoint.NAME)
