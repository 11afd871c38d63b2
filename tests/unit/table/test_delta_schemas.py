"""W-16, W-17, W-22: Delta tables that exist, in folders and in object stores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

deltalake = pytest.importorskip("deltalake")

from kfast.errors import ConfigurationError, KafkaError  # noqa: E402
from kfast.table.delta_log import DeltaLog  # noqa: E402
from kfast.table.entries import TableShape  # noqa: E402
from kfast.table.fsspec_store import open_store  # noqa: E402
from kfast.table.projection import OutputColumn, Projection  # noqa: E402
from kfast.table.publish import ALL  # noqa: E402
from kfast.table.store import LocalStore  # noqa: E402
from tests.unit.table.delta_tables import (  # noqa: E402
    FIRST,
    PROJECTION,
    SECOND,
    SHAPE,
    Ingest,
    column,
    commits,
    files,
    hand_made,
    live_files,
    pending,
    rows,
    seen,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk

PARTITION = column("partition", "integer")
OFFSET = column("offset", "long")
STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ],
}
LISTED = {"type": "array", "elementType": "long", "containsNull": True}
TYPED = Projection(
    (
        *PROJECTION.columns,
        OutputColumn("value", "value", STRUCT),
        OutputColumn("key", "key", LISTED),
    )
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


def shape_of(projection: Projection, *partition_by: str) -> TableShape:
    return TableShape("delta", projection.ddl, partition_by)


def check(store: LocalStore, projection: Projection = PROJECTION, *partition_by: str) -> None:
    log = DeltaLog(store)
    log.check(shape_of(projection, *partition_by), projection, log.last())


# --- tables that are accepted ---------------------------------------------------------------------


@pytest.mark.parametrize("has_rows", [False, True])
def test_an_existing_table_is_appended_to(store: LocalStore, has_rows: bool) -> None:
    """W-16: columns that it has more are null, and filters of its readers miss no file."""
    schema = pa.schema([("offset", pa.int64()), ("note", pa.string()), ("partition", pa.int32())])
    deltalake.DeltaTable.create(store.url, schema=schema)
    if has_rows:
        old = pa.table({"offset": [7], "note": ["x"], "partition": [5]}).cast(schema)
        deltalake.write_deltalake(store.url, old, mode="append")
    Ingest(store).publish(*FIRST)
    Ingest(store).publish(*SECOND)
    expected = rows(*FIRST, *SECOND)
    assert seen(store) == sorted([*expected, (5, 7)] if has_rows else expected)
    dataset = deltalake.DeltaTable(store.url).to_pyarrow_dataset()
    for name, value, count in (
        ("note", None, len(expected)),
        ("offset", 7, 1 + has_rows),
        ("partition", 1, 4),
        ("partition", 5, int(has_rows)),
    ):
        is_row = pc.field(name).is_null() if value is None else pc.field(name) == value
        assert dataset.to_table(filter=is_row).num_rows == count, (name, value)
    if has_rows:
        assert dataset.to_table(filter=pc.field("note") == "x").num_rows == 1
    version = deltalake.DeltaTable(store.url).version()
    Ingest(store)
    assert deltalake.DeltaTable(store.url).version() == version, "nothing more to change"


def test_columns_are_added_members_of_structs_too(store: LocalStore) -> None:
    """W-16."""
    Ingest(store).publish(*FIRST)
    small = {**STRUCT, "fields": STRUCT["fields"][:1]}
    for projection in (
        replace(TYPED, columns=(*PROJECTION.columns, OutputColumn("value", "value", small))),
        TYPED,
    ):
        Ingest(store, shape=shape_of(projection), projection=projection)
    fields = json.loads(deltalake.DeltaTable(store.url).schema().to_json())["fields"]
    assert [field["name"] for field in fields] == ["partition", "offset", "value", "key"]
    assert fields[2]["type"] == STRUCT
    ingest = Ingest(store, shape=shape_of(TYPED), projection=TYPED)
    ingest.publish(*SECOND)
    assert seen(store) == rows(*FIRST, *SECOND)
    # The rows of before, and an ingest without the columns, are null there.
    Ingest(store).publish((0, 9, 10))
    assert deltalake.DeltaTable(store.url).to_pyarrow_table()["value"].null_count == 16


def test_folders_have_typed_columns(store: LocalStore) -> None:
    """W-16."""
    projection = Projection((*PROJECTION.columns, OutputColumn("topic", "topic", "string")))
    partition_by = ("topic", "partition")
    ingest = Ingest(store, shape=shape_of(projection, *partition_by), projection=projection)
    ingest.publish(*FIRST, topic="a b")
    assert seen(store) == rows(*FIRST)
    table = deltalake.DeltaTable(store.url)
    assert table.metadata().partition_columns == [*partition_by]
    assert table.to_pyarrow_table().schema.field("partition").type == pa.int32()
    assert set(table.to_pyarrow_table()["topic"].to_pylist()) == {"a b"}
    Ingest(store, shape=shape_of(projection, *partition_by), projection=projection)
    dated = ("date", "hour")
    other = LocalStore(Path(store.url).with_name("dated"))
    Ingest(other, shape=shape_of(projection, *dated), projection=projection)
    schema = json.loads(deltalake.DeltaTable(other.url).schema().to_json())["fields"]
    assert {field["name"]: field["type"] for field in schema if field["name"] in dated} == {
        "date": "date",
        "hour": "integer",
    }


def test_a_table_with_a_change_data_feed_is_appended_to(store: LocalStore) -> None:
    """W-16."""
    hand_made(
        Path(store.url),
        protocol={"minReaderVersion": 1, "minWriterVersion": 4},
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    Ingest(store).publish(*FIRST)
    changes = deltalake.DeltaTable(store.url).load_cdf(starting_version=1).read_all()
    places = zip(changes["partition"].to_pylist(), changes["offset"].to_pylist(), strict=True)
    assert sorted(places) == rows(*FIRST)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ([], ["appendOnly", "invariants", "checkConstraints", "changeDataFeed"]),
        ([], ["generatedColumns"]),
        (["deletionVectors"], ["deletionVectors"]),
        (["v2Checkpoint"], ["v2Checkpoint"]),
        (["timestampNtz"], ["timestampNtz"]),
        (["columnMapping"], ["columnMapping"]),
    ],
)
def test_features_that_an_append_does_not_touch(
    store: LocalStore, reader: list[str], writer: list[str]
) -> None:
    """W-16."""
    hand_made(Path(store.url), protocol=features(reader, writer))
    Ingest(store).publish(*FIRST)
    assert live_files(store) == files(store)
    assert len(files(store)) == len(FIRST)
    protocol = deltalake.DeltaTable(store.url).protocol()
    assert sorted(protocol.writer_features) == sorted(writer), "no more than before"


def features(reader: list[str], writer: list[str]) -> Mapping[str, Any]:
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": reader,
        "writerFeatures": writer,
    }


# --- tables that are refused ----------------------------------------------------------------------

V1 = {"minReaderVersion": 1, "minWriterVersion": 2}
V4 = {"minReaderVersion": 1, "minWriterVersion": 4}
MAPPED = {"delta.columnMapping.physicalName": "col-1"}


@pytest.mark.parametrize(
    ("fields", "message", "text"),
    [
        ([PARTITION, column("offset", "integer")], "offset of type int", "bigint"),
        ([column("partition", "long"), OFFSET], "partition of type bigint", "int"),
        ([PARTITION, column("offset", "string")], "offset of type string", "bigint"),
        ([PARTITION, column("offset", "long", nullable=False)], "offset of type bigint not null",
         "bigint"),
        ([PARTITION, OFFSET, column("id", "long", nullable=False)], "id of type bigint not null",
         "no such column"),
        ([PARTITION, column("Offset", "long")], "Offset of type bigint", "the column offset"),
        ([PARTITION, OFFSET, column("value", {**STRUCT, "fields": [column("a", "string")]})],
         "value.a of type string", "bigint"),
        ([PARTITION, OFFSET, column("value", "string")], "value of type string", "struct<"),
        ([PARTITION, OFFSET, column("key", {**LISTED, "elementType": "integer"})],
         "key of type array<int>", "array<bigint>"),
        ([PARTITION, OFFSET, column("key", {**LISTED, "containsNull": False})],
         "key of type array<bigint>", "array<bigint>"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_with_both_types(
    store: LocalStore, fields: list[dict[str, Any]], message: str, text: str
) -> None:
    """W-17."""
    hand_made(Path(store.url), fields=fields)
    with pytest.raises(ConfigurationError, match=message) as caught:
        check(store, TYPED)
    assert store.url in str(caught.value)
    assert text in (caught.value.found or "")
    assert len(commits(store)) == 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"delta.generationExpression": "partition"}, "generated"),
        ({"delta.identity.start": "1"}, "an identity column"),
        ({"CURRENT_DEFAULT": "1"}, "a column with a default"),
        ({"delta.invariants": '{"expression":{"expression":"x > 3"}}'}, "an invariant"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}, "VARCHAR"),
    ],
)
def test_columns_with_rules_are_refused(
    store: LocalStore, rule: Mapping[str, str], text: str
) -> None:
    """W-17."""
    hand_made(Path(store.url), protocol=V4, fields=[PARTITION, OFFSET, column("x", "long", rule)])
    with pytest.raises(ConfigurationError, match=f"the column x, which is.*{text}"):
        check(store)


@pytest.mark.parametrize(
    ("configuration", "text"),
    [
        ({"delta.constraints.positive": "offset > 0"}, "the constraint positive: offset > 0"),
        ({"delta.setTransactionRetentionDuration": "interval 1 day"}, "RetentionDuration"),
        ({"delta.enableRowTracking": "true"}, "row tracking"),
        ({"delta.enableIcebergCompatV2": "true"}, "Iceberg"),
    ],
)
def test_properties_that_an_append_would_break_are_refused(
    store: LocalStore, configuration: Mapping[str, str], text: str
) -> None:
    """W-17."""
    hand_made(Path(store.url), protocol=V4, configuration=configuration)
    with pytest.raises(ConfigurationError, match=text):
        check(store)


def test_column_mapping_is_refused(store: LocalStore) -> None:
    """W-17."""
    fields = [
        {**field, "metadata": {"delta.columnMapping.id": number, **MAPPED}}
        for number, field in enumerate((PARTITION, OFFSET), 1)
    ]
    fields[1]["metadata"] = {**fields[1]["metadata"], "delta.columnMapping.physicalName": "col-2"}
    hand_made(
        Path(store.url),
        fields=fields,
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    )
    with pytest.raises(ConfigurationError, match="column mapping by name"):
        check(store)


@pytest.mark.parametrize(
    "feature",
    [
        "identityColumns", "rowTracking", "typeWidening", "domainMetadata", "icebergCompatV1",
        "icebergCompatV2", "clustering", "vacuumProtocolCheck", "inCommitTimestamp",
        "allowColumnDefaults", "variantType", "checkpointProtection", "unheardOf",
    ],
)  # fmt: skip
def test_features_that_an_ingest_does_not_write_are_refused_by_name(
    store: LocalStore, feature: str
) -> None:
    """W-17."""
    is_reader = feature in {"typeWidening", "vacuumProtocolCheck", "variantType"}
    hand_made(Path(store.url), protocol=features([feature] if is_reader else [], [feature]))
    with pytest.raises(ConfigurationError, match=f"the feature {feature}") as caught:
        check(store)
    assert caught.value.hint


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_tables_that_a_catalog_manages_are_refused(store: LocalStore, feature: str) -> None:
    """W-17."""
    hand_made(Path(store.url), protocol=features([feature], [feature]))
    with pytest.raises(ConfigurationError, match="is managed by a catalog"):
        check(store)


def test_identity_columns_by_version_and_newer_versions_are_refused(tmp_path: Path) -> None:
    """W-17."""
    hand_made(tmp_path / "6", protocol={"minReaderVersion": 1, "minWriterVersion": 6})
    with pytest.raises(ConfigurationError, match="version 6 of Delta's protocol"):
        check(LocalStore(tmp_path / "6"))
    hand_made(tmp_path / "8", protocol={"minReaderVersion": 1, "minWriterVersion": 8})
    with pytest.raises(KafkaError, match=str(tmp_path / "8")):
        check(LocalStore(tmp_path / "8"))


def test_other_folders_are_refused_with_both(store: LocalStore) -> None:
    """W-17."""
    hand_made(Path(store.url), partition_columns=("partition",))
    with pytest.raises(ConfigurationError, match="is partitioned by partition") as caught:
        check(store)
    assert caught.value.found == "this ingest partitions by nothing"
    other = LocalStore(Path(store.url).with_name("other"))
    typed = replace(
        TYPED,
        columns=(*TYPED.columns[:2], OutputColumn("value", "value", {
            "type": "struct",
            "fields": [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}],
        })),
    )  # fmt: skip
    Ingest(other, shape=shape_of(typed, "date"), projection=typed)
    with pytest.raises(ConfigurationError, match="is partitioned by date") as caught:
        check(other, typed, "date(value.at)")
    assert caught.value.found == "this ingest partitions by date(value.at)"


def test_a_new_column_that_is_not_null_is_refused(store: LocalStore) -> None:
    """W-17."""
    Ingest(store)
    more = (*PROJECTION.columns, OutputColumn("key", "key", "string", is_nullable=False))
    with pytest.raises(ConfigurationError, match="no column key, and it is NOT NULL"):
        check(store, Projection(more))


def test_a_new_local_time_does_not_cost_the_features_of_an_older_protocol(
    store: LocalStore,
) -> None:
    """W-17: deltalake would list the new feature only."""
    local = Projection((*PROJECTION.columns, OutputColumn("key", "key", "timestamp_ntz")))
    hand_made(Path(store.url), protocol=V4, configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(ConfigurationError, match="has not the feature timestampNtz"):
        check(store, local)
    other = LocalStore(Path(store.url).with_name("other"))
    Ingest(other)
    Ingest(other, shape=shape_of(local), projection=local)
    assert deltalake.DeltaTable(other.url).protocol().writer_features == ["timestampNtz"]


@pytest.mark.parametrize("change", ["constraint", "column"])
def test_a_table_that_is_changed_while_it_is_written_is_refused(
    store: LocalStore, change: str
) -> None:
    """W-17: by the next batch, in the process that began or in another one."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    other = Ingest(store, checkpoint="/checkpoint")
    if change == "constraint":
        deltalake.DeltaTable(store.url).alter.add_constraint({"small": "offset < 9"})
        message = "the constraint small: offset < 9"
    else:
        columns = [column("partition", "integer"), column("number", "long")]
        schema = deltalake.Schema.from_json(json.dumps({"type": "struct", "fields": columns}))
        deltalake.write_deltalake(
            store.url, pa.schema(schema).empty_table(),
            mode="overwrite", schema_mode="overwrite",
        )  # fmt: skip
        message = "has no column offset any more"
    other.log = DeltaLog(store)
    with pytest.raises(ConfigurationError, match=message):
        other.publish(*SECOND)
    assert files(store) == [path for path in files(store) if "-5-9-" not in path]


@pytest.mark.parametrize("name", ["a b", "ü", "a#b", "a?b", "a+b", "a=b", "a[b]"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path / name)
    Ingest(store).publish(*FIRST)
    Ingest(store).publish(*SECOND)
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert len(deltalake.DeltaTable(store.url).file_uris()) == len(files(store))


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_folder_that_deltalake_takes_for_another_one_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a Delta table"):
        DeltaLog(LocalStore(tmp_path / name))


def test_a_store_that_deltalake_does_not_have_is_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ConfigurationError, match="cannot be a Delta table"):
        DeltaLog(open_store("memory://table"))


# --- object stores --------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> Iterator[dict[str, str]]:
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    from tests.unit.table.s3_server import s3_server  # noqa: PLC0415

    with s3_server() as options:
        s3fs.S3FileSystem(**options, skip_instance_cache=True).mkdir("bucket")
        yield options


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_credentials_given_once_are_those_of_the_log_too(
    bucket: dict[str, str], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-22."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    store = open_store(f"{scheme}://bucket/table", bucket)
    Ingest(store).publish(*FIRST)
    first, second = Ingest(store), Ingest(store)
    first.publish(*SECOND)
    with pytest.raises(KafkaError, match="is now written by"):
        second.publish(*SECOND)
    Ingest(store).publish((0, 9, 10))
    table = deltalake.DeltaTable(
        "s3://bucket/table",
        storage_options={
            "AWS_ACCESS_KEY_ID": bucket["key"],
            "AWS_SECRET_ACCESS_KEY": bucket["secret"],
            "AWS_ENDPOINT_URL": bucket["endpoint_url"],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        },
    )
    found = table.to_pyarrow_table()
    places = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    assert sorted(places) == rows(*FIRST, *SECOND, (0, 9, 10))
    Ingest(store).publisher.sweep(0, ALL)
    assert len(files(store)) == len(table.file_uris())
    assert pending(store) == []
    with pytest.raises(KafkaError, match="cannot read the Delta table") as caught:
        DeltaLog(
            open_store("s3://bucket/table", {**bucket, "endpoint_url": "http://127.0.0.1:1"})
        ).last()
    assert "\x1b" not in str(caught.value)
    assert SHAPE.format == "delta"
