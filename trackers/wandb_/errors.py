"""What W&B's exceptions mean to the layer: try again later, or never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..base import TrackerRefused, TrackerUnavailable

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"\?[^\s'\"]*")

_AWAY = frozenset(
    {
        # wandb-core has died or is being shut down
        "MailboxClosedError",
        "HandleAbandonedError",
        "ServiceClientClosed",
        "WandbServiceNotOwnedError",
        "WandbServiceConnectionError",
        "WandbAttachFailedError",
        # the server cannot be reached, is slow, or does not know us yet
        "CommError",
        "AuthenticationError",
        "WandbApiFailedError",
        "ServerResponseError",
        "ConnectTimeout",
        "ReadTimeout",
    }
)
"""Names of exception classes, here or in a base: W&B has moved some of them between modules."""


def masked(text: str) -> str:
    """Return a text or an address without `user:token@`."""
    return _CREDENTIALS.sub("", text)


def masked_url(url: str) -> str:
    """Return an address without credentials and without its query, which may hold an API key."""
    return _QUERY.sub("", masked(url))


def is_away(error: BaseException) -> bool:
    """Tell whether an exception means that W&B cannot take this now, but may later."""
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return False  # these come from the file to be published, not from the connection
    if isinstance(error, OSError | EOFError | TimeoutError):
        return True
    if "is finished" in str(error):
        return True  # the user's run has ended before the outbox: `lineage sync` shows the rest
    return any(c.__name__ in _AWAY for c in type(error).__mro__)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise W&B's exceptions as `TrackerUnavailable` or `TrackerRefused`, credentials masked."""
    try:
        yield
    except (TrackerUnavailable, TrackerRefused):
        raise
    except Exception as e:
        text = f"{what}: {type(e).__name__}: {masked(str(e))}"
        if is_away(e):
            raise TrackerUnavailable(
                f"W&B could not take {text}. It is kept in the ledger; `lineage sync` shows it later."
            ) from e
        raise TrackerRefused(f"W&B refused {text}. It stays in the ledger only.") from e
