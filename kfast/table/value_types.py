"""Types of decoded keys and values in Spark: those that its schemas have, and what becomes them.

Owns the way between Spark's types (``DataType.jsonValue()``) and `SchemaField`, whose lists have
the item ``element`` as in Spark's Arrow form, and which type of typed columns may become which:

=====================================  ==================================================
typed columns have                     in Spark
=====================================  ==================================================
the same type                          the same, but for the names of items
int, uint, float                       a wider one of the kind; uint64 is decimal(20,0)
dictionary, uuid, JSON that is raw     string
raw, fixed_size_binary                 binary
timestamps of any unit                 timestamp, or timestamp_ntz without a zone
time of day, duration                  bigint, in their own unit
decimal of up to 38 digits             decimal of the same precision and scale
=====================================  ==================================================

Needs neither pyspark nor pyarrow. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError
from kfast.schemas.names import MAX_PRECISION
from kfast.schemas.refusals import check_nesting
from kfast.schemas.types import DataType, Kind, SchemaField
from kfast.table.projection import sql_type

_PLAIN: Final = {
    "boolean": DataType(Kind.BOOL),
    "byte": DataType(Kind.INT8),
    "short": DataType(Kind.INT16),
    "integer": DataType(Kind.INT32),
    "long": DataType(Kind.INT64),
    "float": DataType(Kind.FLOAT32),
    "double": DataType(Kind.FLOAT64),
    "string": DataType(Kind.STRING),
    "binary": DataType(Kind.BINARY),
    "date": DataType(Kind.DATE32),
    "timestamp": DataType(Kind.TIMESTAMP, unit="us", is_utc=True),
    "timestamp_ntz": DataType(Kind.TIMESTAMP, unit="us"),
}
_JSON: Final = {data_type: name for name, data_type in _PLAIN.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_BECOMES: Final = {
    Kind.UINT8: _PLAIN["short"],
    Kind.UINT16: _PLAIN["integer"],
    Kind.UINT32: _PLAIN["long"],
    Kind.UINT64: DataType(Kind.DECIMAL128, precision=20),
    Kind.TIME32: _PLAIN["long"],
    Kind.TIME64: _PLAIN["long"],
    Kind.DURATION: _PLAIN["long"],
    Kind.UUID: _PLAIN["string"],
    Kind.DICTIONARY: _PLAIN["string"],
    Kind.FIXED_BINARY: _PLAIN["binary"],
}
_WIDER: Final = {
    Kind.INT8: (Kind.INT16, Kind.INT32, Kind.INT64),
    Kind.INT16: (Kind.INT32, Kind.INT64),
    Kind.INT32: (Kind.INT64,),
    Kind.UINT8: (Kind.INT32, Kind.INT64),
    Kind.UINT16: (Kind.INT64,),
    Kind.FLOAT32: (Kind.FLOAT64,),
}
"""Besides the type that it becomes."""
_STEP: Final = re.compile(r"[^.\[\]{}]+")
ITEM: Final = "element"


# --- from Spark's types, and to them --------------------------------------------------------------


def field_of_spark(
    json_type: Any, path: str, name: str = "", *, is_nullable: bool = True, depth: int = 0
) -> SchemaField:
    """Return the field that a type of Spark is; ``path`` names it in errors.

    Raises
    ------
    ConfigurationError
        No value of a record has such a type.
    """
    check_nesting(path, depth)
    return SchemaField(name, _type_of_spark(json_type, path, depth), is_nullable)


def _type_of_spark(json_type: Any, path: str, depth: int) -> DataType:
    kind = json_type["type"] if isinstance(json_type, Mapping) else str(json_type)
    if kind == "array":
        item = field_of_spark(
            json_type["elementType"],
            f"{path}[]",
            ITEM,
            is_nullable=json_type["containsNull"],
            depth=depth + 1,
        )
        return DataType(Kind.LIST, fields=(item,))
    if kind == "map":
        if json_type["keyType"] != "string":
            raise ConfigurationError(
                f"keys of {path} are {sql_type(json_type['keyType'])}", hint="map<string, ...>"
            )
        key = SchemaField("key", _PLAIN["string"], is_nullable=False)
        value = field_of_spark(
            json_type["valueType"],
            f"{path}{{value}}",
            "value",
            is_nullable=json_type["valueContainsNull"],
            depth=depth + 1,
        )
        return DataType(Kind.MAP, fields=(key, value))
    if kind == "struct":
        fields = tuple(
            field_of_spark(
                field["type"],
                f"{path}.{field['name']}",
                field["name"],
                is_nullable=field.get("nullable", True),
                depth=depth + 1,
            )
            for field in json_type["fields"]
        )
        if not fields:
            raise ConfigurationError(f"{path} is a struct without fields", hint="name them")
        names = [field.name for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(
                    f"{path}.{name} is in the schema twice", hint="name it once"
                )
        return DataType(Kind.STRUCT, fields=fields)
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return DataType(Kind.DECIMAL128, precision=int(decimal[1]), scale=int(decimal[2]))
    if kind not in _PLAIN:
        raise ConfigurationError(
            f"{path} is {sql_type(json_type)}, which no value of a record has",
            hint=f"use {', '.join(map(sql_type, _PLAIN))}, decimal, array, map or struct",
        )
    return _PLAIN[kind]


def json_of(data_type: DataType) -> Any:
    """Return a type of `in_spark` in Spark's JSON form."""
    if data_type.kind is Kind.LIST:
        item = data_type.item
        return {
            "type": "array",
            "elementType": json_of(item.type),
            "containsNull": item.is_nullable,
        }
    if data_type.kind is Kind.MAP:
        value = data_type.fields[1]
        return {
            "type": "map",
            "keyType": "string",
            "valueType": json_of(value.type),
            "valueContainsNull": value.is_nullable,
        }
    if data_type.kind is Kind.STRUCT:
        fields = [
            {
                "name": field.name,
                "type": json_of(field.type),
                "nullable": field.is_nullable,
                "metadata": {},
            }
            for field in data_type.fields
        ]
        return {"type": "struct", "fields": fields}
    if data_type.kind is Kind.DECIMAL128:
        return f"decimal({data_type.precision},{data_type.scale})"
    return _JSON[data_type]


def in_spark(field: SchemaField, path: str) -> SchemaField:
    """Return the field in Spark of a typed column for which no other type is asked.

    Raises
    ------
    ConfigurationError
        A decimal has more digits than Spark's.
    """
    return SchemaField(field.name, _type_in_spark(field.type, path), field.is_nullable)


def _type_in_spark(data_type: DataType, path: str) -> DataType:
    if data_type.kind is Kind.LIST:
        return DataType(Kind.LIST, fields=(in_spark(data_type.item, f"{path}[]").renamed(ITEM),))
    if data_type.kind is Kind.MAP:
        key, value = data_type.fields
        inner = in_spark(value, f"{path}{{value}}").renamed("value")
        return DataType(Kind.MAP, fields=(in_spark(key, path).renamed("key"), inner))
    if data_type.kind is Kind.STRUCT:
        return DataType(
            Kind.STRUCT,
            fields=tuple(in_spark(field, f"{path}.{field.name}") for field in data_type.fields),
        )
    if data_type.kind is Kind.TIMESTAMP:
        return replace(data_type, unit="us")
    if data_type.kind is Kind.RAW:
        return _PLAIN["string" if data_type.is_json else "binary"]
    if data_type.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        if data_type.precision > MAX_PRECISION[Kind.DECIMAL128]:
            raise ConfigurationError(
                f"{path} has {data_type.precision} digits, and decimals of Spark have 38 at most",
                hint="leave it out of the schema",
            )
        return DataType(Kind.DECIMAL128, precision=data_type.precision, scale=data_type.scale)
    return _BECOMES.get(data_type.kind) or DataType(data_type.kind)


# --- which columns become which -------------------------------------------------------------------


def check_conversion(source: SchemaField, target: SchemaField, path: str) -> None:
    """Check that a typed column can become one of Spark's.

    Members of structs are found by name, in any order; those that are not wanted are left out.

    Raises
    ------
    ConfigurationError
        It cannot; the message has path and both types.
    """
    if source.is_nullable and not target.is_nullable:
        raise ConfigurationError(
            f"{path} is NOT NULL, and may be null in the schema of the values",
            hint="leave NOT NULL out",
        )
    source_type, target_type = source.type, target.type
    if source_type.kind is target_type.kind is Kind.LIST:
        check_conversion(source_type.item, target_type.item, f"{path}[]")
        return
    if source_type.kind is target_type.kind is Kind.MAP:
        check_conversion(source_type.fields[1], target_type.fields[1], f"{path}{{value}}")
        return
    if source_type.kind is target_type.kind is Kind.STRUCT:
        fields = {field.name: field for field in source_type.fields}
        for field in target_type.fields:
            inner_path = f"{path}.{field.name}"
            if field.name not in fields:
                near = did_you_mean(field.name, fields)
                raise ConfigurationError(
                    f"{inner_path} is not in the schema of the values"
                    + (f"; did you mean {near}?" if near else ""),
                    found=f"it has {', '.join(fields)}",
                    hint="names of fields are case-sensitive",
                )
            check_conversion(fields[field.name], field, inner_path)
        return
    becomes = None
    if source_type.kind not in {Kind.LIST, Kind.MAP, Kind.STRUCT}:
        becomes = _type_in_spark(source_type, path)
        if becomes == target_type or target_type.kind in _WIDER.get(source_type.kind, ()):
            return
    shown = source_type.kind.name.lower() if becomes is None else sql_type(json_of(becomes))
    raise ConfigurationError(
        f"{path} is {shown} in the schema of the values, not {sql_type(json_of(target_type))}",
        hint="use that type, and cast the column in the query",
    )


def wanted_paths(target: SchemaField) -> list[str] | None:
    """Return the ``columns=`` of a deserializer that leave out what is not wanted.

    None for all: values that are no structs, and names that paths cannot have.
    """
    is_plain = all(
        _STEP.fullmatch(field.name) for _path, node in target.nodes() for field in node.type.fields
    )
    if target.type.kind is not Kind.STRUCT or not is_plain:
        return None
    return [path for path, node in target.nodes() if not node.type.fields and "{key}" not in path]
