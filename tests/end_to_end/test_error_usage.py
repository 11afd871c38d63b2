"""What the user reads after a mistake of their own: settings, arguments, threads, forks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    HOST,
    T0,
    T1,
    cluster_of,
    consumer,
    raised,
)

pytestmark = pytest.mark.usefixtures("nothing_is_printed")


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (
            {"fetch.min.bytez": 1},
            'unknown config "fetch.min.bytez"; did you mean fetch.min.bytes (int, default 1)?',
        ),
        ({"fetch_min_bytes": "many"}, "bad value for fetch_min_bytes: 'many'"),
        ({"fetch_max_wait_ms": -1}, "bad value for fetch_max_wait_ms: -1"),
        ({"auto_offset_reset": "earlyest"}, "bad value for auto_offset_reset: 'earlyest'"),
        ({"bootstrap_servers": "host:port"}, "bad value for bootstrap_servers"),
    ],
)
def test_configuration(settings: dict[str, Any], lines: str) -> None:
    """E-01, E-02, E-04: key, value, type and range, at construction."""
    given = {"bootstrap_servers": "localhost:9092"} | settings
    error, text = raised(ConfigurationError, lambda: kfast.KafkaConsumer(config=given))
    assert text[0] == lines
    assert isinstance(error, ValueError)
    if "bad value" in lines and "min" in lines:
        assert text[1:] == ["cause: not a whole number", "try: int, 0 to 2147483647 (default 1)"]


def test_settings_that_are_missing_or_not_offered() -> None:
    _, lines = raised(ConfigurationError, lambda: kfast.KafkaConsumer("t"))
    assert lines == [
        "bootstrap_servers is not set",
        'try: pass bootstrap_servers="host:9092"',
    ]


def test_a_missing_package() -> None:
    """E-11: told by the call that needs it, with what to install."""
    script = textwrap.dedent(
        """
        import sys

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {"pandas", "polars", "pyarrow"}:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Blocker())
        import kfast

        records = kfast.read_topic("t", bootstrap_servers=sys.argv[1])
        for call in (records.to_pandas, records.to_polars, records.to_arrow):
            try:
                call()
            except kfast.KafkaError as error:
                assert isinstance(error, ImportError)
                print(type(error).__name__, "|".join(str(error).splitlines()), sep="|")
        print(len(records[kfast.TopicPartition("t", 0)].offsets))
        """
    )
    with BrokerServer(cluster_of(1)) as server:
        done = subprocess.run(
            [sys.executable, "-c", script, server.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    pandas, polars, arrow, rows = done.stdout.splitlines()
    assert pandas == (
        'MissingDependencyError|to_pandas() needs pandas|try: pip install "kfast[pandas]"'
    )
    assert polars == (
        'MissingDependencyError|to_polars() needs polars|try: pip install "kfast[polars]"'
    )
    assert arrow.startswith("MissingDependencyError|to_arrow() needs pyarrow|try: pip install")
    assert rows == "10"


def test_a_second_thread() -> None:
    """L-05: which rule, and what to do; no thread ids."""
    cluster = cluster_of(1, 0)
    outcome: list[object] = []
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        thread = threading.Thread(target=lambda: outcome.append(reader.poll(timeout_ms=30_000)))
        thread.start()
        assert cluster.requests.wait_for(lambda log: len(log.select(ApiKey.FETCH)) > 0)
        for call in (reader.poll, lambda: reader.seek(T0, 0), reader.close):
            _, lines = raised(IllegalStateError, call)
            assert lines == [
                "KafkaConsumer is used by two threads at once",
                "cause: another thread is inside a call of this consumer",
                "try: give each thread its own consumer; any thread may call wakeup(), and read "
                "assignment(), health() and metrics()",
            ]
        cluster.append("t", 0, [b"x"])
        thread.join(20)
        assert not thread.is_alive()
        assert len(outcome) == 1
        assert not reader.poll(timeout_ms=0)


def test_a_closed_consumer() -> None:
    """L-02: every call but close says so."""
    reader = consumer(f"{HOST}:9")
    reader.subscribe(["t"])
    reader.close()
    reader.close()
    for call in (
        reader.poll,
        reader.assignment,
        reader.topics,
        lambda: reader.subscribe(["u"]),
        lambda: reader.position(T0),
        lambda: next(reader),
    ):
        _, lines = raised(IllegalStateError, call)
        assert lines == [
            "this KafkaConsumer is closed",
            "try: make a new KafkaConsumer to read on",
        ]


def test_a_forked_child() -> None:
    """L-08: the child is told, the parent reads on."""
    script = textwrap.dedent(
        """
        import os, sys, warnings
        import kfast

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        reader = kfast.KafkaConsumer(
            "t", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", max_poll_records=3
        )
        first = [r.offset for batch in reader.poll(timeout_ms=10_000).values() for r in batch]
        pid = os.fork()
        if not pid:
            status = 1
            try:
                reader.poll(timeout_ms=1_000)
            except kfast.errors.IllegalStateError as error:
                print("|".join(str(error).splitlines()), flush=True)
                status = 0
            del reader
            sys.exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        rest = []
        while len(first) + len(rest) < 10:
            records = reader.poll(timeout_ms=10_000)
            assert records
            rest += [r.offset for batch in records.values() for r in batch]
        reader.close()
        print(first + rest)
        """
    )
    with BrokerServer(cluster_of(1)) as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, server.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    told, offsets = done.stdout.splitlines()
    assert told == (
        "this KafkaConsumer was made before fork() and cannot be used in the child"
        "|cause: its sockets and threads belong to the parent process"
        "|try: make a new KafkaConsumer in the child"
    )
    assert offsets == str(list(range(10)))


def test_poll_without_anything_to_read() -> None:
    """E-05: the missing step is named."""
    with consumer(f"{HOST}:9") as reader:
        _, lines = raised(IllegalStateError, reader.poll)
        assert lines == [
            "poll() without anything to read",
            "try: subscribe() or assign() first",
        ]
        _, lines = raised(ConfigurationError, lambda: reader.subscribe("orders"))
        assert lines[-1] == 'try: subscribe(["orders"])'


def test_a_mapping_as_first_argument_is_the_configuration() -> None:
    """E-03: as with confluent-kafka; topics may follow it."""
    settings = {"bootstrap.servers": f"{HOST}:9", "client.id": "mine"}
    with kfast.KafkaConsumer(settings) as reader:
        assert repr(reader) == f"<KafkaConsumer mine: {HOST}:9; new>"
        assert reader.subscription() is None
    with kfast.KafkaConsumer(settings, "t", fetch_min_bytes=2) as reader:
        assert repr(reader) == f"<KafkaConsumer mine: {HOST}:9; new, 0 of 0 partitions; topics t>"
        assert reader.subscription() == {"t"}
    _, lines = raised(ConfigurationError, lambda: kfast.KafkaConsumer(settings, config=settings))
    assert lines[0] == "config was given twice, as the first argument and by name"
    raised(ConfigurationError, lambda: kfast.KafkaConsumer("t", settings))


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.poll("x"),
        lambda reader: reader.poll(1.0),
        lambda reader: reader.poll(-1),
        lambda reader: reader.poll(0, max_records=0),
        lambda reader: reader.poll(0, update_offsets=False),
        lambda reader: reader.subscribe([5]),
        lambda reader: reader.subscribe(pattern="("),
        lambda reader: reader.assign(["t"]),
        lambda reader: reader.assign(T0),
        lambda reader: reader.assign("t"),
        lambda reader: reader.assign(5),
        lambda reader: reader.assign([TopicPartition("t", -1)]),
        lambda reader: reader.end_offsets(T0),
        lambda reader: reader.end_offsets(5),
        lambda reader: reader.offsets_for_times({T0: -1}),
        lambda reader: reader.offsets_for_times([T0]),
        lambda reader: reader.committed(None),
        lambda reader: reader.position("t"),
        lambda reader: reader.seek(T0, 1.5),
    ],
)
def test_arguments_of_the_wrong_kind(call: Callable[[kfast.KafkaConsumer], object]) -> None:
    """E-05: refused before anything happens, with what to pass instead."""
    with consumer(f"{HOST}:9") as reader:
        error, _ = raised(ConfigurationError, lambda: call(reader))
        assert not error.retriable
        assert reader.assignment() == set()
        assert reader.subscription() is None


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.position(T1),
        lambda reader: reader.seek(T1, 0),
        lambda reader: reader.seek_to_end(T1),
        lambda reader: reader.pause(T1),
        lambda reader: reader.resume(T1),
    ],
)
def test_partitions_that_are_not_assigned(call: Callable[[kfast.KafkaConsumer], object]) -> None:
    with consumer(f"{HOST}:9") as reader:
        reader.assign([T0])
        error, lines = raised(IllegalStateError, lambda: call(reader))
    assert lines[0] == "t-1 is not assigned to this consumer"
    assert (error.topic, error.partition) == ("t", 1)
