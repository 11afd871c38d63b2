"""The schema of a query, and the projection it becomes.

Owns the rule that the user's own schema is the projection: it may name any of the columns in any
order, and only these are decoded and sent to Spark. Works on the JSON form of Spark's types
(``StructType.jsonValue()``), so it needs no pyspark. Pure.

=================  =====================================  =================
column             type                                   there
=================  =====================================  =================
key                binary                                 always
value              binary, or what ``valueFormat`` says   always; ``keyFormat`` likewise
topic              string                                 always
partition          int                                    always
offset             bigint                                 always
timestamp          timestamp                              always
timestampType      int (-1 none, 0 create, 1 append)      always
headers            array<struct<key:string,value:binary>> includeHeaders
_corrupt_record    binary: a value that is not of the     when the user's
                   format                                 schema names it
_corrupt_reason    string: code and path of what is       the same; without a
                   malformed, or timestamp range          format, too
_rescued_data      string: fields of a value in JSON      the same
                   that have no column, as JSON
=================  =====================================  =================

With ``json``, ``avro`` and ``protobuf`` the user's schema types value and key, too; it says which
of their columns are decoded. What these need besides is in ``value_schemas``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.schemas.formats import BYTES, STRUCT
from kfast.table.projection import (
    FORMAT_TYPES,
    HEADERS_TYPE,
    KAFKA_COLUMNS,
    RESCUED,
    SPELLINGS,
    STRUCT_FIELDS,
    ColumnFormat,
    OutputColumn,
    Projection,
    sql_type,
)

if TYPE_CHECKING:
    from kfast.spark.source.options import SourceOptions


_REASON: Final = "_corrupt_reason"
_SOURCES: Final = ("key", "value")
_ANY: Final = ""
"""The type of a column that any may have."""


def default_schema(
    options: SourceOptions,
    names: Collection[str] = (),
    typed: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the schema of a query without a user's schema, in Spark's DDL.

    ``names`` are its columns, all by default, and ``typed`` types of keys or values that are known.
    Raises ``ConfigurationError`` for ``struct`` and ``json``, which need one; a subject's schema is
    looked up.
    """
    types = {**KAFKA_COLUMNS, **typed}
    for source in _SOURCES:
        form = options.format_of(source)
        if source in typed or (names and source not in names):
            continue
        if form.kind == STRUCT:
            raise ConfigurationError(
                f"{source}Format = struct needs a schema",
                hint=f'.schema("offset long, {source} struct<id: int, price: double>")',
            )
        if form.row.is_typed:
            from kfast.spark.source.value_schemas import default_type  # noqa: PLC0415 - decoders

            types[source] = default_type(source, options)
        else:
            types[source] = FORMAT_TYPES[form.kind]
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    chosen = [name.lower() for name in names] or [*types]
    types[RESCUED] = "string"
    return ", ".join(f"{SPELLINGS.get(name, name)} {types[name]}" for name in chosen)


def project(schema: Mapping[str, Any], options: SourceOptions) -> Projection:
    """Return the projection of a schema, given as ``StructType.jsonValue()``.

    Raises ``ConfigurationError`` if a column does not exist, exists twice, or has another type; a
    subject's schema is looked up.
    """
    types = _known_types(options)
    columns: list[OutputColumn] = []
    for field in schema["fields"]:
        name, kind = field["name"], sql_type(field["type"])
        lower = name.lower()
        if lower not in types:
            raise _unknown(name, types)
        if types[lower] not in {_ANY, kind}:
            raise ConfigurationError(
                f"column {name} is {types[lower]}, not {kind}",
                hint=_type_hint(lower, options),
            )
        if any(lower == column.name.lower() for column in columns):
            raise ConfigurationError(f"column {name} is in the schema twice", hint="name it once")
        source = {options.corrupt_column.lower(): "corrupt", _REASON: "reason"}.get(lower, lower)
        columns.append(OutputColumn(name, source, field["type"], field.get("nullable", True)))
    if not columns:
        raise ConfigurationError("the schema has no column", hint=f"choose from {', '.join(types)}")
    projection = Projection(tuple(columns), mode=options.mode)
    return replace(
        projection,
        value=_format("value", projection.column("value"), options),
        key=_format("key", projection.column("key"), options),
    )


def _format(source: str, column: OutputColumn | None, options: SourceOptions) -> ColumnFormat:
    """Return how keys or values are decoded, checked against the column that they become."""
    form = options.format_of(source)
    if column is None and form.kind in {STRUCT, "json"}:
        raise ConfigurationError(
            f"{source}Format = {form.kind} needs the column {source} in the schema",
            hint="its fields are the layout of the values"
            if form.kind == STRUCT
            else "its type says what is decoded",
        )
    if form.kind == STRUCT and column is not None:
        layout = _struct_dtype(source, column.json_type, options.value_byte_order)
        return ColumnFormat(STRUCT, {"schema": layout})
    if form.row.is_typed:
        from kfast.spark.source.value_schemas import planned_format  # noqa: PLC0415 - decoders

        return planned_format(source, options, column)
    return ColumnFormat(form.kind, form.arguments)


def _known_types(options: SourceOptions) -> dict[str, str]:
    types = dict(KAFKA_COLUMNS)
    if options.include_headers:
        types["headers"] = HEADERS_TYPE
    for source in _SOURCES:
        types[source] = FORMAT_TYPES.get(options.format_of(source).kind, _ANY)
    is_decoded = any(options.format_of(source).kind != BYTES for source in _SOURCES)
    if options.mode == "PERMISSIVE":
        types[_REASON] = "string"
        if is_decoded:
            types[options.corrupt_column.lower()] = "binary"
    if options.format_of("value").kind == "json":
        types[RESCUED] = "string"
    return types


def _unknown(name: str, types: Mapping[str, str]) -> ConfigurationError:
    hints = {
        "headers": "set includeHeaders=true",
        "_corrupt_record": "it is for mode PERMISSIVE with a valueFormat",
        _REASON: "it is for mode PERMISSIVE",
        RESCUED: "it is for valueFormat=json",
    }
    near = did_you_mean(name.lower(), types)
    spelled = SPELLINGS.get(near or "", near)
    return ConfigurationError(
        f"unknown column {name}" + (f"; did you mean {spelled}?" if near else ""),
        found=f"columns are {', '.join(SPELLINGS.get(column, column) for column in types)}",
        hint=hints.get(name.lower(), "name only these, in any order"),
    )


def _type_hint(name: str, options: SourceOptions) -> str:
    if name in _SOURCES and options.format_of(name).kind == BYTES:
        return f"set {name}Format, or cast the column in the query"
    return "cast the column in the query"


def _struct_dtype(source: str, json_type: Any, byte_order: str) -> list[list[str]]:
    if not isinstance(json_type, Mapping) or json_type.get("type") != "struct":
        raise ConfigurationError(
            f"{source}Format = struct, but column {source} is {sql_type(json_type)}",
            hint=f"for example {source} struct<id: int, price: double>",
        )
    mark = ">" if byte_order == "big" else "<"
    fields = []
    for field in json_type["fields"]:
        kind = sql_type(field["type"])
        if kind not in STRUCT_FIELDS:
            raise ConfigurationError(
                f"field {field['name']} of {source} is {kind}, which has no fixed size",
                hint=f"fields of a struct are {', '.join(STRUCT_FIELDS)}",
            )
        code = STRUCT_FIELDS[kind]
        fields.append([field["name"], code if code in ("?", "i1") else mark + code])
    if not fields:
        raise ConfigurationError(f"column {source} is a struct without fields", hint="name them")
    return fields
