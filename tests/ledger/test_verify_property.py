"""Whatever single byte of a sealed line is changed, the change is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify

from .helpers import lines, sealed


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks; the second file's seal names both heads."""
    folder = tmp_path_factory.mktemp("ledger")
    sealed(folder, rank=1)
    sealed(folder, rank=0)
    return folder


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_single_byte_change_in_any_sealed_line_is_found(ledger: Path, data: st.DataObject) -> None:
    """Newlines count as bytes of their lines. The last file's own seal is the one line that nothing seals."""
    files = sorted(ledger.glob("journal/*/*.jsonl"))
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    end = len(whole) - (len(lines(path)[-1]) + 1 if path == files[-1] else 0)
    at = data.draw(st.integers(0, end - 1))
    new = data.draw(st.integers(0, 255).filter(lambda b: b != whole[at]))
    try:
        path.write_bytes(whole[:at] + bytes([new]) + whole[at + 1 :])
        result = verify(ledger)
        assert not result.whole
        line = whole[:at].count(b"\n") + 1
        here = {d.line for d in result.damage if d.file == f"{path.parent.name}/{path.name}"}
        assert here & {line, line + 1}, f"line {line} was changed, lines {here} are named"
        open_ledger(ledger)
    finally:
        path.write_bytes(whole)
    assert verify(ledger).whole
