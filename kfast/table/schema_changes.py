"""SchemaChange: what becomes of a table's columns when records with other columns are written.

=======================================  =========================================================
the records have                         the table
=======================================  =========================================================
another column, which may be null        gets it; files that were written before read as null there
a wider number: tinyint to smallint,     gets the wider type, if the format has readers of files
int or bigint, float to double           with both; else it is refused
a narrower one of these                  keeps its own, and files are written with it
anything else that differs               is refused by name: another type, a column left out
=======================================  =========================================================

The members of structs are columns, too. Those inside of lists and maps are not: many readers cannot
add them to older files, nor read both widths there. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kfast.errors import ConfigurationError
from kfast.schemas.ddl import ddl_type, field_of_ddl
from kfast.schemas.types import Kind, SchemaField
from kfast.table.projection import Projection
from kfast.table.value_types import json_of

_WIDER: Final = {
    Kind.INT8: (Kind.INT16, Kind.INT32, Kind.INT64),
    Kind.INT16: (Kind.INT32, Kind.INT64),
    Kind.INT32: (Kind.INT64,),
    Kind.FLOAT32: (Kind.FLOAT64,),
}
_WIDENED_BY: Final = frozenset({"parquet", "iceberg"})
"""Formats whose tables may get wider types. Delta needs a feature of the table that deltalake does
not have, and readers of Arrow files take the types of the first one."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """How a table's columns and those of records differ, by the paths of columns."""

    added: tuple[str, ...] = ()
    """Columns that the table gets."""
    widened: tuple[str, ...] = ()
    """Columns whose type in the table becomes wider."""
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Columns that are wider in the table than in the records: its types in Spark's JSON form."""

    @property
    def is_of_table(self) -> bool:
        """Whether the table changes."""
        return bool(self.added or self.widened)

    def __str__(self) -> str:
        parts = [f"added {path}" for path in self.added]
        parts += [f"widened {path}" for path in self.widened]
        return ", ".join(parts) or "no change"


def schema_change(
    table_ddl: str, records_ddl: str, url: str, table_format: str = "parquet"
) -> SchemaChange:
    """Compare the columns of a table with those of records, both in Spark's DDL.

    Raises ``ConfigurationError`` with table, column and both types if it cannot be.
    """
    if table_ddl == records_ddl:
        return SchemaChange()
    comparison = _Comparison(url, table_format)
    comparison.compare(field_of_ddl(table_ddl).type.fields, field_of_ddl(records_ddl).type.fields)
    return SchemaChange(tuple(comparison.added), tuple(comparison.widened), comparison.kept)


def check_schema(
    table_ddl: str, records_ddl: str, url: str, table_format: str = "parquet"
) -> list[str]:
    """Return the paths of columns that a table gets; see `schema_change`."""
    return [*schema_change(table_ddl, records_ddl, url, table_format).added]


def as_table(projection: Projection, change: SchemaChange) -> Projection:
    """Return the columns that files of a table have: its own types where they are wider.

    Columns that it gets may be null, also where records always have them.
    """
    columns = tuple(
        replace(column, json_type=_with_types(column.json_type, column.name, change))
        for column in projection.columns
    )
    return replace(projection, columns=columns)


def _with_types(json_type: Any, path: str, change: SchemaChange) -> Any:
    if not isinstance(json_type, Mapping) or json_type["type"] != "struct":
        return change.kept.get(path.lower(), json_type)
    fields = []
    for member in json_type["fields"]:
        inner = f"{path}.{member['name']}"
        kind = _with_types(member["type"], inner, change)
        is_nullable = member["nullable"] or inner in change.added
        fields.append({**member, "type": kind, "nullable": is_nullable})
    return {**json_type, "fields": fields}


class _Comparison:
    """The differences that were met so far, by path."""

    def __init__(self, url: str, table_format: str) -> None:
        self._url = url
        self._format = table_format
        self.added: list[str] = []
        self.widened: list[str] = []
        self.kept: dict[str, Any] = {}

    def compare(
        self, old: tuple[SchemaField, ...], new: tuple[SchemaField, ...], above: str = ""
    ) -> None:
        """Compare the members of a struct."""
        before = {field.name.lower(): field for field in old}
        for field in new:
            self._compare_member(before.pop(field.name.lower(), None), field, above)
        for left_out in before.values():
            raise self._refused(left_out, f"{above}{left_out.name}", "no such column")

    def _compare_member(self, old: SchemaField | None, new: SchemaField, above: str) -> None:
        if old is None:
            self._add(new, f"{above}{new.name}")
            return
        path = f"{above}{old.name}"
        if old.is_nullable != new.is_nullable:
            raise self._refused(old, path, _text(new))
        if old.type == new.type:
            return
        if old.type.kind is new.type.kind is Kind.STRUCT:
            self.compare(old.type.fields, new.type.fields, f"{path}.")
        elif new.type.kind in _WIDER.get(old.type.kind, ()):
            if self._format not in _WIDENED_BY:
                raise self._not_widened(old, path, new)
            self.widened.append(path)
        elif old.type.kind in _WIDER.get(new.type.kind, ()):
            self.kept[path.lower()] = json_of(old.type)
        else:
            raise self._refused(old, path, _text(new))

    def _add(self, field: SchemaField, path: str) -> None:
        if not field.is_nullable:
            raise ConfigurationError(
                f"{self._url} has no column {path}, and it is NOT NULL",
                cause="files that were written before read as null there",
                hint="leave NOT NULL out, or write to another folder",
            )
        self.added.append(path)

    def _refused(self, old: SchemaField, path: str, actual: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._url} has the column {path} of type {_text(old)}",
            found=f"this one has {actual}",
            hint="columns may be added, and numbers become wider: write to another folder",
        )

    def _not_widened(self, old: SchemaField, path: str, new: SchemaField) -> ConfigurationError:
        return ConfigurationError(
            f"{self._url} has the column {path} of type {_text(old)}",
            cause=f"tables of the format {self._format} get no wider types",
            found=f"this one has {_text(new)}",
            hint="write to another folder, or name the schema with the type of the table",
        )


def _text(field: SchemaField) -> str:
    return ddl_type(field, "").lower() + ("" if field.is_nullable else " not null")
