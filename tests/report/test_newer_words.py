"""A ledger that a newer version wrote is still reported and judged: words unknown here are shown as they stand."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

import schemas
from lineage import report
from lineage.cli import judging
from lineage.cli.common import Subject
from lineage.ledger.reader import Ledger
from tests.schemas import make_golden
from tests.schemas.enums import enum_words

WORD = "a word of tomorrow"
KINDS = sorted({json.loads(raw)["payload"]["kind"] for raw in make_golden.journal().splitlines()})


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The golden journal as a ledger."""
    raw = make_golden.journal()
    folder = tmp_path_factory.mktemp("golden") / "journal" / json.loads(raw.splitlines()[0])["segment"]
    folder.mkdir(parents=True)
    (folder / "node1-00000-4242-1796054400000000.jsonl").write_bytes(raw)
    return Ledger(folder.parents[1])


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_word_in_a_record_stops_neither_the_report_nor_a_verdict(
    golden: Ledger, kind: str
) -> None:
    for i, record in enumerate(golden.records):
        if record.kind != kind:
            continue
        line = json.loads(record.raw)
        for holder, key in list(enum_words(line["payload"])):
            known, holder[key] = holder[key], WORD
            newer = copy.copy(golden)
            newer.records = list(golden.records)
            newer.records[i] = replace(
                schemas.read_line(json.dumps(line).encode()), file=record.file, line=record.line
            )
            assert report.markdown(newer).startswith("# Lineage report"), key
            subject = Subject(newer)
            assert all(judging.verdict(subject, tip).claims for tip in judging.tips(subject)), key
            holder[key] = known
