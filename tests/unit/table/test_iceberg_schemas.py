"""W-31: columns of Iceberg tables: field ids, those that are added, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError
from kfast.table.projection import OutputColumn, Projection
from kfast.table.store import LocalStore

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from kfast.table.iceberg_catalog import load_iceberg
from tests.unit.table.iceberg_tables import COLUMNS, NAME, Run, catalog, records, rows, with_columns

pytestmark = pytest.mark.slow  # hundreds of small tables on disk

PRICE = OutputColumn("price", "value", "integer")
VALUE: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "tags",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "sku", "type": "string", "nullable": True, "metadata": {}}],
                },
                "containsNull": True,
            },
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "prices",
            "type": {
                "type": "map",
                "keyType": "string",
                "valueType": "double",
                "valueContainsNull": True,
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    catalog(tmp_path, monkeypatch)
    return LocalStore(tmp_path / "table")


def create(*fields: NestedField, **properties: str) -> None:
    """Create the table as its users may."""
    lake = load_catalog("test")
    lake.create_namespace_if_not_exists("lake")
    lake.create_table("lake.orders", Schema(*fields), properties=properties)


def base(*, is_offset_required: bool = False) -> list[NestedField]:
    return [
        NestedField(1, "topic", StringType()),
        NestedField(2, "partition", IntegerType()),
        NestedField(3, "offset", LongType(), required=is_offset_required),
    ]


def column(name: str) -> list[Any]:
    """The values of a column, by offset of partition 0."""
    table = load_iceberg(NAME).scan(row_filter="partition = 0").to_arrow().sort_by("offset")
    values: list[Any] = table.column(name).to_pylist()
    return values


def test_files_have_the_ids_of_the_table(store: LocalStore) -> None:
    """Nested ones too; the table remembers which column of the ingest has which."""
    run = Run(store, with_columns(OutputColumn("value", "value", VALUE)))
    assert set(run.opened.field_ids) == {
        "topic", "partition", "offset", "value", "value.id", "value.tags",
        "value.tags.element", "value.tags.element.sku", "value.prices",
        "value.prices.key", "value.prices.value",
    }  # fmt: skip
    ids = run.opened.field_ids
    schema = load_iceberg(NAME).schema()
    for path, field_id in ids.items():
        assert schema.find_column_name(field_id) == path
    assert json.loads(load_iceberg(NAME).properties["kfast.columns"]) == ids
    run.publish(
        fill=lambda _, at: {
            "value": {"id": at, "tags": [{"sku": f"s{at}"}], "prices": [("eur", 1.5)]}
        }
    )
    assert column("value") == [
        {"id": at, "tags": [{"sku": f"s{at}"}], "prices": [("eur", 1.5)]} for at in (0, 1)
    ]
    files = load_iceberg(NAME).inspect.files().to_pylist()
    for file in files:
        assert dict(file["upper_bounds"])[ids["value.id"]] == (1).to_bytes(8, "little")
        assert ids["value.prices.value"] not in dict(file["upper_bounds"])
        assert dict(file["value_counts"])[ids["value.prices.value"]] == 2


def test_a_renamed_column_is_followed(store: LocalStore) -> None:
    """Later runs write it under its new name."""
    projection = with_columns(PRICE)
    Run(store, projection).publish(fill=lambda _, at: {"price": at})
    with load_iceberg(NAME).update_schema() as update:
        update.rename_column("price", "amount")
    Run(store, projection).publish(fill=lambda _, at: {"price": at})
    assert column("amount") == [0, 1, 2, 3]
    more = with_columns(PRICE, OutputColumn("amount", "value", "long"))
    with pytest.raises(ConfigurationError, match="a column amount that is price of the ingest"):
        Run(store, more)


def test_a_dropped_column_does_not_come_back(store: LocalStore) -> None:
    """It is refused by name; an ingest without it goes on."""
    projection = with_columns(PRICE)
    Run(store, projection).publish(fill=lambda _, at: {"price": at})
    with load_iceberg(NAME).update_schema() as update:
        update.delete_column("price")
    with pytest.raises(ConfigurationError, match="has no column price any more"):
        Run(store, projection)
    Run(store).publish()
    assert rows() == records(4)


def test_columns_are_added(store: LocalStore) -> None:
    """At the top, in structs, and in those of lists; older rows are null there."""
    Run(store, with_columns(OutputColumn("value", "value", VALUE))).publish(
        fill=lambda _, at: {"value": {"id": at, "tags": [{"sku": "a"}], "prices": []}}
    )
    more = json.loads(json.dumps(VALUE))
    note = {"name": "note", "type": "string", "nullable": True, "metadata": {}}
    more["fields"].append(note)
    more["fields"][1]["type"]["elementType"]["fields"].append(note)
    projection = with_columns(OutputColumn("value", "value", more), PRICE)
    Run(store, projection).publish(
        fill=lambda _, at: {
            "value": {"id": at, "tags": [{"sku": "b", "note": "n"}], "note": "m"},
            "price": at,
        }
    )
    assert column("price") == [None, None, 2, 3]
    notes = [(value["note"], value["tags"][0]["note"]) for value in column("value")]
    assert notes == [(None, None), (None, None), ("m", "n"), ("m", "n")]
    required = with_columns(*projection.columns[3:], OutputColumn("x", "value", "long", False))
    with pytest.raises(ConfigurationError, match="has no column x") as caught:
        Run(store, required)
    assert "x long not null" in str(caught.value)
    with pytest.raises(ConfigurationError, match="has the column price of an earlier ingest"):
        Run(store, with_columns(OutputColumn("value", "value", more)))


@pytest.mark.parametrize(
    ("theirs", "ours", "value", "becomes"),
    [
        (IntegerType(), "long", 1 << 40, LongType()),
        (LongType(), "integer", 7, LongType()),
        (IntegerType(), "short", 7, IntegerType()),
        (FloatType(), "double", 0.1, DoubleType()),
        (DoubleType(), "float", 0.5, DoubleType()),
        (DecimalType(9, 2), "decimal(20,2)", 5, DecimalType(20, 2)),
    ],
)
def test_numbers_are_widened(
    store: LocalStore, theirs: Any, ours: str, value: Any, becomes: Any
) -> None:
    """In the table, or by its readers."""
    create(*base(), NestedField(4, "price", theirs))
    Run(store, with_columns(OutputColumn("price", "value", ours))).publish(
        fill=lambda *_: {"price": value}
    )
    assert load_iceberg(NAME).schema().find_type("price") == becomes
    assert column("price") == [value] * 2
    assert load_iceberg(NAME).scan(row_filter=f"price >= {value}").to_arrow().num_rows == 4


@pytest.mark.parametrize(
    ("field", "ours", "message", "found"),
    [
        (NestedField(4, "price", StringType()), "integer",
         "has the column price of type string", "price is int here"),
        (NestedField(4, "price", DateType()), "timestamp",
         "has the column price of type date", "price is timestamptz here"),
        (NestedField(4, "price", TimestampType()), "timestamp",
         "has the column price of type timestamp", "price is timestamptz here"),
        (NestedField(4, "price", IntegerType()), "float",
         "has the column price of type int", "price is float here"),
        (NestedField(4, "price", DecimalType(9, 2)), "decimal(9,3)",
         r"has the column price of type decimal\(9, 2\)", "price is decimal(9, 3) here"),
        (NestedField(4, "price", IntegerType(), required=True), "integer",
         "has the required column price", "price may be null here"),
        (NestedField(4, "other", IntegerType(), required=True), "integer",
         "has the required column other", "this ingest has no such column"),
        (NestedField(4, "price", ListType(5, IntegerType())), "integer",
         r"has the column price of type list<int>", "price is int here"),
        (NestedField(4, "price", StructType(NestedField(5, "x", IntegerType()))), "integer",
         r"has the column price of type struct", "price is int here"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_both(
    store: LocalStore, field: NestedField, ours: str, message: str, found: str
) -> None:
    """Before anything of the table is changed."""
    create(*base(), field)
    before = load_iceberg(NAME).metadata_location
    with pytest.raises(ConfigurationError, match=rf"test\.lake\.orders {message}") as caught:
        Run(store, with_columns(OutputColumn("price", "value", ours)))
    assert found in str(caught.value)
    assert load_iceberg(NAME).metadata_location == before


def test_an_existing_table_with_rows_and_more_columns(store: LocalStore) -> None:
    """A required offset is no hindrance; their own columns are null; names may differ in case."""
    create(*base(is_offset_required=True)[1:], NestedField(1, "Topic", StringType()),
           NestedField(9, "region", StringType()))  # fmt: skip
    table = load_iceberg(NAME)
    table.append(
        table.scan().to_arrow().from_pylist(
            [{"Topic": "x", "partition": 5, "offset": 0, "region": "eu"}],
            schema=table.schema().as_arrow(),
        )
    )  # fmt: skip
    run = Run(store)
    assert not run.last.ends
    run.publish()
    assert rows() == records({0: 2, 1: 2, 5: 1})
    scan = load_iceberg(NAME).scan(selected_fields=("Topic", "region")).to_arrow()
    assert sorted(map(str, scan.column("region").to_pylist())) == ["None"] * 4 + ["eu"]
    assert set(scan.column("Topic").to_pylist()) == {"t", "x"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"format-version": 3, "next-row-id": 0}, "has the format version 3"),
        ({"properties": {"encryption.key-id": "k"}}, "is encrypted"),
    ],
)
def test_tables_that_pyiceberg_cannot_write_are_refused(
    store: LocalStore, tmp_path: Path, body: dict[str, Any], message: str
) -> None:
    create(*base())
    written = Path(load_iceberg(NAME).metadata_location.removeprefix("file://"))
    other = tmp_path / "00001-other.metadata.json"
    other.write_text(json.dumps({**json.loads(written.read_text()), **body}))
    load_catalog("test").drop_table("lake.orders")
    load_catalog("test").register_table("lake.orders", f"file://{other}")
    with pytest.raises(ConfigurationError, match=message):
        Run(store)


def test_a_table_of_format_1_and_one_with_other_metrics(store: LocalStore) -> None:
    """Statistics are those that the table asks for."""
    create(*base(), **{
        "format-version": "1",
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.offset": "full",
        "write.metadata.metrics.column.topic": "none",
    })  # fmt: skip
    run = Run(store)
    run.publish()
    assert Run(store).last.ends == run.last.ends
    assert rows() == records(2)
    for file in load_iceberg(NAME).inspect.files().to_pylist():
        assert [field_id for field_id, _ in file["upper_bounds"]] == [3]
        assert [field_id for field_id, _ in file["value_counts"]] == [2, 3]


def test_a_column_that_is_dropped_while_a_run_writes_it(store: LocalStore) -> None:
    """The run goes on; readers do not see it."""
    projection: Projection = with_columns(PRICE)
    run = Run(store, projection)
    run.publish(fill=lambda _, at: {"price": at})
    with load_iceberg(NAME).update_schema() as update:
        update.delete_column("price")
    run.publish(fill=lambda _, at: {"price": at})
    assert rows() == records(4)
    assert [field.name for field in load_iceberg(NAME).schema().fields] == [
        column.name for column in COLUMNS.columns
    ]
