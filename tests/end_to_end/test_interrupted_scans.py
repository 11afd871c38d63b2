"""Exceptions of signal handlers in reads of a range: nothing is lost unnoticed or stays open."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import kfast
from kfast.errors import IllegalStateError
from kfast.protocol.api_keys import ApiKey
from kfast.spark.source.consumer_cache import ConsumerCache
from kfast.spark.source.range_reader import RangeReader, ReadSettings
from kfast.table.offset_ranges import OffsetRange
from kfast.testing.faults import EditResponse
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of
from tests.end_to_end.stage import eventually
from tests.unit.threads.interruptions import run_interrupted

ROWS = 300
MOST = 120
"""More places than this are not tried."""


class Interrupted(BaseException):
    """What the handler raises."""


def interrupt() -> None:
    raise Interrupted


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "t", two partitions of batches of two records."""
    with BrokerServer(cluster_of(2, ROWS, batch_records=2)) as running:
        yield running


def consumers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("kfast-network")]


def no_consumers() -> bool:
    gc.collect()
    return not consumers()


# A constructor that was interrupted leaves its sockets to the collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize(("is_begun", "step"), [(True, 3), (False, 23)])
def test_a_scan_interrupted_anywhere_loses_and_repeats_nothing(
    server: BrokerServer, is_begun: bool, step: int
) -> None:
    """V-03: what follows is next or an error; a scan from the last next_offset on has the rest."""
    positions = {T0: 0, T1: 0}
    seen: dict[int, list[int]] = {0: [], 1: []}

    def new_scan(**settings: Any) -> kfast.TopicScan:
        return kfast.scan_topic(
            "t", start=positions, bootstrap_servers=server.bootstrap_servers, **settings
        )

    found: list[kfast.PartitionRecords] = []

    def read(batches: Iterator[kfast.PartitionRecords]) -> None:
        for batch in batches:
            found.append(batch)  # nothing of kfast's runs from here on
            break

    def note() -> None:
        for batch in found:
            seen[batch.partition] += batch.offsets.tolist()
            positions[batch.topic_partition] = batch.next_offset
        found.clear()

    def take(batches: Iterator[kfast.PartitionRecords]) -> None:
        read(batches)
        note()

    interruptions, errors, passed, at = 0, 0, 0, 1
    while passed < 2 and interruptions < MOST:
        with new_scan(max_poll_records=1) as scan:
            batches = iter(scan)
            if is_begun:
                take(batches)
            before = dict(positions)
            try:
                run_interrupted(partial(read, batches), interrupt, at, raises=True)
            except Interrupted:
                interruptions += 1
                note()
                assert positions == before
                try:
                    take(batches)  # nothing had happened yet
                except IllegalStateError:
                    errors += 1
                    with pytest.raises(IllegalStateError, match="interrupted before its end"):
                        next(scan)
            else:
                note()
                passed += 1
        at += step
    assert interruptions >= errors > 30
    for batch in new_scan():
        seen[batch.partition] += batch.offsets.tolist()
    assert seen == {0: list(range(ROWS)), 1: list(range(ROWS))}
    del scan, batches, batch
    eventually(no_consumers)


@pytest.mark.parametrize("begin", [lambda scan: scan.schema, next])
def test_a_scan_that_was_interrupted_as_it_began_is_not_empty(
    server: BrokerServer, begin: Callable[[Any], object]
) -> None:
    """V-03: it has not begun, or going on with it is an error."""
    is_interrupted = False
    for at in range(1, 20):
        scan = kfast.scan_topic(
            T0,
            bootstrap_servers=server.bootstrap_servers,
            value_deserializer=bytes.decode,
            max_poll_records=1,
        )
        try:
            run_interrupted(partial(begin, scan), interrupt, at, raises=True)
        except Interrupted:
            is_interrupted = True
            with contextlib.suppress(IllegalStateError):
                assert next(scan).offsets.tolist() == [0]
        scan.close()
    assert is_interrupted
    scan = kfast.scan_topic(T0, bootstrap_servers=server.bootstrap_servers)
    iter(scan)  # a loop that was left
    with pytest.raises(IllegalStateError):
        next(scan)


def test_an_error_is_not_the_end_of_a_scan(server: BrokerServer) -> None:
    """V-03: nor is it for the iterator of a loop."""

    def refuse(raw: bytes) -> bytes:
        if raw.endswith(b"-8"):
            raise ValueError("not this one")
        return raw

    scan = kfast.scan_topic(
        T0, bootstrap_servers=server.bootstrap_servers, value_deserializer=refuse
    )
    batches = iter(scan)
    with pytest.raises(kfast.KafkaError):
        for _ in batches:
            pass
    for again in (batches, scan):
        with pytest.raises(IllegalStateError):
            next(again)
    assert no_consumers()


def test_a_scan_is_not_used_inside_of_itself(server: BrokerServer) -> None:
    """V-03: by a callback, say; it goes on afterwards."""
    errors: list[IllegalStateError] = []

    def reported(_done: int, _total: int) -> None:
        for inner in (lambda: next(scan), scan.close):
            with pytest.raises(IllegalStateError, match="inside of another call") as caught:
                inner()
            errors.append(caught.value)

    scan = kfast.scan_topic(
        "t", bootstrap_servers=server.bootstrap_servers, progress=reported, max_poll_records=50
    )
    assert sum(len(batch) for batch in scan) == 2 * ROWS
    assert len(errors) > 2


def test_what_interrupts_a_read_comes_out_of_it(server: BrokerServer) -> None:
    """V-03: as it is, and no thread or connection is left while its traceback is kept."""
    calls = 0

    def raising(raw: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Interrupted
        return raw

    with pytest.raises(Interrupted) as caught:
        kfast.read_topic(
            "t", bootstrap_servers=server.bootstrap_servers, value_deserializer=raising
        )
    assert not consumers()
    with pytest.raises(Interrupted) as other:
        kfast.read_topic(
            "t", bootstrap_servers=server.bootstrap_servers, progress=lambda done, _: stop(done)
        )
    assert not consumers()
    assert caught.tb is not other.tb


def stop(done: int) -> None:
    if done:
        raise Interrupted


def test_a_glob_leaves_out_topics_deleted_before_they_are_read() -> None:
    """V-04: of a topic or partition that is named it is an error."""
    cluster = cluster_of(1)
    cluster.create_topic("t-gone")
    cluster.append("t-gone", 0, [b"x"])

    def delete(message: Any, _plan: object) -> None:
        if any(topic.name == "t-gone" for topic in message.topics):
            cluster.topics.pop("t-gone", None)

    cluster.faults.add(EditResponse(delete), api=ApiKey.METADATA, times=None)
    with BrokerServer(cluster) as server:
        found = kfast.read_topic("t*", bootstrap_servers=server.bootstrap_servers)
        assert {tp: len(batch) for tp, batch in found.items()} == {T0: 10}
        cluster.create_topic("t-gone")
        with pytest.raises(kfast.KafkaError, match='no topic "t-gone"'):
            kfast.read_topic("t*", "t-gone", bootstrap_servers=server.bootstrap_servers)


# Consumers that were interrupted are left to the collector, as in a worker whose task fails.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_task_interrupted_anywhere_leaves_the_next_one_a_whole_range(
    server: BrokerServer,
) -> None:
    """V-13: the next task of the process, with the consumers that are kept for it."""
    kafka = {"bootstrap.servers": server.bootstrap_servers, "max.poll.records": "50"}
    cache = ConsumerCache()
    wanted = OffsetRange("t", 0, 3, ROWS - 3)
    whole = list(range(3, ROWS - 3))

    def task(found: list[int]) -> None:
        for batch in RangeReader(ReadSettings(kafka), cache=cache).read(wanted):
            found += batch.offsets.tolist()

    interruptions, passed, at = 0, 0, 1
    while passed < 2 and interruptions < MOST:
        found: list[int] = []
        try:
            run_interrupted(partial(task, found), interrupt, at, raises=True)
        except Interrupted:
            interruptions += 1
            assert found == whole[: len(found)]
            next_found: list[int] = []
            task(next_found)
            assert next_found == whole
        else:
            passed += 1
            assert found == whole
        at += 11
    assert interruptions > 30
    cache.close()
    eventually(no_consumers)
