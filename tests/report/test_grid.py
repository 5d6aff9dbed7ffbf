"""The rank x step grid: readable from 4 ranks to 10,000, with the first bad cell unmistakable without any colour."""

from __future__ import annotations

import dataclasses
import math
import re
import xml.etree.ElementTree as ET
from functools import lru_cache

import pytest

import schemas
from lineage.judge.firstbad import RankSeen, Seen, first_bad
from lineage.judge.graph import Graph
from lineage.report import grid, grid_svg, grid_text
from tests.judge.builders import uid

STEPS = 2_000
SIZES = (1, 4, 64, 512, 10_000)
BAD = 1_234


@lru_cache
def source(
    world: int,
    rank: int | None = None,
    *,
    stopped: tuple[int, ...] = (),
    only: tuple[int, ...] = (),
    nodes: bool = True,
) -> grid.Source:
    """One rank's gradient breaks at step 1,234, the reduced one on all at once, and for two steps everything.

    `only`: nothing spreads, and these ranks are bad too, at the next step.
    """
    rank = world // 2 if rank is None else rank

    def cell(r: int, step: int, signal: str) -> schemas.Cell:
        return schemas.Cell(
            segment=uid(1),
            rank=r,
            step=step,
            signal=signal,
            abnormal="non_finite",
            value=math.nan,
            text="is NaN",
        )

    found = [cell(rank, BAD, "grad_norm_local")]
    if only:
        found += [cell(r, BAD + 1, "loss") for r in only]
    else:
        found += [cell(r, BAD, "grad_norm") for r in range(world)]
        found += [cell(r, s, "loss") for r in range(world) for s in (BAD + 1, BAD + 2) if r not in stopped]
    signals = frozenset(["loss", "grad_norm_local", "grad_norm"])

    def seen(r: int) -> RankSeen:
        place = (
            schemas.Place(node=f"n-{r // 8:04d}", local_rank=r % 8, device=f"GPU-{r}", pid=1)
            if nodes
            else None
        )
        return RankSeen(1, 900 if r in stopped else STEPS, signals, place=place)

    ranks = Seen({r: seen(r) for r in range(world)}, world)
    return grid.Source.of(first_bad(Graph(), uid(1), found, ranks), found, ranks)


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("world", SIZES)
def test_words_and_map_fit_a_terminal_and_point_at_one_first_bad_cell(world: int, width: int) -> None:
    laid = source(world)
    around = grid.around(laid)
    assert around is not None
    assert len(around.rows) <= grid.MOST_ROWS
    lines = grid_text.words(around, width)
    assert all(len(line) <= width for line in lines)
    marked = [line for line in lines if "[FIRST]" in line]
    assert len(marked) == 1
    assert marked[0].split()[:3] == [">", "rank", f"{world // 2}"]
    rough = grid.overview(laid, rows=20, columns=1)
    assert rough is not None
    whole = grid.overview(laid, rows=20, columns=grid_text.columns_of(width, rough))
    assert whole is not None
    assert sum(len(r.ranks) for r in whole.rows) == world
    assert whole.columns[0][0] == 1
    assert whole.columns[-1][1] == STEPS
    drawn = grid_text.map_lines(whole)
    assert len(drawn) <= 26
    assert all(len(line) <= width for line in drawn)
    (first,) = [line for line in drawn[:-4] if line.startswith(">")]
    column = next(line for line in drawn if line.strip() == "v").index("v")
    assert first[column] == "F"
    assert (
        whole.columns[[s.kind for s in next(r for r in whole.rows if r.first).squares].index("first")][0]
        <= BAD
    )


def test_ranks_that_look_alike_stand_in_one_row_and_the_first_bad_one_has_its_own() -> None:
    around = grid.around(source(10_000, 5_120))
    assert around is not None
    assert [r.label for r in around.rows] == ["ranks 0-5119", "rank 5120", "ranks 5121-9999"]
    last = around.steps.index(BAD)
    assert [r.squares[last].word for r in around.rows] == ["all NaN:r", "[FIRST]", "all NaN:r"]
    assert around.rows[0].squares[last].text == "reduced grad NaN, all 5,120"
    assert around.rows[0].squares[last - 1].word == "ok"


@pytest.mark.parametrize("nodes", [True, False])
def test_many_unlike_ranks_go_together_by_node_then_in_blocks_with_how_many_are_bad(nodes: bool) -> None:
    """Every third rank is bad at the next step: no two neighbours look alike, so they go together."""
    odd = tuple(range(0, 512, 3))
    around = grid.around(source(512, 77, only=odd, nodes=nodes))
    assert around is not None
    assert len(around.rows) <= grid.MOST_ROWS
    assert sum(len(r.ranks) for r in around.rows) == 512
    assert around.note == "ranks go together by node" if nodes else "in blocks of" in around.note
    column = around.steps.index(BAD + 1)
    assert sum(r.squares[column].bad for r in around.rows) == len(odd)
    assert any(re.match(r"\d+/\d+ NaN:l", r.squares[column].word) for r in around.rows)
    few = grid.around(source(64, 9, only=tuple(range(0, 16, 2)), nodes=nodes))
    assert few is not None
    if nodes:
        whole = grid.overview(source(64, 9), rows=8)
        assert whole is not None
        assert whole.rows[1].label == "ranks 8-15 (n-0001)"
        assert whole.note == "each row is one node, each column is 28 steps"


def test_a_rank_that_stopped_is_no_rank_that_is_fine_nor_one_that_never_was_there() -> None:
    laid = source(8, 2, stopped=(5,))
    missing = dataclasses.replace(laid, bad={2: laid.bad[2]}, ranks=(*laid.ranks, 8))
    around = grid.around(missing)
    assert around is not None
    kinds = {r: row.squares[0].kind for row in around.rows for r in row.ranks}
    assert (kinds[4], kinds[5], kinds[8]) == ("fine", "stopped", "nothing")
    words = {r: row.squares[0].text for row in around.rows for r in row.ranks}
    assert (words[5], words[8]) == ("stopped", "no record")
    whole = grid.overview(missing, rows=20, columns=40)
    assert whole is not None
    letters = {row.ranks[0]: "".join(grid_text.letter(s) for s in row.squares) for row in whole.rows}
    assert letters[5].startswith(".")
    assert letters[5].endswith("s")
    assert set(letters[8]) == {" "}
    assert set(letters[4]) == {"."}


def test_a_part_that_is_asked_for_has_single_ranks_and_steps() -> None:
    part = grid.overview(source(10_000, 5_120), ranks=(5_110, 5_130), steps=(1_220, 1_250))
    assert part is not None
    assert [r.ranks for r in part.rows] == [(r,) for r in range(5_110, 5_131)]
    assert part.columns == tuple((s, s) for s in range(1_220, 1_251))
    assert grid.overview(source(4), ranks=(90, 99)) is None


@pytest.mark.parametrize("world", SIZES)
def test_the_map_of_a_page_is_small_well_formed_and_told_in_words(world: int) -> None:
    """Ten thousand ranks with a bad one in each node, the worst case for its size; less than 300 KB."""
    spotted = tuple(r for r in range(0, world, 7)) if world > 8 else ()
    for laid in (source(world), source(world, only=spotted)) if spotted else (source(world),):
        whole = grid.overview(laid)
        assert whole is not None
        words = grid_svg.words(whole, f"rank {world // 2}, step {BAD:,}")
        svg = grid_svg.svg(whole, words, "1")
        assert len(svg) < 300_000
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label") == words
        assert f"First bad: rank {world // 2}, step 1,234" in words
        assert len(root.findall(".//{*}circle")) == 2
        assert "script" not in svg


def test_a_node_name_cannot_become_markup() -> None:
    place = schemas.Place(node="<script>alert(1)</script>", local_rank=0, device="cpu", pid=1)
    ranks = {
        r: RankSeen(
            1, 9, frozenset(["loss"]), place=place if r < 2 else place.model_copy(update={"node": "b"})
        )
        for r in range(4)
    }
    whole = grid.overview(grid.Source.of(schemas.FirstBad(cell=None), [], Seen(ranks, 4)), rows=2)
    assert whole is not None
    assert "<script" not in grid_svg.svg(whole, "w")
