"""docs/how-to/asyncio.md: calls in threads, which wakeup() ends when a task is cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast.errors import IllegalStateError, WakeupError
from kfast.testing.cluster import FakeCluster
from tests.document_examples import examples
from tests.end_to_end.groups import cluster_of, committed
from tests.end_to_end.stage import Stage, eventually

MakeStage = Callable[..., Stage]
PATIENCE_S = 60.0


def orders() -> FakeCluster:
    cluster = cluster_of(1)
    cluster.create_topic("orders", 2)
    for partition in range(2):
        cluster.append("orders", partition, [b"x"] * 10)
    return cluster


def document(stage: Stage) -> dict[str, Any]:
    """Return the names that the example defines."""
    (code,) = examples("docs/how-to/asyncio.md", "One call at a time")
    scope: dict[str, Any] = {}
    exec(code.replace("localhost:9092", stage.server.bootstrap_servers), scope)
    return scope


def no_consumer_threads() -> bool:
    return not any(each.name.startswith("kfast-network") for each in threading.enumerate())


def test_a_cancelled_task_ends_the_poll_and_closes_the_consumer(make_stage: MakeStage) -> None:
    """V-10: the event loop goes on meanwhile, and what was processed is committed."""
    cluster = orders()
    scope = document(make_stage(cluster))
    rows = 0
    ticks = 0

    async def process(records: kfast.ConsumerRecords) -> None:
        nonlocal rows
        rows += records.count()

    async def main() -> float:
        nonlocal ticks
        task = asyncio.ensure_future(scope["consume"](process))
        async with asyncio.timeout(PATIENCE_S):
            while committed(cluster, "billing") != {0: 10, 1: 10}:
                await asyncio.sleep(0.01)
                ticks += 1
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    assert asyncio.run(main()) < 20  # the poll waits for a minute
    assert rows == 20
    assert ticks > 1
    eventually(no_consumer_threads)


def test_what_was_not_processed_is_read_again(make_stage: MakeStage) -> None:
    """V-10: cancelled by asyncio.timeout while records are processed, nothing is committed."""
    cluster = orders()
    scope = document(make_stage(cluster))
    begun = 0

    async def process(records: kfast.ConsumerRecords) -> None:
        nonlocal begun
        if records:
            begun += 1
            raise TimeoutError  # as a cancelled await does

    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(scope["consume"](process))
    assert begun == 2
    assert committed(cluster, "billing") == {}


def test_ctrl_c_cancels_the_task_of_asyncio_run(make_stage: MakeStage) -> None:
    """V-10"""
    scope = document(make_stage(orders()))

    async def process(records: kfast.ConsumerRecords) -> None:
        if records:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(scope["consume"](process))
    eventually(no_consumer_threads)


def test_a_listener_waits_for_the_event_loop(make_stage: MakeStage) -> None:
    """V-10: it runs in the thread of the call, also in that of close()."""
    stage = make_stage(orders())
    in_thread = document(stage)["in_thread"]
    calls: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def note(name: str) -> None:
            calls.append(name)

        class Listener(kfast.ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: list[kfast.TopicPartition]) -> None:
                asyncio.run_coroutine_threadsafe(note("assigned"), loop).result(PATIENCE_S)

            def on_partitions_revoked(self, revoked: list[kfast.TopicPartition]) -> None:
                asyncio.run_coroutine_threadsafe(note("revoked"), loop).result(PATIENCE_S)

        consumer = stage.consumer(group_id="listening")
        consumer.subscribe(["orders"], listener=Listener())
        async with asyncio.timeout(PATIENCE_S):
            while not calls:
                await in_thread(consumer, consumer.poll, 100)
        await asyncio.to_thread(consumer.close)

    asyncio.run(main())
    assert calls == ["assigned", "revoked"]


def test_a_consumer_is_used_by_one_thread_at_a_time_and_by_any(make_stage: MakeStage) -> None:
    """V-10: while a call is in a thread another one raises; a late wakeup harms no close."""
    cluster = cluster_of(1)
    cluster.create_topic("quiet")
    stage = make_stage(cluster)
    in_thread = document(stage)["in_thread"]
    consumer = stage.consumer("quiet", group_id="other")

    async def until_refused() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                consumer.paused()
                await asyncio.sleep(0.001)

    async def main() -> None:
        for _ in range(3):  # the threads of a pool
            await in_thread(consumer, consumer.poll, 50)
        polling = asyncio.ensure_future(in_thread(consumer, consumer.poll, 60_000))
        with pytest.raises(IllegalStateError, match="thread"):  # once the poll has begun
            await until_refused()
        assert consumer.health() is not None
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await in_thread(consumer, consumer.poll, 50)
        consumer.wakeup()
        await asyncio.to_thread(consumer.close)

    asyncio.run(main())
