"""The schema of a query, and the projection it becomes.

Owns the rule that the user's own schema is the projection: it may name any of the columns in any
order, and only these are decoded and sent to Spark. Works on the JSON form of Spark's types
(``StructType.jsonValue()``), so it needs no pyspark. Pure.

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
from typing import TYPE_CHECKING, Any

from kfast.errors import ConfigurationError, did_you_mean
from kfast.table.projection import (
    FORMAT_TYPES,
    HEADERS_TYPE,
    KAFKA_COLUMNS,
    SPELLINGS,
    STRUCT_FIELDS,
    OutputColumn,
    Projection,
    sql_type,
)

if TYPE_CHECKING:
    from kfast.spark.source.options import SourceOptions


def default_schema(options: SourceOptions) -> str:
    """Return the schema of a query without a user's schema, in Spark's DDL.

    Raises ``ConfigurationError`` for ``valueFormat=struct``, which needs one.
    """
    if options.value_format == "struct":
        raise ConfigurationError(
            "valueFormat = struct needs a schema",
            hint='.schema("offset long, value struct<id: int, price: double>")',
        )
    types = {**KAFKA_COLUMNS, "value": FORMAT_TYPES[options.value_format]}
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    return ", ".join(f"{SPELLINGS.get(name, name)} {kind}" for name, kind in types.items())


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
    types = dict(KAFKA_COLUMNS)
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    if options.value_format != "binary":
        types["value"] = FORMAT_TYPES.get(options.value_format, "struct<...>")
        if options.mode == "PERMISSIVE":
            types[options.corrupt_column.lower()] = "binary"
    return types


def _unknown(name: str, known: Mapping[str, str]) -> ConfigurationError:
    hints = {
        "headers": "set includeHeaders=true",
        "_corrupt_record": "it is for mode PERMISSIVE with a valueFormat",
    }
    near = did_you_mean(name.lower(), known)
    spelled = SPELLINGS.get(near or "", near)
    return ConfigurationError(
        f"unknown column {name}" + (f"; did you mean {spelled}?" if near else ""),
        found=f"columns are {', '.join(SPELLINGS.get(each, each) for each in known)}",
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
