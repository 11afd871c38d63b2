"""Connections that break, lie, stall or go idle: exact in virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.fetch import FetchRequest
from kfast.testing.cluster import FakeCluster
from kfast.testing.fault_table import Fault
from kfast.testing.faults import (
    Drop,
    DropMidRequest,
    EditResponse,
    NeverAnswer,
    Throttle,
    TopLevelError,
    Trickle,
)
from kfast.types import TopicPartition
from tests.end_to_end.virtual import (
    T0,
    T1,
    fetches,
    forgotten,
    listed,
    make_cluster,
    offsets,
    read_all,
    write,
)
from tests.simulation.loopback_consumer import LoopbackConsumer
from tests.simulation.partition_faults import (
    DuplicatePartition,
    OmitPartition,
    UnaskedPartition,
    UnaskedTopic,
)
from tests.simulation.wire_faults import (
    Answer,
    ClaimFrameSize,
    FlipByte,
    TruncateBody,
    WrongCorrelationId,
)


def reading(cluster: FakeCluster, **configs: Any) -> LoopbackConsumer:
    consumer = LoopbackConsumer(cluster, **configs)
    consumer.assign(T0)
    read_all(consumer)
    return consumer


BREAKING: dict[str, Fault] = {
    "closed before the answer": Drop(),
    "reset before the answer": Drop(is_reset=True),
    "closed in the size": Drop(2),
    "closed in the header": Drop(6),
    "closed in the body": Drop(60),
    "closed mid-request": DropMidRequest(20),
    "reset mid-request": DropMidRequest(20, is_reset=True),
    "wrong correlation id": WrongCorrelationId(),
    "negative frame size": ClaimFrameSize(-1),
    "huge frame size": ClaimFrameSize(0x7FFFFFFF),
    "frame size too small": ClaimFrameSize(10),
    "cut body": TruncateBody(20),
    "no body": TruncateBody(1_000_000),
    "an array count that lies": FlipByte(19),
    "garbage": Answer(b"\x00\x00\x00\x08garbage!"),
}


@pytest.mark.parametrize("what", BREAKING)
def test_a_broken_fetch_answer_costs_nothing_but_time(what: str) -> None:
    """N-04, N-18, D-21: the connection is dropped, nothing is lost or repeated."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    cluster.faults.add(BREAKING[what], api=ApiKey.FETCH)
    write(cluster, 0, 30, batch_records=10)
    start = consumer.clock.now
    rows = consumer_take_through_errors(consumer, 30)
    assert rows == list(range(20, 50))
    assert consumer.clock.now - start < 3_000
    assert cluster.connections_made >= 2


def consumer_take_through_errors(consumer: LoopbackConsumer, count: int) -> list[int]:
    """Read on over errors of malformed answers, which may be told once each."""
    found: list[int] = []
    errors = 0
    while len(found) < count:
        try:
            found += (row.offset for row in consumer.poll().get(T0) or ())
        except KafkaError:
            errors += 1
            assert errors < 5
    return found


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS])
@pytest.mark.parametrize("what", [what for what in BREAKING if "count" not in what])
def test_broken_answers_on_the_way_to_the_first_record(what: str, api: ApiKey) -> None:
    """N-04, N-18: every step of the start may break and is taken again."""
    cluster = make_cluster(nodes=1)
    cluster.faults.add(BREAKING[what], api=api, times=2)
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0)
    assert consumer_take_through_errors(consumer, 20) == list(range(20))


def test_a_request_without_answer_ends_its_connection() -> None:
    """N-05: after request_timeout_ms the connection is closed and everything is asked again."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster, request_timeout_ms=5_000)
    cluster.faults.add(NeverAnswer(), api=ApiKey.FETCH)
    consumer.run(600)
    before = cluster.connections_made
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert 3_000 < consumer.clock.now - start < 7_000
    assert cluster.connections_made == before + 1


def test_a_trickling_broker_is_left_without_a_busy_loop() -> None:
    """N-17: one byte per second is as good as no answer."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster, request_timeout_ms=20_000)
    cluster.faults.add(Trickle(), api=ApiKey.FETCH)
    write(cluster, 0, 10)
    consumer.network.selects = 0
    assert offsets(consumer.take(10, timeout_ms=60_000)) == list(range(20, 30))
    assert consumer.network.selects < 200


def test_a_slow_broker_does_not_hold_up_the_others() -> None:
    """F-22: records of the other broker come while one does not answer."""
    cluster = make_cluster(nodes=2, partitions=2, leaders=[1, 2])
    cluster.faults.add(NeverAnswer(), api=ApiKey.FETCH, node=1, times=None)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    start = consumer.clock.now
    assert offsets(consumer.take(20), T1) == list(range(20))
    assert consumer.clock.now - start < 100


def test_all_brokers_dead_costs_few_attempts_and_recovers() -> None:
    """N-09, N-17: reconnects back off to their maximum, and reading goes on afterwards."""
    cluster = make_cluster(nodes=3, leaders=[1])
    consumer = reading(cluster)
    for node in (1, 2, 3):
        cluster.stop_node(node, fails_over=False)
    consumer.run(5_000)
    consumer.network.attempts.clear()
    consumer.network.selects = 0
    consumer.run(60_000)
    assert len(consumer.network.attempts) < 3 * 60 / 0.8
    assert consumer.network.selects < 2_000
    cluster.thaw_metadata()
    for node in (1, 2, 3):
        cluster.start_node(node)
    write(cluster, 0, 10)
    start = consumer.clock.now
    assert offsets(consumer.take(10)) == list(range(20, 30))
    assert consumer.clock.now - start < 3_000


def test_a_rolling_bounce_of_all_brokers() -> None:
    """N-18: every broker restarts while records are read; none is lost or repeated."""
    cluster = make_cluster(nodes=3, partitions=3, records=0)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    network = consumer.network

    def produce() -> None:
        for partition in range(3):
            write(cluster, partition, 4, batch_records=2)

    for number in range(100):
        network.schedule(100 * number + 7, produce)
    for node in (1, 2, 3):
        network.schedule(2_500 * node, partial(cluster.stop_node, node))
        network.schedule(2_500 * node + 1_500, partial(cluster.start_node, node))
    rows = consumer.take(1_200, timeout_ms=60_000)
    for partition in range(3):
        assert offsets(rows, TopicPartition("t", partition)) == list(range(400))
    assert len(cluster.requests.select(ApiKey.LIST_OFFSETS)) <= 6


def test_a_killed_broker_mid_response() -> None:
    """N-18: the part of an answer that came is dropped with its connection."""
    cluster = make_cluster(nodes=2, leaders=[1], records=2_000, batch_records=50)
    cluster.faults.add(Drop(20_000, is_reset=True), api=ApiKey.FETCH)
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0)
    assert offsets(read_all(consumer)) == list(range(2_000))


def test_idle_connections_are_closed_and_come_back() -> None:
    """N-11: connections without traffic close after connections_max_idle_ms, quietly."""
    cluster = make_cluster(nodes=2, leaders=[1])
    consumer = LoopbackConsumer(cluster, connections_max_idle_ms=5_000, request_timeout_ms=4_000)
    consumer.assign(T0)
    read_all(consumer)
    consumer.subscriptions.pause([T0])
    consumer.run(20_000)
    assert consumer.client.connection_count == 0
    consumer.subscriptions.resume([T0])
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(20, 25))


def test_the_broker_closing_an_idle_connection_is_not_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """N-11: a connection closed by the broker is opened again; nothing is logged as a warning."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    consumer.subscriptions.pause([T0])
    consumer.run(2_000)
    cluster.close_connections()
    consumer.run(2_000)
    consumer.subscriptions.resume([T0])
    write(cluster, 0, 5)
    assert offsets(consumer.take(5)) == list(range(20, 25))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_throttling_mutes_one_node_only() -> None:
    """N-12: while one broker throttles, the other is read as before."""
    cluster = make_cluster(nodes=2, partitions=2, leaders=[1, 2])
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    read_all(consumer)
    cluster.faults.add(Throttle(5_000), api=ApiKey.FETCH, node=1)
    consumer.run(1_100)  # one that is under way already is answered as before
    cluster.requests.clear()
    start = consumer.clock.now
    write(cluster, 0, 1)
    write(cluster, 1, 1)
    assert offsets(consumer.take(1), T1) == [20]
    assert consumer.clock.now - start < 100
    assert offsets(consumer.take(1)) == [20]
    assert 3_000 < consumer.clock.now - start < 6_000
    assert not [e for e in cluster.requests.select(node=1) if e.time_ms < start + 3_000]


def test_an_empty_throttled_answer_is_waited_out() -> None:
    """F-24: a quota answer without partitions is no error; absurd times are clamped."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    cluster.faults.add(Throttle(700, is_empty=True), api=ApiKey.FETCH)
    consumer.run(600)
    write(cluster, 0, 5)
    start = consumer.clock.now
    assert offsets(consumer.take(5)) == list(range(20, 25))
    assert consumer.clock.now - start < 1_500

    def forever(response: Any, _: object) -> None:
        response.throttle_time_ms = 0x7FFFFFFF

    cluster.faults.add(EditResponse(forever), api=ApiKey.FETCH)
    consumer.run(600)
    write(cluster, 0, 5)
    assert offsets(consumer.take(5, timeout_ms=600_000)) == list(range(25, 30))


# -- fetch sessions ------------------------------------------------------------------------


@pytest.mark.parametrize("code", [70, 71, 106, -1])
def test_session_errors_start_the_session_again(code: int) -> None:
    """F-15: 70 leads to (0, 0), the others to (id, 0); nothing is lost or repeated."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    consumer.run(1_000)
    cluster.faults.add(TopLevelError(code), api=ApiKey.FETCH)
    cluster.requests.clear()
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    consumer.run(1_500)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(30, 40))
    requests = fetches(cluster)
    failed_id = requests[0].session_id
    index, again = next(
        (number, request) for number, request in enumerate(requests) if request.session_epoch == 0
    )
    assert again.session_id == (0 if code == 70 else failed_id)
    assert listed(again) == [0]
    assert [request.session_epoch for request in requests[index:]] == list(
        range(len(requests) - index)
    )


def test_evicted_sessions_are_opened_again() -> None:
    """F-15: a broker that has forgotten the session says 70."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    for start in range(20, 100, 20):
        cluster.sessions(1).evict()
        write(cluster, 0, 20)
        assert offsets(consumer.take(20)) == list(range(start, start + 20))


def test_no_session_granted() -> None:
    """F-14: replies with session id 0 keep complete requests going, without a loop."""
    cluster = make_cluster(nodes=1)
    cluster.sessions(1).max_sessions = 0
    consumer = reading(cluster)
    cluster.requests.clear()
    consumer.run(10_000)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))
    requests = fetches(cluster)
    assert {(request.session_id, request.session_epoch) for request in requests} == {(0, 0)}
    assert len(requests) < 30


def test_sessions_switched_off() -> None:
    """F-14: enable_incremental_fetch_sessions=False sends (0, -1) for ever."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster, enable_incremental_fetch_sessions=False)
    consumer.run(2_000)
    kinds = {(request.session_id, request.session_epoch) for request in fetches(cluster)}
    assert kinds == {(0, -1)}
    assert cluster.sessions(1).sessions == {}


def test_partitions_no_longer_read_are_forgotten() -> None:
    """F-13: an unassigned partition is named in the forgotten list, an added one is listed."""
    cluster = make_cluster(nodes=1, partitions=3)
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0, T1)
    read_all(consumer)
    consumer.run(1_000)
    cluster.requests.clear()
    consumer.assign(T1, TopicPartition("t", 2))
    read_all(consumer)
    consumer.run(1_500)
    requests = fetches(cluster)
    assert [number for request in requests for number in forgotten(request)] == [0]
    assert [number for request in requests for number in listed(request) if number == 1] == []
    assert {number for request in requests for number in listed(request)} == {2}


def test_an_answer_that_comes_while_the_sessions_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L-02, O-01: the Fetch still under way at close is dropped without a word."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster)
    consumer.run(250)
    goodbyes = consumer.fetcher.close_sessions()
    (message,) = [request.message for request in goodbyes]
    assert isinstance(message, FetchRequest)
    assert message.session_epoch == -1
    write(cluster, 0, 5)
    for request in goodbyes:
        consumer.client.send(request, consumer.clock.now)
    consumer.run(1_000)
    assert cluster.sessions(1).sessions == {}
    assert not caplog.records


IMPOSSIBLE: dict[str, Fault] = {
    "omitted": OmitPartition("t", 0),
    "all omitted": OmitPartition(),
    "duplicate": DuplicatePartition(),
    "unasked partition": UnaskedPartition(),
    "unasked topic": UnaskedTopic(),
    "unasked partition 0 of a topic": UnaskedTopic("unasked", b"\x01" * 16),
}


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_partitions_repeated_missing_or_unasked_for(what: str, nth: int) -> None:
    """D-26: impossible replies neither deliver anything wrong nor lose anything."""
    cluster = make_cluster(nodes=1, partitions=2, records=60, batch_records=5)
    cluster.faults.add(IMPOSSIBLE[what], api=ApiKey.FETCH, nth=nth, times=3)
    consumer = LoopbackConsumer(cluster, max_partition_fetch_bytes=600)
    consumer.subscribe("t")
    found = read_all(consumer)
    assert offsets(found, T0) == list(range(60))
    assert offsets(found, T1) == list(range(60))


def test_many_idle_partitions_cost_next_to_nothing() -> None:
    """F-23: in a quiet minute 1000 partitions list nothing and take few requests."""
    cluster = make_cluster(nodes=2, partitions=1_000, records=1)
    consumer = LoopbackConsumer(cluster)
    consumer.subscribe("t")
    consumer.take(1_000)
    consumer.run(2_000)
    cluster.requests.clear()
    consumer.run(10_000)
    requests = fetches(cluster)
    assert len(requests) <= 2 * 21
    assert sum(len(listed(request)) for request in requests) == 0


# -- reaching the cluster ------------------------------------------------------------------


def test_all_brokers_may_get_new_addresses() -> None:
    """M-10: when no known broker can be reached, bootstrap_servers is looked up again."""
    cluster = make_cluster(nodes=2, leaders=[1])
    consumer = LoopbackConsumer(cluster, bootstrap_servers=["entry:9092"])
    consumer.network.names["entry"] = [consumer.network.ip(1)]
    consumer.assign(T0)
    read_all(consumer)
    for node in cluster.nodes.values():
        node.port = 9999
    consumer.network.names["entry"] = [consumer.network.ip(2)]
    cluster.close_connections()
    consumer.run(1_000)
    cluster.nodes[2].port = 9092
    cluster.nodes[2].advertised = ("broker-2", 9092)
    cluster.move_leader("t", 0, 2)
    write(cluster, 0, 10)
    assert offsets(consumer.take(10, timeout_ms=60_000)) == list(range(20, 30))


def test_a_blackholed_broker_is_given_up_in_time() -> None:
    """N-08: connecting is bounded by the set-up timeout; the other servers are tried."""
    cluster = make_cluster(nodes=2, leaders=[2])
    consumer = LoopbackConsumer(cluster, socket_connection_setup_timeout_ms=1_000)
    consumer.network.blackholes.add(consumer.network.ip(1))
    consumer.assign(T0)
    start = consumer.clock.now
    assert offsets(consumer.take(20)) == list(range(20))
    assert consumer.clock.now - start < 3_000


def test_a_dead_address_of_a_name_is_passed_over() -> None:
    """N-10: all addresses of a name are tried."""
    cluster = make_cluster(nodes=1)
    consumer = LoopbackConsumer(cluster)
    consumer.network.names["broker-1"] = ["10.9.9.9", "10.9.9.8", consumer.network.ip(1)]
    consumer.assign(T0)
    assert offsets(consumer.take(20)) == list(range(20))
    assert {ip for _, ip, _ in consumer.network.attempts} == {"10.9.9.9", "10.9.9.8", "10.0.0.1"}


def test_a_broker_asking_for_a_rebootstrap() -> None:
    """M-10: Metadata error 129 leads back to bootstrap_servers, and reading goes on."""
    cluster = make_cluster(nodes=1)
    consumer = reading(cluster, metadata_max_age_ms=1_000)
    cluster.faults.add(TopLevelError(129), api=ApiKey.METADATA)
    before = cluster.connections_made
    consumer.run(3_000)
    assert cluster.connections_made > before
    write(cluster, 0, 10)
    assert offsets(consumer.take(10)) == list(range(20, 30))


def test_refused_version_requests_are_asked_again_lower() -> None:
    """N-02: error 35 is read as version 0; a closed connection falls back to version 0."""
    for release in ("2.1", "2.8", "4.3"):
        cluster = make_cluster(nodes=1, release=release)
        cluster.faults.add(TopLevelError(35), api=ApiKey.API_VERSIONS)
        consumer = LoopbackConsumer(cluster)
        consumer.assign(T0)
        assert offsets(consumer.take(20)) == list(range(20))
    cluster = make_cluster(nodes=1)
    cluster.faults.add(
        Drop(), api=ApiKey.API_VERSIONS, times=None, where=lambda entry: entry.version >= 3
    )
    consumer = LoopbackConsumer(cluster)
    consumer.assign(T0)
    assert offsets(consumer.take(20)) == list(range(20))
    assert 0 in {entry.version for entry in cluster.requests.select(ApiKey.API_VERSIONS)}
