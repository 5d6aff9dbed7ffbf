"""The folder of a bundle under way: files with digests, within a bound."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..ledger import layout
from .tree import jsonable

FILE_MODE = 0o400
"""Files of a bundle are write-once."""
OWN = 64 << 10
"""Bytes that are set aside for the manifest itself, beside what it says of each file and micro-batch."""
LINE = 160
"""Bytes of the manifest for each file beside its name and content, and for each micro-batch."""


class TooBig(Exception):
    """A part does not fit into the bundle; the text says how big it is and what room was left."""


class Folder:
    """The folder under way: its files with digests, and the room that is left."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.files: list[schemas.FileEntry] = []
        self.contents: dict[str, str] = {}
        self._left = max(0, limit - OWN)

    def size(self) -> int:
        """Bytes of all files so far."""
        return sum(f.size for f in self.files)

    def fits(self, size: int) -> None:
        """Raise `TooBig` where so many bytes more do not fit, beside what the manifest says of them."""
        if size > self._left:
            raise TooBig(f"{size:,} bytes, and {self._left:,} were left (setting bundle_bytes)")

    def set_aside(self, lines: int) -> None:
        """The manifest will have so many lines more: their room is not given to files."""
        self._left = max(0, self._left - lines * LINE)

    def write(self, name: str, data: bytes, what: str) -> None:
        """Write one file and sync it. Raises `TooBig`, `OSError`."""
        listed = LINE + 2 * len(name) + len(what)
        self.fits(len(data) + listed)
        self._put(name, data, what)
        self._left -= len(data) + listed

    def _put(self, name: str, data: bytes, what: str) -> None:
        path = self.path / name
        layout.make_folder(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.files.append(schemas.FileEntry(path=name, size=len(data), digest=digest))
        self.contents[name] = what

    def json(self, name: str, value: Any, what: str) -> None:
        """Write one JSON file."""
        plain = jsonable(value)
        try:
            data = _text(plain, ascii_only=False)
        except UnicodeEncodeError:  # a text with half a character, which JSON can name and UTF-8 cannot
            data = _text(plain, ascii_only=True)
        self.write(name, data, what)

    def tensors(self, name: str, tensors: Mapping[str, Any], what: str) -> dict[str, str]:
        """Write one safetensors file. Returns the tensors that could not be kept, with why."""
        from safetensors.torch import (
            save as to_bytes,
        )  # the observer takes a `save_file` for the training code's

        self.fits(sum(t.numel() * t.element_size() for t in tensors.values()))
        on_host, gone = {}, {}
        for n, t in tensors.items():
            try:
                held = t.resolve_conj().resolve_neg().to("cpu").contiguous()
                on_host[n] = held.clone() if held.data_ptr() == t.data_ptr() or _is_part(held) else held
            except Exception as e:
                gone[n] = f"could not be copied ({type(e).__name__})"
        if on_host:
            try:
                data = to_bytes(on_host)
            except Exception:  # a type that the format does not have: the others are kept
                for n in list(on_host):
                    try:
                        to_bytes({n: on_host[n]})
                    except Exception as e:
                        gone[n] = f"{on_host.pop(n).dtype} cannot be kept ({type(e).__name__})"
                data = to_bytes(on_host)
            self.write(name, data, what)
        return gone

    def manifest(self, name: str, data: bytes) -> None:
        """Write the manifest. It has its room; where it is longer all the same, no evidence is lost for that.

        Raises `OSError`.
        """
        self._put(name, data, "")

    def take_back(self, begun: int) -> None:
        """Remove what was written after the first `begun` files."""
        for entry in self.files[begun:]:
            with contextlib.suppress(OSError):
                (self.path / entry.path).unlink()
            what = self.contents.pop(entry.path, "")
            self._left += entry.size + LINE + 2 * len(entry.path) + len(what)
        del self.files[begun:]


def _text(plain: Any, *, ascii_only: bool) -> bytes:
    return json.dumps(plain, allow_nan=False, ensure_ascii=ascii_only, separators=(",", ":")).encode()


def _is_part(t: Any) -> bool:
    return bool(t.untyped_storage().nbytes() != t.numel() * t.element_size())
