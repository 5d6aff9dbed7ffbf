"""Files of torch.save, read without torch: the pickle is taken apart, the tensors' bytes stay where they are.

Since torch 1.6 a zip with `<name>/data.pkl` and one entry `<name>/data/<key>` per storage, not compressed; before, and
with `_use_new_zipfile_serialization=False`, five pickles (magic number, protocol, system, object, keys of storages)
and then each storage as 8 bytes of element count and its data (torch/serialization.py, `_save`, `_legacy_save`).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import pickles
from .contents import Piece, Tensor
from .errors import CutOff, Damaged, Refused, TooBig, Unreadable
from .folder import MOST_PICKLE, Folder, parse_json, pointer
from .pickle_values import Made, Storage, TensorRef
from .sources import Bytes
from .walk import walk

NEWEST = 10
"""The newest zip format that is known (caffe2/serialize/versions.h, kMaxSupportedFileFormatVersion)."""
MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of the old format (torch/serialization.py, MAGIC_NUMBER)."""
_FIRST = 4 << 20
_SCALARS = {
    **{"float32": "f", "float64": "d", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b"},
    **{"uint8": "B", "bool": "?"},
}


@dataclass
class TorchFile:
    """A file of torch.save that was taken apart."""

    name: str
    kind: str
    value: Any
    names: list[str]
    """what its pickle would have imported"""
    problems: list[str] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    """storage key -> where its data begins in the file"""
    _refs: list[tuple[str, TensorRef]] | None = None

    @property
    def refs(self) -> list[tuple[str, TensorRef]]:
        """Every tensor in it: (path of keys, what it is)."""
        if self._refs is None:
            self._refs = [(p, v) for p, v in walk(self.value) if isinstance(v, TensorRef)]
        return self._refs

    def piece(self, ref: TensorRef) -> Piece:
        """Where a tensor's storage begins, or the tensor in it where the size of its elements is known."""
        s = ref.storage
        if s is None or s.key not in self.offsets:
            return Piece(self.name)
        return Piece(self.name, self.offsets[s.key] + ref.offset * (ref.each or 1), s.bytes)

    def tensors(self, component: str, value: Any = None) -> list[Tensor]:
        """The tensors in it, or in a part of it, named by their path of keys."""
        refs = self.refs if value is None else [(p, v) for p, v in walk(value) if isinstance(v, TensorRef)]
        return [
            Tensor(p, r.dtype, r.shape, component, (self.piece(r),), None if r.by_rows else r.stride)
            for p, r in refs
        ]

    def number(self, folder: Folder, value: Any) -> int | float | None:
        """A number: itself, or the one element of a tensor, of which only those bytes are read."""
        return self.number_by(lambda at, length: folder.read(self.name, at, length), value)

    def number_by(self, read: Callable[[int, int], bytes], value: Any) -> int | float | None:
        """The same where the file is open: `read` gives bytes of it."""
        if isinstance(value, int | float):
            return value
        if not isinstance(value, TensorRef) or value.storage is None or value.dtype not in _SCALARS:
            return None
        if value.shape not in ((), (1,)) or value.storage.key not in self.offsets:
            return None
        form = "<" + _SCALARS[value.dtype]
        place = self.piece(value).offset
        raw = read(place or 0, struct.calcsize(form))
        return struct.unpack(form, raw)[0] if len(raw) == struct.calcsize(form) else None


def looks(head: bytes) -> str | None:
    """`zip` or `legacy` where the first 16 bytes are those of a torch.save file; None else."""
    if head[:4] == b"PK\x03\x04":
        return "zip"
    return "legacy" if head[:2] == b"\x80\x02" and head[2:4] == b"\x8a\x0a" else None


def read(folder: Folder, name: str) -> TorchFile:
    """Take a file of torch.save apart. Raises the errors of `errors.py`."""
    if name not in folder.taken:
        with folder.open(name) as f:
            made = read_from(f, name, folder.patience)
        if name != folder.only:
            return made
        folder.taken[name] = made  # each format that is asked looks into the one file
    return folder.taken[name]  # type: ignore[no-any-return]


def read_from(f: Bytes, name: str, patience: int = MOST_PICKLE) -> TorchFile:
    """The same of an open file, or of a stretch of one."""
    f.seek(0)
    head = f.read(48)
    f.seek(0)
    if not head:
        raise CutOff(f"{name} is empty")
    if pointer(head):
        parse_json(head, name)
    kind = looks(head)
    if kind == "zip":
        return _zip(f, name, patience)
    if kind == "legacy":
        return _legacy(f, name, patience)
    if not any(head):
        raise Damaged(f"{name} begins with zeros: it was never written to the disk, as after a loss of power")
    what = _plain_pickle(f, head)
    raise Damaged(f"{name} is {what}no file of torch.save (it begins with {head[:8].hex(' ')})")


def _plain_pickle(f: Bytes, head: bytes) -> str:
    """A word for a pickle that is not of torch.save. Raises `Hostile`: `torch.load` would run it all the same.

    torch/serialization.py, `_legacy_load`: whatever is no zip is unpickled first, and its magic number asked after.
    """
    f.seek(0)
    try:
        pickles.read(f.read(_FIRST))
    except (CutOff, Damaged):
        return ""
    return "a plain pickle, and " if head[:1] == b"\x80" else ""


def _zip(f: Any, name: str, patience: int) -> TorchFile:
    try:
        z = zipfile.ZipFile(f)
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError):
        raise CutOff(
            f"{name} is cut off: it has {f.size:,} bytes, and the directory at the end of a torch.save file is missing"
        ) from None
    with z:
        infos = {i.filename: i for i in z.infolist()}
        for n in infos:
            if n.startswith("/") or ".." in n.split("/") or "\\" in n:
                raise Refused(
                    f"{name} holds an entry {n[:120]!r}, which leads out of its folder; it is not looked into"
                )
        pickled = [n for n in infos if n.count("/") == 1 and n.endswith("/data.pkl")]
        if len(pickled) != 1:
            raise Damaged(f"{name} is a zip and no file of torch.save: it holds no <name>/data.pkl")
        root = pickled[0].partition("/")[0]
        if f"{root}/constants.pkl" in infos:
            raise Refused(f"{name} is a TorchScript archive: it holds a program, and is not looked into")
        _version(z, infos, root, name)
        _patient(infos[pickled[0]].file_size, patience, name)
        try:
            found = pickles.read(_entry(z, infos[pickled[0]], name))
        except CutOff as e:
            raise CutOff(f"{name}: {e}") from None
        except Damaged as e:
            raise Damaged(f"{name}: {e}") from None
        made = TorchFile(name, "zip", found.value, found.names)
        _storages(made, f, infos, root)
        return made


def _patient(size: int, patience: int, name: str) -> None:
    if size > patience:
        raise TooBig(f"the pickle in {name} has {size:,} bytes")


def _entry(z: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> bytes:
    """One small entry. torch.save compresses nothing, so what is compressed is refused: no zip bomb can unpack."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise Refused(
            f"{name} has a compressed entry {info.filename} ({info.compress_size:,} bytes, "
            f"{info.file_size:,} unpacked), "
            "which torch.save never writes; it is not unpacked"
        )
    if info.file_size > MOST_PICKLE:
        raise Refused(
            f"{name} has a pickle of {info.file_size:,} bytes; more than {MOST_PICKLE:,} are not read"
        )
    try:
        return z.read(info)
    except (
        zipfile.BadZipFile,
        EOFError,
        OSError,
        ValueError,
        struct.error,
        NotImplementedError,
        RuntimeError,
    ) as e:
        raise Damaged(f"{name} is damaged in its entry {info.filename} ({str(e)[:100]})") from None


def _version(z: zipfile.ZipFile, infos: dict[str, zipfile.ZipInfo], root: str, name: str) -> None:
    for n in (f"{root}/version", f"{root}/.data/version"):
        if n in infos:
            text = _entry(z, infos[n], name).strip()
            if text.isdigit() and len(text) < 9 and int(text) > NEWEST:
                raise Unreadable(
                    f"{name} is of torch.save format {int(text)}, and this version knows formats up to {NEWEST}: "
                    "a later torch wrote it"
                )


def _storages(made: TorchFile, f: Any, infos: dict[str, zipfile.ZipInfo], root: str) -> None:
    """Where each storage lies, and whether it is there with as many bytes as its tensors need."""
    heads: dict[str, int] = {}
    for s in _unique(made):
        info = infos.get(f"{root}/data/{s.key}")
        if s.location == "meta":
            continue
        if info is None:
            made.problems.append(f"{made.name} has no entry for the storage {s.key} that its tensors lie in")
            continue
        if s.bytes is not None and info.file_size != s.bytes:
            made.problems.append(
                f"the storage {s.key} in {made.name} has {info.file_size:,} bytes, and its tensors need {s.bytes:,}"
            )
        if info.compress_type != zipfile.ZIP_STORED:
            made.problems.append(
                f"the storage {s.key} in {made.name} is compressed, which torch.save never does"
            )
            continue
        heads[s.key] = info.header_offset
    found = f.ranges([(at, 30) for at in heads.values()])
    for (key, at), head in zip(heads.items(), found, strict=True):
        if len(head) == 30 and head[:4] == b"PK\x03\x04":
            # A local header has a name and an extra field of its own, which pads the data to 64 bytes.
            names, extra = struct.unpack("<HH", head[26:30])
            made.offsets[key] = at + 30 + names + extra


def _unique(made: TorchFile) -> list[Storage]:
    found: dict[str, Storage] = {}
    for path, ref in made.refs:
        s = ref.storage
        if s is None:
            continue
        older = found.setdefault(s.key, s)
        if older.elements != s.elements and older.dtype == s.dtype:
            made.problems.append(f"two sizes are given for the storage {s.key} in {made.name}")
        if s.bytes is not None and ref.each is not None and ref.last * ref.each > s.bytes:
            made.problems.append(
                f"{path} of shape {list(ref.shape)} reaches beyond its storage in {made.name}"
            )
    return list(found.values())


def _legacy(f: Any, name: str, patience: int) -> TorchFile:
    size, wanted = f.size, _FIRST
    while True:
        f.seek(0)
        data = f.read(min(wanted, size))
        try:
            return _legacy_from(data, f, name)
        except CutOff:
            if len(data) >= size:
                raise CutOff(f"{name} is cut off in its pickle: it has {size:,} bytes") from None
            if wanted > MOST_PICKLE:
                raise Refused(f"{name} has a pickle above {MOST_PICKLE:,} bytes; it is not read") from None
            _patient(wanted * 8, patience, name)
            wanted *= 8


def _legacy_from(data: bytes, f: Any, name: str) -> TorchFile:
    magic = pickles.read(data)
    if magic.value != MAGIC:
        raise Damaged(f"{name} is no file of torch.save: its magic number is another")
    protocol = pickles.read(data, magic.end)
    if protocol.value != 1001:
        raise Unreadable(
            f"{name} is of torch.save protocol {protocol.value}, which this version does not know"
        )
    system = pickles.read(data, protocol.end)
    found = pickles.read(data, system.end)
    keys = pickles.read(data, found.end)
    made = TorchFile(name, "legacy", found.value, found.names)
    by_key = {s.key: s for s in _unique(made)}
    at = keys.end
    for key in keys.value if isinstance(keys.value, list) else ():
        s = by_key.get(str(key))
        if s is None or s.bytes is None:
            made.problems.append(
                f"the storage {key} in {name} is of no size that is known; what follows is not checked"
            )
            return made
        made.offsets[s.key] = at + 8
        at += 8 + s.bytes
    if at > f.size:
        raise CutOffAfter(f"{name} is cut off: {f.size:,} bytes, and its storages need {at:,}")
    return made


class CutOffAfter(Damaged):
    """Cut off behind the pickle: reading more of the file does not help."""


def plain_attribute(value: Any, name: str, default: Any = None) -> Any:
    """A key of a dict, or an attribute of an object that was not built."""
    if isinstance(value, dict):
        return value.get(name, default)
    return value.get(name, default) if isinstance(value, Made) else default


def head_of(folder: Folder, name: str, length: int = 48) -> bytes:
    """The first bytes of a file; nothing where it cannot be read."""
    try:
        return folder.read(name, 0, length)
    except Unreadable:
        return b""


__all__ = ["Bytes", "TorchFile", "head_of", "looks", "plain_attribute", "pointer", "read", "read_from"]
