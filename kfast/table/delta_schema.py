"""Which Delta tables an ingest can write: their columns, folders, constraints and features.

Owns the check of a table that exists, made by an ingest or by another client: everything that an
appended file could break, or that deltalake does not write, is refused by name before the first
record. Types are compared in their JSON form, which Delta has from Spark.

==============================================  ================================================
the table has                                   the ingest
==============================================  ================================================
a column of the same type                       writes it; a column that may be null is refused
                                                where the table has NOT NULL
no such column, or member of a struct           adds it, if it may be null
a column more, which may be null                leaves it out: it reads as null
another type, a column more that is NOT NULL,   is refused
generated, an identity, or has a default
other columns of folders                        is refused
a CHECK constraint, a feature not in            is refused
`FEATURES`, a property of `_REFUSED`
==============================================  ================================================

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kfast.errors import ConfigurationError
from kfast.table.entries import TableShape
from kfast.table.folders import check_folders, folder_columns
from kfast.table.projection import Projection, sql_type

FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",  # appended files are the change
        "checkConstraints",  # without any
        "columnMapping",  # in the mode none
        "deletionVectors",  # of files that are there already
        "generatedColumns",  # without any
        "invariants",  # without any
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Features that a table may have."""

_MOST_WRITER: Final = 7
_PLAIN_WRITER: Final = 2
"""The last version of the protocol without features that have to be listed from version 7 on."""
_IDENTITY_WRITER: Final = 6
"""The version of the protocol that has identity columns, which deltalake does not write."""

_CONSTRAINT: Final = "delta.constraints."
_REFUSED: Final = {
    "delta.enableRowTracking": "row tracking",
    "delta.enableIcebergCompatV1": "the compatibility with Iceberg",
    "delta.enableIcebergCompatV2": "the compatibility with Iceberg",
    "delta.enableIcebergCompatV3": "the compatibility with Iceberg",
    "delta.enableInCommitTimestamps": "in-commit timestamps",
}
"""Properties that are refused where they are true, and what they are."""

_MAPPING: Final = "delta.columnMapping.mode"
_RETENTION: Final = "delta.setTransactionRetentionDuration"
_COLUMN_RULES: Final = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "generated",
    "delta.identity.start": "an identity column",
    "delta.identity.step": "an identity column",
    "CURRENT_DEFAULT": "a column with a default",
    "EXISTS_DEFAULT": "a column with a default",
    "__CHAR_VARCHAR_TYPE_STRING": "of the type CHAR or VARCHAR",
}
"""Keys in the metadata of a column, and what the column is by them."""

_HINT: Final = "change the table, or write to another folder"

Field = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """What a version of a table allows."""

    url: str
    columns: tuple[Field, ...]
    """In the JSON form of Delta."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    reader_version: int
    writer_version: int
    features: frozenset[str]

    @classmethod
    def of(cls, url: str, table: Any) -> DeltaShape:
        """The shape of a table that deltalake has opened."""
        metadata, protocol = table.metadata(), table.protocol()
        return cls(
            url,
            tuple(json.loads(table.schema().to_json())["fields"]),
            tuple(metadata.partition_columns),
            dict(metadata.configuration),
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())]),
        )

    def with_nulls_inside(self) -> DeltaShape:
        """The same shape, with nulls inside of structs, lists and maps, to compare types alone."""
        columns = tuple({**field, "type": _with_nulls(field["type"])} for field in self.columns)
        return replace(self, columns=columns)

    def check(self, columns: Sequence[Field], folders: Sequence[str]) -> list[str]:
        """Check that files with some columns, in folders of others, can be added.

        ``columns`` has those of the folders, too. Returns the paths of those that the table lacks.
        Raises ``ConfigurationError``.
        """
        self._check_features()
        self._check_properties()
        if sorted(self.partition_columns) != sorted(folders):
            raise ConfigurationError(
                f"{self.url} is partitioned by {', '.join(self.partition_columns) or 'nothing'}",
                found=f"this ingest partitions by {', '.join(folders) or 'nothing'}",
                hint="use the table's, or write to another folder",
            )
        lacking = [*self._lacking(self.columns, columns, "")]
        self._check_local_times([column for column in columns if column["name"] in lacking])
        return lacking

    def _check_local_times(self, added: Sequence[Field]) -> None:
        """Check that columns can be added without the features of an older protocol being lost."""
        if "timestampNtz" in self.features or not any(map(_has_local_time, added)):
            return
        is_append_only = self.configuration.get("delta.appendOnly", "").lower() == "true"
        if self.writer_version > _PLAIN_WRITER or is_append_only:
            raise ConfigurationError(
                f"{self.url} has not the feature timestampNtz, which the new column "
                f"{added[0]['name']} needs",
                hint="add the feature, or the column, with another client of Delta",
            )

    def _check_features(self) -> None:
        for feature in sorted(self.features - FEATURES):
            raise self._refused(f"the feature {feature}", "an ingest cannot write it")
        if self.writer_version > _MOST_WRITER:
            raise self._refused(f"version {self.writer_version} of Delta's protocol",
                                f"an ingest writes up to {_MOST_WRITER}")  # fmt: skip
        if self.writer_version == _IDENTITY_WRITER:
            raise self._refused("version 6 of Delta's protocol, with identity columns",
                                "deltalake does not write it")  # fmt: skip

    def _check_properties(self) -> None:
        for name, value in sorted(self.configuration.items()):
            if name.startswith(_CONSTRAINT):
                raise self._refused(
                    f"the constraint {name.removeprefix(_CONSTRAINT)}: {value}",
                    "records are appended as they are",
                )
            if name == _MAPPING and value != "none":
                raise self._refused(
                    f"column mapping by {value}", "deltalake does not write such files"
                )
            if name == _RETENTION:
                raise self._refused(
                    f"{name}={value}",
                    "Delta would forget the offsets of an ingest that has paused",
                )
            if value.lower() == "true" and name in _REFUSED:
                raise self._refused(_REFUSED[name], "deltalake does not write it")

    def _lacking(self, has: Sequence[Field], columns: Sequence[Field], above: str) -> Iterator[str]:
        left = {column["name"].lower(): column for column in columns}
        for field in has:
            path = f"{above}{field['name']}"
            column = left.pop(field["name"].lower(), None)
            self._check_rules(field, path)
            if column is None:
                if not field["nullable"]:
                    raise self._differs(field, path, "no such column")
                continue
            if column["name"] != field["name"]:
                raise self._differs(field, path, f"the column {above}{column['name']}")
            if column["nullable"] and not field["nullable"]:
                raise self._differs(field, path, _text(column))
            if _is_struct(field["type"]) and _is_struct(column["type"]):
                yield from self._lacking(
                    field["type"]["fields"], column["type"]["fields"], f"{path}."
                )
            elif not _fits(column["type"], field["type"]):
                raise self._differs(field, path, _text(column))
        for column in left.values():
            path = f"{above}{column['name']}"
            if not column["nullable"]:
                raise ConfigurationError(
                    f"{self.url} has no column {path}, and it is NOT NULL",
                    cause="files that were written before read as null there",
                    hint="leave NOT NULL out, or write to another folder",
                )
            yield path

    def _check_rules(self, field: Field, path: str) -> None:
        for key, text in _COLUMN_RULES.items():
            if key in (field.get("metadata") or {}):
                raise self._refused(f"the column {path}, which is {text}",
                                    "records are appended as they are")  # fmt: skip

    def _differs(self, field: Field, path: str, actual: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.url} has the column {path} of type {_text(field)}",
            found=f"this ingest has {actual}",
            hint="columns may be added, not changed: write to another folder",
        )

    def _refused(self, feature: str, cause: str) -> ConfigurationError:
        return ConfigurationError(f"{self.url} has {feature}", cause=cause, hint=_HINT)


def delta_columns(projection: Projection, partition_by: Sequence[str]) -> list[Field]:
    """The columns of a table: those of its files and those of its folders."""
    columns = [
        _field(column.name, column.json_type, is_nullable=column.is_nullable)
        for column in projection.without(partition_by).columns
    ]
    types = check_folders(partition_by, projection)
    return columns + [_field(name, kind, is_nullable=True) for name, kind in types.items()]


def _field(name: str, json_type: Any, *, is_nullable: bool) -> Field:
    return {"name": name, "type": json_type, "nullable": is_nullable, "metadata": {}}


def schema_json(columns: Sequence[Field]) -> str:
    """A schema in the JSON form of Delta."""
    return json.dumps({"type": "struct", "fields": [*columns]})


def folder_names(shape: TableShape) -> list[str]:
    """The names of the columns of a table's folders."""
    return [column.name for column in folder_columns(shape.partition_by)]


def _has_local_time(column: Field) -> bool:
    return "timestamp_ntz" in sql_type(column["type"])


def _is_struct(json_type: Any) -> bool:
    return isinstance(json_type, Mapping) and json_type["type"] == "struct"


def _with_nulls(json_type: Any) -> Any:
    if not isinstance(json_type, Mapping):
        return json_type
    if json_type["type"] == "array":
        item = _with_nulls(json_type["elementType"])
        return {**json_type, "elementType": item, "containsNull": True}
    if json_type["type"] == "map":
        value = _with_nulls(json_type["valueType"])
        return {**json_type, "valueType": value, "valueContainsNull": True}
    fields = [
        {**field, "type": _with_nulls(field["type"]), "nullable": True}
        for field in json_type["fields"]
    ]
    return {**json_type, "fields": fields}


def _fits(json_type: Any, table_type: Any) -> bool:
    """Whether values of a type can be read as a table's, which may allow more nulls."""
    if not isinstance(json_type, Mapping) or not isinstance(table_type, Mapping):
        return bool(json_type == table_type)
    if json_type["type"] != table_type["type"]:
        return False
    if json_type["type"] == "array":
        if json_type["containsNull"] and not table_type["containsNull"]:
            return False
        return _fits(json_type["elementType"], table_type["elementType"])
    if json_type["type"] == "map":
        if json_type["valueContainsNull"] and not table_type["valueContainsNull"]:
            return False
        return _fits(json_type["keyType"], table_type["keyType"]) and _fits(
            json_type["valueType"], table_type["valueType"]
        )
    fields, table_fields = json_type["fields"], table_type["fields"]
    return len(fields) == len(table_fields) and all(
        field["name"] == other["name"]
        and (other["nullable"] or not field["nullable"])
        and _fits(field["type"], other["type"])
        for field, other in zip(fields, table_fields, strict=True)
    )


def _text(field: Field) -> str:
    return sql_type(field["type"]) + ("" if field["nullable"] else " not null")
