"""No message is logged under a lock that a call of the application takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import KafkaConsumer
from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import PartitionError
from tests.end_to_end.stage import Stage, eventually, read
from tests.end_to_end.virtual import T0, make_cluster, write

MakeStage = Callable[..., Stage]


class LockWatch(logging.Handler):
    """Notes what is logged while the thread has the lock of the subscription state."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[Any] = []
        self.under_lock: list[str] = []
        self.messages: list[str] = []

    def watch(self, consumer: KafkaConsumer) -> None:
        self.locks.append(consumer._subscriptions.lock)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        if any(lock._is_owned() for lock in self.locks):
            self.under_lock.append(record.getMessage())


@pytest.fixture
def watch() -> Iterator[LockWatch]:
    """Give a handler of all messages of kfast."""
    logger, watch = logging.getLogger("kfast"), LockWatch()
    before = logger.level
    logger.addHandler(watch)
    logger.setLevel(logging.DEBUG)
    yield watch
    logger.removeHandler(watch)
    logger.setLevel(before)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_nothing_is_logged_under_the_lock_of_the_subscription_state(
    make_stage: MakeStage, watch: LockWatch, group_id: str | None
) -> None:
    """U-11: a handler that asks the consumer for its position would wait for another thread."""
    cluster = make_cluster(nodes=2, leaders=[1])
    reader = make_stage(cluster).consumer(group_id=group_id, metadata_max_age_ms=100)
    watch.watch(reader)
    reader.subscribe(pattern="t|later")
    read(reader, 20)
    if group_id is not None:
        reader.commit()
    cluster.faults.add(PartitionError(-1), api=ApiKey.FETCH)
    cluster.faults.add(PartitionError(3), api=ApiKey.FETCH)
    write(cluster, 0, 5)
    read(reader, 5)
    cluster.move_leader("t", 0, 2, truncate_to=12)
    write(cluster, 0, 5)
    read(reader, 5)
    cluster.recreate_topic("t")
    write(cluster, 0, 5)
    read(reader, 5)
    cluster.create_topic("later")
    eventually(lambda: not reader.poll(timeout_ms=20) and len(reader.assignment()) == 2)
    for offset in (0, 5, 3):
        reader.seek(T0, offset)
        reader.poll(timeout_ms=50)
    reader.close()
    assert watch.under_lock == []
    told = "\n".join(watch.messages)
    for text in ("failed to read t-0", "was truncated", "was deleted and created again"):
        assert text in told
