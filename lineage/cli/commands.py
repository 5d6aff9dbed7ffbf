"""Which commands there are."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add every command."""
    from . import (
        audit,
        bundle,
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
        incident_commands,
        phases,
        quarantine,
        ranks,
        recover,
        replay,
        report,
        resume,
        run,
        schema,
        show,
        suspects,
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
        suspects,
        audit,
        quarantine,
        resume,
        ranks,
        replay,
        check,
        report,
        sync,
        schema,
        catalogue,
        doctor,
    ):
        app.command(module.NAME, context_settings=getattr(module, "CONTEXT", None))(module.command)
    incident_commands.add(incident.app)
    app.add_typer(incident.app, name="incident")
    app.add_typer(recover.app, name="recover")
    app.add_typer(bundle.app, name="bundle")
    app.add_typer(events.app, name="events")
    app.add_typer(checkpoint.app, name=checkpoint.NAME)
