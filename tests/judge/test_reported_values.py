"""Values as people write them."""

from __future__ import annotations

import pytest

import schemas
from lineage.judge import reported_values as values

S = schemas.Scalar.of


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1e-4, "0.0001", True),
        ("64", "64 (96 refused)", True),
        ("none", "off", True),
        ("1.00 x initial", "1.00 X  initial", True),
        ("loaded", "reset", False),
        ("4M tokens", "4,000,000 tokens", True),
        ("1024 x 4096", "1024*4096", True),
        ("2048 sequences", "2048 seqs", True),
        ("A 0.6, B 0.4", "B 0.4, A 0.6", True),
        ("A 0.6, B 0.4", "A 0.4, B 0.6", False),
        ("64", "64 nodes", True),
        ("64", "65 nodes", False),
        ("93e9307", "12e8812", False),
        ("13251-14000", "13251 to 14000", True),
        ("v2", "unchanged", True),
        ("13251-14000", "13251-14000 + 16652-18500", False),
        (8192, 7680, False),
        ("1e-4", "10^-4", True),
        (1e-4, "1 \u00d7 10\u207b\u2074", True),
        ("1e-4", "1 x 10**-4", True),
        ("3e-5", "3\u00b710^\u22125", True),
        ("2 x 10^6 tokens", "2M tokens", True),
        ("1e-4", "10^-5", False),
        ("110^2", "1102", False),
    ],
)
def test_written_values_are_compared_by_what_they_mean(a: object, b: object, same: bool) -> None:
    """Numbers by value, text without remarks in parentheses, absent and off alike."""
    assert values.equal(S(a), S(b)) is same


def test_skip_ranges_that_overlap_or_begin_too_early_are_named() -> None:
    """13251 after a restart from 13250 is right; 16651 after 16651 skips an update that the state already has."""
    assert values.range_problems(S("13251-14000"), 13_250) == []
    (early,) = values.range_problems(S("13251-14000 + 16651-19500"), 16_651)
    assert "16651-19500 begins at or before the restart from 16651: 1 of its updates" in early
    (overlap,) = values.range_problems(S("100-200, 150-300"), None)
    assert overlap == "the ranges 100-200 and 150-300 overlap by 51"
    wide = values.range_problems(S("100-1000 + 110-120 + 500-600"), None)
    assert wide == [
        "the ranges 100-1000 and 110-120 overlap by 11",
        "the ranges 100-1000 and 500-600 overlap by 101",
    ]
    (turned,) = values.range_problems(S("300-200"), None)
    assert turned == "the range 300-200 ends before it begins"


def test_accelerators_are_told_by_their_model_and_memory_size_is_no_model() -> None:
    """A100-40GB and A100-80GB are one model; TPU generations and vendors are told apart."""
    assert values.accelerators(S("A100-80GB")) == values.accelerators(S("8x a100-40gb")) == {"a100"}
    assert values.accelerators(S("V100 | A100")) == {"v100", "a100"}
    assert values.accelerators(S("four v5p-512 slices")) == {"v5p"}
    assert values.accelerators(S("MI250X")) == {"mi250x"}
    assert values.accelerators(S("bad node removed")) == frozenset()
