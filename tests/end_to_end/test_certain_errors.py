"""What cannot get better by waiting is raised as soon as it is certain, by every call alike.

The calls of one case run at the same time, each with a consumer of its own: a case takes as long as
one of them.
"""

from __future__ import annotations

import errno
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.errors import (
    KafkaConnectionError,
    KafkaError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.metadata import MetadataRequest
from kfast.testing.faults import NeverAnswer
from kfast.testing.request_log import LoggedRequest
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    HOST,
    T0,
    cluster_of,
    consumer,
    dead_port,
    raw_server,
    read_until,
)
from tests.end_to_end.stage import error_of, eventually

pytestmark = pytest.mark.usefixtures("nothing_is_printed")

MINUTE_MS = 60_000
CERTAIN_S = 1.0
"""For so long every server has refused, or no broker has known the topic."""
SLACK_S = 5.0
"""Of a busy machine; far from the minute that the calls have."""

Call = Callable[[KafkaConsumer], object]

READING: dict[str, Call] = {
    "poll": lambda reader: reader.poll(timeout_ms=MINUTE_MS),
    "iteration": next,
    "batches": lambda reader: next(reader.batches()),
    "batches in time": lambda reader: next(reader.batches(timeout_ms=MINUTE_MS)),
}
LOOK_UPS: dict[str, Callable[[KafkaConsumer, TopicPartition], object]] = {
    "position": lambda reader, tp: reader.position(tp),
    "beginning_offsets": lambda reader, tp: reader.beginning_offsets([tp]),
    "end_offsets": lambda reader, tp: reader.end_offsets([tp]),
    "offsets_for_times": lambda reader, tp: reader.offsets_for_times({tp: 1_767_225_600_000}),
}
QUESTIONS: dict[str, Callable[[KafkaConsumer, TopicPartition], object]] = {
    "partitions_for_topic": lambda reader, tp: reader.partitions_for_topic(tp.topic),
    "topics": lambda reader, _: reader.topics(),
    "committed": lambda reader, tp: reader.committed(tp),
    "commit": lambda reader, tp: reader.commit({tp: 1}),
}


def outcome(action: Callable[[], object]) -> tuple[KafkaError | None, float]:
    """Return what a call raised, and after how many seconds."""
    started = time.monotonic()
    try:
        action()
    except KafkaError as error:
        return error, time.monotonic() - started
    return None, time.monotonic() - started


def outcomes(
    servers: str, tp: TopicPartition, **configs: Any
) -> dict[str, tuple[KafkaError | None, float]]:
    """Make every call against these servers; return how each one ended."""

    def reading(call: Call, **more: Any) -> None:
        with consumer(servers, **configs, **more) as reader:
            reader.subscribe([tp.topic])
            call(reader)

    def asking(call: Callable[[KafkaConsumer, TopicPartition], object]) -> None:
        with consumer(servers, group_id="g", **configs) as reader:
            reader.assign([tp])
            call(reader, tp)

    actions: dict[str, Callable[[], object]] = {
        "read_topic": lambda: kfast.read_topic(tp.topic, bootstrap_servers=servers, **configs),
        "read_topic of a partition": lambda: kfast.read_topic(
            tp, bootstrap_servers=servers, **configs
        ),
        "scan_topic": lambda: next(
            kfast.scan_topic(tp.topic, bootstrap_servers=servers, **configs)
        ),
    }
    for name, call in READING.items():
        actions[name] = partial(reading, call)
        actions[f"{name} in a group"] = partial(reading, call, group_id="g")
    for name, ask in {**LOOK_UPS, **QUESTIONS}.items():
        actions[name] = partial(asking, ask)
    with ThreadPoolExecutor(len(actions)) as pool:
        futures = {name: pool.submit(outcome, action) for name, action in actions.items()}
        return {name: future.result() for name, future in futures.items()}


def test_a_closed_port_is_the_same_error_after_the_same_time_in_every_call() -> None:
    """E-13: nothing listens on any of the servers."""
    servers = f"{HOST}:{dead_port()},{HOST}:{dead_port()}"
    for name, (error, elapsed_s) in outcomes(servers, T0).items():
        assert type(error) is KafkaConnectionError, (name, error)
        assert "connection refused" in error.message, name
        assert "(tried 2 of 2 servers for 1." in str(error), (name, error)
        assert CERTAIN_S <= elapsed_s < CERTAIN_S + SLACK_S, (name, elapsed_s)


def test_a_missing_topic_is_the_same_error_in_every_call_that_needs_it() -> None:
    """E-13, P-07: brokers learn of a new topic one after the other, so one answer is not enough."""
    cluster = cluster_of()
    cluster.create_topic("orders")
    missing = TopicPartition("oders", 0)
    with BrokerServer(cluster) as server:
        found = outcomes(server.bootstrap_servers, missing)
    for name in QUESTIONS.keys() - {"commit"}:  # answered, as it is no error
        error, elapsed_s = found.pop(name)
        assert error is None
        assert elapsed_s < SLACK_S
    found.pop("commit")  # of offsets the fake coordinator takes any
    for name, (error, elapsed_s) in found.items():
        assert type(error) is UnknownTopicOrPartitionError, (name, error)
        assert str(error).splitlines() == [
            'no topic "oders" on this cluster (2 topics)',
            'try: did you mean "orders"?',
        ], name
        assert CERTAIN_S <= elapsed_s < CERTAIN_S + SLACK_S, (name, elapsed_s)
    assert set(cluster.topics) == {"t", "orders"}


def asks_for_all_topics(request: LoggedRequest) -> bool:
    return isinstance(request.message, MetadataRequest) and request.message.topics is None


def test_polls_do_not_wait_for_the_names_of_topics() -> None:
    """Y-08: the error of a missing topic comes when they are there, or not to be had."""
    cluster = cluster_of()
    cluster.faults.add(NeverAnswer(), api=ApiKey.METADATA, times=None, where=asks_for_all_topics)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.subscribe(["oders"])
        longest_s = 0.0

        def step() -> bool:
            nonlocal longest_s
            error, elapsed_s = outcome(lambda: reader.poll(timeout_ms=0))
            longest_s = max(longest_s, elapsed_s)
            return type(error) is UnknownTopicOrPartitionError

        eventually(step)
        assert longest_s < 0.5


@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_wakeup_ends_the_look_up_of_the_names_of_topics(name: str) -> None:
    """Y-08: it is not swallowed by a wait inside of a call."""
    cluster = cluster_of()
    cluster.faults.add(NeverAnswer(), api=ApiKey.METADATA, times=None, where=asks_for_all_topics)
    missing = TopicPartition("oders", 0)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([missing])

        def wake() -> None:
            eventually(lambda: any(map(asks_for_all_topics, list(cluster.requests))))
            reader.wakeup()

        waker = threading.Thread(target=wake)
        waker.start()
        error, _ = outcome(lambda: LOOK_UPS[name](reader, missing))
        waker.join()
    assert type(error) is WakeupError


def test_a_missing_partition_ends_a_long_wait() -> None:
    """E-13: of an assigned topic that exists."""
    with BrokerServer(cluster_of()) as server:

        def wait(call: Call) -> tuple[KafkaError | None, float]:
            with consumer(server.bootstrap_servers) as reader:
                reader.assign([TopicPartition("t", 7)])
                return outcome(lambda: call(reader))

        with ThreadPoolExecutor(len(READING)) as pool:
            found = dict(zip(READING, pool.map(wait, READING.values()), strict=True))
    for name, (error, elapsed_s) in found.items():
        assert type(error) is UnknownTopicOrPartitionError, (name, error)
        assert error.message == "t has partitions 0-1: there is no partition 7"
        assert elapsed_s < CERTAIN_S + SLACK_S


def test_a_topic_made_within_a_second_is_found_by_a_read_of_all_of_it() -> None:
    """E-13, P-07: no false alarm for one that the broker asked first does not know yet."""
    cluster = cluster_of()
    with BrokerServer(cluster) as server:

        def create() -> None:
            with cluster.changing():
                cluster.create_topic("new")
                cluster.append("new", 0, [b"x"])

        timer = threading.Timer(0.3, create)
        timer.start()
        records = kfast.read_topic("new", bootstrap_servers=server.bootstrap_servers)
        timer.join()
    assert records.count() == 1


@pytest.mark.parametrize("call", [next, lambda reader: next(reader.batches(timeout_ms=200))])
def test_an_iteration_never_ends_as_if_there_were_no_data(call: Call) -> None:
    """E-13: an end before it is certain says what is known; a poll is made again anyway."""
    with consumer(f"{HOST}:{dead_port()}", consumer_timeout_ms=200) as reader:
        reader.subscribe(["t"])
        assert not reader.poll(timeout_ms=200)
        error, elapsed_s = outcome(lambda: call(reader))
        assert type(error) is KafkaConnectionError
        assert elapsed_s < SLACK_S


def test_what_this_machine_refuses_is_not_called_a_missing_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Y-09: a socket option that it does not have, and no descriptors left."""
    with consumer(f"{HOST}:{dead_port()}", socket_options=[(6, 9_999, 1)]) as reader:
        reader.subscribe(["t"])
        error, _ = outcome(lambda: next(reader.batches(timeout_ms=100)))
    assert type(error) is KafkaConnectionError
    assert error.message.endswith(": protocol not available")
    assert "route" not in str(error)

    def refuse() -> selectors.BaseSelector:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(selectors, "DefaultSelector", refuse)
    error, _ = outcome(lambda: consumer(f"{HOST}:{dead_port()}"))
    assert type(error) is KafkaConnectionError
    assert "ulimit" in (error.hint or "")


def test_a_bootstrap_timeout_that_was_given_is_the_time_to_try() -> None:
    """E-13: a service that starts together with its broker."""
    cluster = cluster_of()
    with BrokerServer(cluster) as server:
        cluster.stop_node(1)
        timer = threading.Timer(1.5, lambda: cluster.start_node(1))
        timer.start()
        with consumer(server.bootstrap_servers, bootstrap_timeout_ms=20_000) as reader:
            reader.assign([T0])
            assert reader.poll(timeout_ms=20_000).count() > 0
        timer.join()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_a_slow_server_is_not_a_refusing_one(protocol: str) -> None:
    """Y-01: polls are empty while it may still answer, and the error says what is true."""
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}
    configs = login if protocol.startswith("SASL") else {}
    with (
        raw_server(None) as address,
        consumer(address, security_protocol=protocol, **configs) as reader,
    ):
        reader.subscribe(["t"])
        started = time.monotonic()
        while time.monotonic() < started + 1.5:
            assert not reader.poll(timeout_ms=100)
        error, _ = outcome(lambda: next(reader.batches(timeout_ms=50)))
    assert type(error) is KafkaConnectionError
    assert error.message.startswith(address)
    assert "slow" in (error.cause or "")


def test_a_server_that_never_answers_is_reported_when_bootstrap_timeout_ms_has_passed() -> None:
    """Y-01: by polls of any length, counted from the first call."""
    with (
        raw_server(None) as address,
        consumer(address, bootstrap_timeout_ms=1_500) as reader,
    ):
        reader.subscribe(["t"])
        started = time.monotonic()
        error = error_of(reader)
        assert 1.5 <= time.monotonic() - started < 1.5 + SLACK_S
    assert type(error) is KafkaConnectionError
    assert "accepted the connection but did not answer within 1." in error.message


def test_a_consumer_that_was_connected_waits_for_its_brokers() -> None:
    """E-13, N-18: all of them refuse for longer than a second during a restart."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        assert read_until(reader, {T0: 10})
        cluster.stop_node(1)

        def start() -> None:
            cluster.start_node(1)
            cluster.append("t", 0, [b"x"])

        timer = threading.Timer(1.6, start)
        timer.start()
        assert reader.poll(timeout_ms=MINUTE_MS).count() == 1
        timer.join()


def test_an_assigned_topic_that_does_not_exist_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """M-05, O-01: it is waited for without an error, and not in silence."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([TopicPartition("later", 0), T0])
        assert read_until(reader, {T0: 10})
        for _ in range(3):
            assert not reader.poll(timeout_ms=100)
        cluster.create_topic("later")
        cluster.append("later", 0, [b"x"])
        assert read_until(reader, {TopicPartition("later", 0): 1})
    said = [r.getMessage() for r in caplog.records if "later" in r.getMessage()]
    expected = 'no topic "later" on this cluster: it is waited for, and read once it exists'
    assert [line for line in said if "waited for" in line] == [expected]
