"""Events find their place in what the recorder itself wrote: host, process and step of a real training run."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.imports.events import Told, into_ledger, read
from lineage.ledger import events as ledger_events
from lineage.ledger.reader import Ledger


def test_a_line_of_this_machine_is_placed_at_the_step_in_which_it_was_written(tmp_path: Path) -> None:
    """The log names this host and this process, and the time at which the fifth step had been made."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    line = ""
    with lineage.attach(
        None, dir=tmp_path, run_id="real", model=model, optimizer=optimizer, quiet=True
    ) as rec:
        for step in range(1, 11):
            x = torch.randn(8, 4)
            with rec.step(step, x) as st:
                loss = model(x).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                st.loss(loss)
            if step == 5:
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
                line = f"{now} {socket.gethostname()} kernel: python[{os.getpid()}]: segfault at 0"
    path = tmp_path / "messages"
    path.write_text(line + "\n")
    (done,) = into_ledger(Ledger(tmp_path / "real"), [(path, read(path))], Told(offset=0.0))
    assert (done.new, done.problems) == (1, [])
    (found,) = ledger_events.read(Ledger(tmp_path / "real")).placed
    assert (found.number, found.ranks, found.by, found.notes) == (1, (0,), "process", ())
    assert found.after is not None
    assert found.before is not None
    assert found.after <= 5 < found.before + 1
    assert found.before - found.after <= 2
    assert socket.gethostname() not in found.event.model_dump_json()
