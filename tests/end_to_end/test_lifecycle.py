"""How a consumer lives: wakeup, Ctrl-C, threads, calls that wait, dead brokers, health.

Through the public API over real sockets. Only two tests reach inside, to make the network thread
fail and to look at what is never shown.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.fault_table import CONNECT
from kfast.testing.faults import Delay, EditResponse, NeverAnswer, PartitionError, Trickle
from kfast.testing.request_log import LoggedRequest, RequestLog
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of, consumer, note, raised, read_until
from tests.signals import signalled

pytestmark = pytest.mark.usefixtures("nothing_is_printed")


# -- wakeup ----------------------------------------------------------------------------------------

BLOCKING: dict[str, tuple[ApiKey, Callable[[kfast.KafkaConsumer], object]]] = {
    "poll": (ApiKey.FETCH, lambda reader: reader.poll(timeout_ms=30_000)),
    "position": (ApiKey.LIST_OFFSETS, lambda reader: reader.position(T0, timeout_ms=30_000)),
    "end_offsets": (
        ApiKey.LIST_OFFSETS,
        lambda reader: reader.end_offsets([T0], timeout_ms=30_000),
    ),
    "topics": (ApiKey.METADATA, lambda reader: reader.topics(timeout_ms=30_000)),
    "iteration": (ApiKey.FETCH, next),
}


@pytest.mark.parametrize("name", BLOCKING)
def test_wakeup_of_a_blocked_call(name: str) -> None:
    """L-03: raises once, in the call that blocks; no record is lost."""
    api, call = BLOCKING[name]
    cluster = cluster_of(1)
    rule = cluster.faults.add(NeverAnswer(), api=api, times=None)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, request_timeout_ms=1_000) as reader,
    ):
        reader.assign([T0])

        def wake() -> None:
            cluster.requests.wait_for(lambda log: len(log.select(api)) > 0)
            reader.wakeup()

        thread = threading.Thread(target=wake)
        thread.start()
        started = time.monotonic()
        with pytest.raises(WakeupError):
            call(reader)
        assert time.monotonic() - started < 10
        thread.join(10)
        cluster.faults.remove(rule)
        cluster.close_connections()
        assert read_until(reader, {T0: 10}) == {T0: list(range(10))}


GIVEN_UP: dict[str, tuple[ApiKey, Callable[[kfast.KafkaConsumer, int], object]]] = {
    "end_offsets": (
        ApiKey.LIST_OFFSETS,
        lambda reader, ms: reader.end_offsets([T0], timeout_ms=ms),
    ),
    "partitions_for_topic": (
        ApiKey.METADATA,
        lambda reader, ms: reader.partitions_for_topic("t", timeout_ms=ms),
    ),
}


@pytest.mark.parametrize("name", GIVEN_UP)
@pytest.mark.parametrize("is_woken", [True, False], ids=["woken", "timed out"])
def test_a_look_up_nobody_waits_for_ends(name: str, is_woken: bool) -> None:
    """L-03, N-20: after a wakeup, as after a timeout, the brokers are not asked any more."""
    api, call = GIVEN_UP[name]
    cluster = cluster_of(1)

    def spoil(message: Any, _: LoggedRequest) -> None:
        for topic in message.topics:
            for part in topic.partitions:
                part.error_code = 5
            if api is ApiKey.METADATA:
                topic.error_code = 5

    cluster.faults.add(EditResponse(spoil), api=api, times=None)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, retry_backoff_max_ms=40) as reader,
    ):
        reader.topics()

        def questions(log: RequestLog) -> int:
            return len(log.select(api, where=_names_a_topic))

        def wake() -> None:
            cluster.requests.wait_for(lambda log: questions(log) >= 3)
            reader.wakeup()

        if is_woken:
            thread = threading.Thread(target=wake)
            thread.start()
            with pytest.raises(WakeupError):
                call(reader, 30_000)
            thread.join(10)
        else:
            with pytest.raises(KafkaTimeoutError):
                call(reader, 300)
        reader.topics()
        asked = questions(cluster.requests)
        assert asked >= 3
        assert not cluster.requests.wait_for(lambda log: questions(log) > asked, 0.4)


def _names_a_topic(request: object) -> bool:
    return bool(getattr(getattr(request, "message", None), "topics", None))


def test_wakeup_of_the_next_call() -> None:
    """L-03: it is remembered until a call can raise it, and no longer; close is exempt."""
    with BrokerServer(cluster_of(1)) as server:
        with consumer(server.bootstrap_servers) as reader:
            reader.assign([T0])
            for call in (
                lambda: reader.poll(timeout_ms=0),
                lambda: reader.position(T0),
                lambda: reader.end_offsets([T0]),
            ):
                reader.wakeup()
                reader.wakeup()
                with pytest.raises(WakeupError):
                    call()
                call()
            reader.wakeup()
        raised(IllegalStateError, reader.poll)


def test_wakeups_all_the_time_lose_nothing() -> None:
    """L-03: records come once and in order around them."""
    cluster = cluster_of(2, 200, batch_records=3)
    seen: dict[TopicPartition, list[int]] = {}
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, max_poll_records=7) as reader,
    ):
        reader.subscribe(["t"])
        deadline = time.monotonic() + 20
        for turn in itertools.count():
            if sum(map(len, seen.values())) >= 400:
                break
            assert time.monotonic() < deadline
            if turn % 3 == 0:
                reader.wakeup()
            try:
                note(seen, reader.poll(timeout_ms=100))
            except WakeupError:
                assert turn % 3 == 0
    assert seen == {T0: list(range(200)), T1: list(range(200))}


def test_wakeups_by_a_signal_handler_lose_nothing() -> None:
    """L-03: the handler runs on the thread that polls, wherever that is, and waits for nothing."""
    cluster = cluster_of(2, 400, batch_records=3)
    seen: dict[TopicPartition, list[int]] = {}
    chance = Random(5)
    pauses = (chance.uniform(0.0002, 0.003) for _ in itertools.count())
    wakeups = 0
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, max_poll_records=2) as reader,
        signalled(lambda *_: reader.wakeup(), pauses),
    ):
        reader.assign([T0, T1])
        deadline = time.monotonic() + 60
        for turn in itertools.count():
            if sum(map(len, seen.values())) >= 800:
                break
            assert time.monotonic() < deadline
            try:
                if turn % 5 == 0:
                    reader.end_offsets([T0])
                if turn % 7 == 0:
                    reader.position(T1)
                note(seen, reader.poll(timeout_ms=100))
            except WakeupError:
                wakeups += 1
    assert seen == {T0: list(range(400)), T1: list(range(400))}
    assert wakeups > 10


# -- signals, forgotten consumers, processes -------------------------------------------------------


def run(script: str, server: BrokerServer, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *options, "-c", textwrap.dedent(script), server.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c() -> None:
    """L-04: a blocked poll and a blocked look-up end within 200 ms, and reading goes on.

    Each is interrupted several times: on a busy machine one can be late, but not the fastest.
    """
    script = """
        import sys, time
        import kfast

        tp = kfast.TopicPartition("t", 0)
        with kfast.KafkaConsumer(
            bootstrap_servers=sys.argv[1], auto_offset_reset="earliest"
        ) as reader:
            reader.assign([tp])
            for call in (
                lambda: reader.poll(timeout_ms=60_000),
                lambda: reader.topics(timeout_ms=60_000),
            ) * 3:
                try:
                    print("blocked", flush=True)
                    call()
                    print("returned", flush=True)
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
            print(len(reader.poll(timeout_ms=20_000)[tp]), flush=True)
    """
    cluster = cluster_of(1, 0)
    cluster.faults.add(NeverAnswer(), api=ApiKey.METADATA, where=_asks_for_all, times=None)
    took: dict[str, list[float]] = {"poll": [], "topics": []}
    is_blocked: dict[str, Callable[[RequestLog], bool]] = {
        "poll": lambda log: bool(log.select(ApiKey.FETCH)),
        "topics": lambda log: bool(log.select(ApiKey.METADATA, where=_asks_for_all)),
    }
    with BrokerServer(cluster) as server, run(script, server) as process:
        try:
            assert process.stdout is not None
            for round_number in range(3):
                for call, times in took.items():
                    assert process.stdout.readline() == "blocked\n"
                    if round_number == 0:
                        assert cluster.requests.wait_for(is_blocked[call])
                    sent = time.monotonic()
                    process.send_signal(signal.SIGINT)
                    assert process.stdout.readline() == "interrupted\n"
                    times.append(time.monotonic() - sent)
            assert all(min(times) < 0.2 and max(times) < 2 for times in took.values()), took
            cluster.close_connections()
            cluster.append("t", 0, [b"x", b"y"])
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (out, err) == ("2\n", "")


def _asks_for_all(request: object) -> bool:
    message = getattr(request, "message", None)
    return message is not None and message.topics is None


def test_an_unclosed_consumer_does_not_hold_up_the_interpreter() -> None:
    """L-07: the process ends by itself and warns once."""
    script = """
        import sys
        import kfast

        reader = kfast.KafkaConsumer(
            "t", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest"
        )
        print(reader.poll(timeout_ms=20_000).count())
    """
    with BrokerServer(cluster_of(1)) as server:
        process = run(script, server, "-W", "always::ResourceWarning")
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == "10\n"
    assert err.count("ResourceWarning: <KafkaConsumer") == 1


def test_a_dead_network_thread_fails_every_call(caplog: pytest.LogCaptureFixture) -> None:
    """L-09: the waiting call and later ones, with the reason; close still works."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        read_until(reader, {T0: 10})

        def fail(now_ms: int) -> None:
            raise ZeroDivisionError("the bug")

        thread = threading.Timer(0.05, reader._runtime.changed)
        reader._runtime._network._managers[0].poll = fail  # type: ignore[method-assign,assignment]
        thread.start()
        for call in (
            lambda: reader.poll(timeout_ms=20_000),
            lambda: reader.poll(timeout_ms=0),
            lambda: reader.topics(timeout_ms=20_000),
            lambda: reader.end_offsets([T0], timeout_ms=20_000),
        ):
            error, lines = raised(KafkaError, call)
            assert lines[0] == (
                "the network thread of this consumer failed: ZeroDivisionError: the bug"
            )
            assert not error.retriable
        thread.join(10)
        assert [r.levelname for r in caplog.records if r.exc_info] == ["ERROR"]


# -- calls that do not wait, and waits that end ----------------------------------------------------


def test_poll_zero_makes_progress() -> None:
    """L-10, B-08: each returns at once; together they read everything."""
    cluster = cluster_of(2, 50, batch_records=5)
    seen: dict[TopicPartition, list[int]] = {}
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.subscribe(["t"])
        deadline = time.monotonic() + 20
        while sum(map(len, seen.values())) < 100:
            assert time.monotonic() < deadline
            note(seen, reader.poll(timeout_ms=0))
    assert seen == {T0: list(range(50)), T1: list(range(50))}


def test_poll_returns_as_soon_as_anything_is_there() -> None:
    """B-08: one partition has data, the other has a long poll going on; so with a short rest."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2, leaders=[1, 2])
    cluster.append("t", 0, [b"a"] * 5)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, fetch_max_wait_ms=25_000, max_poll_records=3) as reader,
    ):
        reader.subscribe(["t"])
        started = time.monotonic()
        counts = [reader.poll(timeout_ms=60_000).count() for _ in range(2)]
        assert counts == [3, 2]
        assert time.monotonic() - started < 15


def test_iteration_ends_after_consumer_timeout_ms() -> None:
    """L-10: StopIteration, and a later loop goes on."""
    cluster = cluster_of(1, 3)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, consumer_timeout_ms=300) as reader,
    ):
        reader.subscribe(["t"])
        assert [record.offset for record in reader] == [0, 1, 2]
        cluster.append("t", 0, [b"more"])
        assert [record.offset for record in reader] == [3]
        assert list(reader.batches(timeout_ms=50)) == []


def test_iteration_raises_errors() -> None:
    """L-10: instead of logging them and going on."""
    cluster = cluster_of(1, 2)
    cluster.append("t", 0, [b"\xff"])
    seen: list[int] = []
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, value_deserializer=kfast.Utf8()) as reader,
    ):
        reader.subscribe(["t"])
        with pytest.raises(KafkaError, match="t-0 offset 2"):
            seen.extend(record.offset for record in reader)
        assert reader.position(T0) == 2


def test_time_outs_name_the_operation_and_what_is_missing() -> None:
    """E-06, N-20: retriable answers are retried inside; the connection serves the next call."""
    cluster = cluster_of(2)
    rule = cluster.faults.add(PartitionError(5, "t", 1), api=ApiKey.LIST_OFFSETS, times=None)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        error, lines = raised(
            KafkaTimeoutError, lambda: reader.end_offsets([T0, T1], timeout_ms=300), within_ms=300
        )
        assert lines[0].startswith("offsets of t-1 were not found within")
        assert error.retriable
        made = cluster.connections_made
        cluster.faults.remove(rule)
        assert reader.end_offsets([T0, T1]) == {T0: 10, T1: 10}
        assert cluster.connections_made == made


def test_a_wait_given_up_leaves_the_connection_in_step() -> None:
    """N-20: late answers go to who asked, on the connection that was there."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        assert reader.beginning_offsets([T0]) == {T0: 0}
        cluster.faults.add(Delay(400), api=ApiKey.LIST_OFFSETS)
        raised(KafkaTimeoutError, lambda: reader.end_offsets([T0], timeout_ms=100))
        made = cluster.connections_made
        assert reader.beginning_offsets([T0]) == {T0: 0}
        assert reader.end_offsets([T0]) == {T0: 10}
        assert cluster.connections_made == made


def test_retriable_errors_never_leave_poll() -> None:
    """E-06: they cost time, nothing else."""
    cluster = cluster_of(1)
    for code in (3, 5, 6, 9, 56, 74, 75, 78, 100, 103):
        cluster.faults.add(PartitionError(code), api=ApiKey.FETCH)
    seen: dict[TopicPartition, list[int]] = {}
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, retry_backoff_max_ms=40) as reader,
    ):
        reader.assign([T0])
        deadline = time.monotonic() + 20
        while len(seen.get(T0, ())) < 10:
            assert time.monotonic() < deadline
            note(seen, reader.poll(timeout_ms=200))
    assert seen == {T0: list(range(10))}


# -- slow and dead brokers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [NeverAnswer(), Trickle(), Delay(60_000)], ids=["blackholed", "trickling", "slow"]
)
def test_a_bad_broker_does_not_delay_the_others(fault: NeverAnswer | Trickle | Delay) -> None:
    """F-22: the healthy one is read to its end meanwhile."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2, leaders=[1, 2])
    for partition in range(2):
        cluster.append("t", partition, [b"x"] * 30, batch_records=3)
    rule = cluster.faults.add(fault, api=ApiKey.FETCH, node=1, times=None)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, request_timeout_ms=600, fetch_max_wait_ms=100) as reader,
    ):
        reader.subscribe(["t"])
        assert read_until(reader, {T1: 30}) == {T1: list(range(30))}
        cluster.faults.remove(rule)
        assert read_until(reader, {T0: 30}) == {T0: list(range(30))}


@pytest.mark.parametrize("how", ["stopped", "blackholed"])
def test_dead_brokers_cost_no_processor_time(how: str) -> None:
    """N-17: waiting for brokers is no busy loop."""
    cluster = cluster_of(1)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, reconnect_backoff_ms=50) as reader,
    ):
        reader.assign([T0])
        read_until(reader, {T0: 10})
        if how == "stopped":
            cluster.stop_node(1)
        else:
            cluster.faults.add(NeverAnswer(), api=CONNECT, times=None)
            cluster.close_connections()
        wall, busy = time.monotonic(), time.process_time()
        for _ in range(3):
            reader.poll(timeout_ms=500)
        wall, busy = time.monotonic() - wall, time.process_time() - busy
    assert wall >= 1.4
    assert busy < 0.25 * wall


def test_a_jump_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-19: every timer is monotonic."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        read_until(reader, {T0: 10})
        made, real = cluster.connections_made, time.time
        for jump_s in (-86_400 * 365, 86_400 * 365):
            monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
            monkeypatch.setattr(time, "time_ns", lambda jump_s=jump_s: int(real() + jump_s) * 10**9)
            cluster.append("t", 0, [b"x"])
            assert reader.poll(timeout_ms=10_000).count() == 1
            started = time.monotonic()
            assert not reader.poll(timeout_ms=100)
            assert 0.09 <= time.monotonic() - started < 5
        assert cluster.connections_made == made


# -- what can be asked -----------------------------------------------------------------------------


def test_health_is_readable() -> None:
    """L-11: connection, assignment, position, end and lag, without network."""
    cluster = cluster_of(1)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, max_poll_records=4) as reader,
    ):
        reader.subscribe(["t"])
        assert (reader.bootstrap_connected(), reader.assignment()) == (False, set())
        assert reader.highwater(T0) is None
        assert reader.poll(timeout_ms=10_000).count() == 4
        assert (reader.bootstrap_connected(), reader.assignment()) == (True, {T0})
        assert (reader.position(T0), reader.highwater(T0), reader.current_lag(T0)) == (4, 10, 6)
        asked = len(cluster.requests.select(ApiKey.LIST_OFFSETS))
        reader.pause(T0)
        assert (reader.paused(), reader.subscription()) == ({T0}, {"t"})
        cluster.stop_node(1)
        assert (reader.position(T0), reader.current_lag(T0)) == (4, 6)
        assert len(cluster.requests.select(ApiKey.LIST_OFFSETS)) == asked


def test_the_result_of_a_poll() -> None:
    """E-10: a mapping of partitions to records, safe when empty."""
    cluster = cluster_of()
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        reader.pause(T0)
        nothing = reader.poll()
        assert (nothing.count(), dict(nothing), nothing.next_offsets()) == (0, {}, {})
        reader.resume(T0)
        records = reader.poll(timeout_ms=10_000)
        assert (set(records), records.partitions(), records.count()) == ({T0}, {T0}, 10)
        assert [record.offset for record in records.records("t")] == list(range(10))
        assert {tp: at.offset for tp, at in records.next_offsets().items()} == {T0: 10}


def test_the_result_of_a_poll_that_only_moves_on() -> None:
    """E-10: what is to be committed is known also where nothing but aborted records lay."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        writer.append([b"x"] * 4, producer_id=1, is_transactional=True)
        writer.end_transaction(1, committed=False)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, isolation_level="read_committed") as reader,
    ):
        reader.assign([T0])
        records = reader.poll(timeout_ms=10_000)
        assert (records.count(), bool(records), set(records)) == (0, False, set())
        assert {tp: at.offset for tp, at in records.next_offsets().items()} == {T0: 5}
        assert reader.position(T0) == 5
