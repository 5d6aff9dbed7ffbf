"""Checkpoints in a store: any URL that fsspec reads, such as `s3://bucket/run/step-2000`, `gs://`, `memory://`.

Files are listed once, and read by ranges. Nothing is written there, and nothing is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..capture.secrets import mask_url
from .errors import NoStore, Unreadable
from .sources import Range

INSTALL = "pip install 'runlineage[read]'"
_URL = re.compile(r"^[a-z][a-z0-9+.-]*(?:://|::)", re.IGNORECASE)
_AT_ONCE = 512
"""Ranges that are asked for with one call: what they give is held in memory."""


def is_url(where: object) -> bool:
    """Whether a name is a URL, and no path. `file://` names a path."""
    text = str(where)
    return bool(_URL.match(text)) and not text.startswith(("file://", "local://"))


def shown(url: str) -> str:
    """A URL as it may be printed: without passwords and tokens."""
    return mask_url(url)


class Store:
    """A place that fsspec opened."""

    def __init__(self, url: str) -> None:
        """Open a URL. Raises `NoStore` with what to install, or with what the store says."""
        self.url = shown(url)
        try:
            from fsspec.core import url_to_fs

            self.fs, root = url_to_fs(url)
            self.root = str(root).rstrip("/")
            self.fs.invalidate_cache()
        except ImportError as e:
            raise NoStore(
                f"{self.url} cannot be read, since what reads it is not installed ({e}). {INSTALL}, "
                "and the package that reads this kind of store: s3fs, gcsfs, adlfs, ..."
            ) from None
        except Exception as e:  # each store has errors of its own
            raise NoStore(f"{self.url} cannot be read: {_said(e)}") from None

    @property
    def name(self) -> str:
        """The last part of it."""
        return self.root.rpartition("/")[2]

    def kind(self) -> str | None:
        """`folder` or `file`; None where there is nothing. Raises `NoStore`."""
        try:
            if self.fs.isfile(self.root):
                return "file"
            return "folder" if self.fs.isdir(self.root) else None
        except Exception as e:
            raise NoStore(f"{self.url} cannot be read: {_said(e)}") from None

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path below the root -> (size in bytes, path in the store). Raises `NoStore`."""
        try:
            found = self.fs.find(self.root, detail=True)
        except Exception as e:
            raise NoStore(f"{self.url} cannot be listed: {_said(e)}") from None
        out = {}
        for path, info in found.items():
            below = str(path)[len(self.root) :] if str(path).startswith(self.root) else ""
            if info.get("type", "file") == "file" and (name := below.lstrip("/")):
                out[name] = (int(info.get("size") or 0), str(path))
        return out

    def size(self) -> int:
        """Bytes of the file that the URL names. Raises `NoStore`."""
        try:
            return int(self.fs.size(self.root) or 0)
        except Exception as e:
            raise NoStore(f"{self.url} cannot be read: {_said(e)}") from None

    def ranges(self, path: str, places: Sequence[Range]) -> list[bytes]:
        """Ranges of one file. Raises `Unreadable`."""
        return self.pieces([(path, *p) for p in places])

    def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """(path, first byte, bytes) of several files at once, as many requests at a time as the store allows.

        Raises `Unreadable`.
        """
        out: list[bytes] = []
        try:
            if len(wanted) == 1:
                ((path, start, length),) = wanted
                return [bytes(self.fs.cat_file(path, start=start, end=start + length))]
            for at in range(0, len(wanted), _AT_ONCE):
                some = wanted[at : at + _AT_ONCE]
                found = self.fs.cat_ranges(
                    [p for p, _, _ in some],
                    [a for _, a, _ in some],
                    [a + n for _, a, n in some],
                    on_error="return",
                )
                for data in found:
                    if isinstance(data, BaseException):
                        raise data
                    out.append(bytes(data))
        except Exception as e:
            raise Unreadable(f"{wanted[0][0].rpartition('/')[2]} cannot be read ({_said(e)})") from None
        return out


def _said(error: BaseException) -> str:
    """A store's error in a line, without credentials."""
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    text = " ".join(mask_url(str(error)).split())[:200]
    return f"{type(error).__name__}{': ' if text else ''}{text}"
