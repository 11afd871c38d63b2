"""Records, and the batches that Spark gets of them."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.records import PartitionRecords, build_partition_records
from kfast.spark.source.schema import project
from kfast.table.arrow_batches import ArrowBatches
from tests.spark.support import options
from tests.unit.records.sample_index import Sample, sample_index

pytest.importorskip("pyspark")


BINARY, STRING, INT, LONG = "binary", "string", "integer", "long"
HEADER: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "key", "type": STRING, "nullable": True, "metadata": {}},
        {"name": "value", "type": BINARY, "nullable": True, "metadata": {}},
    ],
}
HEADERS = {"type": "array", "elementType": HEADER, "containsNull": True}
ALL: dict[str, Any] = {
    "key": BINARY,
    "value": BINARY,
    "topic": STRING,
    "partition": INT,
    "offset": LONG,
    "timestamp": "timestamp",
    "timestampType": INT,
    "headers": HEADERS,
}
SAMPLES = [
    Sample(b"v", None, [("h", b"x"), ("h", None)]),
    Sample(None, b"k", []),
    Sample(b"abcd", b"", [("ö", b"")]),
]


def schema(columns: dict[str, Any], not_null: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON form of a schema."""
    fields = [
        {"name": name, "type": kind, "nullable": name not in not_null, "metadata": {}}
        for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


def struct(**fields: Any) -> dict[str, Any]:
    return schema(fields)


def records(samples: list[Sample] | None = None) -> PartitionRecords:
    return build_partition_records("top", 3, sample_index(samples or SAMPLES)).records


def batches(
    json_schema: dict[str, Any], rows: PartitionRecords | None = None, **more: Any
) -> list[Any]:
    """Return the batches of some records, checked against what Spark expects."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - slow to import
    from pyspark.sql.types import StructType  # noqa: PLC0415 - slow to import

    projection = project(json_schema, options(**more))
    made = list(ArrowBatches(projection, "top", 3).batches(records() if rows is None else rows))
    expected = to_arrow_schema(StructType.fromJson(json_schema), timezone="UTC")
    for batch in made:
        batch.validate(full=True)
        assert batch.schema.equals(expected, check_metadata=True), batch.schema
    return made
