"""Whoever does what a page of the documentation says, gets what it says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.integrations.launch import free_port
from tests.warm import Warm

from .blocks import DOCS, Command, Walk, printed, walks

EXAMPLES = DOCS.parent / "examples"
WALKS = walks()
QUICK = {p.stem for p in (DOCS / "quickstart").glob("*.md")} - {"index"}


def test_every_quick_start_has_a_walk_that_checks_what_is_printed() -> None:
    checked = {Path(w.page).stem for w in WALKS if any(c.prints for c in w.commands)}
    assert checked >= QUICK


def test_a_line_counts_as_printed_with_all_its_parts_in_order_only() -> None:
    text = "model weights │ restored │ as at the save\n"
    assert printed("model weights ... as at   the save", text)
    assert not printed("as at the save ... model weights", text)
    assert not printed("model weights ... lost", text)


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS, ids=lambda w: Path(w.page).stem)
def test_the_commands_of_a_page_run_and_print_what_it_says(
    page: Walk, tmp_path: Path, warm_trainer: Warm, warm_reader: Warm
) -> None:
    for name in ["torch", *page.needs]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    for name in page.examples:
        shutil.copy(EXAMPLES / name, tmp_path / name)
    for command in page.commands:
        code, text = _run(command, tmp_path, warm_trainer, warm_reader)
        assert code in ((0, 1, 4) if command.words[0] == "lineage" else (0,)), (
            f"{command.words}: {text[-4000:]}"
        )
        for line in command.prints:
            assert printed(line, text), (
                f"{page.page}: `{' '.join(command.words)}` printed no {line!r}:\n{text[-6000:]}"
            )


def _run(command: Command, folder: Path, trainer: Warm, reader: Warm) -> tuple[int, str]:
    first, *rest = command.words
    env = {k: v for k, v in os.environ.items() if "WANDB" not in k}
    env |= {"COLUMNS": "300", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if first == "lineage":
        done = reader.run(["-c", "from lineage.cli import main; main()", *rest], cwd=folder, env=env)
        return done.returncode, done.stdout + done.stderr
    if first == "python":
        done = trainer.run(rest, cwd=folder, env=env)
        return done.returncode, done.stdout + done.stderr
    assert first == "torchrun", command.words
    assert rest[0] == "--nproc-per-node"
    return _ranks(int(rest[1]), rest[2:], folder, trainer, env)


def _ranks(
    world: int, arguments: list[str], folder: Path, trainer: Warm, env: dict[str, str]
) -> tuple[int, str]:
    """What torchrun does: a process for each rank, with the variables that say which it is."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(world)]
        started = [
            trainer.start(
                arguments,
                stdout=f,
                stderr=f,
                cwd=folder,
                env=env | shared | {"RANK": str(r), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(world)},
            )
            for r, f in enumerate(files)
        ]
        codes = [p.wait() for p in started]
        for f in files:
            f.seek(0)
        return max(map(abs, codes)), "\n".join(f.read() for f in files)
