"""kfast bench: the same records through every client that is installed, and settings for each."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import cli
from kfast.cli import bench
from kfast.config import ConsumerConfig
from kfast.demo.bench_worker import measure
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer

SASL = {
    "bootstrap.servers": "b1:9096,b2:9096",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "app",
    "sasl.password": "s3cr3t",
}
KCAT = """#!/usr/bin/env python3
import json, os, sys
if sys.argv[1:] == ["-V"]:
    print("kcat - Apache Kafka tool\\n(c) 2014-2021, M. E.\\nVersion 1.7.1 (JSON)")
else:
    file = sys.argv[sys.argv.index("-F") + 1]
    seen = {"argv": sys.argv, "conf": open(file).read(), "mode": os.stat(file).st_mode}
    open(os.environ["SEEN"], "w").write(json.dumps(seen))
"""


def test_clients_read_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-69: in processes of their own; passwords in no list of processes; failures are rows."""
    cluster = FakeCluster(1)
    cluster.create_topic("orders", 2)
    for partition in (0, 1):
        cluster.append("orders", partition, [b"x" * 100] * 2_000, batch_records=500)
    kcat = tmp_path / "kcat"
    kcat.write_text(KCAT, encoding="utf-8")
    kcat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.json"))
    clients = {"kfast": bench.CLIENTS["kfast"], "confluent-kafka": bench.CLIENTS["confluent-kafka"]}
    nowhere = bench.Client(
        "kafka-python", "", lambda *_: {"bootstrap_servers": "127.0.0.1:1", "no_such": 1}
    )
    monkeypatch.setattr(bench, "CLIENTS", clients | {"kafka-python": nowhere})
    monkeypatch.setattr(
        bench, "_installed", lambda: {"kfast": "1", "kcat": "2", "kafka-python": "3"}
    )
    with BrokerServer(cluster) as server:
        words = ["-b", server.bootstrap_servers, "bench", "orders", "--rounds", "1", "-f", "json"]
        assert cli.main(words) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    rows = {row["client"]: row for row in json.loads(printed.out)}
    assert {name: row["version"] for name, row in rows.items()} == {
        "kfast": "1",
        "kcat": "2",
        "kafka-python": "3",
    }
    for name in ("kfast", "kcat"):
        row = rows[name]
        assert row["records"] == 4_000
        assert row["records_per_second"] > 0
        assert row["ratio"] == pytest.approx(
            row["records_per_second"] / rows["kfast"]["records_per_second"], rel=0.1, abs=0.01
        )
        megabytes = row["records_per_second"] * 100 / 1e6
        assert row["megabytes_per_second"] == pytest.approx(megabytes, rel=0.1, abs=0.1)
    assert rows["kafka-python"]["records"] is None
    assert rows["kafka-python"]["settings"].startswith("failed: ")
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert stat.S_IMODE(seen["mode"]) == 0o600
    assert f"bootstrap.servers={server.bootstrap_servers}\n" in seen["conf"]
    assert server.bootstrap_servers not in seen["argv"]


def test_installed_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-69: packages by their metadata, kcat by what it says."""
    kcat = tmp_path / "kcat"
    kcat.write_text(KCAT, encoding="utf-8")
    kcat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = bench._installed()
    assert found["kfast"] == kfast.__version__
    assert found["kcat"] == "1.7.1"


def test_settings_of_other_clients() -> None:
    """CL-69: the same login by each client's names; a client that cannot have it is left out."""
    config = ConsumerConfig(SASL)
    made = {name: client.config(config, SASL) for name, client in bench.CLIENTS.items()}
    assert made["kfast"] == SASL
    assert made["confluent-kafka"] == SASL
    assert (
        made["kafka-python"]
        == made["aiokafka"]
        == {
            "bootstrap_servers": "b1:9096,b2:9096",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "app",
            "sasl_plain_password": "s3cr3t",
        }
    )
    tls: dict[str, Any] = {"bootstrap.servers": "b1:9093", "security.protocol": "SSL"}
    assert bench.CLIENTS["aiokafka"].config(ConsumerConfig(tls), tls) is None
    plain = ConsumerConfig({"bootstrap.servers": "b1"})
    assert bench.CLIENTS["kafka-python"].config(plain, {}) == {
        "bootstrap_servers": "b1:9092",
        "security_protocol": "PLAINTEXT",
    }


def test_a_rate_counts_from_the_first_request() -> None:
    """CL-69: the first item comes before the clock starts, a client that stops is given up."""
    found = measure(iter([0, 10, 20, 30]), 60)
    assert found["records"] == 60
    assert found["seconds"] > 0
    assert measure(iter([0, 10]), 60)["records"] == 10


def test_a_topic_without_records_or_that_is_not_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """CL-69: exit 5, nothing is measured."""
    cluster = FakeCluster(1)
    cluster.create_topic("empty")
    with BrokerServer(cluster) as server:
        for topic, message in (("empty", "empty has no records"), ("empti", 'no topic "empti"')):
            assert cli.main(["-b", server.bootstrap_servers, "bench", topic]) == 5
            assert message in capfd.readouterr().err
