"""Listing a checkpoint's files: never outside the folder, and without entering loops of links.

Only regular files are opened. A link to a folder is not followed, so that no loop of links can be entered; a link to a
file is followed where it stays in the folder, or in the blobs of the Hugging Face cache that the folder is a snapshot
of (`models--*/snapshots/<revision>/name -> ../../blobs/<hash>`, huggingface_hub's file_download.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import Refused, Unreadable
from .folder import Entry, Folder
from .stores import Store, is_url

MOST_FILES = 500_000
MOST_DEPTH = 16


def open_place(where: Path | str) -> Folder:
    """List a checkpoint by its path or URL. Raises `Unreadable`, `NoStore`, `Refused`."""
    if is_url(where):
        return open_url(str(where))
    text = str(where)
    return open_path(Path(text.partition("://")[2] if text.startswith(("file://", "local://")) else text))


def open_url(url: str) -> Folder:
    """List a checkpoint in a store. Raises `NoStore`, or `Unreadable` where there is nothing."""
    store = Store(url)
    kind = store.kind()
    if kind is None:
        raise Unreadable(f"{store.url} cannot be opened (there is nothing)")
    if kind == "file":
        entry = Entry(store.name, store.size(), 0, store.root)
        return Folder(Path(store.root).parent, store.name, {store.name: entry}, store=store)
    found = store.listing()
    if len(found) > MOST_FILES:
        raise Refused(f"{store.url} holds more than {MOST_FILES:,} files; name one checkpoint in it")
    folder = Folder(Path(store.root), store=store)
    for name, (size, path) in found.items():
        if ".." in name.split("/") or "//" in name:
            folder.refused[name] = "a name that is none of a file in a folder"
        else:
            folder.entries[name] = Entry(name, size, 0, path)
    return folder


def open_path(path: Path) -> Folder:
    """List a checkpoint. Raises `Unreadable` where there is nothing that can be listed."""
    try:
        place = path.resolve(strict=True)
    except RuntimeError:
        raise Unreadable(f"{path} is a link that leads to itself") from None
    except OSError as e:
        loop = "a link that leads to itself" if e.errno == 40 else e.strerror
        raise Unreadable(f"{path} cannot be opened ({loop})") from None
    if place.is_file():
        found = place.stat()
        entry = Entry(path.name, found.st_size, found.st_mtime_ns, str(place))
        return Folder(place.parent, path.name, {path.name: entry})
    if not place.is_dir():
        raise Unreadable(f"{path} is neither a folder nor a regular file")
    folder = Folder(place)
    _list(folder, place, "", 0)
    return folder


def _list(folder: Folder, place: Path, prefix: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        folder.refused[prefix.rstrip("/")] = f"more than {MOST_DEPTH} folders deep"
        return
    try:
        found = list(os.scandir(place))
    except OSError as e:
        if not depth:
            raise Unreadable(f"{place} cannot be listed ({e.strerror})") from None
        folder.refused[prefix.rstrip("/")] = f"cannot be listed ({e.strerror})"
        return
    for item in found:
        name = prefix + item.name
        if len(folder.entries) >= MOST_FILES:
            raise Refused(f"{folder.root} holds more than {MOST_FILES:,} files; name one checkpoint in it")
        try:
            if item.is_symlink():
                _link(folder, item, name)
            elif item.is_dir(follow_symlinks=False):
                _list(folder, Path(item.path), name + "/", depth + 1)
            elif item.is_file(follow_symlinks=False):
                s = item.stat(follow_symlinks=False)
                folder.entries[name] = Entry(name, s.st_size, s.st_mtime_ns, item.path)
            else:
                folder.refused[name] = "neither a folder nor a regular file"
        except OSError as e:
            folder.refused[name] = f"cannot be looked at ({e.strerror})"


def _link(folder: Folder, item: os.DirEntry[str], name: str) -> None:
    """Take a link for the file that it leads to, where that is in the folder; else note why not."""
    try:
        target = Path(item.path).resolve(strict=True)
    except (OSError, RuntimeError):
        folder.refused[name] = "a link that leads nowhere, or to itself"
        return
    if target.is_dir():
        folder.refused[name] = "a link to a folder; links to folders are not followed"
    elif not (target.is_relative_to(folder.root) or _cached(folder.root, target)):
        folder.refused[name] = "a link to a file outside the checkpoint; it is not followed"
    elif target.is_file():
        s = target.stat()
        folder.entries[name] = Entry(name, s.st_size, s.st_mtime_ns, str(target))
    else:
        folder.refused[name] = "a link to something that is no regular file"


def _cached(root: Path, target: Path) -> bool:
    snapshots = next((p for p in root.parents if p.name == "snapshots"), None)
    return snapshots is not None and target.is_relative_to(snapshots.parent / "blobs")
