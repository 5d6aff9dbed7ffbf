"""Two sessions are compared test by test, and a test that varies anyway is told from one that the observer changes."""

from __future__ import annotations

from tests.transparency import compare
from tests.transparency.compare import Difference, Session


def test_a_test_that_is_missing_on_one_side_differs() -> None:
    whole, cut = Session({"a": "passed", "b": "failed"}), Session({"a": "passed"})
    assert compare.differing(whole, cut) == ["b"]
    assert compare.differing(cut, whole) == ["b"]
    (found,) = compare.differences([whole], [cut])
    assert (found.without, found.under, found.flaky) == (("failed",), (compare.NOT_RUN,), False)


def test_equal_failures_are_no_difference() -> None:
    assert compare.differences([Session({"a": "failed"})], [Session({"a": "failed"})]) == []


def test_flaky_is_only_what_varies_without_the_observer_too() -> None:
    p, f, e = "passed", "failed", "error"
    assert Difference("t", (p, f), (f, p)).flaky
    assert Difference("t", (p, f), (f, f)).flaky
    assert not Difference("t", (p, p, p), (f, p, p)).flaky, "perhaps a race that the observer causes"
    assert not Difference("t", (p, p), (f, f)).flaky
    assert not Difference("t", (p, f), (f, e)).flaky, "without the observer it was never an error"


def test_another_order_of_the_same_tests_is_seen() -> None:
    one, other = Session({"a": "passed", "b": "passed"}), Session({"b": "passed", "a": "passed"})
    assert compare.differing(one, other) == []
    assert compare.order_differs(one, other)
    assert not compare.order_differs(one, Session({"x": "passed", "a": "passed", "b": "passed"}))
