"""Six tasks of someone who has the README only, with the commands and the table that are in it."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kfast
from kfast.cli import main
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.document_examples import examples, sections
from tests.end_to_end.groups import commit_as

HOUR_MS = 3_600_000
(SHOWN,) = examples("README.md", "At the shell", "")
COMMANDS = [line.partition("  #")[0].strip() for line in SHOWN.splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "orders": per partition four records of yesterday and three of the last hour."""
    cluster = FakeCluster(1)
    cluster.create_topic("orders", 2)
    now_ms = time.time_ns() // 1_000_000
    for partition in range(2):
        times = [now_ms - 24 * HOUR_MS] * 4 + [now_ms - 60_000] * 3
        cluster.append("orders", partition, [Record(None, b"x", timestamp=ms) for ms in times])
    with BrokerServer(cluster) as running:
        commit_as("billing", running.bootstrap_servers, "orders", 2, 5)
        yield running


@pytest.fixture(autouse=True)
def at_home(server: BrokerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFAST_BOOTSTRAP_SERVERS", server.bootstrap_servers)
    monkeypatch.chdir(tmp_path)


def run(capfd: pytest.CaptureFixture[str], start: str) -> tuple[int, list[str]]:
    """Run the README's command with this start; return its status and its lines."""
    (line,) = [each for each in COMMANDS if each.startswith(start)]
    program, *arguments = shlex.split(line.partition("|")[0])
    assert program == "kfast"
    status = main(arguments)
    return status, capfd.readouterr().out.splitlines()


def test_peek_at_a_topic(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-112"""
    status, lines = run(capfd, "kfast read orders -n 5")
    assert (status, len(lines)) == (0, 5)
    assert json.loads(lines[0])["value"] == "x"


def test_count_the_records_of_the_last_hour(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-112: wc counts lines, of which each record has one."""
    status, lines = run(capfd, "kfast read orders -o @-1h")
    assert (status, len(lines)) == (0, 6)


def test_a_topic_to_parquet(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-112"""
    assert run(capfd, "kfast read orders --output") == (0, [])
    assert pq.read_table("orders.parquet").num_rows == 14


def test_the_lag_of_a_group(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-112"""
    status, (heading, *rows) = run(capfd, "kfast lag billing")
    assert status == 0
    at = heading.split().index("lag")
    assert [row.split()[at] for row in rows] == ["2", "2"]


def test_why_nothing_arrives(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-112: the first step that fails is named, with its exit code."""
    _, lines = run(capfd, "kfast doctor orders -g billing")
    assert len(lines) > 5
    monkeypatch.setenv("KFAST_BOOTSTRAP_SERVERS", "nowhere.invalid:9092")
    status, lines = run(capfd, "kfast doctor orders -g billing")
    assert status == 3
    assert any("nowhere.invalid" in line for line in lines)


def test_port_a_loop_of_confluent_kafka(server: BrokerServer) -> None:
    """CL-112: each left side of the table has a right side that works."""
    table = dict(
        re.findall(
            r"^\| (`.+?`) \| (`.+`.*) \|$",
            sections("README.md")["Coming from another client"],
            re.MULTILINE,
        )
    )
    assert "KafkaConsumer(config={...})" in table['`Consumer({"bootstrap.servers": ...})`']
    settings = {
        "bootstrap.servers": server.bootstrap_servers,
        "group.id": "ported",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    seen: list[bytes] = []
    with kfast.KafkaConsumer("orders", config=settings) as c:
        while len(seen) < 14:
            records = c.poll(timeout_ms=1000)
            for batch in records.values():
                seen += batch.values.to_list()
                assert len(batch.timestamps) == len(batch)
            if records:
                c.commit(records.next_offsets())
        partitions = sorted(c.assignment())
        assert [c.committed(tp) for tp in partitions] == [7, 7]
        assert c.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert c.end_offsets(partitions) == dict.fromkeys(partitions, 7)
    assert seen == [b"x"] * 14
