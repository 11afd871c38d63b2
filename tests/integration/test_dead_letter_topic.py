"""J-05, J-06, J-07, J-08: dead letters of ``kfast.ingest`` in a topic of a real Apache Kafka."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import kfast
from kfast import cli
from kfast.errors import (
    AuthorizationError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kfast.local.acl import Acl
from kfast.local.local_kafka import LocalKafka
from kfast.table.dead_letter_topic import DeadLetterTopic
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
from tests.end_to_end.ingest_processes import Death, Starter, starter
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import confluent_rows

Letter = tuple[bytes | None, bytes | None, dict[str, bytes | None]]
"""Key, value, headers."""


def letters(servers: str, topic: str) -> list[Letter]:
    """Return the letters of a topic as another client reads them, by their order in the source."""
    rows = [
        (row[3], row[4], dict(row[5]))
        for tp in (kfast.TopicPartition(topic, number) for number in range(2))
        for row in confluent_rows(servers, tp)
    ]
    return sorted(rows, key=lambda row: (int(row[2]["kfast.offset"] or 0), row[2]["kfast.column"]))


def numbers(count: int, bad: int) -> list[Message]:
    """Return values of which each ``bad``-th is no number."""
    return [
        Message(b"no number" if at % bad == 0 else at.to_bytes(4, "big"), b"key %d" % at)
        for at in range(count)
    ]


def offsets(folder: Path) -> list[tuple[int, int]]:
    """Return what is in a table."""
    table = ds.dataset(folder).to_table(["partition", "offset"])
    return sorted(
        zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    )


@pytest.fixture(scope="module")
def processes() -> Iterator[Starter]:
    with starter() as processes:
        yield processes


def test_a_letter_is_its_record(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """J-05: bytes, nulls and headers as they came, and what is malformed where and why."""
    topic, dead = new_topic(), new_topic(partitions=2)
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"2"), ("null", None), ("", b"")]
    writer.write(
        topic,
        [
            Message((7).to_bytes(4, "big"), b"good"),
            Message(b"bad\x00\xff", b"key", headers, timestamp_ms=1_000),
            Message(b"", None, timestamp_ms=2_000),
            Message(None, b""),
            Message(b"both are bad", b"\xff\xfe", [("kfast.topic", b"of another ingest")]),
        ],
    )
    summary = kfast.ingest(
        topic,
        to=str(tmp_path / "t"),
        key="text",
        value="int32",
        on_error="skip",
        dead_letter=f"topic:{dead}",
        bootstrap_servers=kafka.bootstrap_servers,
    )
    assert (summary.rows, summary.bad_records, summary.dead_letters) == (2, 3, 4)
    found = letters(kafka.bootstrap_servers, dead)
    assert [row[:2] for row in found] == [
        (b"key", b"bad\x00\xff"),
        (None, b""),
        (b"\xff\xfe", b"both are bad"),
        (b"\xff\xfe", b"both are bad"),
    ]
    assert [row[2]["kfast.column"] for row in found] == [b"value", b"value", b"key", b"value"]
    (first,) = [
        row
        for number in range(2)
        for row in confluent_rows(kafka.bootstrap_servers, kfast.TopicPartition(dead, number))
        if row[4] == b"bad\x00\xff"
    ]
    assert first[1] > 1_700_000_000_000, "of its production"
    assert first[5][:4] == headers, "in order, duplicates kept"
    values = dict(first[5][4:])
    message = (values.pop("kfast.message") or b"").decode()
    assert message.startswith(f"{topic}-0 offset 1: value ")
    assert values.pop("__connect.errors.exception.message") == message.encode()
    assert values.pop("kfast.code") != b""
    assert (values.pop("__connect.errors.exception.class.name") or b"").startswith(
        b"kfast.errors.DeserializationError: "
    )
    assert values == {
        "kfast.topic": topic.encode(),
        "kfast.partition": b"0",
        "kfast.offset": b"1",
        "kfast.timestamp": b"1000",
        "kfast.column": b"value",
        "kfast.path": b"",
        "__connect.errors.topic": topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"1",
    }
    last = ManifestLog(LocalStore(tmp_path / "t")).last()
    assert last is not None
    assert last.counts.dead_letters == 4
    assert last.rows == 2


def test_a_timestamp_that_no_column_can_hold(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """J-05: its letter has the time in a header, and a time of its own that brokers keep."""
    topic, dead = new_topic(message_timestamp_after_max_ms=2**63 - 1), new_topic(partitions=2)
    nanoseconds = 1_767_225_600_000_000_000
    writer.write(topic, [Message(b"value", b"key", timestamp_ms=nanoseconds), b"good"])
    summary = kfast.ingest(
        topic,
        to=str(tmp_path / "t"),
        on_error="skip",
        dead_letter=f"topic:{dead}",
        bootstrap_servers=kafka.bootstrap_servers,
    )
    assert (summary.rows, summary.dead_letters) == (1, 1)
    (letter,) = letters(kafka.bootstrap_servers, dead)
    assert letter[:2] == (b"key", b"value")
    assert letter[2]["kfast.column"] == b"timestamp"
    assert letter[2]["kfast.timestamp"] == str(nanoseconds).encode()


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_crash_around_the_publish(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
    processes: Starter,
    is_after: bool,
) -> None:
    """J-06: every letter of what is published is there; before the publish it comes once more."""
    topic, dead = new_topic(partitions=2), new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, numbers(60, 6), partition=number)
    words = [
        *("ingest", topic, "--to", str(tmp_path / "t"), "-b", kafka.bootstrap_servers),
        *("--value", "int32", "--on-error", "null", "--dead-letter", f"topic:{dead}"),
        *("--rows-per-file", "20", "-X", "max.poll.records=20"),
    ]
    death = Death("kfast.table.publish:Publisher.publish", 2, is_after)
    assert processes.run(words, death) == -signal.SIGKILL
    last = ManifestLog(LocalStore(tmp_path / "t")).last()
    assert last is not None
    there = Counter(
        (row[2]["kfast.partition"], row[2]["kfast.offset"])
        for row in letters(kafka.bootstrap_servers, dead)
    )
    published = {
        (str(tp.partition).encode(), str(at).encode())
        for tp, end in last.ends.items()
        for at in range(0, end, 6)
    }
    assert published <= there.keys(), "none of a published batch is missing"
    if not is_after:
        assert there.keys() - published, "those of the batch that died, too"
    assert cli.main([*words, "-q"]) == 0
    assert offsets(tmp_path / "t") == [(p, at) for p in range(2) for at in range(60)]
    found = Counter(
        (row[2]["kfast.partition"], row[2]["kfast.offset"])
        for row in letters(kafka.bootstrap_servers, dead)
    )
    assert found.keys() == {
        (str(number).encode(), str(at).encode()) for number in range(2) for at in range(0, 60, 6)
    }
    assert all(found[place] == 1 for place in published), "what was published is not read again"


def test_a_topic_that_takes_no_letter_this_large(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """J-07: the ingest ends before its batch is published, and goes on when the topic takes it."""
    topic, dead = new_topic(), new_topic(max_message_bytes=2_000)
    writer.write(topic, [(7).to_bytes(4, "big"), b"x" * 5_000])
    given: dict[str, Any] = {
        "to": str(tmp_path / "t"),
        "value": "int32",
        "on_error": "skip",
        "bootstrap_servers": kafka.bootstrap_servers,
    }
    with pytest.raises(RecordTooLargeError, match=f"to the topic {dead}") as caught:
        kfast.ingest(topic, dead_letter=f"topic:{dead}", **given)
    assert "max.message.bytes" in str(caught.value)
    assert not list((tmp_path / "t").glob("*.parquet"))
    larger = new_topic(partitions=2)
    kfast.ingest(topic, dead_letter=f"topic:{larger}", **given)
    assert offsets(tmp_path / "t") == [(0, 0)]
    assert [row[1] for row in letters(kafka.bootstrap_servers, larger)] == [b"x" * 5_000]


def test_a_broker_that_does_not_answer(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J-07: a letter is waited for so long, and no longer; nothing is published without it."""
    topic, dead = new_topic(), new_topic(partitions=2)
    writer.write(topic, [b"no number"])
    given: dict[str, Any] = {
        "to": str(tmp_path / "t"),
        "value": "int32",
        "on_error": "null",
        "dead_letter": f"topic:{dead}",
        "bootstrap_servers": kafka.bootstrap_servers,
    }
    produce = DeadLetterTopic.produce

    def paused(self: DeadLetterTopic, *arguments: Any) -> None:
        kafka.pause_node(kafka.node_ids[0])
        produce(self, *arguments)

    monkeypatch.setattr(DeadLetterTopic, "produce", paused)
    try:
        with pytest.raises(KafkaTimeoutError, match=f"to the topic {dead}") as caught:
            kfast.ingest(topic, default_api_timeout_ms=2_000, request_timeout_ms=1_000, **given)
    finally:
        kafka.resume_node(kafka.node_ids[0])
    assert "cause: not within 2000 ms" in str(caught.value)
    last = ManifestLog(LocalStore(tmp_path / "t")).last()
    assert last is not None
    assert last.batch_id is None, "nothing was published"
    monkeypatch.undo()
    assert kfast.ingest(topic, **given).dead_letters == 1
    assert len(letters(kafka.bootstrap_servers, dead)) == 1


def test_a_topic_that_is_not_there(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """J-07: it is refused before the first record, and not made."""
    topic = new_topic()
    writer.write(topic, [b"no number"])
    with pytest.raises(UnknownTopicOrPartitionError, match="no-such-letters"):
        kfast.ingest(
            topic,
            to=str(tmp_path / "t"),
            value="int32",
            on_error="null",
            dead_letter="topic:no-such-letters",
            bootstrap_servers=kafka.bootstrap_servers,
        )
    assert not (tmp_path / "t").exists()
    with kfast.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        assert "no-such-letters" not in consumer.topics()


LOGINS = [
    ("SASL_SSL", "app", "SCRAM-SHA-512"),
    ("SASL_SSL", "app", "PLAIN"),
    ("SASL_PLAINTEXT", "app", "OAUTHBEARER"),
    ("SSL", "app"),
]


@pytest.mark.parametrize("login", LOGINS, ids="-".join)
def test_letters_take_the_log_in_of_the_ingest(
    secured_kafka: LocalKafka,
    new_secured_topic: TopicFactory,
    secured_writer: KafkaWriter,
    tmp_path: Path,
    login: tuple[str, ...],
) -> None:
    """J-08: certificates, users and token endpoints, by kfast's own settings."""
    topic, dead = new_secured_topic(), new_secured_topic(partitions=2)
    secured_writer.write(topic, numbers(10, 5))
    settings: dict[str, Any] = {**secured_kafka.client_config(*login)}
    summary = kfast.ingest(
        topic,
        to=str(tmp_path / "t"),
        value="int32",
        on_error="null",
        dead_letter=f"topic:{dead}",
        **settings,
    )
    assert (summary.rows, summary.dead_letters) == (10, 2)
    found = letters(secured_kafka.bootstrap("PLAINTEXT"), dead)
    assert [row[0] for row in found] == [b"key 0", b"key 5"]


@pytest.mark.parametrize("may_write_elsewhere", [False, True])
def test_a_user_who_may_not_write(
    secured_kafka: LocalKafka,
    new_secured_topic: TopicFactory,
    secured_writer: KafkaWriter,
    tmp_path: Path,
    may_write_elsewhere: bool,
) -> None:
    """J-07: the ingest ends with the topic and the right that is missing; nothing is published."""
    topic, dead, other = new_secured_topic(), new_secured_topic(), new_secured_topic()
    secured_writer.write(topic, numbers(10, 5))
    acls = [Acl("User:noacl", "READ", topic=topic), Acl("User:noacl", "DESCRIBE", topic=dead)]
    if may_write_elsewhere:
        acls.append(Acl("User:noacl", "WRITE", topic=other))
    secured_kafka.add_acl(*acls)
    settings: dict[str, Any] = {**secured_kafka.client_config("SASL_PLAINTEXT", "noacl")}
    with pytest.raises(AuthorizationError, match=f"to the topic {dead}") as caught:
        kfast.ingest(
            topic,
            to=str(tmp_path / "t"),
            value="int32",
            on_error="null",
            dead_letter=f"topic:{dead}",
            **settings,
        )
    assert "try: allow this user to write to the topic" in str(caught.value)
    last = ManifestLog(LocalStore(tmp_path / "t")).last()
    assert last is not None
    assert last.batch_id is None, "nothing was published"
