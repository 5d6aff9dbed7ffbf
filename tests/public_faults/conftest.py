"""What these tests share: a folder of their own, so that no repository that is being worked on is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from lineage.ledger.reader import Ledger
from tests.warm import Warm

from . import said


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder, and leave torch's generator as it was."""
    monkeypatch.chdir(tmp_path)
    kept = torch.get_rng_state()
    yield
    with contextlib.suppress(RuntimeError):
        torch.set_rng_state(kept)


@pytest.fixture
def prints(warm_reader: Warm) -> Callable[..., str]:
    """What a command prints of a ledger: `prints("show", ledger)`."""

    def of(command: str, ledger: Ledger, *more: str) -> str:
        return said.printed(warm_reader, command, ledger.path, *more)

    return of
