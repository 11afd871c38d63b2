"""Data that cannot be read: good records first, then the error, then whatever the user decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfast import Int32, KafkaConsumer, Utf8
from kfast.errors import (
    CorruptRecordError,
    DeserializationError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse
from tests.end_to_end.damaged_topics import (
    flip_last_bit,
    set_codec,
    set_last_offset_delta,
    set_magic,
    set_record_count,
    set_record_length,
)
from tests.end_to_end.stage import Stage, error_of, eventually, offsets, read
from tests.end_to_end.virtual import T0, make_cluster, value, write
from tests.reference.batches import with_crc
from tests.simulation.partition_faults import EditRecords, claim_batch_length, cut_tail

MakeStage = Callable[..., Stage]

BAD_OFFSET = 52
NEXT_OFFSET = 55


def damage(change: Callable[[bytearray], object], *, keeps_crc: bool = False) -> FakeCluster:
    """Return a cluster whose batch of offsets 50 to 54 in t-0 is changed."""
    cluster = make_cluster(nodes=1, partitions=2, records=100, batch_records=5)
    batch = bytearray(cluster.log("t", 0).batch_at(BAD_OFFSET).data)
    change(batch)
    cluster.log("t", 0).replace_batch(BAD_OFFSET, bytes(batch) if keeps_crc else with_crc(batch))
    return cluster


def drain(
    consumer: KafkaConsumer, count: int, errors: list[KafkaError] | None = None
) -> tuple[dict[int, list[int]], list[KafkaError]]:
    """Read ``count`` records and at least one error; return offsets per partition and errors."""
    found: dict[int, list[int]] = {0: [], 1: []}
    errors = [] if errors is None else errors

    def step() -> bool:
        try:
            for partition, rows in consumer.poll(timeout_ms=50).items():
                found[partition.partition].extend(row.offset for row in rows)
        except KafkaError as error:
            errors.append(error)
        return len(found[0]) + len(found[1]) >= count and bool(errors)

    eventually(step, lambda: f"{found} {errors}")
    return found, errors


@pytest.mark.parametrize(
    ("change", "keeps_crc", "error_type"),
    [
        (flip_last_bit, True, CorruptRecordError),
        (set_record_count, False, CorruptRecordError),
        (set_last_offset_delta, False, CorruptRecordError),
        (set_record_length, False, CorruptRecordError),
        (set_magic, True, CorruptRecordError),
        (set_codec, False, UnsupportedCompressionTypeError),
    ],
)
def test_a_batch_that_cannot_be_read(
    make_stage: MakeStage,
    change: Callable[[bytearray], object],
    keeps_crc: bool,
    error_type: type[KafkaError],
) -> None:
    """F-08, D-03, D-06, D-08, D-16: good records first, then the error again and again."""
    consumer = make_stage(damage(change, keeps_crc=keeps_crc)).consumer("t")
    found, errors = drain(consumer, 150)
    assert found == {0: list(range(50)), 1: list(range(100))}
    assert consumer.position(T0) == 50
    for _ in range(2):
        errors.append(_error_of(consumer))
    for error in errors:
        assert isinstance(error, (error_type, CorruptRecordError))
        assert (error.topic, error.partition) == ("t", 0)
        assert not error.retriable
    consumer.seek(T0, NEXT_OFFSET)
    assert offsets(read(consumer, 45)) == list(range(55, 100))


def _error_of(consumer: KafkaConsumer) -> KafkaError:
    error = error_of(consumer)
    assert isinstance(error, KafkaError)
    return error


def test_a_corrupt_batch_names_where_to_go_on(make_stage: MakeStage) -> None:
    """D-03, F-08: the error carries base and next offset; seeking there is enough."""
    consumer = make_stage(damage(flip_last_bit, keeps_crc=True)).consumer()
    consumer.assign([T0])
    read(consumer, 50)
    error = error_of(consumer)
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.next_offset) == (50, 55)
    consumer.seek(T0, error.next_offset)
    assert offsets(read(consumer, 45)) == list(range(55, 100))


def test_checksums_can_be_switched_off(make_stage: MakeStage) -> None:
    """D-03: check_crcs=False computes none, so a batch with a wrong one is delivered."""

    def spoil_crc(batch: bytearray) -> None:
        batch[17] ^= 1

    cluster = damage(spoil_crc, keeps_crc=True)
    consumer = make_stage(cluster).consumer(check_crcs=False)
    consumer.assign([T0])
    assert offsets(read(consumer, 100)) == list(range(100))


def test_a_transient_corruption_is_over_when_the_broker_sends_it_right(
    make_stage: MakeStage,
) -> None:
    """F-08: after a seek to the same offset the batch is fetched and judged anew."""
    cluster = damage(flip_last_bit, keeps_crc=True)
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0])
    read(consumer, 50)
    assert isinstance(error_of(consumer), CorruptRecordError)
    cluster.log("t", 0).flip_bit(BAD_OFFSET, -1)
    consumer.seek(T0, 50)
    assert offsets(read(consumer, 50)) == list(range(50, 100))


def test_a_cut_off_batch_is_left_for_the_next_fetch(make_stage: MakeStage) -> None:
    """D-05: the last batch of an answer may be incomplete; not a word about it."""
    cluster = make_cluster(nodes=1, records=100)
    for nth in range(1, 6):
        cluster.faults.add(EditRecords(cut_tail(7 * nth)), api=ApiKey.FETCH, nth=nth)
    consumer = make_stage(cluster).consumer("t", max_partition_fetch_bytes=700)
    assert offsets(read(consumer, 100)) == list(range(100))


@pytest.mark.parametrize("length", [-1, -2_147_483_648, 0, 48, 0x7FFFFFFF - 11])
def test_impossible_batch_lengths(make_stage: MakeStage, length: int) -> None:
    """D-07: negative, too small or overflowing lengths are corrupt; reading resumes behind."""
    cluster = make_cluster(nodes=1, records=100)
    rule = cluster.faults.add(
        EditRecords(claim_batch_length(2, length)), api=ApiKey.FETCH, times=None
    )
    consumer = make_stage(cluster).consumer()
    consumer.assign([T0])
    assert offsets(read(consumer, 10)) == list(range(10))
    error = error_of(consumer)
    assert isinstance(error, (CorruptRecordError, RecordTooLargeError))
    assert consumer.position(T0) == 10
    cluster.faults.remove(rule)
    consumer.seek(T0, 10)
    assert offsets(read(consumer, 90)) == list(range(10, 100))


def test_an_answer_above_the_receive_cap(make_stage: MakeStage) -> None:
    """B-04: the error names what is needed; the position stays."""
    cluster = make_cluster(nodes=1, records=10)
    cluster.append("t", 0, [b"x" * 3_000_000])
    consumer = make_stage(cluster).consumer(
        fetch_max_bytes=100_000,
        max_partition_fetch_bytes=100_000,
        receive_message_max_bytes=1_500_000,
    )
    consumer.assign([T0])
    assert offsets(read(consumer, 10)) == list(range(10))
    error = error_of(consumer)
    assert isinstance(error, RecordTooLargeError)
    assert "3" in str(error)
    assert consumer.position(T0) == 10
    with cluster.changing():
        cluster.log("t", 0).delete_before(11)
    consumer.seek(T0, 11)
    write(cluster, 0, 5)
    found = drain(consumer, 5, errors=[error])[0]
    assert found[0] == list(range(11, 16))


@pytest.mark.parametrize("column", ["key", "value"])
def test_a_value_that_cannot_be_deserialized(make_stage: MakeStage, column: str) -> None:
    """E-08: records before it first, then an error with everything needed to go on."""
    cluster = make_cluster(nodes=1, partitions=2, records=0)
    good, bad = (5).to_bytes(4, "big"), b"\xff\xfe"
    records = [Record(key=good, value=good) for _ in range(20)]
    records[7] = Record(bad, good) if column == "key" else Record(good, bad)
    cluster.append("t", 0, records, batch_records=4)
    cluster.append("t", 1, [Record(key=good, value=good)] * 5)
    consumer = make_stage(cluster).consumer(
        "t", key_deserializer=Int32(), value_deserializer=Int32()
    )
    found, errors = drain(consumer, 12)
    assert found == {0: list(range(7)), 1: list(range(5))}
    assert consumer.position(T0) == 7
    for error in [*errors, _error_of(consumer)]:
        assert isinstance(error, DeserializationError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 7)
        assert error.column == column
        assert getattr(error, f"{column}_bytes") == bad
    consumer.seek(T0, 8)
    assert offsets(read(consumer, 12)) == list(range(8, 20))


def test_bad_values_can_be_nulled_or_skipped(make_stage: MakeStage) -> None:
    """E-08: on_deserialization_error nulls or drops them and counts."""
    cluster = make_cluster(nodes=1, records=0)
    cluster.append("t", 0, [b"good", b"\xff", b"fine"])
    stage = make_stage(cluster)
    nulled: list[tuple[int, str | None]] = [(0, "good"), (1, None), (2, "fine")]
    expected = {"null": nulled, "skip": [nulled[0], nulled[2]]}
    for policy, rows in expected.items():
        consumer = stage.consumer("t", value_deserializer=Utf8(), on_deserialization_error=policy)
        seen: list[tuple[int, str | None]] = []
        errors = 0
        while not seen:
            for batch in consumer.poll(timeout_ms=1_000).values():
                seen += ((row.offset, row.value) for row in batch)
                errors += batch.deserialization_errors
        assert seen == rows
        assert errors == 1
        assert consumer.position(T0) == 3


def test_a_deserializer_that_is_a_function_may_raise(make_stage: MakeStage) -> None:
    """E-08: whatever it raises becomes a DeserializationError with its cause."""

    def parse(data: bytes) -> int:
        return int(data)

    cluster = make_cluster(nodes=1, records=0)
    cluster.append("t", 0, [b"1", b"2", b"three", b"4"])
    consumer = make_stage(cluster).consumer("t", value_deserializer=parse)
    assert [v for _, v in read(consumer, 2)[T0]] == [1, 2]
    error = error_of(consumer)
    assert isinstance(error, DeserializationError)
    assert error.offset == 2
    assert isinstance(error.__cause__, ValueError)
    consumer.seek(T0, 3)
    assert read(consumer, 1)[T0] == [(3, 4)]


def test_error_replies_do_not_spoil_what_is_known(make_stage: MakeStage) -> None:
    """P-12: offsets of -1 in error replies are not stored as watermarks."""

    def negate(response: Any, _: object) -> None:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.high_watermark = partition.last_stable_offset = -1
                partition.log_start_offset = -1

    cluster = make_cluster(nodes=1)
    consumer = make_stage(cluster).consumer("t")
    read(consumer, 20)
    assert consumer.highwater(T0) == 20
    cluster.faults.add(EditResponse(negate), api=ApiKey.FETCH, times=None)
    write(cluster, 0, 5)
    assert read(consumer, 5)[T0] == [(n, value(n)) for n in range(20, 25)]
    assert consumer.highwater(T0) in {20, 25}  # the request under way was answered in good faith
