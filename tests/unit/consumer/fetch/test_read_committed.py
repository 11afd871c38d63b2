"""Transactions, from the Fetch response to the records handed out (KIP-98)."""

from __future__ import annotations

import pytest

from kfast.testing.batches import COMMIT
from tests.reference.batches import encode_control_batch
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness, Part, batch, reading

PRODUCER = 7


def data(first: int, count: int = 3) -> bytes:
    return batch(first, count, transactional=True, producer_id=PRODUCER, producer_epoch=0)


def marker(offset: int, kind: int = 0) -> bytes:
    return encode_control_batch(offset, PRODUCER, kind)


def committed_reader() -> Harness:
    return reading({T0: 0, T1: 0}, isolation_level="read_committed")


def test_aborted_records_are_left_out_and_the_position_moves_past_them() -> None:
    """T-01, T-02, F-07: aborted data and markers are progress without records."""
    harness = committed_reader()
    harness.reply(harness.fetch(), {T0: Part(data(0) + marker(3), aborted=[(PRODUCER, 0)])})
    collected = harness.collector.collect()
    assert not any(map(len, collected.values()))
    assert collected
    assert harness.position(T0) == 4


def test_aborted_state_does_not_outlive_its_response() -> None:
    """T-07: not to another partition, not to the next answer."""
    harness = committed_reader()
    harness.reply(
        harness.fetch(),
        {T0: Part(data(0), aborted=[(PRODUCER, 0)]), T1: Part(data(0) + marker(3, COMMIT))},
    )
    assert harness.collect() == {T1: [0, 1, 2]}
    harness.reply(harness.fetch(), {T0: Part(data(3) + marker(6, COMMIT))})
    assert harness.collect() == {T0: [3, 4, 5]}


def test_read_uncommitted_ignores_the_list() -> None:
    """T-01, T-07: aborted records are returned, markers are not."""
    harness = reading()
    harness.reply(harness.fetch(), {T0: Part(data(0) + marker(3), aborted=[(PRODUCER, 0)])})
    assert harness.collect() == {T0: [0, 1, 2]}
    assert harness.position(T0) == 4


@pytest.mark.parametrize("kind", [0, 5])
def test_markers_without_counterpart_do_no_harm(kind: int) -> None:
    """T-04, T-06: an ABORT without list entry, twice, or an unknown marker changes nothing."""
    harness = committed_reader()
    harness.reply(
        harness.fetch(), {T0: Part(marker(0, kind) + marker(1, kind) + data(2) + marker(5, COMMIT))}
    )
    assert harness.collect() == {T0: [2, 3, 4]}
    assert harness.position(T0) == 6


def test_two_transactions_of_one_producer_are_distinguished() -> None:
    """T-05: the aborted one is left out, the committed one behind it is not."""
    harness = committed_reader()
    records = data(0) + marker(3) + data(4) + marker(7, COMMIT)
    harness.reply(harness.fetch(), {T0: Part(records, aborted=[(PRODUCER, 0)])})
    assert harness.collect() == {T0: [4, 5, 6]}


def test_an_open_transaction_bounds_the_lag() -> None:
    """T-10: what is behind the last stable offset is not lag yet."""
    harness = committed_reader()
    harness.reply(
        harness.fetch(), {T0: Part(batch(0, 4), high_watermark=20, last_stable_offset=10)}
    )
    harness.collect()
    assert harness.subscriptions.current_lag(T0) == 6
