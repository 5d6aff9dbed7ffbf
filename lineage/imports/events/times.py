"""Times as machines write them: with a zone, without one, without a year, or counted from the boot."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .draft import Written

NO_YEAR = 1904
"""Stands for a year that the text does not say; a leap year, so that the 29th of February can be read."""

_ISO = re.compile(
    r"^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?\s*"
    r"([A-Z]{1,5}|[+-]\d{2}(?::?\d{2})?)?$",
    re.I,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WORDS = re.compile(
    r"^(?:(?:mon|tue|wed|thu|fri|sat|sun),?\s+)?([a-z]{3})\s+(\d{1,2})\s+(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?"
    r"(?:\s+(?:([A-Z]{3,5}|[+-]\d{4})\s+)?(\d{4}))?$",
    re.I,
)
_COMPACT = re.compile(
    r"^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})(?:[.,](\d{1,9}))?(Z|[+-]\d{2}:?\d{2})?$", re.I
)
_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?(?:e\+?\d{1,2})?$", re.I)
_OLDEST = 946_684_800.0
"""2000-01-01: a number that means an earlier time is no time."""
_NEWEST = 4_102_444_800.0


def parse(text: str) -> Written:
    """Read a time. One that cannot be read comes back with `at` None."""
    told = text.strip().strip('"')
    if _NUMBER.match(told):
        return _epoch(told)
    found = _ISO.match(told) or _COMPACT.match(told)
    if found:
        return _iso(told, found)
    words = _WORDS.match(told)
    return _words(told, words) if words else Written(told)


def since_boot(text: str) -> Written:
    """A time in seconds since the machine booted, as the kernel counts."""
    return Written(text, since_boot=float(text), precision=_fine(text.partition(".")[2]))


def _fine(digits: str | None) -> float:
    return 10.0 ** -min(len(digits or ""), 6)


def _epoch(told: str) -> Written:
    """A count of seconds, milli-, micro- or nanoseconds since 1970, told apart by size."""
    value = float(told)
    for per_second in (1, 1_000, 1_000_000, 1_000_000_000):
        if _OLDEST <= value / per_second < _NEWEST:
            at = (
                datetime.fromtimestamp(0, UTC)
                + timedelta(seconds=int(told) // per_second, microseconds=_micro(int(told), per_second))
                if told.isdigit()
                else datetime.fromtimestamp(value / per_second, UTC)
            )
            return Written(told, at, max(1.0 / per_second, 1e-6))
    return Written(told)


def _micro(value: int, per_second: int) -> int:
    return value % per_second * 1_000_000 // per_second


def _iso(told: str, m: re.Match[str]) -> Written:
    year, month, day, hour, minute, second, fraction, zone = m.groups()
    if hour is None and zone and len(zone) == 3 and zone[0] in "+-":
        return Written(told)  # `2026-11-30-05` is no date in a zone
    if zone and len(zone) < 3 and zone.upper() != "Z":
        return Written(told)  # `2:40 PM` and the like
    try:
        at = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=_offset(zone),
        )
    except ValueError:
        return Written(told)
    precision = 86_400.0 if hour is None else 60.0 if second is None else _fine(fraction)
    return Written(told, at, precision)


def _words(told: str, m: re.Match[str]) -> Written:
    month, day, hour, minute, second, fraction, zone, year = m.groups()
    if month.lower() not in _MONTHS:
        return Written(told)
    try:
        at = datetime(
            int(year or NO_YEAR),
            _MONTHS.index(month.lower()) + 1,
            int(day),
            int(hour),
            int(minute),
            int(second),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=_offset(zone),
        )
    except ValueError:
        return Written(told)
    return Written(told, at, _fine(fraction), year=year is not None)


def _offset(text: str | None) -> tzinfo | None:
    """A zone as it stands behind a time; an abbreviation other than UTC names several zones, so it is none."""
    if not text:
        return None
    if text.upper() in ("Z", "UTC", "GMT"):
        return UTC
    if text[0] not in "+-":
        return None
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "").ljust(4, "0")
    minutes = sign * (int(digits[:2]) * 60 + int(digits[2:]))
    return timezone(timedelta(minutes=minutes)) if abs(minutes) < 24 * 60 else None


def zone(text: str) -> tzinfo:
    """A zone that a person names: Europe/Paris, UTC, +02:00. Raises `ValueError`."""
    found = _offset(text)
    if found is not None:
        return found
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{text!r} is no time zone; write Europe/Paris, UTC or +02:00") from None


_DURATION = re.compile(r"^([+-]?)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?$")


def duration(text: str) -> float:
    """Seconds of a difference that a person writes: `3600`, `-2h`, `1h30m`, `+45s`. Raises `ValueError`."""
    m = _DURATION.match(text.strip().replace(" ", ""))
    if m is None or not any(m.groups()[1:]):
        raise ValueError(f"{text!r} is no length of time; write seconds, or such as -2h or 1h30m")
    days, hours, minutes, seconds = (float(g or 0) for g in m.groups()[1:])
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    if not math.isfinite(total) or total > 366 * 86_400:
        raise ValueError(f"{text!r} is longer than a year; no clock is off by that much")
    return -total if m[1] == "-" else total


def with_year(at: datetime, near: datetime) -> datetime:
    """Give a time without a year the one that brings it closest to another time."""
    naive = near.replace(tzinfo=at.tzinfo) if at.tzinfo is None else near
    candidates = []
    for year in (near.year - 1, near.year, near.year + 1):
        try:
            candidates.append(at.replace(year=year))
        except ValueError:  # the 29th of February
            continue
    return min(candidates, key=lambda c: abs((c - naive).total_seconds())) if candidates else at
