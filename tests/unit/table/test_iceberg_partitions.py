"""W-32: partitioned Iceberg tables: exact values, specs of new tables and of existing ones."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfast.errors import ConfigurationError, KafkaError
from kfast.table.iceberg_partitions import (
    IcebergField,
    IcebergPartitions,
    partition_columns,
    split_partition_by,
    transformed,
)
from kfast.table.projection import OutputColumn, Projection
from kfast.table.store import LocalStore

pytest.importorskip("pyiceberg")

from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from kfast.table.iceberg_catalog import load_iceberg
from tests.unit.table.iceberg_tables import NAME, Run, catalog, records, rows, with_columns

pytestmark = pytest.mark.slow  # hundreds of small tables on disk

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
US = [0, 1, -1, 951_782_400_000_000, -951_782_400_000_001, 253_402_300_799_999_999]
LONGS = [0, 1, -1, 34, 2**31, -(2**40) - 3, 2**63 - 1, -(2**63) + 100]
INTS = [0, 1, -1, 34, 2**31 - 1, -(2**31) + 100]
TEXTS = ["", "iceberg", "straße", "日本語テキスト", "x" * 300, "🧊🧊🧊"]
DECIMALS = [decimal.Decimal(text) for text in ("14.20", "-14.20", "0.00", "1.28", "-0.01")]
TIME = OutputColumn("at", "value", "timestamp")
VALUE: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "country", "type": "string", "nullable": True, "metadata": {}},
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    ],
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    catalog(tmp_path, monkeypatch)
    return LocalStore(tmp_path / "table")


@pytest.mark.parametrize(
    ("kind", "source", "values", "transforms"),
    [
        (pa.int64(), LongType(), LONGS, ["identity", "bucket[16]", "truncate[10]"]),
        (pa.int32(), IntegerType(), INTS, ["identity", "bucket[7]", "truncate[3]"]),
        (pa.string(), StringType(), TEXTS, ["identity", "bucket[16]", "truncate[4]"]),
        (pa.binary(), BinaryType(), [text.encode() for text in TEXTS],
         ["identity", "bucket[16]", "truncate[4]"]),
        (pa.decimal128(9, 2), DecimalType(9, 2), DECIMALS,
         ["identity", "bucket[16]", "truncate[50]"]),
        (pa.timestamp("us", "UTC"), TimestamptzType(), US,
         ["identity", "bucket[16]", "day", "hour", "month", "year"]),
        (pa.timestamp("us"), TimestampType(), US, ["day", "hour", "month", "year"]),
        (pa.date32(), DateType(), [0, 1, -1, 11_016, -11_017, 2_932_896],
         ["identity", "bucket[16]", "day", "month", "year"]),
    ],
)  # fmt: skip
def test_values_are_those_of_iceberg(
    kind: Any, source: Any, values: list[Any], transforms: list[str]
) -> None:
    """As pyiceberg computes them one by one; null stays null, and slices have their own rows."""
    numbers = pa.array([*values, None], pa.int64() if isinstance(values[0], int) else kind)
    if pa.types.is_date32(kind):
        numbers = numbers.cast(pa.int32())
    array = numbers.view(kind) if numbers.type != kind and kind != pa.int32() else numbers
    array = array.cast(kind)
    for text in transforms:
        compute = parse_transform(text).transform(source)
        expected = [compute(value) for value in [*values, None]]
        assert transformed(array, text).to_pylist() == expected, text
        assert transformed(array.slice(2), text).to_pylist() == expected[2:], text


def test_buckets_of_the_specification() -> None:
    """Hashes of the table in its appendix B, modulo 2**31 - 1 as the largest number of buckets."""
    most = 2**31 - 1
    for array, digest in (
        (pa.array([34]), 2017239379),
        (pa.array(["iceberg"]), 1210000089),
        (pa.array([b"\x00\x01\x02\x03"]), -188683207),
        (pa.array([decimal.Decimal("14.20")]), -500754589),
        (pa.array([datetime.date(2017, 11, 16)]), -653330422),
        (pa.array([datetime.datetime(2017, 11, 16, 22, 31, 8)], pa.timestamp("us")), -2047944441),
    ):
        assert transformed(array, f"bucket[{most}]").to_pylist() == [(digest & most) % most]


def test_rows_are_divided_by_all_fields() -> None:
    """In their order, each once; members of structs, nulls, and a field without a column."""
    projection = Projection(
        (OutputColumn("value", "value", VALUE), OutputColumn("offset", "offset", "long"))
    )
    fields = (
        IcebergField("country", "identity", 3, ("value", "country")),
        IcebergField("id_bucket", "bucket[4]", 3, ("value", "id")),
        IcebergField("theirs", "identity", 3),
    )
    value = pa.array(
        [
            None if at % 7 == 6 else {"country": "DE" if at % 2 else None, "id": at % 3}
            for at in range(50)
        ],
        pa.struct([("country", pa.string()), ("id", pa.int64())]),
    )
    batch = pa.RecordBatch.from_arrays([value, pa.array(range(50))], ["value", "offset"])
    seen: list[int] = []
    for text, part in IcebergPartitions(fields, projection).divide(batch):
        body = json.loads(text)
        country, bucket, theirs = body["values"]
        assert (body["spec-id"], theirs) == (3, None)
        for row in part.to_pylist():
            inner = row["value"] or {"country": None, "id": None}
            assert inner["country"] == country
            hashed = transformed(pa.array([inner["id"]], pa.int64()), "bucket[4]")
            assert hashed.to_pylist() == [bucket]
        offsets = part.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        seen += offsets
    assert sorted(seen) == list(range(50))
    assert [*IcebergPartitions((), projection).divide(batch)] == [("", batch)]


def test_what_partition_by_may_name() -> None:
    names = split_partition_by("topic,date, hour(value.ts),bucket(16,value.id),truncate(4,key)")
    assert names == ("topic", "date", "hour(value.ts)", "bucket(16,value.id)", "truncate(4,key)")
    assert [(column.text, column.transform) for column in partition_columns(names)] == [
        ("topic", "identity"),
        ("day(timestamp)", "day"),
        ("hour(value.ts)", "hour"),
        ("bucket(16,value.id)", "bucket[16]"),
        ("truncate(4,key)", "truncate[4]"),
    ]
    for wrong in ("day", "bucket(0,key)", "bucket(value.id)", "week(value.ts)", "values.x"):
        with pytest.raises(ConfigurationError, match="cannot partition the Iceberg table by"):
            partition_columns((wrong,))
    with pytest.raises(ConfigurationError, match="is there twice"):
        partition_columns(("date", "day(timestamp)"))


def fill(number: int, at: int) -> dict[str, Any]:
    return {
        "value": {"country": "DE" if at % 2 else "a/b=ü", "id": at},
        "at": EPOCH + datetime.timedelta(hours=11 * at),
        "price": at,
    }


def test_a_new_table_is_partitioned(store: LocalStore) -> None:
    """Rows are found by each field, and files of other partitions are not opened."""
    projection = with_columns(OutputColumn("value", "value", VALUE), TIME)
    names = ("topic", "value.country", "bucket(4,value.id)", "date", "truncate(2,offset)")
    with pytest.raises(ConfigurationError, match="have no column timestamp"):
        Run(store, projection, partition_by=names)
    timed = Projection(
        tuple(column if column.name != "at" else OutputColumn("timestamp", "timestamp", "timestamp")
              for column in projection.columns)
    )  # fmt: skip
    run = Run(store, timed, partition_by=names)
    run.publish(
        count=8, fill=lambda number, at: {**fill(number, at), "timestamp": fill(number, at)["at"]}
    )
    table = load_iceberg(NAME)
    assert [field.name for field in table.spec().fields] == [
        "topic", "country", "id_bucket", "timestamp_day", "offset_trunc",
    ]  # fmt: skip
    assert rows() == records(8)
    for condition, count in (
        ("value.country = 'DE'", 8),
        ("value.id = 3", 2),
        ("timestamp >= '1970-01-02T00:00:00+00:00'", 10),
        ("offset = 5", 2),
    ):
        scan = table.scan(row_filter=condition)
        assert scan.to_arrow().num_rows == count
        assert len(list(scan.plan_files())) < table.inspect.files().num_rows
    assert Run(store, timed).opened.partition_fields == run.opened.partition_fields
    Run(store, timed, partition_by=names)
    with pytest.raises(ConfigurationError, match=r"is partitioned by topic, value\.country,") as e:
        Run(store, timed, partition_by=("topic",))
    assert "this ingest by topic" in str(e.value)


def test_an_existing_spec_is_used_and_its_changes_are_followed(store: LocalStore) -> None:
    """A run that began with another spec is refused, and the next one goes on."""
    projection = with_columns(OutputColumn("value", "value", VALUE), TIME)
    Run(store, projection).publish(fill=fill)
    with load_iceberg(NAME).update_schema() as update:
        update.add_column("region", StringType())
    with load_iceberg(NAME).update_spec() as spec:
        spec.add_field("at", "month", "at_month")
        spec.add_field("value.id", "bucket[3]", "b")
        spec.add_identity("region")
    run = Run(store, projection)
    run.publish(fill=fill, count=4)
    with load_iceberg(NAME).update_spec() as spec:
        spec.remove_field("b")
    with pytest.raises(KafkaError, match=r"partitions of the Iceberg table .* were changed"):
        run.publish(fill=fill)
    Run(store, projection).publish(fill=fill)
    assert rows() == records(8)
    assert load_iceberg(NAME).scan(row_filter="value.id = 5").to_arrow().num_rows == 2
    partitions = load_iceberg(NAME).inspect.partitions().to_pylist()
    assert {(row["spec_id"], row["partition"]["region"]) for row in partitions} == {
        (0, None), (1, None), (2, None),
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"is partitioned by month\(at\), region"):
        Run(store, projection, partition_by=("value.id",))


def test_partitions_that_are_not_exact_are_refused(store: LocalStore) -> None:
    projection = with_columns(OutputColumn("price", "value", "double"))
    with pytest.raises(ConfigurationError, match=r"cannot partition .* by bucket"):
        Run(store, with_columns(OutputColumn("key", "key", "double")),
            partition_by=("bucket(4,key)",))  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"cannot partition .* by key") as caught:
        Run(store, with_columns(OutputColumn("key", "key", "double")), partition_by=("key",))
    assert "key is double" in str(caught.value)
    Run(store, projection)
    with load_iceberg(NAME).update_spec() as spec:
        spec.add_identity("price")
    with pytest.raises(ConfigurationError, match="partitioned by price, which is double"):
        Run(store, projection)


def test_names_of_fields_are_unlike_those_of_columns(store: LocalStore) -> None:
    """A column country at the top is no hindrance for one of value."""
    projection = with_columns(
        OutputColumn("value", "value", VALUE), OutputColumn("country", "key", "string")
    )
    run = Run(store, projection, partition_by=("value.country",))
    assert [field.name for field in run.opened.partition_fields] == ["value_country"]
    run.publish(fill=lambda number, at: {**fill(number, at), "country": "x"})
    assert rows() == records(2)
    assert load_iceberg(NAME).scan(row_filter="value.country = 'DE'").to_arrow().num_rows == 2
