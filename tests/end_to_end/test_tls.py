"""The public consumer over TLS, against the fake broker."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import KafkaConnectionError, SslAuthenticationError
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Drop
from tests.end_to_end.errors_support import cluster_of
from tests.end_to_end.stage import Stage, eventually, offsets, read
from tests.imported_modules import READ, among, last_line_of
from tests.simulation.wire_faults import Split
from tests.unit.network.serving import serving
from tests.unit.security.tls.authority import (
    authority,
    ca_pem,
    server_context,
    set_up,
    start,
    until_closed,
)

FETCH = 1
TLS = {"security_protocol": "SSL", "ssl_ca_pem": ca_pem()}


def large_cluster(records: int = 60, value_bytes: int = 150_000) -> FakeCluster:
    """Return two nodes with topic "t" of two partitions; each value says its offset."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    for partition in range(2):
        values = [b"%d " % offset + bytes(value_bytes) for offset in range(records)]
        cluster.append("t", partition, values, batch_records=1)
    return cluster


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(large_cluster(), server_context(), **TLS) as made:
        yield made


def read_each_once(consumer: KafkaConsumer, records: int = 60) -> None:
    found = read(consumer, 2 * records)
    for partition in range(2):
        assert offsets(found, partition) == list(range(records))
        rows = found[TopicPartition("t", partition)]
        assert all(value.split()[0] == b"%d" % offset for offset, value in rows)


def test_a_topic_of_several_brokers(stage: Stage) -> None:
    """S-01: those that metadata names are reached with TLS, too."""
    read_each_once(stage.consumer("t"))
    assert {request.node_id for request in stage.cluster.requests.select(FETCH)} == {1, 2}


def test_memory_is_bounded_over_tls(stage: Stage) -> None:
    """B-06: what OpenSSL has decrypted already is read when there is memory again."""
    consumer = stage.consumer("t", buffer_memory_bytes=400_000, max_poll_records=1)
    read_each_once(consumer)


def test_a_member_of_a_group(stage: Stage) -> None:
    """S-01: the connection to the group coordinator is another one."""
    consumer = stage.consumer("t", group_id="g")
    records = consumer.poll(timeout_ms=20_000)
    consumer.commit(records.next_offsets())
    assert consumer.committed(next(iter(records))) is not None


@pytest.mark.parametrize("after_bytes", [0, 3, 5, 20_000, 140_000])
def test_a_frame_that_is_cut(stage: Stage, after_bytes: int) -> None:
    """S-01: the connection is lost, and what was in flight is asked for again."""
    for nth in (2, 4, 9):
        stage.cluster.faults.add(Drop(after_bytes), api=FETCH, nth=nth)
    read_each_once(stage.consumer("t", max_partition_fetch_bytes=300_000))


def test_answers_in_pieces(stage: Stage) -> None:
    """S-01: records of TLS end anywhere in a frame."""
    for nth, sizes in enumerate([(1, 2, 3, 16_384), (16_383, 1), (4, 100_000), (7,) * 20]):
        stage.cluster.faults.add(Split((*sizes, 50_000)), api=FETCH, nth=nth + 1)
    read_each_once(stage.consumer("t"))


def test_everything_is_imported_before_the_first_poll() -> None:
    """A poll does not wait for modules of TLS."""
    with Stage(cluster_of(batch_records=4), server_context()) as stage:
        settings = {"bootstrap_servers": stage.server.bootstrap_servers, **TLS}
        made, later = last_line_of(READ, json.dumps(settings))
    assert among(made, "ssl") == ["ssl"]
    assert among(made, "cryptography", "trustme") == []
    assert among(later, "kfast", "ssl") == []


def test_closing_while_data_arrives(stage: Stage) -> None:
    """L-01"""
    consumer = stage.consumer("t", max_poll_records=1, buffer_memory_bytes=400_000)
    eventually(lambda: bool(consumer.poll(timeout_ms=1_000)))
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 2


def test_tls_to_a_plaintext_listener() -> None:
    """E-04"""
    with Stage(cluster_of(), None, **TLS) as stage:
        consumer = stage.consumer("t")
        with pytest.raises(KafkaConnectionError) as caught:
            consumer.poll(timeout_ms=3_000)
    assert "closed the TLS handshake: this looks like a plaintext listener" in str(caught.value)
    assert caught.value.hint == 'security_protocol="PLAINTEXT", or the TLS port'


@pytest.mark.parametrize("call", ["poll", "partitions_for_topic", "end_offsets", "committed"])
def test_a_refused_certificate_ends_every_call(
    stage: Stage, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S-02, S-06: at once, with the same error, and one warning."""
    other = ca_pem(authority("Another Root"))
    consumer = stage.consumer("t", ssl_ca_pem=other, group_id="g")
    arguments: dict[str, Any] = {
        "poll": 30_000,
        "partitions_for_topic": "t",
        "end_offsets": [TopicPartition("t", 0)],
        "committed": TopicPartition("t", 0),
    }
    texts = set()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "kfast"):
        for _ in range(3):
            with pytest.raises(SslAuthenticationError) as caught:
                getattr(consumer, call)(arguments[call])
            texts.add(str(caught.value).partition(":")[0])
    assert time.monotonic() - began < 2
    assert texts == {"the certificate of 127.0.0.1"}
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning.startswith("the certificate of 127.0.0.1:")
    assert "is not trusted (its issuer" in warning


def test_a_renewed_authority_is_tried_at_once(stage: Stage, tmp_path: Path) -> None:
    """S-02, S-03: the time after a refusal is over when what was refused has changed."""
    path = tmp_path / "ca.pem"
    path.write_text(ca_pem(authority("Another Root")))
    consumer = stage.consumer("t", ssl_ca_pem=None, ssl_cafile=path)
    with pytest.raises(SslAuthenticationError, match="is not trusted"):
        consumer.poll(timeout_ms=20_000)
    path.write_text(ca_pem())
    began = time.monotonic()

    def is_read() -> bool:
        with contextlib.suppress(SslAuthenticationError):
            return bool(consumer.poll(timeout_ms=100))
        return False

    eventually(is_read)
    assert time.monotonic() - began < 5, "and not after the ten seconds of a refusal"


def test_a_refused_certificate_is_not_tried_in_a_loop() -> None:
    """S-02, S-06: an application that polls makes at most two attempts in its first seconds."""
    attempts: list[int] = []

    def count(sock: socket.socket) -> None:
        attempts.append(1)
        with (
            contextlib.suppress(OSError),
            server_context().wrap_socket(sock, server_side=True) as tls,
        ):
            tls.recv(1)

    settings: dict[str, Any] = {**TLS, "ssl_ca_pem": ca_pem(authority("Another Root"))}
    with serving(count) as port:
        consumer = KafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{port}", **settings)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            with pytest.raises(SslAuthenticationError):
                consumer.poll(timeout_ms=1_000)
            time.sleep(0.01)
        made = len(attempts)
        consumer.close()
    assert 1 <= made <= 2


def test_closing_during_a_handshake() -> None:
    """L-01: a server that never answers delays nothing."""
    with serving(until_closed) as port:
        settings: dict[str, Any] = {**TLS, "bootstrap_servers": f"127.0.0.1:{port}"}
        consumer = KafkaConsumer("t", **settings)
        consumer.poll(timeout_ms=100)
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_refused_connections_leave_nothing_behind() -> None:
    """L-07: neither descriptors nor threads, however many there were."""
    other = ca_pem(authority("Another Root"))
    with serving(until_closed, server_context()) as port:

        def refuse() -> None:
            transport = start(port, ssl_ca_pem=other)
            with contextlib.closing(transport), pytest.raises(SslAuthenticationError):
                set_up(transport)

        refuse()
        before = (len(os.listdir("/proc/self/fd")), threading.active_count())
        for _ in range(200):
            refuse()
        gc.collect()
        after = (len(os.listdir("/proc/self/fd")), threading.active_count())
    assert after[0] <= before[0] + 1
    assert after[1] == before[1]
