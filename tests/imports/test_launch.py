"""The history of a launch script: versions in the order of their dates, variables resolved."""

from __future__ import annotations

from lineage.imports.launch import read_launch, resolved


def test_variables_of_the_script_are_put_in_and_say_nothing_besides() -> None:
    """`$NAME` and `${NAME}` take the script's value; what the script does not set stays as it is written."""
    args = {
        "env:LAYERS": "70",
        "env:OUT": "$ROOT/x",
        "--num-layers": "$LAYERS",
        "--save": "${OUT}/c",
        "env:FLAG": "1",
    }
    assert resolved(args) == {"num-layers": "70", "save": "$ROOT/x/c", "env.FLAG": "1"}


def test_a_variable_that_refers_to_itself_ends() -> None:
    """A script that extends its own PATH is no endless loop."""
    args = {"env:A": "$B", "env:B": "$A/x", "--path": "$A"}
    assert resolved(args)["path"].endswith("/x")


def test_versions_are_read_in_the_order_of_their_dates_whatever_the_order_of_the_file() -> None:
    """The newest stands first in most histories."""
    versions = [
        {
            "date": "2022-03-22 10:00:00 +0100",
            "commit": "c",
            "args": {"--lr": "5e-5", "--save-interval": "100"},
        },
        {
            "date": "2022-03-14 09:00:00 +0100",
            "commit": "a",
            "args": {"--lr": "6e-5", "--save-interval": "250"},
        },
        {
            "date": "2022-03-21 09:00:00 +0100",
            "commit": "b",
            "args": {"--lr": "0.00006", "--save-interval": "200"},
        },
    ]
    book = read_launch(versions, "launch.json", "run")
    rates = [e for e in book.entries if e.concept == "learning_rate"]
    assert [(e.date, e.source.authority) for e in rates] == [("2022-03-22", "machine")]
    assert len(book.configs) == 3
    assert book.problems == []


def test_versions_without_dates_keep_the_order_of_the_source_and_say_so() -> None:
    """Nothing is guessed."""
    versions = [{"args": {"--lr": "1e-4"}}, {"args": {"--lr": "5e-5"}, "date": "soon"}]
    book = read_launch(versions, "launch.json", "run")
    assert book.problems == ["2 of 2 versions have no date: the order of the source stands"]
    assert [(e.before.text(), e.after.text()) for e in book.entries] == [("1e-4", "5e-5")]  # type: ignore[union-attr]
