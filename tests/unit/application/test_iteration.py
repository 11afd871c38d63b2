"""RecordIteration: the rest of a poll, and what happens to its partition meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kfast import ConsumerRecords, TopicPartition
from kfast.application.iteration import RecordIteration
from kfast.application.rests import Rest
from kfast.consumer.fetch.collector import Undelivered
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.subscription_state import SubscriptionState
from kfast.consumer.topic_partition_state import AdvancePosition
from kfast.settings.offset_reset import OffsetResetStrategy
from tests.unit.records.sample_records import build

TP = TopicPartition("orders", 3)
"""Of the sample records, which have the offsets 100 to 103."""


def polled() -> tuple[SubscriptionState, Iteration, int]:
    """Return state, an empty iteration, and the partition's version, after records were taken."""
    subscriptions = SubscriptionState(OffsetResetStrategy.parse("earliest"))
    subscriptions.assign_from_user([TP])
    subscriptions.seek(TP, FetchPosition(100))
    version = subscriptions.assigned(TP).version
    iteration = Iteration(subscriptions)
    iteration.advance(AdvancePosition(TP, version, 104))
    return subscriptions, iteration, version


class Iteration(RecordIteration):
    """Of one batch, with the positions moved past it."""

    __slots__ = ("collector", "step")

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self.collector = SimpleNamespace(undelivered=None)
        super().__init__(subscriptions, cast("Any", self.collector))

    def advance(self, step: AdvancePosition) -> None:
        self.step = step
        assert self._subscriptions.advance_positions([step])

    def put(self) -> None:
        """Have the batch come out of a poll that was interrupted, or is an iteration's."""
        step: Any = self.step
        self.collector.undelivered = Undelivered(ConsumerRecords([build()]), [step])


def take(rest: Rest, count: int | None) -> list[int]:
    start, stop = rest.taken, len(rest.batch)
    rest.taken = stop if count is None else start + count
    offsets: list[int] = rest.batch.offsets[start : rest.taken].tolist()
    return offsets


def test_records_survive_a_reset_that_comes_as_they_are_taken() -> None:
    """P-10, F-11: the network thread may find the position gone right after it has moved."""
    subscriptions, iteration, version = polled()
    subscriptions.offset_out_of_range(TP, version, 104)
    iteration.put()
    rest = iteration.next_rest()
    assert rest is not None
    assert take(rest, 1) == [100]
    subscriptions.complete_reset(TP, subscriptions.assigned(TP).version, FetchPosition(500))
    assert iteration.next_rest() is rest
    assert iteration.consumed()[TP].offset == 101
    assert take(rest, None) == [101, 102, 103]
    assert iteration.next_rest() is None
    assert iteration.consumed()[TP].offset == 500


def test_rows_that_are_read_again_are_dropped() -> None:
    """P-14: from where the log diverged on; a commit then has the offset to go on with."""
    subscriptions, iteration, version = polled()
    iteration.put()
    subscriptions.complete_reset(TP, version, FetchPosition(102))
    rest = iteration.next_rest()
    assert rest is not None
    assert take(rest, None) == [100, 101]
    assert iteration.consumed()[TP].offset == 102
    subscriptions.complete_reset(TP, subscriptions.assigned(TP).version, FetchPosition(0))
    assert iteration.next_rest() is None


def test_a_rest_waits_while_its_partition_is_paused() -> None:
    """P-11: nothing newer of it may be polled; a seek ends that."""
    subscriptions, iteration, _ = polled()
    assert not iteration.waiting()
    iteration.put()
    assert iteration.waiting() is None
    subscriptions.pause([TP])
    waiting = iteration.waiting()
    assert waiting is not None
    assert set(waiting) == {TP}
    subscriptions.seek(TP, FetchPosition(0))
    assert not iteration.waiting()


def test_a_topic_that_is_not_seen_for_a_while_goes_on_with_its_rest() -> None:
    """M-09: the position that it is found with again is that after the rest."""
    subscriptions = SubscriptionState(OffsetResetStrategy.parse("earliest"))
    subscriptions.subscribe(["orders"])
    subscriptions.assign_from_subscribed([TP])
    subscriptions.seek(TP, FetchPosition(100))
    version = subscriptions.assigned(TP).version
    iteration = Iteration(subscriptions)
    iteration.advance(AdvancePosition(TP, version, 104))
    iteration.put()
    subscriptions.assign_from_subscribed([], keeps_positions=True)
    assert iteration.next_rest() is None
    subscriptions.assign_from_subscribed([TP], keeps_positions=True)
    rest = iteration.next_rest()
    assert rest is not None
    assert take(rest, None) == [100, 101, 102, 103]
    assert iteration.position(TP) is None
    iteration.put()
    subscriptions.unsubscribe()
    assert iteration.next_rest() is None
    assert not iteration.rests


def test_a_topic_that_vanishes_as_its_rows_are_polled_loses_none() -> None:
    """X-08: the metadata may be without it between the poll and what is made of its rows."""
    subscriptions = SubscriptionState(OffsetResetStrategy.parse("earliest"))
    subscriptions.subscribe(["orders"])
    subscriptions.assign_from_subscribed([TP])
    subscriptions.seek(TP, FetchPosition(100))
    iteration = Iteration(subscriptions)
    iteration.advance(AdvancePosition(TP, subscriptions.assigned(TP).version, 104))
    subscriptions.assign_from_subscribed([], keeps_positions=True)
    iteration.put()
    assert iteration.next_rest() is None
    subscriptions.assign_from_subscribed([TP], keeps_positions=True)
    rest = iteration.next_rest()
    assert rest is not None
    assert take(rest, None) == [100, 101, 102, 103]


def test_what_a_call_did_not_return_is_void_after_a_seek() -> None:
    """X-09, P-04: also when the seek comes before the next call looks for it."""
    subscriptions, iteration, _ = polled()
    iteration.put()
    subscriptions.seek(TP, FetchPosition(100))
    assert iteration.next_rest() is None
    assert iteration.consumed()[TP].offset == 100


def test_a_commit_has_the_epoch_of_the_record_before_it() -> None:
    """P-16, P-14: also before the first row of a batch; who reads on there validates it by that."""
    subscriptions, iteration, version = polled()
    step = AdvancePosition(TP, version, 104, leader_epoch=5)
    subscriptions.seek(TP, FetchPosition(100, 4))
    step.version = subscriptions.assigned(TP).version
    assert subscriptions.complete_validation(TP, step.version)
    step.version = subscriptions.assigned(TP).version
    iteration.advance(step)
    iteration.put()
    assert iteration.consumed() == {TP: (100, "", 4)}
    rest = iteration.next_rest()
    assert rest is not None
    take(rest, 1)
    assert iteration.consumed() == {TP: (101, "", rest.batch.leader_epoch)}
