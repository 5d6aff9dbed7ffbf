"""Which names say that their value is a credential: `api_key` does, `eos_token` and `cache_key` do not."""

from __future__ import annotations

import bisect
import fnmatch
import itertools
import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

_NAMES = tomllib.loads((Path(__file__).parent / "secret_names.toml").read_text(encoding="utf-8"))
_STRONG = frozenset(_NAMES["strong"])
_WEAK = frozenset(_NAMES["weak"])
_KEY_OF = frozenset(_NAMES["key_of"])
_TEXT_TOKEN = frozenset(_NAMES["text_token"])
_PASS_OF = frozenset(_NAMES["pass_of"])
_SIGNATURE_OF = frozenset(_NAMES["signature_of"])
_TRAILING = frozenset(_NAMES["trailing"])
_SECTIONS = tuple(_NAMES["sections"])
_NEVER = frozenset(_NAMES["never"])
_FILES = tuple(_NAMES["files"])
# Compounds written as one word: mypassword, dbpasswd, myapikey.
_ENDINGS = (
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "secretkey",
    "accesskey",
    "authtoken",
    "accesstoken",
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_TRIGGER = re.compile(
    "|".join(
        map(
            re.escape,
            sorted(
                {
                    *_STRONG,
                    *_WEAK,
                    *_ENDINGS,
                    *_SECTIONS,
                    "key",
                    "webhook",
                    "conn",
                    "signature",
                    "pass",
                    "token",
                    "auth",
                }
            ),
        )
    )
)
"""Something of which every name that announces a credential has at least one in it, in lower case."""

Strength = Literal["strong", "weak"]


@lru_cache(maxsize=65536)
def _words(name: str) -> tuple[str, ...]:
    found = [w.lower() for w in _WORD.findall(name)]
    if found[-2:] in (["connection", "string"], ["conn", "string"]):
        return ("connectionstring",)
    while found and (found[-1].isdigit() or (len(found) > 1 and found[-1] in _TRAILING)):
        found.pop()
    return tuple(found)


@lru_cache(maxsize=65536)
def strength(name: str) -> Strength | None:
    """Say how surely a name (a config path, variable or flag) announces a credential; None: it does not.

    `strong`: whatever the value is. `weak`: unless the value is plainly no credential, as with `token`.
    """
    if len(name) > 512 or name in _NEVER:
        return None
    lowered = re.sub(r"[-\s]", "_", name.lower())
    if any(s in lowered and s in lowered.split(".")[:-1] for s in _SECTIONS):
        return "strong"
    words = _words(name)
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    strong = (
        last in _STRONG
        or last.endswith(_ENDINGS)
        or (last == "key" and before in _KEY_OF)
        or (last == "keys" and before in ("api", "access", "secret", "private", "ssh"))
        or words[-3:] == ("access", "key", "id")
        or (before == "webhook" and last in ("url", "uri"))
    )
    return "strong" if strong else _weak(last, before)


def _weak(last: str, before: str) -> Strength | None:
    weak = {
        "signature": before in _SIGNATURE_OF,
        "pass": not before or before in _PASS_OF,
        "token": before not in _TEXT_TOKEN,
        "auth": before not in ("use", "no", "need", "requires", "require"),
    }
    return "weak" if weak.get(last, last in _WEAK) else None


def is_secret_key(name: str) -> bool:
    """Say whether a name (a dotted config path, variable or flag) announces a credential."""
    return strength(name) is not None


def announcing(names: Sequence[str]) -> set[str]:
    """Return which of many names announce a credential: one pass over all for the words, then each that has one."""
    text = "\n".join(names).lower()
    if len(text) != sum(map(len, names)) + max(len(names) - 1, 0):  # a letter that becomes two in lower case
        return {name for name in names if is_secret_key(name)}
    starts = list(itertools.accumulate((len(n) + 1 for n in names), initial=0))
    hits = {bisect.bisect_right(starts, m.start()) - 1 for m in _TRIGGER.finditer(text)}
    return {names[i] for i in hits if is_secret_key(names[i])}


def is_secret_file(path: str) -> bool:
    """Say whether a file's name says that it holds credentials, such as `.env` or `id_rsa`."""
    name = path.rsplit("/", 1)[-1].lower()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _FILES)
