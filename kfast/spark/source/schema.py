"""Projection: the columns of a query, their types, and the source of each.

Owns the columns of ``format("kafka")``, the type of ``value`` for each ``valueFormat``, and the
rule that the user's own schema is the projection: it may name any of the columns in any order, and
only these are decoded and sent to Spark. Works on the JSON form of Spark's types
(``StructType.jsonValue()``), so it needs no pyspark, and a `Projection` can be sent to a worker.
Pure.

=================  =====================================  =================
column             type                                   there
=================  =====================================  =================
key                binary                                 always
value              binary, or what ``valueFormat`` says   always
topic              string                                 always
partition          int                                    always
offset             bigint                                 always
timestamp          timestamp                              always
timestampType      int (-1 none, 0 create, 1 append)      always
headers            array<struct<key:string,value:binary>> includeHeaders
_corrupt_record    binary: a value that is not of the     when the user's
                   format                                 schema names it
=================  =====================================  =================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kfast.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from kfast.spark.source.options import SourceOptions

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"

_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamptype": "int",
}
"""Types by name in lower case: column names are case-insensitive in Spark."""

_SPELLINGS: Final = {"timestamptype": "timestampType"}

_FORMAT_TYPES: Final = {
    "binary": "binary",
    "utf8": "string",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}

_JSON_NAMES: Final = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
}
"""Types with another name in JSON than in SQL."""

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


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of a query."""

    name: str
    """As the schema spells it."""
    source: str
    """A column of the table above in lower case, or ``corrupt``."""
    json_type: Any
    """``DataType.jsonValue()``."""
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns a query reads, in the order of its schema, and how values are decoded."""

    columns: tuple[OutputColumn, ...]
    value_format: str = "binary"
    mode: str = "PERMISSIVE"
    dtype: tuple[tuple[str, str], ...] = ()
    """Names and NumPy codes of the fields, for ``valueFormat=struct``."""

    @property
    def decodes_values(self) -> bool:
        """Whether values are decoded: for a column, or to drop or report malformed ones."""
        if self.value_format == "binary":
            return False
        wanted = {column.source for column in self.columns}
        return bool(wanted & {"value", "corrupt"}) or self.mode != "PERMISSIVE"

    def wants(self, source: str) -> bool:
        """Return whether any column has this source."""
        return any(column.source == source for column in self.columns)


def default_schema(options: SourceOptions) -> str:
    """Return the schema of a query without a user's schema, in Spark's DDL.

    Raises ``ConfigurationError`` for ``valueFormat=struct``, which needs one.
    """
    if options.value_format == "struct":
        raise ConfigurationError(
            "valueFormat = struct needs a schema",
            hint='.schema("offset long, value struct<id: int, price: double>")',
        )
    types = {**_COLUMNS, "value": _FORMAT_TYPES[options.value_format]}
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    return ", ".join(f"{_SPELLINGS.get(name, name)} {kind}" for name, kind in types.items())


def project(schema: Mapping[str, Any], options: SourceOptions) -> Projection:
    """Return the projection of a schema, given as ``StructType.jsonValue()``.

    Raises ``ConfigurationError`` if a column does not exist, exists twice, or has another type.
    """
    known = _known_types(options)
    columns: list[OutputColumn] = []
    dtype: tuple[tuple[str, str], ...] = ()
    for field in schema["fields"]:
        name, kind = field["name"], sql_type(field["type"])
        lower = name.lower()
        if lower not in known:
            raise _unknown(name, known)
        if lower == "value" and options.value_format == "struct":
            dtype = _struct_dtype(field["type"], options.value_byte_order)
        elif kind != known[lower]:
            raise ConfigurationError(
                f"column {name} is {known[lower]}, not {kind}",
                hint=_type_hint(lower, options),
            )
        if any(lower == column.name.lower() for column in columns):
            raise ConfigurationError(f"column {name} is in the schema twice", hint="name it once")
        source = "corrupt" if lower == options.corrupt_column.lower() else lower
        columns.append(OutputColumn(name, source, field["type"], field.get("nullable", True)))
    if not columns:
        raise ConfigurationError("the schema has no column", hint=f"choose from {', '.join(known)}")
    if options.value_format == "struct" and not dtype:
        raise ConfigurationError(
            "valueFormat = struct needs the column value in the schema",
            hint="its fields are the layout of the values",
        )
    return Projection(tuple(columns), options.value_format, options.mode, dtype)


def _known_types(options: SourceOptions) -> dict[str, str]:
    types = dict(_COLUMNS)
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    if options.value_format != "binary":
        types["value"] = _FORMAT_TYPES.get(options.value_format, "struct<...>")
        if options.mode == "PERMISSIVE":
            types[options.corrupt_column.lower()] = "binary"
    return types


def _unknown(name: str, known: Mapping[str, str]) -> ConfigurationError:
    hints = {
        "headers": "set includeHeaders=true",
        "_corrupt_record": "it is for mode PERMISSIVE with a valueFormat",
    }
    near = did_you_mean(name.lower(), known)
    spelled = _SPELLINGS.get(near or "", near)
    return ConfigurationError(
        f"unknown column {name}" + (f"; did you mean {spelled}?" if near else ""),
        found=f"columns are {', '.join(_SPELLINGS.get(each, each) for each in known)}",
        hint=hints.get(name.lower(), "name only these, in any order"),
    )


def _type_hint(name: str, options: SourceOptions) -> str:
    if name == "value" and options.value_format == "binary":
        return "set valueFormat, or cast the column in the query"
    return "cast the column in the query"


def _struct_dtype(json_type: Any, byte_order: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(json_type, Mapping) or json_type.get("type") != "struct":
        raise ConfigurationError(
            f"valueFormat = struct, but column value is {sql_type(json_type)}",
            hint="for example value struct<id: int, price: double>",
        )
    mark = ">" if byte_order == "big" else "<"
    fields = []
    for field in json_type["fields"]:
        kind = sql_type(field["type"])
        if kind not in STRUCT_FIELDS:
            raise ConfigurationError(
                f"field {field['name']} of value is {kind}, which has no fixed size",
                hint=f"fields of a struct are {', '.join(STRUCT_FIELDS)}",
            )
        code = STRUCT_FIELDS[kind]
        fields.append((field["name"], code if code in ("?", "i1") else mark + code))
    if not fields:
        raise ConfigurationError("column value is a struct without fields", hint="name them")
    return tuple(fields)


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
