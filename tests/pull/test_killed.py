"""Pulls that are killed by SIGKILL at each of their moves on the disk, one after the other."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineage.ledger import chunks, layout, scan
from lineage.ledger.journal import Journal
from lineage.ledger.reader import find
from lineage.ledger.seal import seal
from lineage.ledger.verify import verify
from lineage.pull.pulling import pull
from lineage.pull.source import parse
from schemas import Place, Run, Segment

SEGMENT = "0197a3c4-0002-7000-8000-000000000002"


def written(folder: Path) -> tuple[Path, Path]:
    """Two downloads of one run: as it was after its first seal, and after its second."""
    ledger, place = folder / "own", Place(node="n", pid=1)
    journal = Journal(ledger, "killed", SEGMENT, 0, place)
    journal.append(Run(uid="killed", source="new"))
    journal.append(Segment(uid=SEGMENT, place=place))
    sent: dict[str, int] = {}
    downloads = []
    for n in range(2):
        sealed = seal(scan.heads(ledger)[0], "checkpoint")
        record = journal.append(sealed, step=n)
        chunks.write(ledger, chunks.with_seal(sealed.heads, journal.file, record.seq), sent)
        got = layout.make_folder(folder / f"got{n}" / "journal")
        for path in (ledger / "chunks").glob("*/*/*.jsonl"):
            to = got / path.relative_to(ledger / "chunks")
            layout.make_folder(to.parent)
            to.write_bytes(path.read_bytes())
        downloads.append(got.parent)
    journal.close()
    return downloads[0], downloads[1]


def killed_at(move: int, act: Callable[[], object]) -> bool:
    """Do it in a child that is killed right before its n-th move of a file or folder; whether it got that far."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other threads of this process have no part in it
        pid = os.fork()
    if pid == 0:
        left = [move]

        def counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*arguments, **more)

            return call

        os.rename, os.replace = counted(os.rename), counted(os.replace)
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_pull_killed_at_any_move_leaves_the_former_ledger_or_the_new_one_and_the_next_pull_ends_it(
    tmp_path: Path,
) -> None:
    first, second = written(tmp_path)
    moves = 0
    while True:
        root = tmp_path / f"root{moves}"
        out = root / "pulled"
        pull([parse(str(first))], root, out=out)
        before = verify(out).seals
        if not killed_at(moves + 1, lambda out=out, root=root: pull([parse(str(second))], root, out=out)):
            break
        seen = find(root)  # what `lineage show --all` would list
        assert seen in ([out], [])
        assert all(verify(p).whole and verify(p).seals == before for p in seen)
        done = pull([parse(str(second))], root, out=out)
        assert done.verification.whole
        assert (verify(out).seals, before) == (2, 1)
        assert sorted(p.name for p in root.iterdir()) == ["pulled"]
        moves += 1
    assert moves >= 4  # journal, marker, and the two moves of the folders


def test_a_first_pull_killed_at_any_move_leaves_no_ledger(tmp_path: Path) -> None:
    _, second = written(tmp_path)
    moves = 0
    while True:
        root = tmp_path / f"root{moves}"
        if not killed_at(moves + 1, lambda root=root: pull([parse(str(second))], root)):
            break
        assert find(root) == []
        assert pull([parse(str(second))], root).verification.whole
        assert [p.name for p in root.iterdir()] == ["killed"]
        moves += 1
    assert moves >= 3
