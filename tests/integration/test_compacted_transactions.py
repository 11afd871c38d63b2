"""Transactions that the log cleaner has compacted."""

from __future__ import annotations

from typing import Final

from kfast import LocalKafka, TopicPartition
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import confluent_rows, kfast_rows, unique, until

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"


def test_a_compacted_log_of_transactions(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """T-09, F-06, D-11: markers and records that the cleaner left are read to the end."""
    topic = new_topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms=0,
    )
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    name = unique("compacted")

    def write(turn: int) -> None:
        with writer.transaction(name, commit=bool(turn % 3)) as one:
            one.write(topic, [Message(f"{turn}".encode(), f"key-{k}".encode()) for k in range(40)])

    for turn in range(8):
        write(turn)
    turns = 8

    def is_compacted() -> bool:
        nonlocal turns
        write(turns)  # lets the segments before it be cleaned
        turns += 1
        return len(confluent_rows(servers, tp)) < 30 * turns

    until(is_compacted, "the cleaner to work", 60)
    for isolation in (COMMITTED, UNCOMMITTED):
        theirs = confluent_rows(servers, tp, isolation)
        rows = kfast_rows(servers, tp, isolation_level=isolation)
        # The cleaner may work between the two readings: what is newest stays.
        assert rows[-1] == theirs[-1]
        assert {row[3] for row in rows} == {row[3] for row in theirs}
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    newest = {row[3]: row[4] for row in kfast_rows(servers, tp, isolation_level=COMMITTED)}
    last_kept = max(turn for turn in range(turns) if turn % 3)
    assert newest == {f"key-{k}".encode(): f"{last_kept}".encode() for k in range(40)}
