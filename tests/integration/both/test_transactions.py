"""Transactions: committed, aborted, open and interleaved."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

import pytest

import kfast
from kfast import TopicPartition
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory
from tests.integration.support import (
    Reading,
    assigned,
    confluent_rows,
    kafka_python_rows,
    kfast_rows,
    unique,
    until,
)

pytestmark = pytest.mark.integration

COMMITTED: Final = "read_committed"
UNCOMMITTED = "read_uncommitted"


def values(*names: str) -> list[bytes]:
    return [f"{name}-{number}".encode() for name in names for number in range(20)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_committed_and_aborted(
    kafka: Broker, new_topic: TopicFactory, writer: Writer, codec: str
) -> None:
    """T-01, T-02, T-03, T-05, T-06, D-24: both isolation levels agree with two other clients."""
    topic = new_topic()
    same = unique("same")  # one producer id, a transaction right after another
    writer.write(topic, values("plain-1"), codec=codec)
    for number, commit in enumerate([True, False, False, True]):
        with writer.transaction(same, commit=commit, codec=codec, batch_records=7) as one:
            one.write(topic, values(f"same-{number}-{commit}"))
    with ExitStack() as stack:
        kept = stack.enter_context(writer.transaction(unique("kept"), codec=codec))
        for turn in range(3):
            with writer.transaction(unique("lost"), commit=False, codec=codec) as lost:
                lost.write(topic, values(f"lost-{turn}"))
                kept.write(topic, values(f"kept-{turn}"))
                writer.write(topic, values(f"between-{turn}"), codec=codec)
    with writer.transaction(unique("end"), commit=False) as last:
        last.write(topic, values("lost at the end"))
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    for isolation in (COMMITTED, UNCOMMITTED):
        rows = kfast_rows(servers, tp, isolation_level=isolation)
        assert rows == confluent_rows(servers, tp, isolation)
        assert rows == kafka_python_rows(servers, tp, isolation)
        seen = [row[4] for row in rows]
        visible = [
            b"False" not in (value or b"") and b"lost" not in (value or b"") for value in seen
        ]
        assert all(visible) is (isolation == COMMITTED)
    assert len(rows) == 20 * (1 + 4 + 3 * 3 + 1)
    with assigned(
        servers, [tp], isolation_level=COMMITTED, max_partition_fetch_bytes=200
    ) as reader:
        end = reader.end_offsets([tp])[tp]
        reading = Reading(reader).until({tp: end})
        assert reading.rows(tp) == kfast_rows(servers, tp, isolation_level=COMMITTED)
        assert reader.position(tp) == end > rows[-1][0]


def test_an_open_transaction(kafka: Broker, new_topic: TopicFactory, writer: Writer) -> None:
    """T-10, P-05, P-12: read_committed ends at the last stable offset, also in lag and look-ups."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    writer.write(topic, [b"before"] * 10)
    with (
        assigned(servers, [tp], isolation_level=COMMITTED) as stable,
        assigned(servers, [tp]) as dirty,
    ):
        with writer.transaction(unique("open")) as transaction:
            transaction.write(topic, [b"open"] * 5)
            writer.write(topic, [b"behind"] * 3)
            assert stable.end_offsets([tp]) == {tp: 10}
            assert dirty.end_offsets([tp]) == {tp: 18}
            ahead, behind = Reading(dirty).until({tp: 18}), Reading(stable).until({tp: 10})
            assert (behind.count, ahead.count) == (10, 18)
            assert stable.current_lag(tp) == 0
            assert dirty.current_lag(tp) == 0
            until(lambda: [stable.poll(20), stable.highwater(tp) == 18][1], "the high watermark")
            assert stable.position(tp) == 10
            stable.seek_to_end()
            assert stable.position(tp) == 10
            assert len(kfast.read_topic(tp, bootstrap_servers=servers)[tp]) == 18
            committed = kfast.read_topic(tp, bootstrap_servers=servers, isolation_level=COMMITTED)
            assert committed.count() == 10
        assert behind.until({tp: 19}).count == 18
        assert stable.end_offsets([tp]) == {tp: 19}


def test_nothing_but_aborted_records(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> None:
    """T-08, F-07, P-06: polls return, positions move, and the end is reached without a record."""
    topic = new_topic()
    name = unique("aborted")
    for number in range(20):
        codec = "lz4" if number % 2 else "none"
        with writer.transaction(name, commit=False, codec=codec, batch_records=50) as one:
            one.write(topic, [bytes(2000)] * 500)
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    with assigned(
        servers, [tp], isolation_level=COMMITTED, max_partition_fetch_bytes=100_000
    ) as consumer:
        end = consumer.end_offsets([tp])[tp]
        assert end == 20 * 501
        positions = [0]
        deadline = time.monotonic() + 30
        while positions[-1] < end and time.monotonic() < deadline:
            began = time.monotonic()
            assert consumer.poll(500).count() == 0
            assert time.monotonic() - began < 10
            positions.append(consumer.position(tp))
        assert positions[-1] == end
        assert positions == sorted(positions)
        assert len(set(positions)) > 3
    assert not kfast.read_topic(topic, bootstrap_servers=servers, isolation_level=COMMITTED)
    assert kfast.read_topic(topic, bootstrap_servers=servers).count() == 10_000
