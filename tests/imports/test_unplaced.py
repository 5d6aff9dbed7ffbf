"""Changes of which no step is known: listed in the order in which they came, and never made into a number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lineage.imports import into_ledger, read
from lineage.judge import graph, phases, tree
from lineage.judge.joined import World
from lineage.judge.phases import Phase
from lineage.ledger.reader import Ledger, open_ledger
from lineage.report import outline
from lineage.report import phases as report
from lineage.report.blocks import Twig, spans

DATA = Path(__file__).parents[1] / "data" / "histories"


def imported(rows: Sequence[dict[str, Any]], folder: Path) -> Ledger:
    (folder / "run.json").write_text(json.dumps(rows))
    (book,) = read(folder / "run.json")
    return open_ledger(into_ledger(book, folder / "out"))


def table(ledger: Ledger) -> list[Phase]:
    return phases.phases(ledger.records, graph.build(ledger.records))


def text(twigs: Sequence[Twig]) -> str:
    return "\n".join("".join(s.text for s in spans(t.text)) + "\n" + text(t.under) for t in twigs)


def entry(concept: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"concept": concept, "before": before, "after": after, **more}


def dated(folder: Path) -> Ledger:
    """A restart at 1,000, two batch sizes of which only dates are known, and a restart at 5,000."""
    rows = [
        entry("batch_size", 64, 128, restart_from=1000, date="2024-01-01"),
        entry("batch_size", 128, 256, date="2024-01-05"),
        entry("grad_clip", 1.0, 0.5, date="2024-01-07"),
        entry("batch_size", 256, 512, date="2024-01-09"),
        entry("grad_clip", 0.5, 1.0, date="2024-01-11"),
        entry("weight_decay", 0.1, 0.2, restart_from=5000, date="2024-02-01"),
    ]
    return imported(rows, folder)


def test_values_of_unknown_steps_are_listed_in_order_and_nothing_is_worked_out_from_them(
    tmp_path: Path,
) -> None:
    """Three sizes held between 1,001 and 5,000: no amount of samples is known there, and it is before and after."""
    first, second, third = table(dated(tmp_path))
    assert (first.samples, second.samples, second.tokens) == (
        "about 64,000 samples (steps x batch)",
        None,
        None,
    )
    assert second.batch is not None
    assert second.batch.text == "128, then 256 (2024-01-05), then 512 (2024-01-09); steps not stated"
    assert second.clip is not None
    assert second.clip.text == "1, then 0.5 (2024-01-07), then 1 (2024-01-11); steps not stated"
    assert third.batch is not None
    assert (third.batch.text, third.batch.one is not None) == ("512", True)
    assert (second.first_regime, second.regime) == (1, 5)
    assert report.cells(second)["Consumed"] == "not shown"


def test_a_lower_bound_reads_as_no_step_in_the_table_and_in_the_tree(tmp_path: Path) -> None:
    """`at or after`, with the date that the source gives."""
    ledger = dated(tmp_path)
    found = table(ledger)
    steps = report.cells(found[1])["Steps"]
    assert steps == (
        "1,001 to 5,000; changes within it dated 2024-01-05, 2024-01-07, 2024-01-09, 2024-01-11, steps not stated"
    )
    roots = tree.forest(World(ledger.records, graph.build(ledger.records)))
    turns = [i for p in roots[0].line.parts for i in p.items if isinstance(i, tree.Turn)]
    assert [(t.step, t.lower_bound) for t in turns] == [
        (1001, None),
        (1001, "dated 2024-01-05"),
        (1001, "dated 2024-01-07"),
        (1001, "dated 2024-01-09"),
        (1001, "dated 2024-01-11"),
        (5001, None),
    ]
    assert "regime 3 at or after step 1,001 (dated 2024-01-07): grad_clip: 1 -> 0.5" in text(
        outline.outline(roots)
    )


def test_a_mitigation_of_unknown_step_lasts_until_its_concept_is_changed_again(tmp_path: Path) -> None:
    """All of them held within the phase; after it only the newest of each."""
    _, second, third = table(dated(tmp_path))
    within = report.cells(second, most=9)["Mitigations in effect"]
    assert (
        "step 1,001 or later (2024-01-05) until changed again (2024-01-09): global batch size 256" in within
    )
    assert "step 1,001 until changed again (2024-01-05): global batch size 128" in within
    after = [(m.concept, m.value) for m in third.mitigations]
    assert after == [("weight_decay", "0.2"), ("grad_clip", "1"), ("global_batch", "512")]


def test_a_value_that_the_next_change_contradicts_is_shown_beside_it(tmp_path: Path) -> None:
    """The next change starts from 512, and nobody wrote down when 256 became 512."""
    rows = [
        entry("batch_size", 128, 256, restart_from=1000),
        entry("batch_size", 512, 1024, restart_from=2000),
    ]
    _, second, _ = table(imported(rows, tmp_path))
    assert second.batch is not None
    assert second.batch.text == "256; or 512 (until step 2,000)"
    assert second.samples is None


def test_two_accounts_of_one_day_are_both_shown(tmp_path: Path) -> None:
    """2,688 on one branch and 1,792 on the other, on one day: which of them went on is not known."""
    rows = [
        entry("batch_size", 1800, "2700 then 2688", date="2024-04-25"),
        entry("batch_size", 1800, 1792, date="2024-04-25"),
        entry("grad_clip", 1.0, 0.5, restart_from=100, date="2024-04-26"),
        entry("grad_clip", 0.5, 0.3, restart_from=200, date="2024-04-27"),
    ]
    _, second, _ = table(imported(rows, tmp_path))
    assert second.batch is not None
    assert second.batch.text == "1,792; or 2700 then 2688 (2024-04-25)"
    assert second.samples is None


def test_a_value_that_goes_on_in_other_words_is_one_value(tmp_path: Path) -> None:
    """`1536 on 384 GPUs` starts from 1536."""
    rows = [
        entry("batch_size", 768, 1536, restart_from=10),
        entry("batch_size", "1536 on 384 GPUs", "1792 on 896 GPUs", restart_from=20),
    ]
    _, second, _ = table(imported(rows, tmp_path))
    assert second.batch is not None
    assert second.batch.text == "1,536"
    assert second.samples == "about 15,360 samples (steps x batch)"


def test_all_batch_sizes_of_a_public_run_stand_in_its_table() -> None:
    """OLMo-70B between its restarts at 34,700 and 160,500."""
    page = (DATA.parents[2] / "docs" / "histories.md").read_text(encoding="utf-8")
    row = next(x for x in page.splitlines() if "| 34,701 to 160,500;" in x)
    cells = [c.strip() for c in row.split("|")]
    assert cells[3] == "not shown"
    assert cells[6].startswith(
        "1,536, then 1792 on 896 GPUs (2024-04-08), then 1824 on 912 GPUs (2024-04-09)"
    )
    assert cells[8] == "1, then 0.5 (2024-04-18), then 1 (2024-04-25); steps not stated"


def test_an_entry_whose_step_lies_before_the_restart_is_not_placed_by_it(tmp_path: Path) -> None:
    """Step 50 after a restart from 100: it stands behind the restart, and its step is not made up."""
    rows = [
        entry("grad_clip", 1.0, 0.5, restart_from=100),
        entry("weight_decay", 0.1, 0.2, step=50),
    ]
    ledger = imported(rows, tmp_path)
    assert [(d.payload.from_step, d.payload.lower_bound) for d in ledger.of("drift")] == [
        (101, None),
        (101, "written as step 50, which is before the restart from 100"),
    ]


def test_a_typing_error_in_a_restart_does_not_move_the_change_to_a_dead_branch(tmp_path: Path) -> None:
    """20000 where 2000 was meant: the surviving branch has the clip, and the reader is told of the error."""
    rows = [
        entry("learning_rate", 1e-3, 5e-4, step=1000, restart_from=1000),
        entry("grad_clip", 1.0, 0.5, step=2000, restart_from=20_000),
        entry("weight_decay", 0.1, 0.05, step=3000, restart_from=3000),
    ]
    ledger = imported(rows, tmp_path)
    assert len(ledger.segments) == 3
    last = table(ledger)[-1]
    assert last.clip is not None
    assert (last.first, last.clip.text, last.abandoned) == (3001, "0.5", False)
