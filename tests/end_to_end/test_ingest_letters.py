"""J-05, J-07: what is refused of ``--dead-letter topic:NAME`` before anything is read."""

from __future__ import annotations

import sys

import pytest

from kfast import cli
from tests.end_to_end.ingests import Table, Truth

BAD = ("--value", "int32", "--on-error", "null")


@pytest.mark.parametrize(
    ("topics", "words", "status", "text"),
    [
        (("t",), ("--dead-letter", "topic:t", *BAD), 2, "cannot go to t: this ingest reads"),
        (("*",), ("--dead-letter", "topic:dead", *BAD), 2, "cannot go to dead: this ingest reads"),
        (("t",), ("--dead-letter", "topic:deat", *BAD), 5, 'no topic "deat"'),
        (("t",), ("--dead-letter", "topic:a b", *BAD), 2, '"a b" cannot be the name of a topic'),
        (("t",), ("--dead-letter", "topic:", *BAD), 2, '"" cannot be the name of a topic'),
        (("t",), ("--dead-letter", "topic:dead"), 2, "the first one is an error"),
        (
            ("t",),
            ("--dead-letter", "topic:dead", "--value", "int32"),
            2,
            "the first one is an error",
        ),
    ],
)
def test_what_is_refused(
    truth: Truth,
    table: Table,
    capsys: pytest.CaptureFixture[str],
    topics: tuple[str, ...],
    words: tuple[str, ...],
    status: int,
    text: str,
) -> None:
    """J-07, J-08: with the exit code of the mistake; no folder is left."""
    truth.cluster.create_topic("dead", 1)
    assert cli.main(table.command(*words, topics=topics)) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert len(err.splitlines()) <= 6
    assert not table.folder.exists()


def test_a_plan_checks_the_topic_too(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """J-07"""
    assert cli.main(table.command("--dry-run", "--dead-letter", "topic:dead", *BAD)) == 5
    assert 'no topic "dead"' in capsys.readouterr().err
    truth.cluster.create_topic("dead", 1)
    assert cli.main(table.command("--dry-run", "--dead-letter", "topic:dead", *BAD)) == 0


def test_without_confluent_kafka(
    truth: Truth,
    table: Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J-07: the extra is named; a folder needs no producer."""
    truth.cluster.create_topic("dead", 1)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert cli.main(table.command("--dead-letter", "topic:dead", *BAD)) == 2
    err = capsys.readouterr().err
    assert "dead letters to a topic needs confluent_kafka" in err
    assert 'pip install "kfast[confluent]"' in err
    assert not table.folder.exists()
    folder = table.folder.with_name("letters")
    assert cli.main(table.command("--dead-letter", str(folder), *BAD, "-q")) == 0
    assert list(folder.glob("*.parquet"))


def test_a_topic_without_bad_records_gets_no_producer(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-05: only bad records cost anything."""
    truth.cluster.create_topic("dead", 1)
    monkeypatch.setattr(
        "kfast.table.dead_letter_topic.DeadLetterTopic._open",
        lambda _: pytest.fail("a producer was made"),
    )
    words = table.command("--dead-letter", "topic:dead", "--value", "text", "--on-error", "null")
    assert cli.main([*words, "-q"]) == 0
    assert table.last.rows == 80
