"""Reports of ledgers that are damaged, empty, unfinished or huge, and without the extra."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import lineage
from lineage import report
from lineage.judge.firstbad import Point
from lineage.report import as_html, as_markdown, charts, series

from . import pages

SEGMENT = "01a2282c-c02e-79a2-9c06-02ba314760c8"


def test_a_damaged_ledger_is_reported_with_the_damage_named(copy: Path) -> None:
    file = sorted(copy.glob("journal/*/*.jsonl"))[-1]
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = b'{"not": json}\n'
    file.write_bytes(b"".join(lines)[:-20])
    found = report.gather(lineage.open_ledger(copy))
    text = pages.words(as_html.render(found))
    assert text.index("The ledger is damaged") < text.index("Flagged:")
    for code in ("LIN-J001", "LIN-J002"):
        assert code in text
        assert code in as_markdown.render(found)
    assert file.name in text
    assert "peak learning rate 0.003 -> 0.001" in text


@pytest.mark.parametrize("series_bytes", [b"", b"PAR1 this is no parquet"])
def test_a_damaged_series_leaves_the_rest_of_the_report(copy: Path, series_bytes: bytes) -> None:
    for file in copy.glob("series/*/*.parquet"):
        file.write_bytes(series_bytes)
    found = report.gather(lineage.open_ledger(copy))
    text = pages.words(as_html.render(found))
    # The alarm is in the journal, so the first bad cell is still known.
    assert "rank 0, step 11: gradient norm before the reduction is NaN" in text
    assert "Broken since step 9" in text


def test_a_lost_segment_record_leaves_the_rest_of_the_report(copy: Path) -> None:
    file = sorted(copy.glob("journal/*/*.jsonl"))[0]
    kept = [line for line in file.read_bytes().splitlines(keepends=True) if b'"kind":"segment"' not in line]
    file.write_bytes(b"".join(kept))
    found = report.gather(lineage.open_ledger(copy))
    assert len(found.segments) == 2
    assert "a segment whose record is lost" in as_markdown.render(found)
    assert pages.headings(as_html.render(found), "h1")


def test_an_empty_ledger_cannot_tell_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "nothing" / "journal").mkdir(parents=True)
    empty = lineage.open_ledger(tmp_path / "nothing")
    text = pages.words(report.html(empty))
    assert "Flagged: Cannot tell: this ledger holds no segment of training" in text
    assert "lineage verify" in text
    assert "holds" not in text.replace("this ledger holds no segment", "")
    assert "Cannot tell" in report.markdown(empty)


def test_a_run_that_was_killed_is_said_to_have_no_end(copy: Path) -> None:
    file = sorted(copy.glob("journal/*/*.jsonl"))[-1]
    lines = file.read_bytes().splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if b'"kind":"segment_end"' in line)
    file.write_bytes(b"".join(lines[:end]))
    text = report.markdown(lineage.open_ledger(copy))
    assert "no end on record: killed, or still running" in text
    assert "Segment 3 left no end on record" in text


@pytest.mark.parametrize("missing", ["jinja2", "altair", "vl_convert"])
def test_without_the_extra_markdown_is_written_and_html_says_what_to_install(
    broken_run: Path, tmp_path: Path, missing: str
) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        f"sys.modules[{missing!r}] = None\n"
        "import lineage; from lineage import report\n"
        f"report.write(lineage.open_ledger({str(broken_run)!r}), Path({str(tmp_path)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: the HTML report needs " + missing in done.stderr
    assert "pip install 'runlineage[read]'" in done.stderr
    assert (tmp_path / "report.md").read_text().startswith("# Lineage report")
    assert not (tmp_path / "report.html").exists()


def test_reading_a_report_imports_no_torch_and_no_tracker_library(broken_run: Path) -> None:
    program = (
        "import sys, lineage; from lineage import report\n"
        f"report.html(lineage.open_ledger({str(broken_run)!r}))\n"
        "print(sorted({'torch', 'wandb', 'mlflow'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _curves(values: dict[int, dict[int, float]], signal: str = "grad_norm_local") -> series.Curves:
    return series.Curves({SEGMENT: {signal: values}})


def test_thinning_keeps_the_ends_and_every_spike_and_at_most_the_points_asked_for() -> None:
    line = [(s, 1.0) for s in range(1, 100_001)]
    line[54_321] = (54_322, 99.0)
    line[7] = (8, math.nan)
    thin = series.thin(line, 2_000)
    assert len(thin) <= 2_000
    assert (54_322, 99.0) in thin
    assert thin[0][0] == 1
    assert all(math.isfinite(v) for _, v in thin)
    assert series.non_finite(line) == [(8, line[7][1])]


def test_a_mean_over_ranks_does_not_hide_a_rank_that_is_not_finite() -> None:
    curves = _curves({0: {1: 2.0, 2: 2.0}, 1: {1: 4.0, 2: math.nan}}, "loss")
    mean = curves.mean(SEGMENT, "loss")
    assert mean[1] == 3.0
    assert math.isnan(mean[2])
    assert Point(SEGMENT, 1, 1, "loss", 4.0) in curves.points()


def test_a_step_that_no_line_can_show_is_marked_in_the_chart() -> None:
    line = charts.Line(
        "segment 1", [(1, 2.0), (2, math.nan), (3, 1.0), (4, math.inf)], charts.INK, charts.SOLID
    )
    svg = charts._svg(charts.Drawing("loss", lines=[line]), 400, 200)  # two labels, one rule for each step
    assert "\u2715 NaN" in svg
    assert "\u2715 Inf" in svg
    assert svg.count("var(--bad)") >= 4


def test_a_long_run_stays_small() -> None:
    steps = range(1, 200_001)
    lines = [
        charts.Line(
            f"segment {i}",
            [(s, 3.0 + math.sin(s * (i + 1))) for s in steps[:: i + 1]],
            charts.INK,
            charts.SOLID,
        )
        for i in range(4)
    ]
    svg = charts._svg(charts.Drawing("loss", lines=lines), *charts.SIZES["wide"])
    assert len(svg) < 500_000


def test_a_run_that_records_little_says_so_and_names_the_lines_to_add(tmp_path: Path) -> None:
    rec = lineage.attach(None, dir=tmp_path, quiet=True)
    for step in range(1, 4):
        with rec.step(step) as st:
            st.loss(3.0)
    rec.close()
    (folder,) = tmp_path.iterdir()
    found = report.gather(lineage.open_ledger(folder))
    assert found.answer.status == "not_shown"
    rows = pages.table(as_html.render(found), "What is not recorded", column="What")
    added = {r["What"]: r["The line that would add it"] for r in rows}
    assert added["optimizer"] == "lineage.attach(run, optimizer=optimizer)"
    assert added["checkpoints"] == "rec.checkpoint(path, step=step)"
    (phase,) = found.phases
    assert (phase.tokens, phase.samples, phase.data_mix, phase.clip) == (None, None, None, None)
    row = pages.table(as_html.render(found), "Phases", column="Phase")[0]
    assert (row["Consumed"], row["Data mix"], row["Clipping"]) == ("not shown", "not shown", "not shown")
    assert found.answer.claims.startswith("not shown: comparison of loss curves, scaling-law fit")
    assert found.answer.then.startswith("The line that would show it: lineage.attach(run, ")
