"""What a site and a run add to the concept catalogue and the policy: a site's file, then the run's own.

The site's file is named by the setting `site` (LINEAGE_SITE). The run's own additions stand in the table
`[catalogue]` of `lineage.toml`, or in a file that the setting `catalogue` names. Later ones win, cell by cell, and
an override says who and why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import settings as settings_

Layer = tuple[str, Mapping[str, Any]]
"""(where it came from, the tables)"""


def install(settings: settings_.Settings, start: Path | None = None) -> list[str]:
    """Use the catalogue with what the site and the run add, from now on in this process.

    Never raises: a file that is missing or wrong is left out as a whole, and the returned lines say so.
    """
    problems: list[str] = []
    layers: list[Layer] = []
    for read in (_site, _run):
        try:
            layers += read(settings, start)
        except (OSError, ValueError) as e:
            problems.append(f"the catalogue goes without an addition: {e}")
    schemas.install_catalogue(None)
    while layers:
        try:
            schemas.install_catalogue(schemas.extended_catalogue(*layers))
            break
        except schemas.CatalogueError as e:
            guilty = next((i for i, (name, _) in enumerate(layers) if name in str(e)), len(layers) - 1)
            problems.append(f"{e}. All of {layers.pop(guilty)[0]} is left out")
    return problems


def _site(settings: settings_.Settings, start: Path | None) -> list[Layer]:
    path = settings.values.get("site")
    return [_file(Path(str(path)))] if path else []


def _run(settings: settings_.Settings, start: Path | None) -> list[Layer]:
    table, path = settings_._file(start)
    inline = table.get("catalogue")
    named = settings.values.get("catalogue")
    if settings.sources.get("catalogue") == str(path) and isinstance(inline, Mapping):
        return [(str(path), inline)]
    if not named:
        return []
    beside = path is not None and settings.sources.get("catalogue") == str(path)
    return [_file(path.parent / str(named) if beside and path is not None else Path(str(named)))]


def _file(path: Path) -> Layer:
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as e:
        raise ValueError(f"{path} is no TOML: {e}") from None
    except OSError as e:
        raise OSError(f"{path} cannot be read: {e.strerror}") from None
