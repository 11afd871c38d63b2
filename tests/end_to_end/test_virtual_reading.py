"""Everything that lies in a log is read exactly once, however it lies and however it comes."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse
from kfast.testing.releases import RELEASE_NAMES, RELEASES
from kfast.types import TopicPartition
from tests.end_to_end.virtual import (
    T0,
    T1,
    describe,
    fetches,
    listed,
    make_cluster,
    offsets,
    read_all,
    value,
    write,
)
from tests.reference.compression import Codec
from tests.simulation.loopback_consumer import LoopbackConsumer
from tests.simulation.old_formats import append_batch, append_message_set
from tests.simulation.wire_faults import Split


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_every_release_is_read(release: str) -> None:
    """N-03: brokers of all releases, each with its own version ranges."""
    cluster = make_cluster(partitions=4, records=50, release=release)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    found = read_all(consumer)
    for partition in range(4):
        rows = found[TopicPartition("t", partition)]
        assert [(row.offset, row.value) for row in rows] == [(n, value(n)) for n in range(50)]
    used = {entry.version for entry in cluster.requests.select(ApiKey.FETCH)}
    assert used == {min(18, RELEASES[release][ApiKey.FETCH][1])}


def test_mixed_versions_are_chosen_per_connection() -> None:
    """N-01: ApiVersions comes first on every connection and decides for that connection alone."""
    cluster = make_cluster(partitions=3)
    cluster.set_versions(ApiKey.FETCH, (4, 11), node_id=1)
    cluster.set_versions(ApiKey.FETCH, (4, 13), node_id=2)
    cluster.set_versions(ApiKey.METADATA, (0, 9), node_id=3)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    assert sum(map(len, read_all(consumer).values())) == 60
    first: dict[int, int] = {}
    for entry in cluster.requests:
        first.setdefault(entry.connection_id, entry.api_key)
    assert set(first.values()) == {ApiKey.API_VERSIONS}
    assert {entry.version for entry in cluster.requests.select(ApiKey.FETCH, node=1)} == {11}
    assert {entry.version for entry in cluster.requests.select(ApiKey.FETCH, node=2)} <= {12, 13}


def test_brokers_without_topic_ids_are_asked_by_name() -> None:
    """F-16: Fetch above 12 needs an id for every topic; Metadata below 10 gives none."""
    cluster = make_cluster()
    cluster.set_versions(ApiKey.METADATA, (0, 9))
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    assert len(read_all(consumer)[T0]) == 20
    assert {entry.version for entry in cluster.requests.select(ApiKey.FETCH)} == {12}


def test_sessions_go_over_from_names_to_ids_without_loss() -> None:
    """F-16: when the ids become known the session starts again under ids."""
    cluster = make_cluster(nodes=1)
    cluster.set_versions(ApiKey.METADATA, (0, 9))
    consumer = LoopbackConsumer(cluster, metadata_max_age_ms=5_000)
    consumer.subscribe("t")
    assert offsets(read_all(consumer)) == list(range(20))
    cluster.set_versions(ApiKey.METADATA, (0, 13))
    cluster.close_connections()
    consumer.run(6_000)
    write(cluster, 0, 10)
    assert offsets(read_all(consumer)) == list(range(20, 30))
    versions = [entry.version for entry in cluster.requests.select(ApiKey.FETCH)]
    assert (versions[0], versions[-1]) == (12, 18)


@pytest.mark.parametrize("size", [1, 2, 3, 13])
def test_reads_and_writes_cut_anywhere(size: int) -> None:
    """N-06: the stream may be cut at any byte, in both directions."""
    consumer = LoopbackConsumer(make_cluster(partitions=2, nodes=1))
    consumer.network.max_recv_bytes = consumer.network.max_send_bytes = size
    consumer.subscribe("t")
    found = read_all(consumer)
    assert [row.value for row in found[T1]] == [value(n) for n in range(20)]


def test_answers_arriving_in_small_pieces() -> None:
    """N-06: answers sent as many small segments."""
    cluster = make_cluster(nodes=1)
    cluster.faults.add(Split((3, 1, 4, 1, 5, 9)), times=None)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    assert offsets(read_all(consumer)) == list(range(20))


def test_codecs_and_formats_mixed_in_one_partition() -> None:
    """D-13, D-18: one answer with all codecs, old message sets and timestamp types."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    expected: list[tuple[int, bytes | None, int, int]] = []

    def note(values: list[bytes], timestamp: int, timestamp_type: int = 0) -> None:
        for each in values:
            expected.append((len(expected), each, timestamp, timestamp_type))

    with cluster.writing("t", 0) as writer:
        for codec in Codec:
            values = [b"%d" % codec, b"second"]
            append_batch(writer, [Record(value=v, timestamp=5) for v in values], codec=codec)
            note(values, 5)
            stamped = [Record(value=v, timestamp=5) for v in values]
            append_batch(writer, stamped, log_append_time=77)
            note(values, 77, 1)
        for magic, timestamp, kind in ((0, -1, -1), (1, 6, 0)):
            for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                values = [b"old-%d" % magic, b"%d" % codec]
                records = [Record(value=v, timestamp=6) for v in values]
                append_message_set(writer, records, magic=magic, codec=codec)
                note(values, timestamp, kind)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    rows = read_all(consumer)[T0]
    assert [(r.offset, r.value, r.timestamp, r.timestamp_type) for r in rows] == expected


def test_what_compaction_leaves_is_crossed_without_asking_twice() -> None:
    """F-05, F-06, F-07, D-11: holes in batches, between them, and batches without a record."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        writer.append([Record(value=b"a", offset_delta=0), Record(value=b"b", offset_delta=9)])
        writer.log.skip_to(1_000_000)
        append_batch(writer, [Record(value=b"c")], last_offset_delta=99)
        writer.append_emptied(50_000)
        writer.append([Record(value=b"d", offset_delta=5)])
        writer.append_emptied(7)
    end = cluster.log("t", 0).log_end_offset
    consumer = LoopbackConsumer(cluster, max_partition_fetch_bytes=100, fetch_max_bytes=100)
    consumer.subscribe("t")
    rows = read_all(consumer)[T0]
    assert [(row.offset, row.value) for row in rows] == [
        (0, b"a"),
        (9, b"b"),
        (1_000_000, b"c"),
        (1_000_000 + 100 + 50_000 + 5, b"d"),
    ]
    assert consumer.position(T0) == end
    asked = [
        part.fetch_offset
        for request in fetches(cluster)
        for topic in request.topics
        for part in topic.partitions
    ]
    assert len(asked) == len(set(asked)), "an offset was asked for twice"


def test_a_position_inside_a_batch() -> None:
    """F-04: records before the position are not delivered, though their batch begins there."""
    for position in range(20):
        consumer = LoopbackConsumer(make_cluster(nodes=1, batch_records=10))
        consumer.assign(T0)
        consumer.seek(T0, position)
        assert offsets(read_all(consumer)) == list(range(position, 20))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_transactions(isolation_level: str) -> None:
    """T-01, T-02, T-05, T-06, T-10: aborted, committed, empty and open transactions."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    aborted: list[int] = []
    visible: list[int] = []
    with cluster.writing("t", 0) as writer:

        def add(into: list[int], count: int, **settings: Any) -> None:
            into.extend(append_batch(writer, [b"x"] * count, **settings))

        add(aborted, 3, producer_id=1, is_transactional=True, codec=Codec.ZSTD)
        add(visible, 2, producer_id=2, is_transactional=True)
        add(visible, 1, producer_id=1)  # not transactional
        writer.end_transaction(1, committed=False)
        writer.end_transaction(1, committed=False)
        add(visible, 2, producer_id=1, is_transactional=True)
        writer.end_transaction(2, committed=True)
        writer.end_transaction(1, committed=True)
        add(aborted, 1, producer_id=1, is_transactional=True)
        writer.end_transaction(1, committed=False)
        writer.end_transaction(7, committed=False)
        stable_end = writer.log.log_end_offset
        open_offsets: list[int] = []
        add(open_offsets, 2, producer_id=3, is_transactional=True)
        add(open_offsets, 2)
    consumer = LoopbackConsumer(cluster, isolation_level=isolation_level)
    consumer.subscribe("t")
    found = offsets(read_all(consumer))
    if isolation_level == "read_committed":
        assert found == visible
        assert consumer.position(T0) == stable_end
        assert consumer.subscriptions.current_lag(T0) == 0
        with cluster.writing("t", 0) as writer:
            writer.end_transaction(3, committed=True)
        assert offsets(read_all(consumer)) == open_offsets
    else:
        assert found == sorted([*visible, *aborted, *open_offsets])


def test_nothing_but_aborted_data_moves_on_and_ends() -> None:
    """T-08: hidden data in many answers moves the position, without error or empty looping."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        for _ in range(200):
            writer.append([b"x" * 500] * 4, producer_id=1, is_transactional=True)
            writer.end_transaction(1, committed=False)
        writer.append([b"at last"])
    consumer = LoopbackConsumer(
        cluster, isolation_level="read_committed", max_partition_fetch_bytes=5_000
    )
    consumer.subscribe("t")
    assert [row.value for row in read_all(consumer)[T0]] == [b"at last"]
    assert len(fetches(cluster)) < 150


def test_the_aborted_list_may_come_in_any_order() -> None:
    """T-03: the client puts the aborted transactions in order itself."""

    def reverse(response: Any, request: Any) -> None:
        for topic in response.responses:
            for partition in topic.partitions:
                (partition.aborted_transactions or []).reverse()

    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        for producer in (1, 2, 1, 3):
            writer.append([b"aborted"], producer_id=producer, is_transactional=True)
            writer.end_transaction(producer, committed=False)
            writer.append([b"kept"], producer_id=producer, is_transactional=True)
            writer.end_transaction(producer, committed=True)
    cluster.faults.add(EditResponse(reverse), api=ApiKey.FETCH, times=None)
    consumer = LoopbackConsumer(cluster, isolation_level="read_committed")
    consumer.subscribe("t")
    assert [row.value for row in read_all(consumer)[T0]] == [b"kept"] * 4


def test_no_partition_starves_under_byte_limits() -> None:
    """F-09: with room for one batch per answer, all partitions come forward."""
    cluster = make_cluster(nodes=1, partitions=5, records=100, batch_records=5)
    consumer = LoopbackConsumer(cluster, fetch_max_bytes=200, max_partition_fetch_bytes=200)
    consumer.subscribe("t")
    consumer.take(250)
    positions = [consumer.position(TopicPartition("t", number)) or 0 for number in range(5)]
    assert max(positions) - min(positions) <= 10, describe(consumer)


def test_a_partition_without_news_does_not_hold_memory_others_need() -> None:
    """F-25, B-06: with room for one partition at a time all of them are read, whatever limits."""
    cluster = make_cluster(nodes=1, partitions=4, records=200)
    consumer = LoopbackConsumer(
        cluster, fetch_max_bytes=4_000, max_partition_fetch_bytes=4_000, buffer_memory_bytes=1
    )
    consumer.subscribe("t")
    read_all(consumer)
    for partition in (3, 0, 2, 1, 1, 3):
        write(cluster, partition, 20)
        read_all(consumer, timeout_ms=3_000)


def test_limits_are_sent_as_configured() -> None:
    """B-01, B-02: minimum, waiting time and maxima go into every request unchanged."""
    cluster = make_cluster(nodes=1)
    consumer = LoopbackConsumer(
        cluster,
        fetch_min_bytes=17,
        fetch_max_wait_ms=321,
        fetch_max_bytes=54_321,
        max_partition_fetch_bytes=4_321,
    )
    consumer.subscribe("t")
    read_all(consumer)
    consumer.run(2_000)
    for request in fetches(cluster):
        assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (17, 321, 54_321)
        assert request.replica_id == -1
        for topic in request.topics:
            assert {part.partition_max_bytes for part in topic.partitions} == {4_321}


def test_the_minimum_holds_records_back_until_the_wait_is_over() -> None:
    """B-01: too little data comes after the maximum wait, enough comes at once."""
    cluster = make_cluster(nodes=1, records=0)
    consumer = LoopbackConsumer(cluster, fetch_min_bytes=10_000, fetch_max_wait_ms=700)
    consumer.subscribe("t")
    consumer.run(10)
    write(cluster, 0, 1)
    start = consumer.clock.now
    assert offsets(consumer.take(1)) == [0]
    assert 600 <= consumer.clock.now - start <= 700
    consumer.run(10)
    cluster.append("t", 0, [b"x" * 10_000])
    start = consumer.clock.now
    assert offsets(consumer.take(1)) == [1]
    assert consumer.clock.now - start < 10


def test_batches_larger_than_all_limits_come_through() -> None:
    """B-03: the first batch of an answer always comes, a later one with a later answer."""
    cluster = make_cluster(nodes=1, partitions=2, records=0)
    for partition in range(2):
        for size in (10, 50_000, 10, 70_000):
            cluster.append("t", partition, [b"x" * size])
    consumer = LoopbackConsumer(cluster, fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000)
    consumer.subscribe("t")
    found = read_all(consumer)
    for tp in (T0, T1):
        assert [len(row.value) for row in found[tp]] == [10, 50_000, 10, 70_000]


def test_reading_starts_without_waiting_out_a_pause() -> None:
    """M-01: topics wanted while a refresh is under way are asked for right behind it."""
    consumer = LoopbackConsumer(make_cluster(), retry_backoff_ms=10_000)
    start = consumer.clock.now
    consumer.subscribe("t")
    consumer.take(20)
    assert consumer.clock.now - start < 100


def test_max_poll_records_bounds_a_poll_and_loses_nothing() -> None:
    """F-12: rows per poll are bounded exactly; the rest of a batch comes in later polls."""
    cluster = make_cluster(nodes=1, records=103, batch_records=10)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    sizes: list[int] = []
    found: list[int] = []
    while len(found) < 103:
        rows = list(consumer.poll(max_records=7).get(T0) or ())
        sizes.append(len(rows))
        found.extend(row.offset for row in rows)
        assert consumer.position(T0) == len(found)
    assert found == list(range(103))
    assert max(sizes) == 7
    assert len(fetches(cluster)) <= 4


def test_the_request_that_opens_a_session_lists_everything_later_ones_only_changes() -> None:
    """F-13: epochs count up, unchanged partitions are not listed."""
    cluster = make_cluster(nodes=1, partitions=8, records=3)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    read_all(consumer)
    consumer.run(3_000)
    cluster.requests.clear()
    write(cluster, 5, 1)
    consumer.take(1)
    consumer.run(3_000)
    requests = fetches(cluster)
    assert [listed(request) for request in requests if listed(request)] == [[5]]
    epochs = [request.session_epoch for request in requests]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    assert epochs[0] > 1
