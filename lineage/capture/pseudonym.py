"""Pseudonyms: a name for a node that tells nodes of one run apart and does not tell which machine it was."""

from __future__ import annotations

import hashlib
import hmac


def node(run_id: str, hostname: str) -> str:
    """Return `n-<8 hex>` for a host, the same within one run and unrelated between runs.

    It keeps host names off a tracker's page. It is no protection against somebody who knows the run id and
    tries every host name of a cluster: it hides names from readers, not from a search.
    Of 100 nodes, two share a name with odds of about 1 in 870,000 (birthday bound over 2^32).
    """
    made = hmac.new(run_id.encode(), hostname.encode("utf-8", "surrogateescape"), hashlib.sha256)
    return "n-" + made.hexdigest()[:8]
