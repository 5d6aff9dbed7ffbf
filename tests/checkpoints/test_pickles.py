"""Pickles are taken apart; none is run."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage.checkpoints import look, pickles
from lineage.checkpoints.errors import CheckpointError, CutOff, Damaged, Hostile
from lineage.checkpoints.pickle_values import Made

from .made import codes, said

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.binary(max_size=9)
)
KEYS = st.text(max_size=5) | st.integers() | st.tuples(st.integers(), st.text(max_size=3))
DATA = st.recursive(
    LEAVES,
    lambda d: st.lists(d, max_size=4) | st.dictionaries(KEYS, d, max_size=4) | st.tuples(d, d),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(DATA, st.integers(0, 5))
def test_plain_data_reads_as_pickle_reads_it(value: object, protocol: int) -> None:
    assert pickles.read(pickle.dumps(value, protocol)).value == pickle.loads(pickle.dumps(value, protocol))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_one_kind_of_error(data: bytes) -> None:
    with contextlib.suppress(CheckpointError):
        pickles.read(data)


@settings(max_examples=200, deadline=None)
@given(DATA, st.data())
def test_a_pickle_that_is_cut_off_is_never_taken_for_whole(value: object, data: st.DataObject) -> None:
    whole = pickle.dumps(value)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises((CutOff, Damaged)):
        pickles.read(whole[:end])


class Kept:
    """An object with attributes, as metadata is full of."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__ |= attributes


def _as_data(value: object) -> object:
    """What stands for objects of `Kept`, on either side, as plain data."""
    if isinstance(value, Made):
        assert value.of == f"{__name__}.Kept"
        return {"kept": _as_data(value.state or {})}
    if isinstance(value, Kept):
        return {"kept": _as_data(value.__dict__)}
    if isinstance(value, dict):
        return {k: _as_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_as_data(v) for v in value]
    return value


SIZES = st.lists(st.integers(0, 2**31 - 1) | st.integers(2**31, 2**40), max_size=10)


@settings(max_examples=150, deadline=None)
@given(st.lists(SIZES | DATA, max_size=6), st.integers(0, 5))
def test_objects_and_sizes_that_share_what_they_hold_read_as_pickle_reads_them(
    values: list[object], protocol: int
) -> None:
    """The phrases that are read at once count what they remember as their operations would have."""
    torch = pytest.importorskip("torch")
    made = [
        torch.Size(v) if isinstance(v, list) and all(type(n) is int and n >= 0 for n in v) else v
        for v in values
    ]
    shared = [Kept(name="a", at=v, of=made[-1]) for v in made]
    nested = Kept(all=shared, first=made[:1], again=shared[:1], none=Kept())
    written = pickle.dumps([nested, *made, *shared, nested], protocol)
    got, want = pickles.read(written).value, pickle.loads(written)
    assert _as_data(got) == _as_data(want)
    assert got[0] is got[-1]


class Runs:
    """Runs a command when it is unpickled."""

    def __init__(self, of: object, *args: object) -> None:
        self.of, self.args = of, args

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.of, self.args


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("of", [os.system, eval, exec, subprocess.call, __import__, compile, setattr])
def test_a_pickle_that_names_code_ends_the_reading(of: object, protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    with pytest.raises(Hostile):
        pickles.read(pickle.dumps({"a": Runs(of, f"touch {target}")}, protocol))
    assert not target.exists()


def test_getattr_is_let_pass_only_for_members_of_classes() -> None:
    enum = b"\x80\x04c__builtin__\ngetattr\n(ctransformers.trainer_utils\nIntervalStrategy\nX\x04\x00\x00\x00STEPtR."
    assert isinstance(pickles.read(enum).value, Made)
    for bad in (
        b"cbuiltins\ngetattr\n(cbuiltins\nobject\nV__subclasses__\ntR.",
        b"cbuiltins\ngetattr\n(ctorch\nTensor\nV__reduce__\ntR.",
    ):
        with pytest.raises(Hostile):
            pickles.read(bad)


def test_a_name_is_never_imported_whatever_it_says(tmp_path: Path) -> None:
    """A module that would leave a mark when it is imported is named, and leaves none."""
    (tmp_path / "leaves_a_mark.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    made = b"\x80\x02cleaves_a_mark\nThing\n)R}b."
    (tmp_path / "x.pt").write_bytes(_zip(made))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from lineage.checkpoints import look; "
    code += f"c = look({str(tmp_path / 'x.pt')!r}); print(c.facts)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "leaves_a_mark.Thing" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_a_memo_index_of_four_billion_takes_no_memory() -> None:
    assert pickles.read(b"\x80\x02]r\xff\xff\xff\xff.").value == []


def test_numbers_that_do_not_count_up_are_remembered_as_the_file_says() -> None:
    """PUT at 5, then MEMOIZE, which takes the number of what is there; a number below zero is none."""
    for odd in (b"]q\x050K\x01\x940K\x02q\x000h\x05", b"K\x07\x940K\x08q\x000K\x09q\x030K\x06\x940h\x02"):
        whole = b"\x80\x04" + odd + b"."
        assert pickles.read(whole).value == pickle.loads(whole)
    with pytest.raises(Damaged):
        pickles.read(b"(K\x01p0\ng-1\nt.")


def test_a_nest_of_a_million_tuples_is_read_and_never_hashed() -> None:
    """Hashing it, as the key of a dict, would exhaust the C stack."""
    deep = b"\x80\x02}(" + b"K\x01" + b"\x85" * 1_000_000 + b"K\x02u."
    value = pickles.read(deep).value
    assert list(value.values()) == [2]


def test_one_text_that_is_copied_without_end_ends_the_reading() -> None:
    """A call on a remembered megabyte, made ten thousand times, would be ten gigabytes."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x00"
    again = b"c_codecs\nencode\nh\x00\x8c\x06latin1\x86R"
    with pytest.raises(Damaged, match="far more than it is"):
        pickles.read(b"\x80\x04](" + text + again * 10_000 + b"e.")


def test_lengths_that_the_file_does_not_have_are_a_cut_off_file() -> None:
    for op in (b"B" + struct.pack("<I", 1 << 31), b"\x8e" + struct.pack("<Q", 1 << 62), b"X\xff\xff\xff\x7f"):
        with pytest.raises(CutOff):
            pickles.read(b"\x80\x04" + op + b"abc")


def test_extension_codes_and_out_of_band_buffers_are_no_operation_here() -> None:
    for data in (b"\x82\x01.", b"\x83\x01\x00.", b"\x84\x01\x00\x00\x00.", b"\x97."):
        with pytest.raises(Damaged):
            pickles.read(data)


def test_a_hostile_file_is_a_finding_that_says_not_to_load_it(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(
        _zip(pickle.dumps({"w": Runs(os.system, f"touch {tmp_path / 'ran'}")}, 2))
    )
    c = look(tmp_path / "model.pt")
    assert codes(c) >= {"LIN-K013"}
    assert "posix.system" in said(c, "LIN-K013")
    assert c.worst == "fails"
    assert not (tmp_path / "ran").exists()


def _zip(pickled: bytes) -> bytes:
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", pickled)
        z.writestr("archive/version", "3\n")
    return out.getvalue()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", ["state.pt", "state.pkl"])
def test_a_plain_pickle_that_would_run_code_is_named_hostile(
    name: str, protocol: int, tmp_path: Path
) -> None:
    """torch.load unpickles whatever is no zip before it asks for the magic number."""
    file, ran = tmp_path / name, tmp_path / "ran"
    file.write_bytes(pickle.dumps(_Runs(str(ran)), protocol=protocol))
    c = look(file)
    assert {f.code for f in c.findings if f.severity == "fails"} == {"LIN-K013"}
    assert not ran.exists()
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="agic"):
        torch.load(file, weights_only=False)
    assert ran.exists()


def test_a_plain_pickle_of_plain_data_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "state.pkl").write_bytes(pickle.dumps({"step": 3}))
    c = look(tmp_path / "state.pkl")
    assert "a plain pickle, and no file of torch.save" in "".join(f.text for f in c.findings)


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)
