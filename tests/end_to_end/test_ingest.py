"""``kfast.ingest`` over a fake cluster: where it goes on, what it refuses, what readers see."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kfast
from kfast import TopicPartition
from kfast.cli.exits import exit_code
from kfast.errors import (
    ConfigurationError,
    DeserializationError,
    KafkaError,
    OffsetOutOfRangeError,
    StorageError,
    TableError,
    UnknownTopicOrPartitionError,
)
from kfast.table.batches import DataFile, ReadRange
from kfast.table.entries import KFAST_INGEST, Entry
from kfast.table.file_names import parts_of
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from kfast.table.lock import table_lock
from kfast.table.manifest_log import LOG, ManifestLog
from kfast.table.projection import Projection, output_column
from kfast.table.publish import Publisher
from kfast.table.range_files import RangeFiles
from kfast.table.store import LocalStore
from kfast.table.table_log import OpenTable, is_hidden
from tests.end_to_end.ingests import START_MS, Table, Truth, fetched_offsets
from tests.unit.table.tables import Crash, Crashing
from tests.unit.table.tables import table as open_as_query

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SPARK = "/checkpoints/spark"
PLACE = ("topic", "partition", "offset")


# --- what a table has -----------------------------------------------------------------------------


def test_nothing_is_fetched_behind_the_end_of_a_run(truth: Truth, table: Table) -> None:
    """CL-241: one batch of 7 records comes with each fetch of so few bytes."""
    settings = {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 100}
    assert table.ingest(end={T0: 20, T1: 7}, **settings).rows == 27
    found = fetched_offsets(truth.cluster)
    assert (max(found[0]), max(found[1])) == (14, 0)
    table.ingest(**settings)
    table.check(truth)


def test_a_run_goes_on_where_the_table_ends(truth: Truth, table: Table) -> None:
    """CL-120: each record once; a run without new records adds nothing."""
    summary = table.ingest()
    table.check(truth)
    assert (summary.rows, summary.files, summary.batches) == (80, 2, 1)
    assert summary.ends == {T0: 50, T1: 30}
    assert summary.bytes == sum((table.folder / name).stat().st_size for name in table.names())
    summary = table.ingest()
    assert (summary.rows, summary.files, summary.ends) == (0, 0, {T0: 50, T1: 30})
    truth.write(1, 9)
    assert table.ingest().rows == 9
    table.check(truth)
    assert table.names() == ["t-0-0-50.parquet", "t-1-0-30.parquet", "t-1-30-39.parquet"]
    assert table.last.writer.checkpoint == KFAST_INGEST


def test_the_columns_are_those_of_spark(truth: Truth, table: Table) -> None:
    """CL-120: in Spark's types, so that both ingests write one table."""
    table.ingest()
    assert table.last.shape.schema == (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int"
    )
    found = pq.read_table(table.folder / "t-1-0-30.parquet")
    assert found.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert found.column("timestamp")[2].value == 1000 * (START_MS + 120_000)
    assert set(found.column("timestampType").to_pylist()) == {0}


def test_files_end_at_rows_and_at_bytes(truth: Truth, table: Table) -> None:
    """CL-127: no file has more rows; a name has the range of its file."""
    table.ingest(rows_per_file=20)
    table.check(truth)
    ranges = ["0-0-20", "0-20-40", "0-40-50", "1-0-20", "1-20-30"]
    assert table.names() == [f"t-{each}.parquet" for each in ranges]
    small = Table(table.folder / "../small", table.servers)
    small.ingest(bytes_per_file=300, max_poll_records=5)
    small.check(truth)
    assert len(small.names()) > 5


@pytest.mark.parametrize("format", ["parquet", "arrow", "delta"])
def test_folders(truth: Truth, table: Table, format: str) -> None:
    """CL-134: Hive's names, which readers take for columns; also of Arrow and Delta tables."""
    if format == "delta":
        pytest.importorskip("deltalake")
    truth.write(0, 100)
    table.ingest(format=format, partition_by="topic,hour", rows_per_file=30)
    ending = "arrow" if format == "arrow" else "parquet"
    names = table.names(ending)
    assert {parts_of(name)["topic"] for name in names} == {"t"}
    assert {parts_of(name)["hour"] for name in names} == {"0", "1", "2"}
    table.check(truth, ending)
    if format == "delta":
        import deltalake  # noqa: PLC0415 - optional

        truth.write(1, 3)
        table.ingest(format=format, partition_by="topic,hour")
        assert deltalake.DeltaTable(str(table.folder)).to_pyarrow_table().num_rows == 183


def test_columns_and_kinds(truth: Truth, table: Table) -> None:
    """CL-131: the columns that are asked for, keys and values decoded."""
    truth.cluster.append("t", 0, [b"caf\xc3\xa9"])
    table.ingest(columns=["offset", "value", "key"], value="text", key="text")
    assert table.last.shape.schema == "offset bigint, value string, key string"
    found = ds.dataset(table.folder).to_table()
    assert found.column_names == ["offset", "value", "key"]
    values = found.column("value").to_pylist()
    assert "café" in values
    assert None in values


def test_headers_are_a_column_if_they_are_asked_for(truth: Truth, table: Table) -> None:
    """CL-131: null without any, as in Spark's source."""
    table.ingest(columns=("partition", "headers", "timestamp_type"))
    schema = "partition int, headers array<struct<key:string,value:binary>>, timestampType int"
    assert table.last.shape.schema == schema
    assert set(ds.dataset(table.folder).to_table().column("headers").to_pylist()) == {None}


@pytest.mark.parametrize("name", ["key", "value"])
def test_what_is_not_of_its_kind(truth: Truth, table: Table, name: str) -> None:
    """CL-131: an error that says what to type, a null, or no record; the table has the count."""
    with pytest.raises(DeserializationError, match=f"t-[01] offset 0: {name} ") as caught:
        table.ingest(**{name: "int32"})
    assert exit_code(caught.value) == 6
    assert 'on_error="null", or on_error="skip"' in str(caught.value)
    assert table.names() == []
    assert table.staged() == []
    summary = table.ingest(**{name: "int32"}, on_error="skip")
    nulls = [row for row in truth.rows if row[3 if name == "key" else 4] is None]
    assert summary.bad_records == 80 - len(nulls)
    assert [row[:3] for row in table.rows()] == sorted(row[:3] for row in nulls)
    other = Table(table.folder / "../null", table.servers)
    assert other.ingest(**{name: "int32"}, on_error="null").rows == 80
    assert {row[3 if name == "key" else 4] for row in other.rows()} == {None}


def test_an_empty_topic_and_records_between_which_there_are_none(
    truth: Truth, table: Table
) -> None:
    """CL-120: the position counts, not the last record."""
    truth.cluster.create_topic("empty", 2)
    with truth.cluster.writing("t", 0) as writer:
        writer.append_emptied(9)
    summary = table.ingest("t", "empty")
    assert summary.ends == {T0: 59, T1: 30}
    table.check(truth)
    assert table.ingest("t", "empty").batches == 0


def test_globs_and_topics_that_come_later(truth: Truth, table: Table) -> None:
    """CL-120: a glob takes what is there; names without a topic are an error."""
    truth.cluster.create_topic("two", 1)
    truth.write(0, 4, "two")
    table.ingest("t*")
    table.check(truth)
    truth.cluster.add_partitions("two", 2)
    truth.write(1, 6, "two")
    table.ingest("t*")
    table.check(truth)
    for name in ("tow", "x*"):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"tow|x\*"):
            table.ingest(name, to=str(table.folder / "../none"))
    assert not (table.folder / "../none").exists()


def test_an_object_store(truth: Truth, table: Table) -> None:
    """CL-120, CL-122: without locks and folders; a run that was overtaken adds nothing."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    given = {"to": "memory://lake/t", "rows_per_file": 20}
    try:
        table.ingest(**given)
        truth.write(1, 5)
        assert table.ingest(**given).rows == 5
        names = [name for name in memory.find("/lake/t") if not is_hidden(name)]
        found = pa.concat_tables(pq.read_table(memory.open(name)) for name in names)
        rows = zip(*(found.column(name).to_pylist() for name in PLACE), strict=True)
        assert sorted(rows) == sorted(row[:3] for row in truth.rows)
        assert [name for name in memory.find("/lake/t") if "staging" in name] == []
    finally:
        memory.rm("/lake", recursive=True)


# --- where it begins ------------------------------------------------------------------------------


def test_where_partitions_begin_is_kept(truth: Truth, table: Table) -> None:
    """CL-128: also if nothing was read; and it cannot be changed."""
    assert table.ingest(start="latest").rows == 0
    truth.write(0, 5)
    with pytest.raises(ConfigurationError, match="has t-0 up to offset 49") as caught:
        table.ingest(start="earliest")
    assert exit_code(caught.value) == 2
    assert table.ingest().rows == 5
    assert [row[2] for row in table.rows()] == [50, 51, 52, 53, 54]


def test_a_start_by_offset(truth: Truth, table: Table) -> None:
    """CL-128: as in `scan_topic`."""
    assert table.ingest(start={T0: 45, T1: 30}).rows == 5
    assert table.last.ends == {T0: 50, T1: 30}


# --- what is gone ---------------------------------------------------------------------------------


def test_a_log_that_starts_behind_the_table(truth: Truth, table: Table) -> None:
    """CL-124: an error that names the hole; skipped, its offsets are in the manifest."""
    table.ingest()
    truth.write(0, 20)
    with truth.cluster.changing():
        truth.cluster.log("t", 0).delete_before(63)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 50 to 62 of t-0 are gone") as caught:
        table.ingest()
    assert exit_code(caught.value) == 6
    assert caught.value.found == "13 offsets are lost"
    summary = table.ingest(lost="skip")
    assert (summary.rows, summary.lost_offsets) == (7, 13)
    (read,) = table.last.ranges
    assert (read.from_offset, read.until_offset, read.lost_offsets) == (50, 70, 13)
    assert [file.rows for file in read.files] == [7]


def test_retention_that_overtakes_the_reading(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-124: between the plan and the first Fetch."""
    plan = Ingest._planned

    def then_removed(self: Ingest, *arguments: Any) -> Any:
        found = plan(self, *arguments)
        with truth.cluster.changing():
            truth.cluster.log("t", 1).delete_before(14)
        return found

    monkeypatch.setattr(Ingest, "_planned", then_removed)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 13 of t-1 are gone"):
        table.ingest()
    monkeypatch.undo()
    with truth.cluster.changing():
        truth.cluster.log("t", 0).delete_before(14)
    monkeypatch.setattr(
        Ingest,
        "_planned",
        lambda self, *arguments: [
            type(each)(each.topic_partition, 0, each.until_offset)
            for each in plan(self, *arguments)
        ],
    )
    summary = table.ingest(lost="skip")
    assert (summary.rows, summary.lost_offsets) == (52, 28)


@pytest.mark.parametrize("records", [10, 500])
def test_a_topic_that_was_created_anew(truth: Truth, table: Table, records: int) -> None:
    """CL-125: shorter than the table has it, or longer: then its id is another one."""
    table.ingest()
    truth.cluster.recreate_topic("t", 2)
    truth.write(0, records)
    with pytest.raises(OffsetOutOfRangeError, match="t was deleted and created anew") as caught:
        table.ingest(lost="skip")
    assert caught.value.hint == "--to another folder"
    assert exit_code(caught.value) == 6
    assert table.last.rows == 80


def test_a_topic_that_has_fewer_partitions(truth: Truth, table: Table) -> None:
    """CL-125: also where brokers have no topic ids."""
    table.ingest()
    truth.cluster.recreate_topic("t", 1)
    truth.write(0, 60)
    body = json.loads((table.folder / LOG / f"{table.last.sequence:020d}.json").read_text())
    assert set(body["topic_ids"]) == {"t"}
    with pytest.raises(OffsetOutOfRangeError, match="created anew"):
        table.ingest()


# --- others that write the table ------------------------------------------------------------------


def test_two_at_once(truth: Truth, table: Table) -> None:
    """CL-122: the second one on this machine is refused, and named."""
    with table_lock(table.store):
        with pytest.raises(KafkaError, match="another ingest writes") as caught:
            table.ingest()
        assert exit_code(caught.value) == 1
        assert caught.value.found == f"process {os.getpid()} on {os.uname().nodename}"
    table.ingest()
    table.check(truth)


def test_a_run_that_was_overtaken_writes_nothing(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-122: without a lock the older one fails at its next publication."""
    publish = Publisher.publish

    def overtaken(self: Publisher, *arguments: Any) -> Entry:
        monkeypatch.setattr(Publisher, "publish", publish)
        monkeypatch.setattr("kfast.table.lock._lock", lambda *_: None)
        table.ingest()
        return publish(self, *arguments)

    monkeypatch.setattr(Publisher, "publish", overtaken)
    with pytest.raises(KafkaError, match="another ingest has taken over") as caught:
        table.ingest()
    assert exit_code(caught.value) == 1
    table.check(truth)


def spark_table(table: Table, *, take_over: bool = False) -> OpenTable:
    """Open the table as Spark's ingest does."""
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamptype")
    projection = Projection(tuple(output_column(name) for name in columns))
    options = IngestOptions(topics=("t",), to="x")
    shape = options.shape(options.projection({}))
    assert projection.ddl == shape.schema
    return open_as_query(table.store, "spark", shape=shape, take_over=take_over)


def test_a_table_that_spark_has_written(truth: Truth, table: Table) -> None:
    """CL-123: continued if that is asked for, with the batch that it did not finish."""
    opened = spark_table(table)
    with table_lock(table.store):
        pass
    store = table.store
    first = Table(table.folder / "../first", table.servers)
    first.ingest(start={T0: 0, T1: 30})
    (name,) = [name for name in first.names() if name.startswith("t-0")]
    staged = "_kfast/staging/spark/t-0-0-50.x"
    (table.folder / staged).parent.mkdir(parents=True)
    (table.folder / staged).write_bytes((first.folder / name).read_bytes())
    size = (first.folder / name).stat().st_size
    read = ReadRange("t", 0, 0, 50, (DataFile(staged, "t-0-0-50.parquet", 50, size),))
    log = ManifestLog(Crashing(store, 1, is_after=False))
    with pytest.raises(Crash):  # between the manifest and the name of its file
        log.append(opened.last.next(0, [read]))
    assert table.names() == []
    with pytest.raises(ConfigurationError, match=f"Spark with the checkpoint {SPARK}") as caught:
        table.ingest()
    assert exit_code(caught.value) == 2
    assert "--take-over" in str(caught.value)
    table.ingest(take_over=True)
    table.check(truth)
    with pytest.raises(ConfigurationError, match="is written by kfast ingest"):
        spark_table(table)
    opened = spark_table(table, take_over=True)
    assert opened.last.ends == {T0: 50, T1: 30}
    assert opened.last.rows == 80
    assert opened.last.topic_ids.keys() == {"t"}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "orc"}, 'format: there is no "orc"'),
        ({"columns": ["ofset"]}, "did you mean offset"),
        ({"columns": ["key", "KEY"]}, "KEY is given twice"),
        ({"columns": ["topic"], "partition_by": "topic"}, "no column"),
        ({"partition_by": ["day"]}, "cannot partition the table by day"),
        ({"value": "json"}, "value: json needs a schema"),
        ({"key": "txt"}, 'did you mean "text"?'),
        ({"compression": "snappy", "format": "arrow"}, 'compression: there is no "snappy"'),
        ({"lost": "maybe"}, "one of fail, skip"),
        ({"rows_per_file": 0}, "rows-per-file = 0: too small"),
        ({"memory_bytes": 5}, "memory = 5: too small"),
        ({"value_deserializer": str}, "value_deserializer is not for an ingest"),
        ({"auto_offset_reset": "earliest"}, "--lost skip"),
        ({"group_id": "g", "enable_auto_commit": True}, "enable_auto_commit is not for"),
        ({"fetch_min_bytez": 1}, "did you mean fetch_min_bytes"),
        ({"to": "ftp://x/y"}, "ftp cannot create a file exclusively"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    """CL-135: before a broker is asked."""
    given = {"to": str(tmp_path / "t"), "bootstrap_servers": "nowhere.invalid:1", **more}
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        kfast.ingest("t", **given)
    assert not (tmp_path / "t").exists()


def test_a_table_of_another_shape(truth: Truth, table: Table) -> None:
    """CL-135: both shapes are shown."""
    table.ingest()
    for more, message in (
        ({"format": "arrow"}, "has the format parquet"),
        ({"partition_by": "date"}, "has the partition_by none"),
        ({"value": "text"}, "has the column value of type binary"),
    ):
        with pytest.raises(ConfigurationError, match=message) as caught:
            table.ingest(**more)
        assert caught.value.found is not None
        assert next(iter(more.values())).replace("text", "string") in caught.value.found
    table.check(truth)


def test_a_folder_with_files_of_others(table: Table) -> None:
    """CL-135: a table is not begun among them."""
    table.folder.mkdir()
    (table.folder / "notes.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="has files, but no log"):
        table.ingest()


def test_a_damaged_log(truth: Truth, table: Table) -> None:
    """CL-135: exit 6."""
    table.ingest()
    path = table.folder / LOG / f"{table.last.sequence:020d}.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(TableError, match="is not an entry") as caught:
        table.ingest()
    assert exit_code(caught.value) == 6


# --- disks and memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["written", "flushed", "published"])
def test_a_full_disk(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """CL-126: exit 7, and the table is as before the batch."""
    table.ingest()
    before = table.names()
    truth.write(0, 30)
    append = ManifestLog.append

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if when == "published":  # the first entry of the run finds space, that of its batch does not
        monkeypatch.setattr(
            ManifestLog,
            "append",
            lambda self, entry: full() if entry.batch_id is not None else append(self, entry),
        )
    else:
        monkeypatch.setattr(LocalStore, "open_output" if when == "written" else "fsync", full)
    with pytest.raises(StorageError, match=r"cannot (write|publish)") as caught:
        table.ingest()
    assert exit_code(caught.value) == 7
    assert "No space left on device" in str(caught.value)
    assert table.names() == before
    assert table.staged() == []
    monkeypatch.undo()
    table.ingest()
    table.check(truth)


def test_memory_is_bounded(truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-133: what waits for its row group is written early, to one file."""
    spilled: list[int] = []
    spill = RangeFiles.spill

    def counted(self: RangeFiles) -> None:
        spilled.append(self.waiting_bytes)
        spill(self)

    monkeypatch.setattr(RangeFiles, "spill", counted)
    monkeypatch.setattr("kfast.table.ingest.options._LEAST_MEMORY", 1)
    table.ingest(memory_bytes=2_000, max_poll_records=5)
    table.check(truth)
    assert spilled
    assert max(spilled) > 500
    assert len(table.names()) == 2
    assert pq.ParquetFile(table.folder / "t-0-0-50.parquet").num_row_groups > 1


def test_open_files_are_bounded(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-133: a range ends early then."""
    monkeypatch.setattr("kfast.table.ingest.reading._MOST_OUTPUTS", 1)
    monkeypatch.setattr("kfast.table.range_files.GROUP_ROWS", 7)
    table.ingest(max_poll_records=5)
    table.check(truth)
    assert len(table.names()) > 2


def test_many_partitions_are_read_some_at_a_time(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-133: and published together."""
    monkeypatch.setattr("kfast.table.ingest.ingesting._PARTITIONS_AT_ONCE", 3)
    truth.cluster.create_topic("many", 10)
    for number in range(10):
        truth.write(number, number, "many")
    assert table.ingest("t", "many").batches == 1
    table.check(truth)


# --- groups ---------------------------------------------------------------------------------------


def test_the_ends_are_committed_after_they_are_published(truth: Truth, table: Table) -> None:
    """CL-132: for tools that show lag; a table goes on at its own ends."""
    table.ingest(group_id="watched")
    with kfast.KafkaConsumer(bootstrap_servers=table.servers, group_id="watched") as consumer:
        committed = {tp: consumer.committed(tp) for tp in (T0, T1)}
    assert committed == {T0: 50, T1: 30}
    truth.write(1, 2)
    table.ingest(group_id="watched")
    table.check(truth)
