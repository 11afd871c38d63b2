"""FetchBuffer: order, errors in their place, what is dropped."""

from __future__ import annotations

from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.errors import CorruptRecordError, KafkaError
from tests.unit.consumer.fakes import T0, T1, T2, chunk, fetch
from tests.unit.consumer.fetch.buffers import ALWAYS, MIB, HandedOut, decode_all, put, take


def test_each_partition_shows_its_oldest_fetch() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    first, second, other = fetch(T0), fetch(T0, offset=10), fetch(T1)
    put(buffer, first, other)
    put(buffer, second)
    assert buffer.heads() == [first, other]
    decode_all(buffer)
    take(buffer, first)
    assert buffer.heads() == [other, second]


def test_served_partitions_go_to_the_end() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    fetches = [fetch(tp, chunk(0, 5), chunk(5, 5)) for tp in (T0, T1, T2)]
    put(buffer, *fetches)
    decode_all(buffer)
    take(buffer, fetches[0])
    assert [head.topic_partition for head in buffer.heads()] == [T1, T2, T0]


def test_a_partly_taken_chunk_stays_in_front_of_its_partition() -> None:
    """F-12: the rest of the rows comes next, before anything else of the partition."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    first = fetch(T0)
    put(buffer, first, fetch(T0, offset=10))
    decode_all(buffer)
    buffer.consume([HandedOut(first, 4, False)])
    assert buffer.heads() == [first]
    assert first.rows_taken == 4
    assert first.stage is Stage.READY


def test_a_second_chunk_is_decoded_before_later_fetches() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    first, second = fetch(T0, chunk(0, 5), chunk(5, 5)), fetch(T1)
    put(buffer, first)
    decode_all(buffer)
    put(buffer, second)
    take(buffer, first)
    assert buffer.decoding.decode_one(0)
    assert first.stage is Stage.READY
    assert second.stage is Stage.RAW


def test_dropping_stale_data_releases_it_at_once() -> None:
    """B-07: memory of sought and revoked partitions is given back."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, fetch(T0, version=1), frame=100)
    put(buffer, fetch(T0, version=2), frame=200)
    put(buffer, fetch(T1, version=3), frame=400)
    decode_all(buffer)
    buffer.discard_stale({T0: 2, T1: None, T2: None})
    assert buffer.memory.bytes_used == 210
    assert [head.version for head in buffer.heads()] == [2]


def test_backlog_means_several_fetches_and_many_bytes() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, fetch(T0, raw_bytes=400))
    assert not buffer.has_backlog([T0, T1], 300)
    put(buffer, fetch(T0, raw_bytes=100, offset=10))
    assert buffer.has_backlog([T0, T1], 500)
    assert not buffer.has_backlog([T0, T1], 501)
    assert not buffer.has_backlog([T1], 0)


def test_a_failed_fetch_stays_in_its_place_until_it_is_dropped() -> None:
    """F-08: the error stands behind the records before it, until the user seeks."""
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    error = CorruptRecordError("bad")
    put(buffer, completed := fetch(T0, chunk(0, 5), error, version=4))
    decode_all(buffer)
    take(buffer, completed)
    assert not buffer.has_failed(T0)
    assert buffer.decoding.decode_one(0)
    assert completed.stage is Stage.FAILED
    assert buffer.has_failed(T0)
    assert buffer.has_data(T0)
    buffer.discard_stale({T0: 5})
    assert not buffer.has_failed(T0)
    assert buffer.memory.bytes_used == 0


def test_a_chunk_can_be_replaced_by_an_error() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, completed := fetch(T0, chunk(0, 5, memory_bytes=50)), frame=100)
    decode_all(buffer)
    buffer.fail(completed, KafkaError("no"))
    assert completed.stage is Stage.FAILED
    assert buffer.memory.bytes_used == 100


def test_a_closed_buffer_takes_and_holds_nothing() -> None:
    buffer = FetchBuffer(MIB, ApplicationWakeup())
    put(buffer, fetch(T0))
    buffer.close()
    assert buffer.memory.bytes_used == 0
    put(buffer, fetch(T0))
    assert buffer.heads() == []
    assert not buffer.decoding.decode_one(ALWAYS)


def test_repr_shows_the_account() -> None:
    buffer = FetchBuffer(1000, ApplicationWakeup())
    put(buffer, fetch(T0), frame=300)
    assert repr(buffer) == "<FetchBuffer 300 of 1000 bytes, 1 partitions>"
