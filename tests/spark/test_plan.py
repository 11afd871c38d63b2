"""Where a batch query starts, and that nothing is left out of it unseen."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.errors import OffsetOutOfRangeError
from kfast.spark.source.driver import starts_instead
from kfast.types import TopicPartition
from tests.spark.support import FakeLookup, at, options

HUNDRED = FakeLookup(at(0, 0), at(100, 100))


def instead(lookup: FakeLookup, **given: Any) -> dict[TopicPartition, int]:
    """Return where a batch starts instead of where its options say."""
    chosen = options(**given)
    partitions = lookup.partitions(must_exist=True)
    start = lookup.resolve(chosen.start, partitions)
    return starts_instead(chosen, lookup, start, lookup.resolve(chosen.end, partitions))


PAST_ENDS = [
    ({}, (500, 0), "t-0 would be read from 500, but its log ends at 100"),
    ({"endingOffsets": '{"t":{"0":600,"1":-1}}'}, (500, 0), "t-0 would be read from 500, but its"),
    ({"endingOffsets": '{"t":{"0":3,"1":7}}'}, (3, 8), "t-1 would be read from 8 to 7"),
]


@pytest.mark.parametrize(("given", "start", "message"), PAST_ENDS)
def test_a_start_after_the_end_is_an_error_naming_both(
    given: dict[str, str],
    start: tuple[int, int],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Q-01: not an empty range without a message."""
    given = {**given, "startingOffsets": f'{{"t":{{"0":{start[0]},"1":{start[1]}}}}}'}
    with pytest.raises(OffsetOutOfRangeError) as raised:
        instead(HUNDRED, **given)
    assert raised.value.message.startswith(message)
    assert raised.value.offset in start
    assert "failOnDataLoss=false" in str(raised.value.hint)
    replaced = instead(HUNDRED, failOnDataLoss="false", **given)
    assert len(replaced) == 1
    assert message in caplog.text


def test_a_start_at_the_end_or_before_it_stays() -> None:
    """Q-01: an empty range is no error if the log has that offset."""
    assert instead(HUNDRED, startingOffsets='{"t":{"0":100,"1":-2}}') == {}
    ends = '{"t":{"0":40,"1":-1}}'
    assert instead(HUNDRED, startingOffsets='{"t":{"0":40,"1":3}}', endingOffsets=ends) == {}
    assert instead(HUNDRED, startingOffsets="earliest") == {}


def test_a_record_found_by_its_time_may_be_that_of_an_open_transaction() -> None:
    """Q-01: it is after the last stable offset; there is nothing wrong with that."""
    chosen = options(startingTimestamp=1767225600000)
    assert starts_instead(chosen, HUNDRED, at(120, 0), at(100, 100)) == {}
    chosen = options(startingTimestamp=1767225600000, endingTimestamp=1767225500000)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 would be read from 60 to 50"):
        starts_instead(chosen, HUNDRED, at(60, 0), at(50, 100))
