"""Several files of one run, files that are no logs, and files that nobody should trust."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app
from lineage.cli.common import CliError
from lineage.imports.logs import ImportTrouble, import_logs, registry
from lineage.ledger import verify

from .reading import done, gaps, megatron, metric, signals, titan, written


def state(folder: Path, name: str, last: int, loss: float = 2.0) -> Path:
    """A Trainer's history up to a step, in which the last loss is as given."""
    history = [{"step": s, "loss": 3.0 - s / 100, "learning_rate": 1e-5} for s in range(10, last, 10)]
    return written(
        folder,
        name,
        json.dumps({"log_history": [*history, {"step": last, "loss": loss, "learning_rate": 1e-5}]}),
    )


def test_histories_of_which_each_is_the_beginning_of_the_next_are_one_segment(tmp_path: Path) -> None:
    """In any order: checkpoints keep the history so far, and their names need not say which is later."""
    a, b, c = (
        state(tmp_path, n, s, 3.0 - s / 100) for n, s in (("b.json", 50), ("a.json", 100), ("c.json", 150))
    )
    for run, order in (("forth", (a, b, c)), ("back", (c, a, b))):
        made, ledger = done(tmp_path, *order, run=run)
        assert len(ledger.segments) == 1
        assert signals(ledger)["loss"].keys() == set(range(10, 160, 10))
        assert made.rows == len(ledger.series("sources")) == 15


def test_a_history_that_goes_another_way_from_some_step_on_is_another_segment(tmp_path: Path) -> None:
    """Equal up to 90, another loss at 100."""
    _, ledger = done(tmp_path, state(tmp_path, "a.json", 120), state(tmp_path, "b.json", 100, 9.0))
    assert [s.info.start for s in ledger.segments] == ["fresh", "rewind"]
    assert ledger.segments[1].info.parent_step == 90
    assert signals(ledger, 1)["loss"] == {100: 9.0}


def test_files_of_several_ranks_lie_beside_each_other_and_restart_together(tmp_path: Path) -> None:
    """Ranks told by the lines; the second life of one is that of the other."""
    files = []
    for rank in (0, 1):
        steps = [1, 2, 3, 4, 2, 3, 4, 5]
        lines = [f"[rank{rank}]: " + titan(s, 9.0 - i / 10 - rank) for i, s in enumerate(steps)]
        files.append(written(tmp_path, f"log.{rank}", *lines))
    _, ledger = done(tmp_path, *files)
    assert len(ledger.segments) == 2
    assert ledger.segments[1].info.parent_step == 1
    by_rank = {r: len([x for x in ledger.series("probes").to_pylist() if x["rank"] == r]) for r in (0, 1)}
    assert by_rank == {0: 16, 1: 16}


def test_ranks_that_only_the_names_of_files_tell_are_taken_from_them_and_said(tmp_path: Path) -> None:
    """Two files of the same steps would else be two lives."""
    files = [
        written(tmp_path, f"train_rank{r}.log", megatron(1, 2.0 + r), megatron(2, 2.0 + r)) for r in (0, 1)
    ]
    _, ledger = done(tmp_path, *files)
    assert len(ledger.segments) == 1
    assert metric(ledger, "lm loss", 1) == {1: 3.0, 2: 3.0}
    assert "rank 1 is told by the file's name alone" in gaps(ledger)


def test_two_files_of_the_same_steps_and_other_values_are_two_segments(tmp_path: Path) -> None:
    """Nothing says that they are ranks; and a third that goes on is said to do so."""
    a = written(tmp_path, "a.log", *(megatron(s, 3.0) for s in (1, 2, 3, 4)))
    b = written(tmp_path, "b.log", *(megatron(s, 2.0) for s in (3, 4, 5)))
    c = written(tmp_path, "c.log", *(megatron(s, 1.5) for s in (6, 7)))
    _, ledger = done(tmp_path, a, b, c)
    assert [s.info.start for s in ledger.segments] == ["fresh", "rewind"]
    assert signals(ledger, 1)["loss"] == {3: 2.0, 4: 2.0, 5: 2.0, 6: 1.5, 7: 1.5}
    assert "whether that is one segment is not shown" in gaps(ledger, 1)


def test_files_of_one_name_in_two_folders_keep_as_much_of_their_path_as_tells_them_apart(
    tmp_path: Path,
) -> None:
    """`0/stdout.log` and `1/stdout.log`."""
    for n in (0, 1):
        (tmp_path / str(n)).mkdir()
        written(tmp_path / str(n), "stdout.log", f"[rank{n}]: " + megatron(1), f"[rank{n}]: " + megatron(2))
    _, ledger = done(tmp_path, tmp_path / "0/stdout.log", tmp_path / "1/stdout.log")
    assert {r["file"] for r in ledger.series("sources").to_pylist()} == {"0/stdout.log", "1/stdout.log"}


REFUSED = {
    "empty": (b"", "it is empty"),
    "blank": (b"\n \n", "nothing but blanks"),
    "binary": (b"\x01\x02\x00\x03" * 100, "it is binary"),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00", "could run code"),
    "weights.safetensors": (b'\x10\x00\x00\x00\x00\x00\x00\x00{"a":1}', "safetensors"),
    "pytorch_model.bin": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "git lfs pull",
    ),
    "config.yaml": (b"model: gpt\nlr: 1e-4\nsteps: 10\n", "--format configs"),
    "gpu.txt": (b"==============NVSMI LOG==============\n", "lineage events"),
    "requirements.txt": (b"torch==2.6.0\nnumpy==2.0\nwandb>=0.19\n", "list of packages"),
    "wandb-summary.json": (b'{"_wandb": {"runtime": 3}, "loss": 2.0}', "W&B summary"),
    "results.csv": (b"run_id,step,val_loss\na,10,2.5\nb,10,2.6\n", "several runs"),
    "checkpoints.csv": (b"Step,Checkpoint Directory\n0,https://x/step0\n", "list of checkpoints"),
    "no_step.log": (b"loss 2.5\nloss 2.4\n" * 20, "none of its 40 lines"),
    "metrics.json": (b'{"Value": 1, "Timestamp": 1591160699.4}\n{"Value": 2, "Timest', "none names a step"),
    "trainer_state.json": (b'{"global_step": 3, "log_history": [{"step": 1, "loss"', "cut off"),
    "packed.zst": (b"\x28\xb5\x2f\xfd\x04\x00", "unpack it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_is_refused_with_a_reason_and_leaves_no_ledger(tmp_path: Path, name: str) -> None:
    """A person is told what the file is, and where there is one, which command reads it."""
    content, reason = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["import", str(path), "--dir", str(tmp_path / "ledgers")])
    assert isinstance(result.exception, CliError), "which the command ends with exit code 2 for"
    assert reason in " ".join(str(result.exception or result.output).split()), result.output
    assert not (tmp_path / "ledgers").exists() or not list((tmp_path / "ledgers").iterdir())


def test_an_import_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    """The first file is good, the second has rows of two runs."""
    good = written(tmp_path, "a.csv", "step,loss", "1,2.5", "2,2.25")
    bad = written(tmp_path, "b.csv", "run,step,loss", "x,3,2.5", "y,3,2.5")
    with pytest.raises(ImportTrouble, match="several runs"):
        import_logs([good, bad], "r", tmp_path / "ledgers")
    assert not (tmp_path / "ledgers" / "r").exists()


def test_a_ledger_that_is_there_is_never_written_into(tmp_path: Path) -> None:
    """The second import says where, and what to do."""
    path = written(tmp_path, "a.log", megatron(1), megatron(2))
    done(tmp_path, path)
    with pytest.raises(ImportTrouble, match="is there already"):
        done(tmp_path, path)


def test_a_line_without_an_end_is_not_taken_into_memory(tmp_path: Path) -> None:
    """64 MiB without a newline between two good lines: read in pieces, and said."""
    path = tmp_path / "a.log"
    with path.open("wb") as f:
        f.write(megatron(1).encode() + b"\n")
        f.seek(64 << 20, os.SEEK_CUR)
        f.write(b"\n" + megatron(2).encode() + b"\n")
    _, ledger = done(tmp_path, path)
    assert list(signals(ledger)["loss"]) == [1, 2]
    assert "1 lines are longer than" in gaps(ledger)


def test_a_log_whose_rows_come_after_a_long_preamble_is_found(tmp_path: Path) -> None:
    """Thirty thousand lines of warnings."""
    path = written(
        tmp_path, "a.log", *["[W318 14:38:11 Utils.hpp:137] Warning: deprecated"] * 30_000, megatron(1)
    )
    found = registry.detect(path)
    assert found is not None
    assert found.name == "megatron"


def test_more_values_than_one_file_of_the_series_may_hold_stand_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is lowered: what matters is that nothing is lost where a file ends."""
    monkeypatch.setattr("lineage.imports.logs.sink.MOST", 64)
    monkeypatch.setattr("lineage.imports.logs.sink.TOGETHER", 16)
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *(megatron(s, 2.0 + s / 64) for s in range(1, 65))))
    assert signals(ledger)["loss"] == {s: 2.0 + s / 64 for s in range(1, 65)}
    assert not verify.verify(ledger.path).damage


def test_the_command_reads_a_log_says_what_is_odd_and_its_ledger_is_whole(tmp_path: Path) -> None:
    """Exit code 1 for findings; then `check` and `verify` work on the ledger."""
    path = written(tmp_path, "a.log", *(megatron(5000 + s, 2.5 if s < 5 else 6.0) for s in range(8)))
    where = str(tmp_path / "ledgers")
    result = CliRunner().invoke(app, ["import", str(path), "--dir", where, "--run", "x", "--json"])
    assert result.exit_code == 1, result.output
    told = json.loads(result.output)
    assert told["segments"][0]["steps"] == [5000, 5007]
    assert told["alarms"] == ["step 5,005: loss is 6, 2.5 was usual (2.4 times); line 6 of a.log"]
    assert CliRunner().invoke(app, ["verify", f"{where}/x"]).exit_code == 0
    assert "lm loss" in CliRunner().invoke(app, ["check", f"{where}/x"]).output


def test_several_logs_need_the_name_of_their_run_and_a_logbook_does_not_mix(tmp_path: Path) -> None:
    """Nothing is guessed from names."""
    a, b = (written(tmp_path, n, megatron(1), megatron(2)) for n in ("a.log", "b.log"))
    book = written(tmp_path, "book.csv", "step,concept,before,after", "5,learning_rate,1,2")
    for sources, said in (([a, b], "name it with --run"), ([a, book], "a ledger of its own")):
        result = CliRunner().invoke(app, ["import", *map(str, sources), "--dir", str(tmp_path / "ledgers")])
        assert isinstance(result.exception, CliError)
        assert said in " ".join(str(result.exception or result.output).split())


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_was_damaged_anywhere_is_read_or_refused_and_never_breaks(
    tmp_path: Path, seed: int
) -> None:
    """Bytes changed, cut out, doubled and mixed, in every format."""
    draw = random.Random(seed)
    texts = [
        "\n".join(f"[rank{s % 2}]: " + megatron(s) for s in range(1, 12)),
        "\n".join(titan(s, 8.0 - s / 10) for s in range(1, 12)),
        "step,loss,lr\n" + "\n".join(f"{s},{3 - s / 10},1e-4" for s in range(1, 12)),
        "\n".join(json.dumps({"step": s, "loss": 3 - s / 10}) for s in range(1, 12)),
        json.dumps({"log_history": [{"step": s, "loss": 3 - s / 10} for s in range(1, 12)]}),
        json.dumps({"lm loss": {"step_interval": 1, "values": {str(s): 3 - s / 10 for s in range(1, 12)}}}),
        "\n".join(f"{s} {3 - s / 10}" for s in range(1, 12)),
        "\n".join(f"step:{s}/20 train_loss:{3 - s / 10} lr:1e-4" for s in range(12)),
    ]
    for n, text in enumerate(texts):
        data = bytearray((text + "\n").encode())
        for _ in range(draw.randint(1, 12)):
            at = draw.randrange(len(data) + 1)
            damage = draw.choice(["set", "cut", "double", "digits", "nan"])
            if damage == "set":
                data[at : at + 1] = bytes([draw.randrange(256)])
            elif damage == "cut":
                del data[at : at + draw.randint(1, 40)]
            elif damage == "double":
                data[at:at] = data[at : at + 200]
            else:
                data[at:at] = b"9" * 30 if damage == "digits" else b"nan"
        path = tmp_path / f"{n}.log"
        path.write_bytes(data)
        try:
            made, ledger = done(tmp_path, path, run=f"run{n}")
        except ImportTrouble:
            continue
        assert made.rows > 0
        assert not verify.verify(ledger.path).damage
