"""Whether files of torch.save end as such files do, by a few bytes of each."""

from __future__ import annotations

from .folder import Folder

_BEGIN, _END = b"PK\x03\x04", b"PK\x05\x06"


def cut_off(folder: Folder, names: list[str]) -> list[str]:
    """The files that are empty, begin with zeros, or lack the 22 bytes that end a zip without comment.

    APPNOTE.TXT 4.3.16; of the form before torch 1.6 the end tells nothing. Raises `Unreadable`.
    """
    folder.ahead(names, first=4, last=22)
    return [n for n in names if not _whole(folder, n)]


def _whole(folder: Folder, name: str) -> bool:
    with folder.open(name) as f:
        f.seek(max(f.size - 22, 0))
        if f.read(4) == _END:
            return True
        f.seek(0)
        head = f.read(4)
        return head != _BEGIN and any(head)


def said(folder: Folder, cut: list[str]) -> str:
    """What to say of files that were cut off."""
    if len(cut) == 1:
        return f"{cut[0]} is cut off ({folder.entries[cut[0]].size:,} bytes)"
    return f"{len(cut)} files are cut off, such as {cut[0]} ({folder.entries[cut[0]].size:,} bytes)"
