"""Secrets are masked in raw text before it is hashed or stored: no digest of a secret is ever kept.

Three kinds of evidence: credentials of a known shape (`secret_patterns.toml`), values beside a name that
announces a credential (`secret_names.toml`), and long runs that look random (`entropy`). A secret that is
short, has an ordinary look and stands beside no such name cannot be told from other text.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import assignments, entropy, secret_patterns
from .secret_keys import announcing, is_secret_file, is_secret_key, strength
from .secret_patterns import Span

MASK = "[masked]"

__all__ = [
    "MASK",
    "announcing",
    "has_known_secret",
    "is_secret_file",
    "is_secret_key",
    "mask",
    "mask_argv",
    "mask_url",
    "mask_value",
    "suspects",
]

_ASCII_LOWER = {c: c + 32 for c in range(65, 91)}
_USER = re.compile(r"^(?P<head>(?:[\w+.-]{1,40}:)?//)(?P<user>[^\s/?#]*)@(?=[^@/]*(?:[/?#:]|$))")
_SCP = re.compile(r"^(?P<user>[^\s/@:]{1,200}):(?P<password>[^\s@]{1,1024})@(?=[\w.-]+(?:[:/]|$))")
_QUERY = re.compile(r"(?P<key>[^?&#;=\s]{1,200})=(?P<value>[^&#;\s]*)")
_PLAIN_USER = re.compile(r"[A-Za-z][A-Za-z._-]{0,14}\d{0,2}")


def _lowered(text: str) -> str:
    """Lower the case with every character in its place (`İ` alone would become two)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


def _spans(text: str) -> list[Span]:
    lowered = _lowered(text)
    found = secret_patterns.find(text, lowered) + assignments.find(text, lowered) + entropy.find(text)
    return _merged(s for s in found if text[s[0] : s[1]] != MASK)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def mask(text: str) -> tuple[str, int]:
    """Replace every secret in a text by `[masked]` and return the text with the number of replacements.

    Masking twice changes nothing. Never raises: should a rule fail, the whole text is masked.
    """
    if len(text) < 4:
        return text, 0
    try:
        spans = _spans(text)
    except Exception:  # a leak would be worse than a lost text
        return MASK, 1
    if not spans:
        return text, 0
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += (text[at:start], MASK)
        at = end
    pieces.append(text[at:])
    return "".join(pieces), len(spans)


def suspects(texts: Sequence[str]) -> set[int]:
    """Return which of many short texts may hold a secret: one pass over all, where `mask` makes one each.

    A text that is not named holds none that `mask` would find. If a rule fails, all are named.
    """
    starts = list(itertools.accumulate((len(t) + 1 for t in texts), initial=0))
    found: set[int] = set()
    try:
        for start, end in _spans("\n".join(texts)):
            first = bisect.bisect_right(starts, start) - 1
            found.update(range(first, bisect.bisect_left(starts, end)))
    except Exception:
        return set(range(len(texts)))
    return found


def has_known_secret(data: bytes) -> bool:
    """Say whether binary data holds, in readable form, a credential of a known shape or an assignment.

    Characters of two bytes (UTF-16) are read too. The rule on random-looking runs is not applied.
    """
    for raw in (data, data.replace(b"\0", b"")) if b"\0" in data else (data,):
        text = raw.decode("latin-1")
        lowered = _lowered(text)
        if secret_patterns.find(text, lowered) or assignments.find(text, lowered):
            return True
    return False


def mask_value(key: str, value: Any) -> tuple[Any, bool]:
    """Mask one value under its key (a config path, a variable, a flag); says whether anything was masked.

    Strings, and lists of them, are masked; so are whole numbers of four or more digits under a name such as
    `password`. Other values come back as they are.
    """
    if value is None or isinstance(value, bool | float):
        return value, False
    if isinstance(value, str):
        return _mask_text_value(key, value)
    if isinstance(value, int):
        hidden = abs(value) >= 1000 and strength(key) == "strong"
        return (MASK, True) if hidden else (value, False)
    if isinstance(value, list | tuple):
        masked = [mask_value(key, v) for v in value]
        return [v for v, _ in masked], any(hit for _, hit in masked)
    return value, False


def _mask_text_value(key: str, value: str) -> tuple[str, bool]:
    if not value or value == MASK:
        return value, False
    sure = strength(key)
    if sure and not assignments.is_no_secret(value, sure):
        return MASK, True
    text, count = mask(value)
    if count:
        return text, True
    if "=" not in value and len(value) <= 200:
        # Some shapes count only beside a name, such as 40 hexadecimal digits under `wandb.key`.
        context = f"{key}="
        beside, count = mask(context + value)
        if count and beside.startswith(context):
            return beside[len(context) :], True
    return value, False


def mask_url(url: str) -> str:
    """Mask the credentials of a URL: `user:token@`, a token as user, and secrets in its query.

    Takes the short form of ssh too (`user:token@host:path`). The user name `git` stays.
    """
    text = _USER.sub(_mask_user, url)
    if "//" not in text:
        text = _SCP.sub(lambda m: f"{m['user']}:{MASK}@", text)
    head, mark, query = text.partition("?")
    if mark:
        query = _QUERY.sub(_mask_query, query)
    return mask(head + mark + query)[0]


def _mask_user(match: re.Match[str]) -> str:
    user, colon, _ = match["user"].partition(":")
    if not _PLAIN_USER.fullmatch(user) and (user != "" or not colon):
        user = MASK
    return f"{match['head']}{user}{':' + MASK if colon else ''}@"


def _mask_query(match: re.Match[str]) -> str:
    key = match["key"]
    secret = is_secret_key(key) or key.lower() in ("sig", "signature", "key", "code", "sv_sig")
    return f"{key}={MASK}" if secret and match["value"] else match.group()


def mask_argv(argv: Sequence[str]) -> tuple[list[str], int]:
    """Mask a command line: `--api-key X`, `--api-key=X`, `+db.password=X`, and secrets of a known shape."""
    out: list[str] = []
    count = 0
    key = ""
    for arg in argv:
        flag, equals, value = arg.partition("=")
        name = flag.lstrip("-+~")
        if key and not (arg.startswith("--") and len(arg) > 2 and arg[2:3].isalpha()):
            text, hit = mask_value(key, arg)
        elif equals and name and len(name) <= 200 and not any(c in name for c in " {[\"'/"):
            # The flag may hold a secret too, however unlikely.
            masked, hit = mask_value(name, value)
            flag, more = mask(flag)
            text, hit = f"{flag}={masked}", hit or bool(more)
        else:
            text, more = mask(arg)
            hit = bool(more)
        key = name if arg.startswith("-") and not equals and is_secret_key(name) else ""
        count += hit
        out.append(text)
    return out, count
