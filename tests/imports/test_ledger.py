"""An imported run is a ledger like any other: segments, branches, drift, verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app
from lineage.imports import ImportTrouble, into_ledger, read, read_configs
from lineage.judge import graph, reported, validity
from lineage.ledger import verify
from lineage.ledger.reader import Ledger, open_ledger

DATA = Path(__file__).parents[1] / "data" / "histories"


@pytest.fixture(scope="module")
def marin(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Marin 32B, imported."""
    (book,) = read(DATA / "marin_32b.json")
    return open_ledger(into_ledger(book, tmp_path_factory.mktemp("ledgers")))


def test_each_restart_is_a_segment_that_names_the_state_it_started_from(marin: Ledger) -> None:
    """Two cool-downs from one checkpoint, three rescues of one state: branches as they were."""
    tree = graph.build(marin.records)
    came_from = {}
    for uid, info in tree.segments.items():
        node = tree.nodes.get(info.parent_checkpoint or "")
        if node is not None:
            came_from[tree.number(uid)] = (node.checkpoint.step, tree.number(node.segment))
    assert came_from == {
        2: (18_500, 1),
        3: (21_010, 2),
        4: (56_400, 3),
        5: (67_522, 4),
        6: (72_233, 5),
        7: (80_000, 6),
        8: (77_096, 6),
        9: (77_096, 6),
        10: (80_000, 6),
        11: (160_000, 10),
        12: (160_000, 10),
    }


def test_the_verdict_of_an_imported_run_names_the_first_change_on_its_own_path(marin: Ledger) -> None:
    """The changed batch size at 18,500 breaks the curve; what an abandoned branch tried stands on no other path."""
    tree = graph.build(marin.records)
    last = list(tree.segments)[-1]
    found = validity.verdict(marin.records, segment=last)
    (curve,) = [c for c in found.claims if c.claim == "loss_curve"]
    assert found.since_step == 18_501
    assert "optimizer" not in {k.concept for k in curve.chain}
    assert [k.step for k in curve.chain if k.concept == "grad_clip"] == [56_401]
    assert [k.step for k in curve.chain if k.concept == "update_clip"] == [67_523, 72_234, 74_000]


def test_changes_that_only_neighbours_place_are_not_called_confounded(marin: Ledger) -> None:
    """Confounded needs one restart or one day: two entries of unknown time are not that."""
    exact, loose = [r.payload for r in marin.of("drift") if r.payload.from_step == 56_401]
    assert (exact.lower_bound, loose.lower_bound) == (None, "neither step nor date is given")
    assert not exact.confounded
    assert not loose.confounded
    assert "at or after this step" in loose.changes[0].text


def test_what_a_person_reported_is_a_mitigation_without_evidence_of_effect(marin: Ledger) -> None:
    """Nothing live was seen, and the ledger says so."""
    effects = [r.payload for r in marin.of("mitigation_effect")]
    assert effects
    assert {e.in_effect for e in effects} == {"not_shown", "no"}, (
        "what was on by word and off in effect is no"
    )
    assert marin.of("coverage")[0].payload.missing


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda p: p.stem)
def test_every_history_becomes_whole_ledgers_that_hold_every_entry(path: Path, tmp_path: Path) -> None:
    """As many reported records as entries, in a journal that verifies."""
    books = read(path)
    ledgers = [into_ledger(b, tmp_path) for b in books]
    held = sum(len(open_ledger(f).of("reported")) for f in ledgers)
    assert held == len(json.loads(path.read_text()))
    assert all(not verify.verify(f).damage for f in ledgers)


def test_an_import_never_writes_into_a_ledger_that_is_there(tmp_path: Path) -> None:
    """A second import of one run is refused with what to do."""
    (book,) = read(DATA / "opt_175b.json")
    into_ledger(book, tmp_path)
    with pytest.raises(ImportTrouble, match="is there already"):
        into_ledger(book, tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,concept,before,after\n100,lr,1e-4,5e-5\nsoon,grad_clip,1.0,0.3\n"),
        ("a.jsonl", '{"step": 100, "concept": "lr", "before": 1e-4, "after": 5e-5}\nnot json at all\n'),
        (
            "a.yaml",
            "- {step: 100, concept: lr, before: 1e-4, after: 5e-5}\n- {concept: grad_clip, after: 0.3}\n",
        ),
        (
            "a.json",
            '{"entries": [{"step": 100, "concept": "lr", "old": 1e-4, "new": 5e-5}, {"concept": "clip"}]}',
        ),
    ],
)
def test_a_logbook_of_each_format_is_read_whole(name: str, text: str, tmp_path: Path) -> None:
    """Two entries in each, the first of them a learning rate that was halved at step 100."""
    (tmp_path / name).write_text(text)
    (book,) = read(tmp_path / name)
    assert len(book.entries) == 2
    first = book.entries[0]
    assert (first.step, float(first.before.value), float(first.after.value)) == (100, 1e-4, 5e-5)  # type: ignore[union-attr]


def test_a_rewind_into_an_earlier_branch_stands_on_that_branch(tmp_path: Path) -> None:
    """Restarts at 100, 2,000 and 3,000 show how far each branch came; 1,500 lies on the second."""
    rows = [
        {"concept": "learning_rate", "before": 1, "after": 2, "restart_from": 100},
        {"concept": "grad_clip", "before": 1.0, "after": 0.3, "restart_from": 2000},
        {"concept": "weight_decay", "before": 0.1, "after": 0.2, "restart_from": 3000},
        {"concept": "optimizer", "before": "AdamW", "after": "Lion", "restart_from": 1500},
    ]
    (tmp_path / "fork.json").write_text(json.dumps(rows))
    (book,) = read(tmp_path / "fork.json")
    ledger = open_ledger(into_ledger(book, tmp_path / "out"))
    tree = graph.build(ledger.records)
    last = list(tree.segments)[-1]
    node = tree.nodes[tree.segments[last].parent_checkpoint or ""]
    assert (node.checkpoint.step, tree.number(node.segment)) == (1_500, 2)
    chain = {k.concept for c in validity.verdict(ledger.records, segment=last).claims for k in c.chain}
    assert chain == {"learning_rate", "optimizer"}


def test_a_key_that_only_one_config_states_is_said_to_be_open(tmp_path: Path) -> None:
    """Neither lost nor taken for what the run began with."""
    (tmp_path / "a.yaml").write_text("clip_grad: 0.3\nlr: 1e-4\nmin_lr: 1e-5\n")
    (tmp_path / "b.yaml").write_text("lr: 1e-4\n")
    book = read_configs([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    judged = {e.concept: j for e, j in zip(book.entries, reported.judge(book.entries), strict=True)}
    assert {"grad_clip", "min_lr"} <= set(judged)
    assert {j.regime_change for j in judged.values()} <= {"cannot_tell", "yes"}
    assert all(j.rule != "first-setting" for j in judged.values())


def test_what_differs_between_two_configs_came_together_and_pairs_stay_apart(tmp_path: Path) -> None:
    """Without a date or a restart, the pair is what tells: two of its changes are confounded, two pairs are not."""
    for name, text in (
        ("a", "lr: 1e-4\nclip_grad: 1.0\n"),
        ("b", "lr: 5e-5\nclip_grad: 0.3\n"),
        ("c", "lr: 5e-5\nclip_grad: 0.3\nweight_decay: 0.1\n"),
        ("d", "lr: 5e-5\nclip_grad: 0.3\nweight_decay: 0.2\n"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    both = read_configs([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    first, second = reported.judge(both.entries)
    assert (first.beside, second.beside) == ([both.entries[1].uid], [both.entries[0].uid])
    ledger = open_ledger(into_ledger(both, tmp_path / "out"))
    assert [d.payload.confounded for d in ledger.of("drift")] == [True]
    apart = read_configs([tmp_path / f"{n}.yaml" for n in "cd"] + [tmp_path / "c.yaml"])
    assert [j.regime_change for j in reported.judge(apart.entries)] == ["yes", "yes"]
    assert all(not j.beside for j in reported.judge(apart.entries))


def test_a_single_config_is_in_the_ledger(tmp_path: Path) -> None:
    """Two runs of one config each can be compared."""
    (tmp_path / "a.yaml").write_text("lr: 1e-4\n")
    ledger = open_ledger(into_ledger(read_configs([tmp_path / "a.yaml"]), tmp_path / "out"))
    assert [r.payload.values["lr"].text() for r in ledger.of("config")] == ["1e-4"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{", "no JSON"),
        ("a.json", "[]", "holds no entry"),
        ("a.json", "3", "is a list of entries"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.yaml", "a: [", "no YAML"),
        ("a.txt", "hello", "none of"),
        ("missing.json", None, "is no file"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_in_words(
    name: str, text: str | None, says: str, tmp_path: Path
) -> None:
    """The command exits with 2 and one sentence; nothing is written."""
    if text is not None:
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, ["import", str(tmp_path / name), "--dir", str(tmp_path / "out")])
    assert result.exit_code != 0
    assert says in str(result.exception)
    assert not (tmp_path / "out").exists()
