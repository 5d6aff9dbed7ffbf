"""A file that the training code first imports inside a step is code that ran, and an edit of it is a change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from lineage.ledger.reader import open_ledger

TRAIN = """
import sys, torch, lineage
from first import util  # the name of the file that comes late is taken already
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = int(sys.argv[1])
if done:
    saved = torch.load("ck/state.pt")
    model.load_state_dict(saved["model"])
rec = lineage.attach(
    None, model=model, optimizer=optimizer, config={"lr": 0.1}, dir="runs", resumed_from="ck" if done else None
)
rec.surroundings.wait_read(300)  # the code has been read before the first step imports more of it
for step in range(done + 1, done + 4):
    with rec.step(step, torch.ones(2, 4) * step):
        from second import util as late
        optimizer.zero_grad()
        late.loss(model(torch.ones(2, 4) * step)).backward()
        optimizer.step()
if not done:
    import os
    os.makedirs("ck", exist_ok=True)
    torch.save({"model": model.state_dict()}, "ck/state.pt")
    rec.checkpoint("ck", step=3)
rec.close()
"""


def _git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.email=a@example.org", "-c", "user.name=a"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-qm", "state")


def _code_change(folder: Path, loss: str | None) -> list[Any]:
    """Train, commit a note and perhaps another loss, resume; return the changes of code that were found."""
    for package in ("first", "second"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
        (folder / package / "util.py").write_text("def loss(y):\n    return y.pow(2).mean()\n")
    (folder / "train.py").write_text(TRAIN)
    (folder / ".gitignore").write_text("runs\nck\n__pycache__\n")
    _git(folder, "init", "-q")
    _commit(folder)
    for done in (0, 3):
        subprocess.run([sys.executable, "train.py", str(done)], cwd=folder, check=True, capture_output=True)
        (folder / "README.md").write_text("a note")
        if loss is not None:
            (folder / "second" / "util.py").write_text(f"def loss(y):\n    return {loss}\n")
        if not done:
            _commit(folder)
    (ledger,) = (folder / "runs").iterdir()
    drifts = [r.payload for r in open_ledger(ledger).of("drift")]
    return [c for d in drifts for c in d.changes if c.concept == "code"]


def test_an_edit_of_a_file_that_is_imported_inside_the_first_step_is_a_change_of_code(tmp_path: Path) -> None:
    """Also where another loaded file has the same name."""
    (change,) = _code_change(tmp_path / "edited", "y.abs().mean()")
    assert change.cls == "R"
    assert "loaded files differ: second/util.py" in change.text


def test_a_commit_that_touches_no_loaded_file_is_none(tmp_path: Path) -> None:
    """A note beside the code."""
    (change,) = _code_change(tmp_path / "noted", None)
    assert change.cls == "O"
    assert "no loaded file differs" in change.text
