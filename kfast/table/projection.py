"""Projection: the columns of a query or of an ingest, their types, and the source of each.

Owns the columns of ``format("kafka")`` and the types of decoded keys and values, in Spark's JSON
form (``DataType.jsonValue()``) and in its SQL, by which shapes of tables are compared. Needs no
pyspark; a `Projection` can be sent to a worker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfast.schemas.formats import BYTES
from kfast.table.option_spelling import OptionSpelling

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"

RESCUED: Final = "_rescued_data"
"""What of a value in JSON has no column, as JSON; the name is that of Databricks."""

KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamptype": "int",
}
"""Types by name in lower case: column names are case-insensitive in Spark."""

SPELLINGS: Final = {"timestamptype": "timestampType"}

FORMAT_TYPES: Final = {
    BYTES: "binary",
    "text": "string",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "uuid": "string",
}
"""Types of keys and values by their format; those with a schema have the type that it says."""

STRUCT_FIELDS: Final = {
    "boolean": "?",
    "tinyint": "i1",
    "smallint": "i2",
    "int": "i4",
    "bigint": "i8",
    "float": "f4",
    "double": "f8",
}
"""Types a field of a fixed layout may have, and their NumPy codes."""

_JSON_NAMES: Final = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
}
"""Types with another name in JSON than in SQL."""

_SQL_NAMES: Final = {sql: name for name, sql in _JSON_NAMES.items()}
_HEADERS_JSON: Final = {
    "type": "array",
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
    "containsNull": True,
}


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of a query."""

    name: str
    """As the schema spells it."""
    source: str
    """A column of `KAFKA_COLUMNS`, ``headers``, ``corrupt``, ``reason`` or `RESCUED`."""
    json_type: Any
    """``DataType.jsonValue()``."""
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How keys or values are decoded."""

    kind: str = BYTES
    """A name of ``kfast.schemas.formats``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Those of ``deserializer_of``, in a form that JSON has: bytes are ``{"base64": text}``.
    Without the registry, which may have secrets, and the schema where the column's type is it."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns a query reads, in the order of its schema, and how they are decoded."""

    columns: tuple[OutputColumn, ...]
    value: ColumnFormat = ColumnFormat()
    key: ColumnFormat = ColumnFormat()
    mode: str = "PERMISSIVE"
    """What happens to a record whose key, value or timestamp is malformed."""
    spelling: OptionSpelling = OptionSpelling.SPARK
    """For the hints of errors."""

    def format_of(self, source: str) -> ColumnFormat:
        """Return how ``key`` or ``value`` is decoded."""
        return self.key if source == "key" else self.value

    def decodes(self, source: str) -> bool:
        """Whether keys or values are decoded: for a column, or to drop or report malformed ones."""
        if self.format_of(source).kind == BYTES:
            return False
        is_wanted = self.wants(source) or self.wants("reason")
        is_wanted |= source == "value" and (self.wants("corrupt") or self.wants(RESCUED))
        return is_wanted or self.mode != "PERMISSIVE"

    def column(self, source: str) -> OutputColumn | None:
        """Return the column with a source, if there is one."""
        return next((column for column in self.columns if column.source == source), None)

    def wants(self, source: str) -> bool:
        """Return whether any column has this source."""
        return any(column.source == source for column in self.columns)

    def without(self, sources: Iterable[str]) -> Projection:
        """Return it without some columns, such as those of partition folders."""
        left_out = set(sources)
        return replace(
            self, columns=tuple(column for column in self.columns if column.source not in left_out)
        )

    @property
    def ddl(self) -> str:
        """The columns in Spark's DDL."""
        return ", ".join(
            f"{column.name} {sql_type(column.json_type)}"
            + ("" if column.is_nullable else " NOT NULL")
            for column in self.columns
        )


def output_column(source: str, format: str = BYTES) -> OutputColumn:
    """Return a column with its own name; ``format`` is that of a key or a value, without schema."""
    if source == "headers":
        return OutputColumn(source, source, _HEADERS_JSON)
    if source == RESCUED:
        return OutputColumn(source, source, "string")
    kind = FORMAT_TYPES[format] if source in {"key", "value"} else KAFKA_COLUMNS[source]
    return OutputColumn(SPELLINGS.get(source, source), source, _SQL_NAMES.get(kind, kind))


def sql_type(json_type: Any) -> str:
    """Return the SQL name of a type, without nullability."""
    if not isinstance(json_type, Mapping):
        return _JSON_NAMES.get(str(json_type), str(json_type))
    kind = json_type["type"]
    if kind == "array":
        return f"array<{sql_type(json_type['elementType'])}>"
    if kind == "map":
        return f"map<{sql_type(json_type['keyType'])},{sql_type(json_type['valueType'])}>"
    if kind == "struct":
        fields = (f"{field['name']}:{sql_type(field['type'])}" for field in json_type["fields"])
        return f"struct<{','.join(fields)}>"
    return str(kind)
