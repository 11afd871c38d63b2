"""``kfast ingest --follow`` over a fake cluster: what joins, what is waited for, what ends it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.protocol.api_keys import ApiKey
from kfast.table.entries import Entry
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from kfast.testing.faults import EditResponse
from tests.end_to_end.ingests import Table, Truth
from tests.end_to_end.stage import eventually


def test_a_follow(truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-129: published at intervals; new partitions and topics join."""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 50)
    options = IngestOptions(topics=("t*",), to=str(table.folder), follow=True, every_ms=20)
    entries: list[Entry] = []
    settings = {"bootstrap_servers": table.servers, "retry_backoff_ms": 10}
    run = Ingest(options, settings, published=entries.append)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        for step in (
            lambda: truth.write(0, 5),
            lambda: truth.cluster.add_partitions("t", 3),
            lambda: truth.write(2, 4),
            lambda: truth.cluster.create_topic("two", 1),
            lambda: truth.write(0, 6, "two"),
        ):
            step()
            eventually(lambda: bool(entries) and entries[-1].rows == len(truth.rows))
        truth.write(1, 1)
    finally:
        run.stop()
        thread.join(30)
    assert not thread.is_alive()
    table.ingest("t*")
    table.check(truth)
    assert len(entries) >= 3


def test_a_follow_survives_a_broker_that_restarts(truth: Truth, table: Table) -> None:
    """CL-129: it waits."""
    options = IngestOptions(topics=("t",), to=str(table.folder), follow=True, every_ms=20)
    entries: list[Entry] = []
    settings = {"bootstrap_servers": table.servers, "reconnect_backoff_max_ms": 100}
    run = Ingest(options, settings, published=entries.append)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        eventually(lambda: bool(entries) and entries[-1].rows == 80)
        truth.cluster.stop_node(1, fails_over=False)
        truth.cluster.start_node(1)
        truth.write(0, 5)
        eventually(lambda: entries[-1].rows == 85)
    finally:
        run.stop()
        thread.join(30)
    table.check(truth)


def test_a_topic_created_anew_ends_a_follow(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-125: before a record of it is in the table."""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 50)
    found: list[KafkaError] = []

    def anew(entry: Entry) -> None:
        if entry.rows == 80:
            truth.cluster.recreate_topic("t", 2)
            truth.write(0, 500)

    options = IngestOptions(topics=("t",), to=str(table.folder), follow=True, every_ms=20)
    run = Ingest(options, {"bootstrap_servers": table.servers}, published=anew)

    def until_it_fails() -> None:
        try:
            run.run()
        except KafkaError as error:
            found.append(error)

    thread = threading.Thread(target=until_it_fails)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "t was deleted and created anew" in str(found[0])
    assert table.last.rows == 80


def test_a_deleted_topic_keeps_no_new_partitions_from_being_followed(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-05"""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 50)
    truth.cluster.create_topic("other", 1)
    truth.write(0, 5, "other")
    entries: list[Entry] = []
    options = IngestOptions(topics=("t", "other"), to=str(table.folder), follow=True, every_ms=20)
    run = Ingest(options, {"bootstrap_servers": table.servers}, published=entries.append)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        eventually(lambda: bool(entries) and entries[-1].rows == 85)
        truth.cluster.delete_topic("other")
        truth.cluster.add_partitions("t", 3)
        truth.write(2, 4)
        eventually(lambda: entries[-1].rows == 89)
    finally:
        run.stop()
        thread.join(30)
    table.check(truth)


def test_a_topic_of_a_glob_that_returns_ends_a_follow(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-06: it is not the topic that the table has, also if it was gone for a while."""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 50)
    truth.cluster.create_topic("two", 1)
    truth.write(0, 5, "two")
    entries: list[Entry] = []
    found: list[KafkaError] = []
    options = IngestOptions(topics=("t*",), to=str(table.folder), follow=True, every_ms=20)
    run = Ingest(options, {"bootstrap_servers": table.servers}, published=entries.append)

    def until_it_fails() -> None:
        try:
            run.run()
        except KafkaError as error:
            found.append(error)

    thread = threading.Thread(target=until_it_fails)
    thread.start()
    try:
        eventually(lambda: bool(entries) and entries[-1].rows == 85)
        rows = [*truth.rows]
        truth.cluster.delete_topic("two")
        truth.cluster.requests.clear()
        eventually(lambda: len(truth.cluster.requests.select(ApiKey.METADATA)) > 3)
        truth.cluster.create_topic("two", 1)
        truth.write(0, 3, "two")
        eventually(lambda: not thread.is_alive())
    finally:
        run.stop()
        thread.join(30)
    assert "two was deleted and created anew" in str(found[0])
    truth.rows = rows
    table.check(truth)


def test_a_topic_of_a_glob_that_is_deleted_before_it_is_read_is_left_out(
    truth: Truth, table: Table
) -> None:
    """V-04"""
    truth.cluster.create_topic("two", 1)
    seen = 0

    def delete(message: Any, _plan: object) -> None:
        nonlocal seen
        seen += any(topic.name == "two" for topic in message.topics)
        if seen == 2:  # when the schema is settled, before the ranges are planned
            truth.cluster.topics.pop("two", None)

    truth.cluster.faults.add(EditResponse(delete), api=ApiKey.METADATA, times=None)
    table.ingest("t*")
    table.check(truth)
