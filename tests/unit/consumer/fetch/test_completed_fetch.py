"""CompletedFetch: stages and chunks."""

from __future__ import annotations

from typing import NoReturn

import pytest

from kfast.consumer.fetch.completed_fetch import CompletedFetch, Stage
from kfast.errors import CorruptRecordError, IllegalStateError, ProtocolError
from tests.unit.consumer.fakes import T0, FakeChunk, FakeDecoder, chunk, failed_fetch, fetch


def decode(completed: CompletedFetch) -> Stage:
    completed.decode_next(1 << 20)
    completed.publish()
    return completed.stage


def test_a_slice_of_two_chunks_is_ready_twice() -> None:
    completed = fetch(T0, chunk(0, 5), chunk(5, 5))
    assert (decode(completed), completed.is_last_chunk) == (Stage.READY, False)
    assert (decode(completed), completed.is_last_chunk) == (Stage.READY, True)
    assert completed.chunk is not None
    assert completed.chunk.next_offset == 10


def test_chunks_without_records_are_passed_over() -> None:
    """T-08: aborted and control data is decoded past, the last chunk keeps the end offset."""
    completed = fetch(T0, chunk(0, 0), FakeChunk([], 50), FakeChunk([], 99))
    decode(completed)
    assert completed.stage is Stage.READY
    assert completed.chunk is not None
    assert (len(completed.chunk), completed.chunk.next_offset) == (0, 99)
    assert completed.is_last_chunk


def test_records_before_a_corrupt_batch_are_ready_first() -> None:
    """F-08: good records come before the error of the batch behind them."""
    error = CorruptRecordError("bad", offset=5)
    completed = fetch(T0, chunk(0, 5), error)
    assert (decode(completed), completed.is_last_chunk) == (Stage.READY, False)
    assert decode(completed) is Stage.FAILED
    assert completed.error is error


def test_an_unexpected_exception_becomes_a_kafka_error() -> None:
    class Broken(FakeDecoder):
        def decode(self, max_bytes: int, most_bytes: int | None = None) -> NoReturn:
            raise ZeroDivisionError("oops")

    completed = fetch()
    completed.decoder = Broken([])
    decode(completed)
    assert completed.stage is Stage.FAILED
    assert isinstance(completed.error, ProtocolError)
    assert "ZeroDivisionError" in str(completed.error)
    assert completed.error.partition == 0


def test_an_interrupted_decode_can_be_claimed_again() -> None:
    completed = fetch()
    completed.stage = Stage.DECODING
    completed.publish()
    assert completed.stage is Stage.RAW


def test_an_unreadable_slice_is_failed_from_the_start() -> None:
    completed = failed_fetch(T0, CorruptRecordError("bad"))
    assert completed.stage is Stage.FAILED
    with pytest.raises(IllegalStateError):
        completed.decode_next(1)


def test_decoder_and_error_exclude_each_other() -> None:
    with pytest.raises(IllegalStateError):
        CompletedFetch(
            T0, version=1, fetch_offset=0, next_fetch_offset=0, raw_bytes=0, decoder=None
        )


def test_repr_names_partition_stage_and_offsets() -> None:
    assert "t-0 RAW offsets 0 to 10" in repr(fetch())
