"""Reads of several topics, and scans as one pass over batches or an Arrow stream."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from kfast.topic_scan import GROUP_ROWS

pytestmark = pytest.mark.usefixtures("nothing_is_printed")

ROWS = 3
TOPICS = ("orders-a", "orders-b", "refunds", "offsets")


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve topics of two partitions with three records each, and one without records."""
    cluster = FakeCluster(1)
    for topic in (*TOPICS, "empty"):
        cluster.create_topic(topic, 2, is_internal=topic == "offsets")
    for topic in TOPICS:
        for partition in range(2):
            records = [
                Record(b"k", b"%s-%d-%d" % (topic.encode(), partition, n), timestamp=1000 * n)
                for n in range(ROWS)
            ]
            cluster.append(topic, partition, records, batch_records=1)
    with BrokerServer(cluster) as running:
        yield running


def scan(server: BrokerServer, *topics: Any, **settings: Any) -> kfast.TopicScan:
    return kfast.scan_topic(*topics, bootstrap_servers=server.bootstrap_servers, **settings)


def partitions(*topics: str) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic in topics for number in range(2)}


# --- several topics -------------------------------------------------------------------------------

A1 = TopicPartition("orders-a", 1)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("orders-a", "refunds"), partitions("orders-a", "refunds")),
        ((["orders-a", "refunds"],), partitions("orders-a", "refunds")),
        (("orders-*",), partitions("orders-a", "orders-b")),
        (("*",), partitions("orders-a", "orders-b", "refunds")),
        (("orders-[ab]", "orders-a"), partitions("orders-a", "orders-b")),
        ((A1,), {A1}),
        (([A1], "refunds"), {A1, *partitions("refunds")}),
        ((["refunds", A1], "orders-?"), partitions("orders-a", "orders-b", "refunds")),
        (({"refunds"},), partitions("refunds")),
        (("empty", A1), {A1}),
    ],
)
def test_topics_are_names_lists_globs_and_partitions(
    server: BrokerServer, topics: tuple[Any, ...], expected: set[TopicPartition]
) -> None:
    """CL-105"""
    found = kfast.read_topic(*topics, bootstrap_servers=server.bootstrap_servers)
    assert {*found} == expected
    assert found.count() == ROWS * len(expected)


def test_bounds_of_several_topics_have_partitions_as_keys(server: BrokerServer) -> None:
    """CL-105"""
    servers: dict[str, Any] = {"bootstrap_servers": server.bootstrap_servers}
    found = kfast.read_topic("orders-a", "refunds", start={A1: 2}, **servers)
    assert {tp: batch.offsets.tolist()[0] for tp, batch in found.items()} == {
        tp: 2 if tp == A1 else 0 for tp in partitions("orders-a", "refunds")
    }
    with pytest.raises(ConfigurationError, match="which is not a TopicPartition"):
        kfast.read_topic("orders-a", "refunds", start={1: 2}, **servers)
    assert kfast.read_topic("orders-a", start={1: 2}, **servers).count() == ROWS + 1


def test_what_no_topic_matches_is_an_error(server: BrokerServer) -> None:
    """CL-105"""
    with pytest.raises(UnknownTopicOrPartitionError, match=r'matches "order-[*]"'):
        list(scan(server, "order-*"))
    with pytest.raises(UnknownTopicOrPartitionError, match='no topic "order" on this cluster'):
        list(scan(server, "orders-a", "order"))
    for nothing in list[Any]([(), ([],)]):
        with pytest.raises(ConfigurationError, match="no partitions to read"):
            scan(server, *nothing)
    with pytest.raises(InvalidTopicError):
        scan(server, "a b")


def test_settings_may_be_a_mapping(server: BrokerServer) -> None:
    """CL-105: as of load_config()."""
    config = {"bootstrap.servers": server.bootstrap_servers}
    assert kfast.read_topic("refunds", config=config).count() == 2 * ROWS


# --- one pass -------------------------------------------------------------------------------------


def test_nothing_is_read_before_the_first_use(server: BrokerServer) -> None:
    """CL-106: settings, topics and columns are checked at once."""
    before = len(server.cluster.requests)
    made = scan(server, "refunds")
    assert repr(made) == "<TopicScan: new>"
    made.close()
    assert len(server.cluster.requests) == before
    for settings in list[Any]([{"fetch_min_bytez": 1}, {"columns": "value"}]):
        with pytest.raises(ConfigurationError):
            scan(server, "t", **settings)


def test_a_scan_is_one_pass(server: BrokerServer) -> None:
    """CL-106"""
    made = scan(server, "refunds")
    assert sum(len(batch) for batch in made) == 2 * ROWS
    for again in list[Any]([iter, pa.table]):
        with pytest.raises(IllegalStateError, match="one pass"):
            again(made)
    with pytest.raises(StopIteration):
        next(made)
    closed = scan(server, "refunds")
    closed.close()
    with pytest.raises(IllegalStateError, match="one pass"):
        iter(closed)


def test_a_pass_begun_by_next_goes_on_in_a_loop(server: BrokerServer) -> None:
    """CL-106"""
    made = scan(server, "refunds", max_poll_records=1)
    first = next(made)
    assert len(first) == 1
    assert sum(len(batch) for batch in made) == 2 * ROWS - 1


def consumers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("kfast-network")]


def test_leaving_the_loop_ends_the_scan(server: BrokerServer) -> None:
    """CL-106: so do the end of a with statement, and close()."""
    made = scan(server, "refunds", max_poll_records=1)
    for _batch in made:
        assert consumers()
        break
    gc.collect()
    assert not consumers()
    with scan(server, "refunds", max_poll_records=1) as made:
        next(made)
        assert consumers()
    assert not consumers()
    assert list(made) == []


# --- an Arrow stream ------------------------------------------------------------------------------

COLUMNS = [
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
]


def read(server: BrokerServer, *topics: str, **settings: Any) -> pa.Table:
    """Return the same records by way of read_topic."""
    servers = server.bootstrap_servers
    return kfast.read_topic(*topics, bootstrap_servers=servers, **settings).to_arrow()


def rows(table: pa.Table) -> list[dict[str, Any]]:
    names = ("topic", "partition", "offset")
    return sorted(table.to_pylist(), key=lambda row: tuple(row[name] for name in names))


def test_a_scan_is_an_arrow_stream_with_the_columns_of_a_read(server: BrokerServer) -> None:
    """CL-107: small batches of partitions are joined."""
    table = pa.table(scan(server, "orders-*", max_poll_records=1))
    assert table.column_names == COLUMNS
    assert len(table.column(0).chunks) == 1
    found = read(server, "orders-*")
    assert rows(table) == rows(found)
    assert table.schema == found.schema


def test_batches_have_as_many_rows_as_said() -> None:
    """CL-107: at least 65 536, or 16 MB of keys and values; and what is left at the end."""
    cluster = FakeCluster(1)
    cluster.create_topic("many", 3)
    cluster.create_topic("large", 1)
    for partition in range(3):
        for _ in range(4):
            cluster.append("many", partition, [b"x"] * 10_000)
    for _ in range(20):
        cluster.append("large", 0, [b"x" * 1_000_000])
    with BrokerServer(cluster) as server:
        reader = pa.RecordBatchReader.from_stream(scan(server, "many", max_poll_records=7_000))
        sizes = [batch.num_rows for batch in reader]
        assert sum(sizes) == 120_000
        assert all(GROUP_ROWS <= size < GROUP_ROWS + 7_000 for size in sizes[:-1])
        large = pa.RecordBatchReader.from_stream(scan(server, "large", max_poll_records=1))
        assert [batch.num_rows for batch in large] == [17, 3]


def test_other_libraries_read_a_scan(server: BrokerServer, tmp_path: Path) -> None:
    """CL-107: DuckDB, polars, Delta and Parquet, with a text deserializer."""
    import duckdb  # noqa: PLC0415 - reports leaks of its own at exit if imported for all tests

    settings: dict[str, Any] = {"value_deserializer": kfast.Utf8(), "max_poll_records": 2}
    values = sorted(read(server, "refunds", **settings).column("value").to_pylist())
    stream = scan(server, "refunds", **settings)
    reader = pa.RecordBatchReader.from_stream(stream)
    query = duckdb.connect().from_arrow(reader).aggregate("count(*), max(value)")
    assert query.fetchall() == [(2 * ROWS, "refunds-1-2")]
    frame = pl.DataFrame(scan(server, "refunds", **settings))
    assert sorted(frame["value"].to_list()) == values
    deltalake.write_deltalake(tmp_path / "delta", scan(server, "refunds", **settings))
    stored = deltalake.DeltaTable(tmp_path / "delta").to_pyarrow_table()
    assert sorted(stored.column("value").to_pylist()) == values
    reader = pa.RecordBatchReader.from_stream(scan(server, "refunds", **settings))
    pa.dataset.write_dataset(reader, tmp_path / "parquet", format="parquet")
    assert pa.dataset.dataset(tmp_path / "parquet").count_rows() == 2 * ROWS


def test_the_schema_is_known_before_and_after(server: BrokerServer) -> None:
    """CL-107"""
    made = scan(server, "refunds", value_deserializer=kfast.Utf8(), columns=["value"])
    assert repr(made) == "<TopicScan: new>"
    assert made.schema.field("value").type == pa.string()
    assert "key" not in made.schema.names
    assert repr(made) == "<TopicScan: new>"
    assert pa.table(made).schema == made.schema


def test_the_schema_of_what_callables_make_is_that_of_the_first_records(
    server: BrokerServer,
) -> None:
    """CL-107: so reading it begins the pass, and no record is lost."""
    made = scan(server, "refunds", value_deserializer=lambda raw: {"n": len(raw)})
    assert made.schema.field("value").type == pa.struct([("n", pa.int64())])
    table = pa.table(made)
    assert table.schema == made.schema
    assert table.column("value").to_pylist() == [{"n": 11}] * (2 * ROWS)


@pytest.mark.parametrize("columns", [None, ["value"]])
def test_a_stream_without_records_keeps_its_schema(
    server: BrokerServer, columns: list[str] | None
) -> None:
    """CL-107, B-14: in Arrow, polars, pandas, NumPy and Parquet."""
    settings: dict[str, Any] = {"value_deserializer": kfast.Int64(), "columns": columns}
    table = pa.table(scan(server, "empty", **settings))
    assert table.num_rows == 0
    assert table.schema.field("value").type == pa.int64()
    assert table.schema == read(server, "empty", **settings).schema
    assert pl.DataFrame(scan(server, "empty", **settings)).schema["value"] == pl.Int64
    nothing = kfast.read_topic("empty", bootstrap_servers=server.bootstrap_servers, **settings)
    assert nothing.to_pandas()["value"].dtype == "int64"
    assert nothing.to_numpy().dtype["value"] == "int64"
    assert nothing.to_polars().schema["value"] == pl.Int64


def test_an_error_in_the_middle_of_a_stream_is_shown(server: BrokerServer) -> None:
    """CL-107: one before the first batch is the exception itself."""
    with pytest.raises(UnknownTopicOrPartitionError):
        pa.table(scan(server, "order"))

    def reader(raw: bytes) -> bytes:
        if raw.endswith(b"-2"):
            raise ValueError("not this one")
        return raw

    made = scan(server, "refunds", value_deserializer=reader)
    with pytest.raises((pa.ArrowException, OSError, kfast.KafkaError), match="not this one"):
        pa.table(made)
    assert not consumers()
