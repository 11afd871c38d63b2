"""examples/exactly_once.py as processes that are killed, held up and started again.

Whatever happens to them: who reads their results with isolation_level="read_committed" finds what
follows from every input exactly once.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka
import numpy as np
import pytest

import kfast
from examples import exactly_once
from kfast import KafkaConsumer, LocalKafka, TopicPartition, transactions
from kfast.errors import KafkaTimeoutError
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import confluent_rows, program, tps, unique, until
from tests.soaking import soaking

pytestmark = pytest.mark.integration

PARTITIONS: Final = 4
ROOT: Final = Path(__file__).resolve().parents[2]
PROTOCOLS: Final = ("classic", "consumer")
QUICK: Final[dict[str, dict[str, Any]]] = {
    "classic": {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 200},
    "consumer": {},
}
KILLS: Final = soaking(4, 30)
RECORDS: Final = soaking(10_000, 60_000)

PROGRAM: Final = """
    import json, sys
    from examples import exactly_once
    settings = json.loads(sys.argv[1])
    exactly_once.SOURCE, exactly_once.TARGET = settings.pop("source"), settings.pop("target")
    exactly_once.main(**settings)
"""

HELD_UP: Final = """
    import sys
    from kfast import transactions
    send_offsets = transactions.send_offsets

    def wait(*args):
        transactions.send_offsets = send_offsets
        print("the results are written, the offsets are not", flush=True)
        sys.stdin.readline()
        try:
            send_offsets(*args)
        except BaseException as error:
            print(error, flush=True)
            raise
        print("sent", flush=True)

    transactions.send_offsets = wait
"""


class Pipeline:
    """Input, output, and the processes between them.

    Parameters
    ----------
    servers : str
        The cluster.
    source, target : str
        The topics; the target has one partition.
    **configs
        Of the consumers.
    """

    def __init__(self, servers: str, source: str, target: str, **configs: Any) -> None:
        self.servers = servers
        self.source = source
        self.target = target
        self.configs = {
            "group_id": unique("exactly-once"),
            "max_poll_records": 50,
            "fetch_max_wait_ms": 100,
            **configs,
        }
        self._bystander = KafkaConsumer(
            bootstrap_servers=servers, group_id=self.configs["group_id"], enable_auto_commit=False
        )
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.ends: dict[TopicPartition, int] = {}

    def start(self, name: str, program_text: str = PROGRAM) -> subprocess.Popen[str]:
        """Start a process under a name, which is its transactional.id."""
        settings = {
            "bootstrap_servers": self.servers,
            "name": f"{self.configs['group_id']}-{name}",
            "source": self.source,
            "target": self.target,
            **self.configs,
        }
        process = program(program_text, json.dumps(settings), PYTHONWARNINGS="ignore")
        self.processes[name] = process
        return process

    def kill(self, name: str) -> None:
        """End a process without notice."""
        process = self.processes.pop(name)
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()

    def interrupt(self, name: str) -> None:
        """End a process in good order, as Ctrl-C does."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        self._bystander.close()

    def fill(self, writer: KafkaWriter, count: int, start: int = 0) -> None:
        """Write readings of sensors ``start``, ..., spread over the partitions."""
        for tp in tps(self.source, PARTITIONS):
            sensors = range(start + tp.partition, start + count, PARTITIONS)
            readings = np.zeros(len(sensors), exactly_once.READING)
            readings["sensor"] = sensors
            readings["degrees"] = sensors
            offsets = writer.write(
                tp.topic, [reading.tobytes() for reading in readings], partition=tp.partition
            )
            self.ends[tp] = offsets[-1] + 1

    def committed(self) -> dict[TopicPartition, int]:
        """Return what the group has committed; without what is in open transactions."""
        try:
            found = self._bystander.committed(self.ends, timeout_ms=1_000)
        except KafkaTimeoutError:  # a transaction has offsets of its own there
            return {}
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def wait(self) -> None:
        """Wait until all input is processed."""

        def is_done() -> bool:
            ended = {
                name: process.communicate()
                for name, process in self.processes.items()
                if process.poll() is not None
            }
            assert not ended
            return self.committed() == self.ends

        until(is_done, "all input is processed", 60)

    def check(self, count: int) -> int:
        """Check that there is one result for every input; return how many were written in all."""
        tp = TopicPartition(self.target, 0)
        rows = kfast.read_topic(
            tp, bootstrap_servers=self.servers, isolation_level="read_committed"
        )[tp]
        sensors = Counter(int(key) for key in rows.keys)
        assert [sensor for sensor, times in sensors.items() if times > 1] == []
        assert sorted(sensors) == list(range(count))
        readings = np.frombuffer(b"".join(rows.values), exactly_once.READING)
        assert np.allclose(readings["degrees"], readings["sensor"] * 1.8 + 32)
        theirs = confluent_rows(self.servers, tp, "read_committed")
        assert [row[0] for row in theirs] == rows.offsets.tolist()
        return kfast.read_topic(tp, bootstrap_servers=self.servers).count()


@pytest.fixture(params=PROTOCOLS)
def pipeline(
    kafka: LocalKafka, new_topic: TopicFactory, request: pytest.FixtureRequest
) -> Iterator[Pipeline]:
    """A pipeline whose consumers use the test's protocol."""
    protocol = request.param
    configs = {"group_protocol": protocol, **QUICK[protocol]}
    with Pipeline(kafka.bootstrap_servers, new_topic(PARTITIONS), new_topic(1), **configs) as made:
        yield made


@pytest.mark.soak
def test_killed_at_random_moments(pipeline: Pipeline, writer: KafkaWriter) -> None:
    """T-11, T-12, G-26, K-06: two processes, killed again and again; every input counts once."""
    moments = random.Random()
    pipeline.fill(writer, RECORDS)
    for name in ("one", "two"):
        pipeline.start(name)
    until(lambda: sum(pipeline.committed().values()) > 0, "the first transaction")
    for _ in range(KILLS):
        victim = pipeline.processes[name := moments.choice(("one", "two"))]
        try:
            victim.wait(moments.uniform(0.2, 1.5))
        except subprocess.TimeoutExpired:
            pipeline.kill(name)
        pipeline.start(name)
    pipeline.wait()
    pipeline.check(RECORDS)


def test_expelled_in_the_middle_of_a_transaction(pipeline: Pipeline, writer: KafkaWriter) -> None:
    """T-11: others have gone on from there; it is refused, aborts, goes back and joins again."""
    pipeline.configs["max_poll_interval_ms"] = 2_000
    pipeline.fill(writer, 400)
    slow = pipeline.start("slow", HELD_UP + PROGRAM)
    assert slow.stdout is not None
    assert slow.stdin is not None
    assert "not" in slow.stdout.readline()
    pipeline.start("other")
    pipeline.wait()  # the other one has done it all
    slow.stdin.write("\n")
    slow.stdin.flush()
    answer = slow.stdout.readline()
    assert "UNKNOWN_MEMBER_ID" in answer or "FENCED" in answer or "STALE" in answer, answer
    pipeline.fill(writer, 400, start=400)
    pipeline.wait()
    assert slow.poll() is None
    assert pipeline.check(800) > 800
    pipeline.interrupt("other")
    pipeline.fill(writer, 400, start=800)
    pipeline.wait()  # the slow one is a member again
    pipeline.check(1_200)


def test_offsets_of_an_open_transaction(pipeline: Pipeline, writer: KafkaWriter) -> None:
    """T-12: no reader gets the committed offsets before it ends, in time or at all."""
    pipeline.fill(writer, 40)
    tp = TopicPartition(pipeline.source, 0)
    first = KafkaConsumer(
        pipeline.source,
        bootstrap_servers=pipeline.servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **pipeline.configs,
    )
    with first, writer.transaction(unique("open"), commit=False) as open_one:
        until(lambda: first.poll(100) and first.position(tp) == 10, "everything is read")
        first.commit({tp: 4})
        transactions.send_offsets(
            open_one.producer, {tp: kfast.OffsetAndMetadata(7)}, first.group_metadata()
        )
        with pytest.raises(KafkaTimeoutError, match=str(tp)) as caught:
            first.committed(tp, timeout_ms=300)
        assert "UNSTABLE_OFFSET_COMMIT" in str(caught.value)
        first.close()
        with KafkaConsumer(
            pipeline.source,
            bootstrap_servers=pipeline.servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **pipeline.configs,
        ) as second:
            seen: list[int] = []

            def read() -> list[int]:
                batches = second.poll(100)
                seen.extend(batches[tp].offsets.tolist() if tp in batches else [])
                return seen

            until(lambda: [read(), len(second.assignment()) == PARTITIONS][1], "its place")
            for _ in range(5):
                assert read() == []
            open_one.producer.abort_transaction()
            until(read, "the transaction has ended")
            assert seen[0] == 4
        open_one.producer.begin_transaction()


def test_a_member_the_group_does_not_have(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """T-11: partitions assigned by hand are committed in transactions without a membership."""
    topic = new_topic(1)
    tp = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("by-hand")}
    )
    producer.init_transactions()
    with KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=unique("by-hand")
    ) as consumer:
        consumer.assign([tp])
        producer.begin_transaction()
        offsets = {tp: kfast.OffsetAndMetadata(3)}
        transactions.send_offsets(producer, offsets, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed([tp]) == offsets
