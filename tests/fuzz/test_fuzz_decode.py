"""D-20: whatever the bytes, the decoder agrees with the oracle, or there is a KafkaError."""

from __future__ import annotations

from random import Random

import pytest

from kfast.errors import (
    CorruptRecordError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from tests.fuzz.mutations import mutate, sample
from tests.fuzz.rounds import fuzz
from tests.reference.decoder import Outcome, decode_slice
from tests.reference.decompression import UNDEFINED
from tests.reference.native import Decoded, decode

ROUNDS = 4000
DECOMPRESSED_LIMIT = 1 << 20
ABORTED = ((9, 0), (9, 52))


def check(data: bytes, rng: Random) -> None:
    position = rng.choice((0, 0, 2, 51))
    read_committed = rng.random() < 0.5
    check_crcs = rng.random() < 0.9
    expected = decode_slice(
        data,
        position,
        aborted=ABORTED,
        read_committed=read_committed,
        check_crcs=check_crcs,
        limit=DECOMPRESSED_LIMIT,
    )
    got = decode(
        data,
        position,
        aborted=ABORTED,
        read_committed=read_committed,
        check_crcs=check_crcs,
        limit=DECOMPRESSED_LIMIT,
        max_bytes=rng.choice((1, 500, 1 << 20)),
    )
    check_outcome(got, expected)


def check_outcome(got: Decoded, expected: Outcome) -> None:
    error = got.error
    assert isinstance(
        error,
        CorruptRecordError | RecordTooLargeError | UnsupportedCompressionTypeError | None,
    )
    if error is not None:
        check_error(got, error)
    if expected.fault == UNDEFINED:
        return
    stopped_early = expected.next_offset != got.next_offset
    if stopped_early:
        # The libraries are stricter about some streams than the oracle, never laxer.
        assert error is not None
        assert error.cause is not None
        assert "data is malformed" in error.cause
        count = len(got.records)
        assert got.records == expected.records[:count]
        return
    assert got.records == expected.records
    if expected.fault is not None:
        assert error is not None, expected.fault
        is_limit = isinstance(error, RecordTooLargeError)
        assert is_limit == expected.is_too_large or expected.fault is not None
    elif expected.batches:
        assert error is None or "data is malformed" in str(error)


def check_error(got: Decoded, error: KafkaError) -> None:
    """Sticky, in place, and with a way on."""
    assert (error.topic, error.partition) == ("t", 3)
    with pytest.raises(type(error)) as again:
        got.decoder.decode(1)
    assert str(again.value) == str(error)
    if isinstance(error, CorruptRecordError):
        assert error.next_offset > min(got.next_offset, 2**63 - 2)


def test_fuzz() -> None:
    """D-04, D-06, D-07, D-08, D-09, D-10, D-16, D-17, D-19, D-20: nothing slips through."""
    fuzz(lambda rng: check(mutate(rng, sample(rng)), rng), ROUNDS)


def test_undamaged_samples_decode() -> None:
    """D-18: the generator makes what it should: nothing is damaged before it is mutated."""
    for seed in range(300):
        data = sample(Random(seed))
        expected = decode_slice(data)
        got = decode(data)
        assert expected.fault is None
        assert got.error is None
        assert got.records == expected.records
        assert got.next_offset == expected.next_offset
