"""Fetch as the fake broker answers it: limits, long poll, transactions, sessions, redirects."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.fetch import AbortedTransaction, FetchRequest
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import Throttle
from tests.fake_broker.releases import Api
from tests.fake_broker.topology import ReplicaView
from tests.unit.fake_broker.wire import answers, ask, ask_on, fetch_request, frame

ALL_VERSIONS = range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1)


def make_cluster(partitions: int = 1, batches: int = 3, nodes: int = 1) -> FakeCluster:
    cluster = FakeCluster(nodes)
    cluster.create_topic("t", partitions, leaders=[1] * partitions)
    for partition in range(partitions):
        cluster.append("t", partition, [b"x" * 100] * batches * 2, batch_records=2)
    return cluster


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_returns_the_batches(version: int) -> None:
    cluster = make_cluster()
    found = answers(ask(cluster, fetch_request(cluster, version, {("t", 0): 3}), version))[0]
    assert found.records == b"".join(batch.data for batch in cluster.log("t", 0).batches[1:])
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 6, 6)
    assert (found.log_start_offset, found.aborted_transactions) == (0, None)


def test_limits_apply_in_order_and_the_first_batch_always_comes() -> None:
    cluster = make_cluster(partitions=3)
    size = cluster.log("t", 0).batches[0].size
    offsets = {("t", 0): 6, ("t", 1): 0, ("t", 2): 0}
    tiny = answers(ask(cluster, fetch_request(cluster, 12, offsets, max_bytes=1), 12))
    assert [len(tiny[number].records or b"") for number in range(3)] == [0, size, 0]
    small = fetch_request(cluster, 12, offsets, max_bytes=size * 2, partition_max_bytes=size)
    found = answers(ask(cluster, small, 12))
    assert [len(found[number].records or b"") for number in range(3)] == [0, size, size]
    cut = fetch_request(cluster, 12, offsets, max_bytes=2 * size - 1, partition_max_bytes=size)
    found = answers(ask(cluster, cut, 12))
    assert [len(found[number].records or b"") for number in range(3)] == [0, size, 0]
    cluster.fetch_max_bytes = 1
    assert len(answers(ask(cluster, small, 12))[2].records or b"") == 0


def test_a_byte_limit_cuts_the_last_batch() -> None:
    cluster = make_cluster()
    size = cluster.log("t", 0).batches[0].size
    request = fetch_request(cluster, 12, {("t", 0): 0}, partition_max_bytes=size + 7)
    assert len(answers(ask(cluster, request, 12))[0].records or b"") == size + 7


def test_a_long_poll_ends_with_data_or_time() -> None:
    cluster = make_cluster()
    connection = cluster.connect(1)
    connection.receive(frame(fetch_request(cluster, 12, {("t", 0): 6}), 12), 0)
    assert connection.next_chunk(499) is None
    assert connection.next_event_ms() == 500
    assert connection.next_chunk(500) is not None
    connection.receive(frame(fetch_request(cluster, 12, {("t", 0): 6}), 12), 600)
    assert connection.next_chunk(700) is None
    cluster.append("t", 0, [b"new"])
    assert connection.next_chunk(700) is not None
    assert connection.next_event_ms() is None


def test_min_bytes_holds_the_answer_back() -> None:
    cluster = make_cluster()
    connection = cluster.connect(1)
    request = fetch_request(cluster, 12, {("t", 0): 0}, min_bytes=2000)
    connection.receive(frame(request, 12), 0)
    assert connection.next_chunk(0) is None
    cluster.append("t", 0, [b"x" * 2000])
    assert connection.next_chunk(1) is not None


def test_errors_and_leader_changes_end_a_long_poll() -> None:
    cluster = make_cluster(nodes=2)
    connection = cluster.connect(1)
    connection.receive(frame(fetch_request(cluster, 10, {("t", 0): 6}), 10), 0)
    assert connection.next_chunk(0) is None
    cluster.move_leader("t", 0, 2)
    assert connection.next_chunk(1) is not None


@pytest.mark.parametrize(
    ("offset", "epoch", "version", "error"),
    [(7, -1, 12, 1), (6, -1, 12, 0), (0, 1, 12, 75), (0, 0, 12, 0), (-1, -1, 13, 1)],
)
def test_offset_and_epoch_errors(offset: int, epoch: int, version: int, error: int) -> None:
    cluster = make_cluster()
    request = fetch_request(cluster, version, {("t", 0): offset}, max_wait_ms=0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    found = answers(ask(cluster, request, version))[0]
    assert found.error_code == error
    if error:
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (
            -1,
            -1,
            -1,
        )


def test_topics_and_partitions_that_are_not_there() -> None:
    cluster = make_cluster()
    for version, topic_error in [(12, 3), (13, 100)]:
        request = fetch_request(cluster, version, {("t", 7): 0, ("gone", 0): 0})
        request.topics[1].topic_id = b"\x07" * 16
        response = ask(cluster, request, version)
        errors = [topic.partitions[0].error_code for topic in response.responses]
        assert errors == [3, topic_error]
    cluster.move_leader("t", 0, 1)
    request = fetch_request(cluster, 12, {("t", 0): 0})
    request.topics[0].partitions[0].current_leader_epoch = 0
    assert answers(ask(cluster, request, 12))[0].error_code == 74


def test_read_committed_lists_aborted_transactions_up_to_the_last_stable_offset() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        writer.append([b"a", b"b"], producer_id=1, is_transactional=True)  # 0-1
        writer.end_transaction(1, committed=False)  # 2
        writer.append([b"c"], producer_id=1, is_transactional=True)  # 3
        writer.end_transaction(1, committed=True)  # 4
        writer.append([b"d"], producer_id=1, is_transactional=True)  # 5
        writer.end_transaction(1, committed=False)  # 6
        writer.append([b"e"], producer_id=1, is_transactional=True)  # 7, stays open
    batches = cluster.log("t", 0).batches
    expected = {0: [0, 5], 1: [0, 5], 3: [5], 7: []}
    for offset, first_offsets in expected.items():
        request = fetch_request(cluster, 12, {("t", 0): offset}, isolation_level=1)
        found = answers(ask(cluster, request, 12))[0]
        assert found.aborted_transactions == [
            AbortedTransaction(1, first_offset) for first_offset in first_offsets
        ]
        assert (found.high_watermark, found.last_stable_offset) == (8, 7)
        assert found.records == b"".join(
            batch.data for batch in batches if offset <= batch.last_offset < 7
        )
    everything = answers(ask(cluster, fetch_request(cluster, 12, {("t", 0): 0}), 12))[0]
    assert everything.records == b"".join(batch.data for batch in batches)
    assert everything.aborted_transactions is None


def test_a_session_over_the_wire() -> None:
    cluster = make_cluster(partitions=2)
    connection = cluster.connect(1)
    offsets = {("t", 0): 6, ("t", 1): 6}
    opened = ask_on(connection, fetch_request(cluster, 17, offsets, session_epoch=0), 17)
    assert sorted(answers(opened)) == [0, 1]

    def follow(epoch: int, **settings: object) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=100, min_bytes=1, session_id=opened.session_id, session_epoch=epoch
        )

    quiet = ask_on(connection, follow(1), 17)
    assert (quiet.session_id, quiet.responses) == (opened.session_id, [])
    cluster.append("t", 1, [b"new"])
    assert sorted(answers(ask_on(connection, follow(2), 17))) == [1]
    repeated = ask_on(connection, follow(2), 17)
    assert (repeated.error_code, repeated.session_id, repeated.responses) == (71, 0, [])
    closing = ask_on(connection, follow(-1), 17)
    assert (closing.error_code, closing.session_id, closing.responses) == (0, 0, [])
    assert ask_on(connection, follow(3), 17).error_code == 70


def test_switching_between_names_and_ids_needs_a_new_session() -> None:
    cluster = make_cluster()
    opened = ask(cluster, fetch_request(cluster, 12, {("t", 0): 0}, session_epoch=0), 12)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1
    )
    assert ask(cluster, request, 13).error_code == 106


def test_a_quota_exceeded_leaves_the_answer_empty() -> None:
    cluster = make_cluster()
    cluster.faults.add(Throttle(300, is_empty=True), api=Api.FETCH)
    response = ask(cluster, fetch_request(cluster, 12, {("t", 0): 0}), 12)
    assert (response.throttle_time_ms, response.responses) == (300, [])


def test_the_leader_sends_a_client_to_the_follower_of_its_rack() -> None:
    cluster = FakeCluster(2, racks=["a", "b"])
    cluster.create_topic("t", leaders=[1])
    cluster.append("t", 0, [b"v"] * 4, batch_records=1)
    sent_on = answers(ask(cluster, fetch_request(cluster, 12, {("t", 0): 1}, rack_id="b"), 12))[0]
    assert (sent_on.preferred_read_replica, sent_on.records) == (2, b"")
    for rack in ("a", "", "elsewhere"):
        request = fetch_request(cluster, 12, {("t", 0): 1}, rack_id=rack)
        assert answers(ask(cluster, request, 12))[0].preferred_read_replica == -1
    request = fetch_request(cluster, 12, {("t", 0): 1}, rack_id="b")
    served = answers(ask(cluster, request, 12, node_id=2))[0]
    assert served.records
    assert served.preferred_read_replica == -1
    assert (
        answers(ask(cluster, fetch_request(cluster, 10, {("t", 0): 1}), 10, 2))[0].error_code == 6
    )


def test_a_follower_that_lags_serves_what_it_has() -> None:
    cluster = FakeCluster(2, racks=["a", "b"])
    cluster.create_topic("t", leaders=[1])
    cluster.append("t", 0, [b"v"] * 4, batch_records=1)
    cluster.partition("t", 0).replica_views[2] = ReplicaView(log_end_offset=3, high_watermark=2)
    read = answers(ask(cluster, fetch_request(cluster, 12, {("t", 0): 0}), 12, 2))[0]
    assert (read.high_watermark, len(read.records or b"")) == (
        2,
        sum(batch.size for batch in cluster.log("t", 0).batches[:2]),
    )
    beyond = answers(ask(cluster, fetch_request(cluster, 12, {("t", 0): 4}), 12, 2))[0]
    assert beyond.error_code == 1


def test_a_fetcher_with_another_history_is_told_where_it_diverges() -> None:
    cluster = make_cluster(nodes=2)
    cluster.move_leader("t", 0, 1, truncate_to=4)
    request = fetch_request(cluster, 12, {("t", 0): 6})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    found = answers(ask(cluster, request, 12))[0]
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 4)
