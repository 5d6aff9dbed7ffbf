"""Installed distributions: name, version, and where pip took those from that came from no index."""

from __future__ import annotations

import json
import re
from importlib import metadata

from . import canonical, secrets

_NAME = re.compile(r"^Name:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"^Version:[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def installed() -> tuple[dict[str, str], dict[str, str]]:
    """Return distribution -> version, and distribution -> masked origin where pip recorded one.

    Names are normalised (PEP 503). Of two copies the one that Python would import counts. Only the head of
    each METADATA file is searched: parsing all of them takes longer than all else at start-up.
    """
    versions: dict[str, str] = {}
    origins: dict[str, str] = {}
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
            head = text.partition("\n\n")[0]
            name, version = _NAME.search(head), _VERSION.search(head)
            if not name:
                continue
            key = re.sub(r"[-_.]+", "-", name.group(1)).lower()
            if key in versions:
                continue
            versions[key] = canonical.text(version.group(1)) if version else "unknown"
            origin = _origin(distribution.read_text("direct_url.json"))
            if origin:
                origins[key] = origin
        except (OSError, UnicodeError):
            continue  # half-removed or damaged metadata: pip skips it too
    return dict(sorted(versions.items())), dict(sorted(origins.items()))


def _origin(text: str | None) -> str | None:
    """Return the masked URL of a `direct_url.json` (PEP 610), with revision and editable mark."""
    if not text:
        return None
    try:
        data = json.loads(text)
        url = str(data["url"])
        vcs = data.get("vcs_info") or {}
        editable = bool((data.get("dir_info") or {}).get("editable"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "unreadable direct_url.json"
    shown = secrets.mask_url(canonical.text(url))
    if vcs.get("vcs"):
        shown = f"{vcs['vcs']}+{shown}"
    if vcs.get("commit_id"):
        shown += f"@{secrets.mask(str(vcs['commit_id']))[0]}"
    return shown + (" (editable)" if editable else "")
