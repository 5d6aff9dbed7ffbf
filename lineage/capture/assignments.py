"""Credentials that stand beside a name: `password: x`, `API_KEY="x"`, `--token x`, `{"secret": "x"}`.

Works on any text (Python, YAML, JSON, shell, INI, logs), whose language is not known. So a value without
quotes that reads as code (`token = tokenizer.decode(ids)`, `password=password`) is left alone.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from .secret_keys import Strength, strength
from .secret_patterns import Span, places

# Every name that `strength` accepts contains one of these.
_KEYWORDS = (
    *(
        "pass",
        "pwd",
        "secret",
        "token",
        "key",
        "cred",
        "auth",
        "cookie",
        "dsn",
        "jwt",
        "bearer",
        "webhook",
        "otp",
    ),
    *("signature", "connection", "conn_str", "connstr"),
)
_NAME = string.ascii_letters + string.digits + "_.-"

# From a keyword on: the rest of the name, closing quotes or brackets, and what joins name and value.
_TAIL = re.compile(
    r"""(?P<rest>[\w-]{0,60})
        (?P<close>[\\"'\])]{0,6})
        (?:
            [ \t]{0,20} (?P<joint> :=|=>|=(?!=)
                | :(?!:) (?: [ \t]{0,4} [A-Za-z_][\w.\[\], |]{0,60}? [ \t]{0,4} =(?!=) )? )   # with a type
          | [ \t]{0,4} (?P<comma>,) (?=[ \t]{0,4}\\?["'])
          | (?P<space>[ \t]{1,4}) (?=[^\s=:,-])
        )""",
    re.VERBOSE | re.ASCII,
)
_VALUE = re.compile(
    r"""[ \t]{0,20}
        (?: [|>][+-]?[ \t]{0,4}\r?\n[+\- ]?[ \t]{1,40} )?     # a YAML block
        (?: [rbfuRBFU]{0,2} (?P<q>["'`]) (?P<quoted>(?:\\.|(?!(?P=q))[^\n\\]){1,4096}) (?:(?P=q)|$|(?=\n))
          | \\{1,3}(?P<eq>["']) (?P<escaped>(?:(?!\\{1,3}(?P=eq))[^\n]){1,4096}) (?:\\{1,3}(?P=eq)|$|(?=\n))
          | (?P<bare>[^\s"'`,;&<>(){}\[\]|*!\\][^\s"'`&,;]{0,1023})
        )""",
    re.VERBOSE | re.MULTILINE,
)
_REST_OF_LINE = re.compile(r"[^\n]{0,1024}?(?=\s#|\s*(?:$|\n))", re.MULTILINE)
_LINE_START = re.compile(r"(?:^|\n)[+\- ]?[ \t]{0,80}(?:- |export )?[\"']?$")

_PLACEHOLDER = re.compile(
    r"""\$\{[^}]*\} | \$[A-Z_][A-Z0-9_]* | \{\{.*\}\} | \{[^{}]*\} | <[^<>]*> | \[[A-Za-z_/]*\] | %\(\w+\)s
      | %s | \$\([^)]*\) | \$\{\{.*\}\} | \*+ | \.{2,} | [xX]{3,} | -+ | \?+ | \[masked\] .*""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(
    r"none|null|nil|true|false|yes|no|on|off|undefined|str|int|bool|bytes|float|any|dict|list|optional|string"
    r"|object|secretstr|required|default|changeme|redacted|masked|hidden",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:basic|bearer|token)\s+", re.IGNORECASE)
_METHODS = re.compile(
    r"basic|bearer|digest|oauth2?|kerberos|ldap|saml|oidc|netrc|anonymous|enabled|disabled", re.IGNORECASE
)
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[{]"  # a call, an index, a literal of a type
    r"|(?:self|cls|args|cfg|config|conf|os|opts|options|settings|params|kwargs|env|request|hparams|FLAGS|sys|ctx"
    r"|tokenizer|model|data|batch|torch|np|this|process|secrets)\.[A-Za-z_]"
    r"|lambda\b|await\b|not\b|[-+*/]?=|->"
)
_AFTER_QUOTE = re.compile(r"\s*[,+)\]]\s")
_SNAKE = re.compile(r"[a-z]*(?:_[a-z]+)+\d{0,2}|[a-z]{1,16}\d?")


def is_no_secret(value: str, sure: Strength) -> bool:
    """Say whether a value beside a name of this strength is plainly no credential, such as `${API_KEY}`."""
    bare = _SCHEME.sub("", value.strip())
    if _PLACEHOLDER.fullmatch(bare) or _EMPTY.fullmatch(bare):
        return True
    plain = len(bare) < 6 or bare.replace(".", "", 1).isdigit() or bare[0] in "<[/"
    return sure == "weak" and (plain or bool(_METHODS.fullmatch(bare)))


def find(text: str, lowered: str) -> list[Span]:
    """Return the spans of values that stand beside the name of a credential.

    `lowered` is `text` in lower case with every character in its place.
    """
    spans: list[Span] = []
    for keyword in _KEYWORDS:
        if keyword not in lowered:
            continue
        for at in places(lowered, keyword):
            tail = _TAIL.match(text, at + len(keyword))
            if tail:
                span = _beside(text, at, tail)
                if span:
                    spans.append(span)
    return spans


def _beside(text: str, at: int, tail: re.Match[str]) -> Span | None:
    before = text[max(0, at - 80) : at]
    start = at - (len(before) - len(before.rstrip(_NAME)))
    name = text[start : tail.end("rest")]
    sure = strength(name.strip("-."))
    flag = name.startswith("--")
    joined = (
        (flag and not tail["close"])
        if tail["space"]
        else (flag or bool(tail["close"]))
        if tail["comma"]
        else True
    )
    value = _VALUE.match(text, tail.end()) if sure and joined else None
    if not sure or not value:
        return None
    group = "quoted" if value["quoted"] is not None else "escaped" if value["escaped"] is not None else "bare"
    if group == "bare":
        return _bare(text, _Name(start, name, sure, tail), value)
    found = value[group]
    # What follows a prompt or message ("Password: ", stream=None) is code, and the quote was a closing one.
    is_one = not is_no_secret(found, sure) and not _AFTER_QUOTE.match(found)
    is_one = is_one and (not tail["comma"] or _is_argument(found, flag))
    return value.span(group) if is_one else None


def _is_argument(found: str, flag: bool) -> bool:
    """Say whether a quoted string after `"name",` is its value, not the next name of a list."""
    if any(c.isspace() for c in found) or found.startswith("-"):
        return False
    return flag or (len(found) >= 8 and any(c.isdigit() for c in found))


@dataclass(frozen=True)
class _Name:
    """The name of a credential in a text: where it starts, how sure it is, what joins it to its value."""

    start: int
    text: str
    sure: Strength
    tail: re.Match[str]

    def is_repeated_by(self, value: str) -> bool:
        """Say whether the value is a variable of the same name: `password=password`, `key=scope.api_key`."""
        last = value.rsplit(".", 1)[-1]
        own = self.text.rsplit(".", 1)[-1].strip("-_").replace("-", "_")
        return last.lower().strip("_") == own.lower() or (
            "_" in last and last.isidentifier() and strength(last) is not None
        )


def _bare(text: str, name: _Name, value: re.Match[str]) -> Span | None:
    """Return the span of a value without quotes, unless it reads as code or as prose."""
    begin = value.start("bare")
    found = value["bare"].rstrip(")}].:")
    if not found or _CODE.match(found) or name.is_repeated_by(found):
        return None
    if is_no_secret(found, name.sure) or is_no_secret(value["bare"], name.sure):
        return None
    if name.sure == "weak" and (
        len(found) < 8 or not any(c.isdigit() for c in found) or _SNAKE.fullmatch(found)
    ):
        return None
    end = begin + len(found)
    if _LINE_START.search(text[max(0, name.start - 90) : name.start]):
        joint = name.tail["joint"]
        if joint == "=" and begin == name.tail.end() and name.tail.end("close") == name.tail.start("joint"):
            while end < len(text) and not text[end].isspace():
                end += 1  # a line of an env file: commas and semicolons belong to the value
        elif joint == ":" and name.sure == "strong":
            line = _REST_OF_LINE.match(text, begin)
            end = max(end, line.end()) if line else end
    return begin, end
