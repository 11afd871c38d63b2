"""Commits that are interrupted, through the public API: what is stored, and what goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import WakeupError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Delay, PartitionError
from tests.end_to_end.groups import GROUP, PROTOCOLS, cluster_of, committed, member, read_all
from tests.end_to_end.stage import Stage, eventually
from tests.unit.threads.interruptions import run_interrupted

MakeStage = Callable[..., Stage]

T0 = TopicPartition("t", 0)
MANUAL: dict[str, Any] = {"enable_auto_commit": False}
LOADING = 14
"""COORDINATOR_LOAD_IN_PROGRESS: the commit is tried again."""


def by_hand(stage: Stage, **configs: Any) -> kfast.KafkaConsumer:
    consumer = stage.consumer(group_id=GROUP, **configs)
    consumer.assign([T0])
    return consumer


def history(cluster: FakeCluster) -> list[int]:
    """Return every offset of t-0 that was stored, in order."""
    group = cluster.groups.offsets(GROUP)
    return [entry.offset for tp, entry in group.history if tp == T0]


def commits_sent(cluster: FakeCluster) -> int:
    return len(cluster.requests.select(ApiKey.OFFSET_COMMIT))


def test_wakeup_ends_the_sending_of_a_commit(make_stage: MakeStage) -> None:
    """R-01, C-05: it is never stored, and the next commit does not wait for it."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), retry_backoff_ms=50, **MANUAL)
    consumer.poll(timeout_ms=10_000)
    consumer.commit({T0: 1})
    rule = cluster.faults.add(PartitionError(LOADING), api=ApiKey.OFFSET_COMMIT, times=None)

    def wake() -> None:
        cluster.requests.wait_for(lambda _: rule.hits > 1, 10)
        consumer.wakeup()

    timer = threading.Thread(target=wake)
    timer.start()
    with pytest.raises(WakeupError):
        consumer.commit({T0: 9}, timeout_ms=60_000)
    timer.join(10)
    cluster.faults.clear()
    consumer.commit({T0: 5}, timeout_ms=10_000)
    consumer.close()
    assert 9 not in history(cluster)
    assert committed(cluster) == {0: 5}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_leaving_by_an_exception_takes_no_outstanding_commit_back(
    make_stage: MakeStage, protocol: str
) -> None:
    """R-03: a commit_async that is in flight counts as what is committed."""
    cluster = cluster_of(1)
    stage = make_stage(cluster)

    def work() -> None:
        with member(stage, protocol, max_poll_records=5) as consumer:
            read_all(consumer, 5)
            cluster.faults.add(Delay(300), api=ApiKey.OFFSET_COMMIT)
            consumer.commit_async()
            raise ValueError("while processing")

    with pytest.raises(ValueError, match="while processing"):
        work()
    assert history(cluster) == [5]


class Handler:
    """Stands for a signal handler that leaves the program, and notes that it was called."""

    def __init__(self) -> None:
        self.was_called = False

    def __call__(self) -> None:
        self.was_called = True
        raise SystemExit


def places(most: int = 3_000) -> Iterator[tuple[int, Handler]]:
    """Yield places until a handler was not called any more."""
    for at in range(1, most):
        handler = Handler()
        yield at, handler
        if not handler.was_called:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_commit_left_at_any_instruction_stops_nothing(
    make_stage: MakeStage, is_async: bool
) -> None:
    """R-05: it is stored or not; those after it are, in order, and their callbacks run once."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), **MANUAL)
    consumer.poll(timeout_ms=10_000)
    calls: list[int] = []

    def callback(offsets: dict[TopicPartition, Any], error: object) -> None:
        assert error is None
        calls.append(offsets[T0].offset)

    for at, handler in places():

        def commit(offset: int = 10 * at) -> None:
            if is_async:
                consumer.commit_async({T0: offset}, callback)
            else:
                consumer.commit({T0: offset})

        try:
            run_interrupted(commit, handler, at, raises=True)
        except SystemExit:
            assert handler.was_called
        consumer.commit_async({T0: 10 * at + 1}, callback)
        consumer.commit({T0: 10 * at + 2})
        assert committed(cluster) == {0: 10 * at + 2}
        assert calls.count(10 * at + 1) == 1
    stored = history(cluster)
    assert stored == sorted(stored)
    assert calls == sorted(set(calls))
    consumer.close()


def test_an_exception_out_of_a_callback_does_not_stop_auto_commit(make_stage: MakeStage) -> None:
    """R-04: SystemExit out of a callback and out of an interceptor; polls go on committing."""
    cluster = cluster_of(1, 200)
    left: list[str] = []

    class Leaving:
        def on_commit(self, offsets: dict[TopicPartition, Any]) -> None:
            left.append("interceptor")
            if len(left) == 1:
                raise SystemExit

    def callback(*_: object) -> None:
        left.append("callback")
        raise SystemExit

    consumer = by_hand(
        make_stage(cluster),
        interceptor_classes=[Leaving],
        auto_commit_interval_ms=0,
        max_poll_records=5,
    )
    consumer.poll(timeout_ms=10_000)
    consumer.commit_async({T0: 1}, callback)
    exits = 0

    def step() -> bool:
        nonlocal exits
        try:
            consumer.poll(timeout_ms=50)
        except SystemExit:
            exits += 1
        return committed(cluster).get(0, 0) >= 50

    eventually(step, lambda: f"{committed(cluster)} {left}")
    assert exits == 2
    assert left.count("callback") == 1
