"""The life of a consumer with real brokers: close, wakeup, Ctrl-C, exit, collection, fork."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import kfast
from kfast import KafkaConsumer, TopicPartition
from kfast.errors import IllegalStateError, WakeupError
from kfast.local.local_kafka import LocalKafka
from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import (
    Reading,
    assigned,
    consuming,
    program,
    run_program,
    threads_of,
    unique,
    until,
)

pytestmark = pytest.mark.integration

COUNT: Final = 500


@pytest.fixture
def topic(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    """A partition of ``COUNT`` records."""
    name = new_topic()
    writer.write(name, [b"%d" % number for number in range(COUNT)])
    return name


# --- close ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(kafka: LocalKafka) -> Iterator[None]:
    kafka.pause_node(1)
    try:
        yield
    finally:
        kafka.resume_node(1)


@contextlib.contextmanager
def killed(kafka: LocalKafka) -> Iterator[None]:
    kafka.kill_node(1)
    try:
        yield
    finally:
        kafka.restart_node(1)


@pytest.mark.parametrize("fault", [held, killed])
def test_close_with_a_broker_gone(
    kafka: LocalKafka,
    topic: str,
    fault: Callable[[LocalKafka], contextlib.AbstractContextManager[None]],
) -> None:
    """L-01, L-02, L-07, N-09, N-18: close ends in time; who is not closed reads on afterwards."""
    client_id = unique("closing")
    tp = TopicPartition(topic, 0)
    servers = kafka.bootstrap_servers
    consumers = [
        KafkaConsumer(bootstrap_servers=servers, client_id=client_id, auto_offset_reset="earliest")
        for _ in range(4)
    ]
    with assigned(servers, [tp]) as survivor:
        reading = Reading(survivor).until({tp: COUNT})
        for number, consumer in enumerate(consumers):
            consumer.assign([tp])
            if number < 2:
                Reading(consumer).until({tp: COUNT})
        with fault(kafka):
            for number, consumer in enumerate(consumers):
                with contextlib.suppress(kfast.KafkaError):
                    consumer.poll(200)
                timeout_ms = 500 * (number % 2)
                began = time.monotonic()
                consumer.close(timeout_ms)
                assert time.monotonic() - began < timeout_ms / 1000 + 1
            until(lambda: not threads_of(client_id), "the threads to end", 5)
            assert reading.poll(300) == 0
        for consumer in consumers:
            consumer.close()
            with pytest.raises(IllegalStateError, match="closed"):
                consumer.poll(0)
        KafkaWriter(servers).write(topic, [b"back"] * 10)
        assert reading.until({tp: COUNT + 10}).offsets(tp) == list(range(COUNT + 10))


def session_error(servers: str, session_id: int) -> int:
    """Return what a broker answers to an impossible epoch of a fetch session.

    71 (INVALID_FETCH_SESSION_EPOCH) if it knows the session, 70 (FETCH_SESSION_ID_NOT_FOUND) if
    not. The session itself stays as it is.
    """
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=1 << 30,
        topics=[],
        forgotten_topics_data=[],
    )
    host, port = servers.split(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(encode_request(request, 12, 1, "probe"))
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        frame = sock.recv(size, socket.MSG_WAITALL)
    _, body = decode_response_header(frame, request.API_KEY, 12)
    return FetchResponse.decode(frame, 12, body).error_code


@pytest.mark.parametrize("is_busy", [False, True], ids=["long poll", "busy"])
def test_close_ends_the_fetch_session(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, is_busy: bool
) -> None:
    """L-02: also behind a Fetch under way, whether it waits for data or brings some."""
    topic = new_topic()
    if is_busy:
        writer.write(topic, [bytes(100_000)] * 300)
    else:
        writer.write(topic, [b"one"])
    settings: dict[str, Any] = {"fetch_max_wait_ms": 2_000}
    if is_busy:
        settings["buffer_memory_bytes"] = 2 << 20
    with consuming(kafka.bootstrap_servers, topic, **settings) as consumer:
        until(lambda: consumer.poll(100), "records")
        fetcher = consumer._runtime._managers.fetcher
        (node,) = fetcher._planner.nodes.values()
        session_id = until(lambda: node.session.next_metadata.session_id, "a fetch session")
        assert session_error(kafka.bootstrap_servers, session_id) == 71
        started = time.monotonic()
    assert time.monotonic() - started < 1.5, "close() waited for the long poll"
    until(
        lambda: session_error(kafka.bootstrap_servers, session_id) == 70,
        "the session's end",
        5.0,
    )


# --- wakeup ---------------------------------------------------------------------------------------


def wait_until_blocked(thread_id: int, function: str) -> None:
    """Wait until a thread is inside a function of that name."""

    def is_inside() -> bool:
        frame = sys._current_frames().get(thread_id)
        while frame is not None:
            if frame.f_code.co_name == function:
                return True
            frame = frame.f_back
        return False

    until(is_inside, f"{function} to be entered")


INSIDE: Final = {"poll": "_poll", "position": "wait_for_position", "end_offsets": "call"}
"""Where the main thread is while it is blocked."""


@pytest.mark.parametrize("call", INSIDE)
def test_wakeup(kafka: LocalKafka, topic: str, writer: KafkaWriter, call: str) -> None:
    """L-03: it ends one blocked call, and only that one; no record is lost."""
    tp = TopicPartition(topic, 0)
    nowhere = TopicPartition("no-such-topic", 0)
    calls: dict[str, Callable[[KafkaConsumer], Any]] = {
        "poll": lambda consumer: consumer.poll(60_000),
        "position": lambda consumer: consumer.position(nowhere),
        "end_offsets": lambda consumer: consumer.end_offsets([nowhere]),
    }
    with assigned(kafka.bootstrap_servers, [tp, nowhere]) as consumer:
        reading = Reading(consumer).until({tp: COUNT})
        me = threading.get_ident()

        def wake() -> None:
            wait_until_blocked(me, INSIDE[call])
            consumer.wakeup()

        waker = threading.Thread(target=wake)
        waker.start()
        began = time.monotonic()
        with pytest.raises(WakeupError):
            calls[call](consumer)
        assert time.monotonic() - began < 30
        waker.join()
        writer.write(topic, [b"next"])
        assert reading.until({tp: COUNT + 1}).offsets(tp) == list(range(COUNT + 1))
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(0)
        consumer.poll(0)


def test_a_second_thread(kafka: LocalKafka, topic: str) -> None:
    """L-05: it is turned away while the first is blocked, which goes on undisturbed."""
    with consuming(kafka.bootstrap_servers, topic) as consumer:
        reading = Reading(consumer).until_count(COUNT)
        me = threading.get_ident()
        errors: list[IllegalStateError] = []

        def intrude() -> None:
            wait_until_blocked(me, "_poll")
            for call in (consumer.paused, lambda: consumer.poll(0), consumer.close):
                try:
                    call()
                except IllegalStateError as error:
                    errors.append(error)
            consumer.wakeup()

        intruder = threading.Thread(target=intrude)
        intruder.start()
        with pytest.raises(WakeupError):
            consumer.poll(60_000)
        intruder.join()
        assert len(errors) == 3
        consumer.seek_to_beginning()
        reading.forget()
        reading.until_count(COUNT)


# --- Ctrl-C ---------------------------------------------------------------------------------------

INTERRUPTED = """
    import sys, threading, time
    import kfast

    servers, topic, call = sys.argv[1:]
    tp = kfast.TopicPartition(topic, 0)
    consumer = kfast.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([tp])
    count = 0
    while count < 500:
        count += consumer.poll(1_000).count()
    nowhere = kfast.TopicPartition("no-such-topic", 0)
    calls = {
        "poll": lambda: consumer.poll(60_000),
        "batches": lambda: list(consumer.batches()),
        "iteration": lambda: list(consumer),
        "position": lambda: (consumer.assign([tp, nowhere]), consumer.position(nowhere)),
        "end_offsets": lambda: consumer.end_offsets([nowhere]),
    }
    try:
        print("blocked", flush=True)
        calls[call]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    count = 0
    while count < 1:
        count += consumer.poll(1_000).count()
    print(count, consumer.position(tp), flush=True)
    consumer.close()
"""


@pytest.mark.parametrize("call", ["poll", "batches", "iteration", "position", "end_offsets"])
def test_ctrl_c(kafka: LocalKafka, topic: str, writer: KafkaWriter, call: str) -> None:
    """L-04: the blocked call ends at once with KeyboardInterrupt; the consumer works on."""
    with program(INTERRUPTED, kafka.bootstrap_servers, topic, call) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "blocked\n"
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - began < 1
            writer.write(topic, [b"next"])
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"1 {COUNT + 1}\n"
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


# --- exit, collection, fork -----------------------------------------------------------------------

UNCLOSED = """
    import sys
    import kfast

    consumer = kfast.KafkaConsumer(
        sys.argv[2], bootstrap_servers=sys.argv[1], auto_offset_reset="earliest"
    )
    count = 0
    while count < 500:
        count += consumer.poll(1_000).count()
    {ending}
"""


@pytest.mark.parametrize(
    ("ending", "status", "is_held"),
    [
        ("", 0, False),
        ("", 0, True),
        ("sys.exit(3)", 3, False),
        ("batch = next(iter(consumer.batches(0)), None)", 0, False),
        ("sys.modules['keep'] = consumer", 0, False),
        ("import threading; threading.Thread(target=consumer.poll, args=(800,)).start()", 0, False),
    ],
    ids=["end", "broker held", "exit", "iterator", "module", "inside"],
)
def test_an_unclosed_consumer_at_exit(
    kafka: LocalKafka, topic: str, ending: str, status: int, is_held: bool
) -> None:
    """L-07: it neither holds up the interpreter's exit nor makes it complain."""
    text = UNCLOSED.format(ending=f"print('ready', flush=True); sys.stdin.readline()\n    {ending}")
    with program(text, kafka.bootstrap_servers, topic) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with held(kafka) if is_held else contextlib.nullcontext():
                output, errors = process.communicate("\n", timeout=15)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (status, "", "")


def test_an_unclosed_consumer_is_collected(kafka: LocalKafka, topic: str) -> None:
    """L-07: threads end, records stay valid, and there is one warning."""
    client_id = unique("forgotten")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        client_id=client_id,
        auto_offset_reset="earliest",
    )
    reading = Reading(consumer).until_count(COUNT)
    assert threads_of(client_id)
    batches = reading.batches
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del consumer, reading
        gc.collect()
    (message,) = [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)]
    assert client_id in message
    caught.clear()  # a recorded warning keeps what it is about
    gc.collect()
    until(lambda: not threads_of(client_id), "the threads to end", 5)
    assert [v for b in batches[TopicPartition(topic, 0)] for v in b.values][-1] == b"499"


FORKING = """
    import os, sys
    import kfast
    from kfast.errors import IllegalStateError

    servers, topic = sys.argv[1:]
    tp = kfast.TopicPartition(topic, 0)
    consumer = kfast.KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=100
    )
    consumer.assign([tp])
    offsets = []
    while len(offsets) < 200:
        for batch in consumer.poll(1_000).values():
            offsets += batch.offsets.tolist()
    child = os.fork()
    if not child:
        refused = 0
        for call in (consumer.assignment, lambda: consumer.poll(0), lambda: consumer.position(tp)):
            try:
                call()
            except IllegalStateError as error:
                refused += "fork" in str(error)
        records = kfast.read_topic(topic, bootstrap_servers=servers)
        print("child", refused, records.count(), flush=True)
        sys.exit()
    _, status = os.waitpid(child, 0)
    while len(offsets) < 500:
        for batch in consumer.poll(1_000).values():
            offsets += batch.offsets.tolist()
    print("parent", status, offsets == list(range(500)), flush=True)
    consumer.close()
"""


def test_fork(kafka: LocalKafka, topic: str) -> None:
    """L-08: the child is turned away but may read anew; the parent is undisturbed."""
    output, errors = run_program(FORKING, kafka.bootstrap_servers, topic)
    assert output.splitlines() == ["child 3 500", "parent 0 True"]
    assert errors == ""


# --- silence --------------------------------------------------------------------------------------

QUIET = """
    import sys
    import kfast

    servers, topic = sys.argv[1:]
    kfast.read_topic(topic, bootstrap_servers=servers)
    consumer = kfast.KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.poll(2_000)
    consumer.seek(kfast.TopicPartition(topic, 0), 10_000)  # out of range: a logged warning
    consumer.poll(1_000)
    consumer.close()
    dead = kfast.KafkaConsumer(topic, bootstrap_servers="127.0.0.1:1")
    try:
        dead.poll(1_500)
    except kfast.KafkaError:
        pass
    dead.close()
    try:
        kfast.read_topic("no-such-topic", bootstrap_servers=servers)
    except kfast.KafkaError:
        pass
"""


def test_nothing_is_printed(kafka: LocalKafka, topic: str) -> None:
    """O-01, D-27: warnings go to the log, and nothing to stdout or stderr."""
    assert run_program(QUIET, kafka.bootstrap_servers, topic) == ("", "")
