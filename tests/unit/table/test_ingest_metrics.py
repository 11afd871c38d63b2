"""CL-271: what an ingest has done, and what is left, as text for Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kfast.table.batches import ranges_in
from kfast.table.ingest_metrics import IngestMetrics
from kfast.table.manifest_log import ManifestLog
from kfast.table.publish import Publisher
from kfast.table.store import LocalStore, TableStore
from kfast.table.table_log import STAGING
from kfast.types import TopicPartition
from tests.unit.table.metric_lines import values
from tests.unit.table.tables import FIRST, SECOND, Tasks, table


def test_counts_are_those_since_the_ingest_began(store: TableStore, tmp_path: Path) -> None:
    """CL-271: whoever writes the table."""
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run(*FIRST))
    metrics = IngestMetrics(ManifestLog(store), lambda: {})
    begun = values(metrics.text())
    assert begun["rows_total"] == begun["batches_total"] == 0
    assert begun["table_rows"] == 8
    first, *others = [
        replace(part, lost_offsets=3, bad_records=2, skipped_batches="5-6 7-9")
        for part in ranges_in(tasks.run(*SECOND))
    ]
    letters = replace(
        first.files[0], staged=f"{STAGING}/letters", rows=4, folder=str(tmp_path / "letters")
    )
    LocalStore(tmp_path / "letters").create(letters.staged, b"x" * letters.bytes)
    first = replace(first, files=(*first.files, letters))
    entry = publisher.publish(writer, 1, [first, *others])
    found = values(metrics.text())
    assert found["rows_total"] == 7
    assert found["bytes_total"] == entry.counts.bytes
    assert (found["files_total"], found["batches_total"], found["table_rows"]) == (3, 1, 15)
    assert found["lost_offsets_total"] == 9
    assert found["bad_records_total"] == 6
    assert found["dead_letters_total"] == 4
    assert found["skipped_batches_total"] == 6
    assert found['end_offset{topic="t",partition="0"}'] == 9
    created = store.stat(f"_kfast/log/{entry.sequence:020d}.json")
    assert created is not None
    assert found["last_batch_timestamp_seconds"] == pytest.approx(created.modified_ms / 1000)
    assert values(metrics.text()) == found, "no batch counts twice"


def test_a_table_without_entries(store: TableStore) -> None:
    """CL-271"""
    found = values(IngestMetrics(ManifestLog(store), lambda: {}).text())
    assert set(found.values()) == {0}
    assert "table_rows" not in found


def test_the_lag_by_partition(store: TableStore) -> None:
    """CL-271: names of topics are escaped, whatever is in them."""
    lag = {TopicPartition("b", 1): 5, TopicPartition('a"\\', 0): 0}
    text = IngestMetrics(ManifestLog(store), lambda: lag).text()
    assert text.splitlines()[-2:] == [
        r'kfast_ingest_lag_offsets{topic="a\"\\",partition="0"} 0',
        'kfast_ingest_lag_offsets{topic="b",partition="1"} 5',
    ]


def test_batches_are_counted_before_they_are_forgotten(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-271: also if no one asks for a long time."""
    monkeypatch.setattr("kfast.table.manifest_log.KEPT_ENTRIES", 60)
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    metrics = IngestMetrics(ManifestLog(store), lambda: {})
    for number in range(70):
        publisher.publish(writer, number, tasks.run((0, number, number + 1)))
        assert metrics.tick()
    assert values(metrics.text())["batches_total"] == 70


def test_it_is_over_with_the_ingest(tmp_path: Path) -> None:
    """CL-270"""
    log = ManifestLog(LocalStore(tmp_path))
    over = [False]
    metrics = IngestMetrics(log, lambda: {}, lambda: over[0])
    assert all(metrics.tick() for _ in range(10))
    over[0] = True
    assert not all(metrics.tick() for _ in range(5))
