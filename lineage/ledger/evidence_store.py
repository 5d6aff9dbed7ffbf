"""Evidence and stores: a checkpoint at a URL that is fetched into the evidence store, and evidence put at a URL.

Any URL that fsspec reads: `s3://bucket/run/step-2000`, `gs://`, `file://`, `memory://`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from blake3 import blake3

from .._rooms import schemas
from . import evidence_copy, files, hashing, layout
from .evidence_files import (
    MANIFEST,
    WHERE,
    EvidenceError,
    Progress,
    base_of,
    differs,
    no_progress,
    own_name,
    some,
)

_STATE = ".fetched.jsonl"
"""In a copy that is under way: the listing that it is of, and the digest of each file that is whole."""


def is_url(name: str | Path) -> bool:
    """Whether a name is a URL."""
    return "://" in str(name)


def placed(name: str | Path) -> Path | str:
    """A place as it is worked with: a path here, also of a file:// URL; any other URL as it is."""
    if not is_url(name):
        return Path(name)
    scheme, _, rest = str(name).partition("://")
    return Path(rest) if scheme in ("file", "local") else str(name)


@dataclass
class Store:
    """A place in a store."""

    url: str
    fs: Any
    root: str

    @contextlib.contextmanager
    def said(self, doing: str) -> Iterator[None]:
        """Each store has errors of its own; all become one that says what was being done where."""
        try:
            yield
        except EvidenceError:
            raise
        except Exception as e:
            raise EvidenceError(f"{self.url} could not be {doing}: {type(e).__name__}: {e}") from e

    def listing(self) -> dict[str, tuple[str, int, str]]:
        """Path below the checkpoint -> (path in the store, bytes, what changes when it is written to)."""
        if self.fs.isdir(self.root):
            found = self.fs.find(self.root, detail=True)
            named = {p.removeprefix(self.root).lstrip("/"): (p, info) for p, info in found.items()}
        else:
            beside = [p for p in self.fs.glob(f"{self.root}*.lineage.json") if files.is_sidecar(_last(p))]
            found = {p: self.fs.info(p) for p in [self.root, *beside]}
            named = {_last(p): (p, info) for p, info in found.items()}
        for name in named:
            parts = PurePosixPath(name)
            if not name or parts.is_absolute() or ".." in parts.parts or "\\" in name:
                raise EvidenceError(f"{self.url} holds a file named {name!r}, which is no path below it")
        if MANIFEST in named and self.fs.isdir(
            self.root
        ):  # evidence itself: what the store wrote is no part of it
            if root_at(self, self.root) is None:
                raise EvidenceError(own_name(self.url))
            named = {n: found for n, found in named.items() if n not in (MANIFEST, WHERE)}
        return {
            name: (p, int(info["size"]), str(self.fs.ukey(p))) for name, (p, info) in sorted(named.items())
        }


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def open_store(url: str) -> Store:
    """Open the store of a URL. Raises `EvidenceError` that says what to install, or what the store said."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise EvidenceError(f"{url} needs fsspec to be read: pip install 'runlineage[read]'") from None
    try:
        fs, root = url_to_fs(url)
    except ImportError as e:
        raise EvidenceError(f"{url} cannot be read: {e}") from None
    except Exception as e:  # each store has errors of its own
        raise EvidenceError(f"{url} cannot be read: {type(e).__name__}: {e}") from None
    return Store(url, fs, str(root).rstrip("/"))


@dataclass(frozen=True)
class Fetched:
    """A checkpoint that was fetched from a store."""

    folder: Path
    manifest: schemas.Manifest
    held: bool = False
    """it was fetched before, and the store's files have not changed since"""


def fetch(
    folder: Path,
    name: Callable[[schemas.Manifest], str],
    url: str,
    *,
    threads: int = 1,
    progress: Progress = no_progress,
) -> Fetched:
    """Copy a checkpoint from a store into a folder of evidence, digested as it comes and again where it lies.

    A copy that was interrupted is gone on with, file by file, where the store's files have not changed since.
    `name`: makes the folder's name of what is in it. Raises `EvidenceError`; nothing is left then.
    """
    store = open_store(url)
    files_there = listed(store)
    key = _key(files_there)
    same = _held(folder, url, key)
    if same is not None:
        return same
    total = sum(size for _, size, _ in files_there.values())
    partial = layout.make_folder(folder) / f".url-{_short(url)}{evidence_copy.PARTIAL}"
    with evidence_copy.alone(partial, url):
        try:
            done = _resumed(partial, key)
            evidence_copy.room(folder, url, total - sum(files_there[n][1] for n in done))
            entries = _fetch_all(store, files_there, partial, done, progress)
            known = schemas.Manifest(root=files.root_of(entries), files=entries, method="blake3 per file")
            if _key(listed(store)) != key:
                raise EvidenceError(f"{url} was written to while it was copied; preserve again")
            if wrong := differs(partial, known, threads=threads, progress=progress):
                raise EvidenceError(f"the copy of {url} is not what was read: {some(wrong)}")
            (partial / _STATE).unlink()
            (partial / MANIFEST).write_text(known.model_dump_json(by_alias=True), encoding="utf-8")
            (partial / WHERE).write_text(json.dumps({"from": url, "key": key}), encoding="utf-8")
            target = folder / name(known)
            if target.exists():  # the same content from another place
                evidence_copy.remove(partial)
                held = schemas.Manifest.model_validate_json((target / MANIFEST).read_bytes())
                return Fetched(target, held, held=True)
            evidence_copy.finish(partial, target)
        except OSError as e:
            evidence_copy.remove(partial)
            raise EvidenceError(f"{url} could not be preserved in {folder}: {e}") from e
        except EvidenceError:
            evidence_copy.remove(partial)
            raise
    return Fetched(target, known)


def listed(store: Store) -> dict[str, tuple[str, int, str]]:
    """The files of a checkpoint in a store, see `Store.listing`. Raises `EvidenceError` where there are none."""
    with store.said("listed"):
        if not store.fs.exists(store.root):
            raise EvidenceError(f"there is nothing at {store.url}; nothing could be preserved of it")
        found = store.listing()
    if not found:
        raise EvidenceError(f"{store.url} holds no files; nothing could be preserved of it")
    return found


def _key(there: dict[str, tuple[str, int, str]]) -> str:
    return hashlib.sha256(json.dumps(sorted(there.items())).encode()).hexdigest()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _held(folder: Path, url: str, key: str) -> Fetched | None:
    """Evidence that was fetched from here when the store's files were the same."""
    for where in folder.glob(f"*/{WHERE}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            told = json.loads(where.read_bytes())
            if told.get("from") == url and told.get("key") == key:
                known = schemas.Manifest.model_validate_json((where.parent / MANIFEST).read_bytes())
                return Fetched(where.parent, known, held=True)
    return None


def _resumed(partial: Path, key: str) -> dict[str, str]:
    """File -> digest, of what an interrupted copy of the same files left; nothing of another's."""
    done: dict[str, str] = {}
    try:
        first, *lines = (partial / _STATE).read_text(encoding="utf-8").splitlines()
        if json.loads(first)["key"] == key:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(line)
                    if (partial / told["path"]).is_file():
                        done[told["path"]] = told["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        done = {}
    if not done:
        evidence_copy.remove(partial)
        layout.make_folder(partial)
        (partial / _STATE).write_text(json.dumps({"key": key}) + "\n", encoding="utf-8")
    return done


def _fetch_all(
    store: Store,
    there: dict[str, tuple[str, int, str]],
    partial: Path,
    done: dict[str, str],
    progress: Progress,
) -> list[schemas.FileEntry]:
    entries, count, total = [], 0, sum(size for _, size, _ in there.values())
    for name, (path, size, _) in there.items():
        target = partial / name
        layout.make_folder(target.parent)
        if name not in done:
            hasher = blake3()
            with store.said("read"), store.fs.open(path, "rb") as a, target.open("wb") as b:
                while chunk := a.read(evidence_copy.CHUNK):
                    hasher.update(chunk)
                    b.write(chunk)
                    count += len(chunk)
                    progress("copying", count, total)
                evidence_copy.settle(b)
            done[name] = f"blake3:{hasher.hexdigest()}"
            with (partial / _STATE).open("a", encoding="utf-8") as f:
                f.write(json.dumps({"path": name, "digest": done[name]}) + "\n")
        else:
            count += size
            progress("copying", count, total)
        entries.append(schemas.FileEntry(path=name, size=target.stat().st_size, digest=done[name]))
    return entries


def put(
    source: Path,
    chosen: Sequence[Path],
    known: schemas.Manifest,
    url: str,
    name: str,
    *,
    progress: Progress = no_progress,
) -> str:
    """Copy files into a store, read them back, and hold them against their manifest. Returns the URL of the copy.

    The manifest is written last, so that a copy without one is not whole. What is there already and equal is not
    written again. Raises `EvidenceError`; what was written until then stays, and the next call goes on with it.
    """
    store = open_store(url)
    root, place = f"{store.root}/{name}", f"{url.rstrip('/')}/{name}"
    total, done = known_bytes(known), 0
    with store.said("written"):
        there = root_at(store, root)
        if there is not None and there != known.root:
            raise EvidenceError(f"{place} holds other evidence; nothing there was changed. Name another --to")
        store.fs.makedirs(root, exist_ok=True)
        by_path = {e.path: e for e in known.files}
        base = base_of(source)
        for path in chosen:
            entry = by_path[path.relative_to(base).as_posix()]
            at = f"{root}/{entry.path}"
            if _digest(store, at) != entry.digest:
                store.fs.makedirs(at.rpartition("/")[0], exist_ok=True)
                with path.open("rb") as a, store.fs.open(at, "wb") as b:
                    shutil.copyfileobj(a, b, evidence_copy.CHUNK)
            done += entry.size
            progress("copying", done, total)
        if wrong := _differs(store, root, known, progress):
            raise EvidenceError(f"what {place} gives back is not what was written: {some(wrong)}")
        store.fs.pipe_file(f"{root}/{MANIFEST}", known.model_dump_json(by_alias=True).encode())
    return place


def known_bytes(known: schemas.Manifest) -> int:
    """Bytes of all files of a manifest."""
    return sum(e.size for e in known.files)


def root_at(store: Store, root: str) -> str | None:
    """The root of the evidence in a folder of a store; None where there is none."""
    try:
        found = schemas.Manifest.model_validate_json(store.fs.cat_file(f"{root}/{MANIFEST}"))
    except (FileNotFoundError, ValueError):
        return None
    return files.root_of(found.files)


def differs_at(url: str, known: schemas.Manifest) -> dict[str, str]:
    """Digest evidence in a store again: path -> what of it is not as the manifest says. Raises `EvidenceError`."""
    store = open_store(url)
    with store.said("read"):
        return _differs(store, store.root, known, no_progress)


def _differs(store: Store, root: str, known: schemas.Manifest, progress: Progress) -> dict[str, str]:
    out, done, total = {}, 0, known_bytes(known)
    for entry in known.files:
        found = _digest(store, f"{root}/{entry.path}")
        if found != entry.digest:
            out[entry.path] = "is gone" if found is None else "has other content than was recorded"
        done += entry.size
        progress("verifying", done, total)
    return out


def _digest(store: Store, path: str) -> str | None:
    try:
        with store.fs.open(path, "rb") as f:
            return hashing.digest_stream(f)
    except FileNotFoundError:
        return None
