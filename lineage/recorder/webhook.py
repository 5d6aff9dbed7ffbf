"""One webhook for people outside of the tracker: alarms, and what is broken, as one line of JSON each.

Posted by rank 0 from a thread of its own, with a timeout, and tried three times at most: training never waits for it,
and the ledger has everything whether it arrives or not. What people wrote (titles of incidents, notes, messages of
exceptions) is left out unless `share` has "text"; host names and config values are never in it. The URL is taken for a
secret: it stands in no record and in no message.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from .. import __version__
from .._rooms import schemas
from .worker import Worker

TIMEOUT = 5.0
"""Seconds for which a receiver may say nothing in one try; one that sends byte by byte can hold a try up for longer,
which holds up later posts and nothing else."""
PAUSES = (1.0, 5.0)
"""Seconds before the second try and the third; there is no fourth."""
MOST = 20
"""Posts of one process: whoever was told twenty times knows. Each kind of thing is told once in a segment."""
WAITING = 32
"""Posts that may wait while the receiver is slow; later ones are dropped, and counted."""
NO_URL = "it is no URL: it needs a scheme, a host and a path"
LOCAL = ("localhost", "127.0.0.1", "::1")


def url(text: str) -> str | None:
    """Check the setting: https, or http on this machine; empty for none. Raises `ValueError` without the URL in it."""
    text = text.strip()
    if not text:
        return None
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        raise ValueError(NO_URL) from None
    if not host:
        raise ValueError(NO_URL)
    if parts.scheme == "https" or (parts.scheme == "http" and host in LOCAL):
        return text
    raise ValueError("it must be https, or http on localhost: what is sent would be readable on its way")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another address is not what was allowed."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Webhook:
    """Looks at each record that rank 0 writes or shows, and posts those that people should hear of."""

    def __init__(
        self,
        address: str,
        run: str,
        ledger: str,
        *,
        text: bool = False,
        on_trouble: Callable[[Exception], None] = lambda e: None,
    ) -> None:
        """`text`: whether what people wrote may be sent. `on_trouble` hears of a post that was given up."""
        self._address, self._run, self._ledger, self._text = address, run, ledger, text
        self._on_trouble = on_trouble
        self._told: set[tuple[str, ...]] = set()
        self._waiting = 0
        self.sent = self.dropped = 0
        local = urlsplit(address).scheme == "http"
        # Plain HTTP is for this machine alone: a proxy of the environment would read it.
        self._opener = urllib.request.build_opener(
            _NoRedirects, *([urllib.request.ProxyHandler({})] if local else [])
        )
        self._worker = Worker("lineage-webhook", on_trouble)

    def look(self, record: Any) -> None:
        """Queue a post where a record is worth one. Never waits, never raises."""
        try:
            found = message(record, text=self._text)
            if found is None or found[0] in self._told:
                return
            key, said = found
            self._told.add(key)
            if len(self._told) > MOST or self._waiting >= WAITING:
                self.dropped += 1
                return
            self._waiting += 1
            body = self._body(record, said)
            self._worker.put(lambda: self._post_and_tell(body))
        except Exception as e:
            self._on_trouble(e)

    def close(self, timeout: float) -> None:
        """Send what waits within `timeout` seconds, then stop; what the receiver had not taken by then is said."""
        if not self._worker.close(timeout) and self._waiting:
            self._on_trouble(NotPosted(f"the webhook had not taken {self._waiting} posts when the run ended"))

    def _body(self, record: Any, said: dict[str, Any]) -> bytes:
        line = f"{self._run}: {said['text']}"
        found = {
            **said,
            "text": line,  # what chat services show
            "run": self._run,
            "segment": record.segment,
            "rank": record.rank,
            "step": record.step,
            "at": record.at.isoformat() if hasattr(record.at, "isoformat") else str(record.at),
            "record": record.id,
            "next": f"lineage incident walk {self._run}",
            "by": f"runlineage {__version__}",
        }
        return json.dumps(found, ensure_ascii=False).encode()

    def _post_and_tell(self, body: bytes) -> None:
        try:
            self._post(body)
        except NotPosted as e:
            self._on_trouble(e)

    def _post(self, body: bytes) -> None:
        """Try three times; then it is given up."""
        try:
            for pause in (*PAUSES, None):
                try:
                    self._once(body)
                    self.sent += 1
                    return
                except Exception as e:
                    refused = (
                        isinstance(e, urllib.error.HTTPError)
                        and e.code not in (408, 425, 429)
                        and e.code < 500
                    )
                    if pause is None or refused:
                        self.dropped += 1
                        raise NotPosted(_why(e)) from None
                time.sleep(pause)
        finally:
            self._waiting -= 1

    def _once(self, body: bytes) -> None:
        request = urllib.request.Request(
            self._address,
            data=body,
            headers={"Content-Type": "application/json; charset=utf-8"},
            method="POST",
        )
        with self._opener.open(request, timeout=TIMEOUT) as answer:
            answer.read(1)


class NotPosted(Exception):
    """A post was given up."""


def _why(e: Exception) -> str:
    """What went wrong, without the address: that is a secret."""
    if isinstance(e, urllib.error.HTTPError):
        return f"the webhook answered {e.code}"
    if isinstance(e, TimeoutError) or "timed out" in str(e):
        return f"the webhook did not answer within {TIMEOUT:g} s"
    return f"the webhook could not be reached ({type(e).__name__})"


def message(record: Any, *, text: bool) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """(what is told once in a segment, what to say) of a record that people should hear of; else None."""
    p = record.payload
    reader = _READERS.get(getattr(p, "kind", ""))
    found = reader(p, text) if reader is not None else None
    if found is None:
        return None
    key, said = found
    return (record.segment, *key), said


Told = tuple[tuple[str, ...], dict[str, Any]]


def _alarm(p: schemas.Alarm, text: bool) -> Told | None:
    if p.phase != "onset" or p.abnormal in ("slow_rise", "new_level"):
        return None
    return ("alarm", p.signal, p.abnormal), {"event": "alarm", "code": p.code, "text": f"{p.text} ({p.code})"}


def _verdict(p: schemas.Verdict, text: bool) -> Told | None:
    if p.status != "broken":
        return None
    claims = [c.claim for c in p.claims if c.status == "broken"]
    since = "" if p.since_step is None else f" since step {p.since_step:,}"
    said = f"broken{since}: {', '.join(c.replace('_', ' ') for c in claims)}"
    return ("verdict", str(p.since_step), *claims), {"event": "verdict", "claims": claims, "text": said}


def _finding(p: schemas.Finding, text: bool) -> Told | None:
    if p.severity != "fault":
        return None
    what = schemas.CODES.get(p.code, p.subject)
    return ("finding", p.code), {"event": "finding", "code": p.code, "text": f"{what} ({p.code})"}


def _incident(p: schemas.Incident, text: bool) -> Told | None:
    state = p.reached or p.status
    if state == "open" and p.opened_by == "alarm":
        return None  # its alarm was told
    title = f": {p.title}" if text else ""
    return ("incident", p.uid, state), {
        "event": "incident",
        "state": state,
        "text": f"incident {state}{title}",
    }


_READERS: dict[str, Callable[[Any, bool], Told | None]] = {
    "alarm": _alarm,
    "verdict": _verdict,
    "finding": _finding,
    "incident": _incident,
}
