"""Schemas as Spark writes them: ``"id BIGINT NOT NULL, lines ARRAY<STRUCT<sku: STRING>>"``.

The words of a column behind its type are ``NOT NULL`` and ``COMMENT 'text'``, which is ignored.
Types that Kafka's formats have no value for (intervals, variants, void) are refused by name.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.schemas.names import MAX_PRECISION, TypeText, struct_type
from kfast.schemas.refusals import refusal
from kfast.schemas.types import DataType, Kind, SchemaField

_SIZED_TEXT: Final = DataType(Kind.STRING, size=1)
_NAMES: Final = {
    "boolean": DataType(Kind.BOOL),
    "tinyint": DataType(Kind.INT8),
    "byte": DataType(Kind.INT8),
    "smallint": DataType(Kind.INT16),
    "short": DataType(Kind.INT16),
    "int": DataType(Kind.INT32),
    "integer": DataType(Kind.INT32),
    "bigint": DataType(Kind.INT64),
    "long": DataType(Kind.INT64),
    "float": DataType(Kind.FLOAT32),
    "real": DataType(Kind.FLOAT32),
    "double": DataType(Kind.FLOAT64),
    "string": DataType(Kind.STRING),
    "varchar": _SIZED_TEXT,
    "char": _SIZED_TEXT,
    "character": _SIZED_TEXT,
    "binary": DataType(Kind.BINARY),
    "date": DataType(Kind.DATE32),
    "timestamp": DataType(Kind.TIMESTAMP, unit="us", is_utc=True),
    "timestamp_ltz": DataType(Kind.TIMESTAMP, unit="us", is_utc=True),
    "timestamp_ntz": DataType(Kind.TIMESTAMP, unit="us"),
    "decimal": DataType(Kind.DECIMAL128),
    "dec": DataType(Kind.DECIMAL128),
    "numeric": DataType(Kind.DECIMAL128),
    "array": DataType(Kind.LIST),
    "map": DataType(Kind.MAP),
    "struct": DataType(Kind.STRUCT),
}
_COMMENT: Final = re.compile(
    r"""(`(?:[^`]|``)*`)|\bcomment\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""",
    re.IGNORECASE | re.DOTALL,
)


def field_of_ddl(text: str) -> SchemaField:
    """Return the struct without a name that a list of columns describes.

    Raises
    ------
    ConfigurationError
        The text is no list of columns; the message has the path.
    """
    reader = TypeText(_COMMENT.sub(lambda match: match[1] or "", text), "", _NAMES, is_ddl=True)
    fields = [reader.read_member("", 1)]
    while reader.take_mark(","):
        fields.append(reader.read_member("", 1))
    reader.expect_end(fields[-1].name)
    return SchemaField("", struct_type(fields, ""))


def is_ddl(text: str) -> bool:
    """Return whether a text is a list of columns, rather than one type.

    It is one if a word follows the first one, and that is not the ``not`` of ``not null``.
    """
    words = re.match(r"\s*(`(?:[^`]|``)+`|[^\s<>()\[\],:`]+)\s*:?\s*(\S+)?", text)
    if words is None or words[2] is None:
        return False
    return words[1].startswith("`") or (
        words[2][0] not in "<>()[]," and words[2].lower() not in {"not"}
    )


_SPARK_NAMES: Final = {
    Kind.BOOL: "BOOLEAN",
    Kind.INT8: "TINYINT",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INT",
    Kind.INT64: "BIGINT",
    Kind.UINT8: "SMALLINT",
    Kind.UINT16: "INT",
    Kind.UINT32: "BIGINT",
    Kind.UINT64: "DECIMAL(20,0)",
    Kind.FLOAT32: "FLOAT",
    Kind.FLOAT64: "DOUBLE",
    Kind.STRING: "STRING",
    Kind.BINARY: "BINARY",
    Kind.FIXED_BINARY: "BINARY",
    Kind.DATE32: "DATE",
    Kind.TIME32: "BIGINT",
    Kind.TIME64: "BIGINT",
    Kind.DURATION: "BIGINT",
    Kind.UUID: "STRING",
    Kind.DICTIONARY: "STRING",
}


def ddl_of_field(root: SchemaField) -> str:
    """Return the columns of a struct, or one type, as Spark writes them.

    What Spark has no type for is the next wider one; times of day and durations are numbers.

    Raises
    ------
    ConfigurationError
        A decimal has more digits than Spark's.
    """
    if root.type.kind is not Kind.STRUCT:
        return _spark_type(root, "")
    return ", ".join(_member(child, " ", "") for child in root.type.fields)


def ddl_type(field: SchemaField, path: str) -> str:
    """Return the type of a field as Spark writes it; see `ddl_of_field`."""
    return _spark_type(field, path)


def _member(field: SchemaField, between: str, prefix: str) -> str:
    path = f"{prefix}.{field.name}" if prefix else field.name
    ending = "" if field.is_nullable else " NOT NULL"
    return f"{field.quoted_name}{between}{_spark_type(field, path)}{ending}"


def _spark_type(field: SchemaField, path: str) -> str:
    data_type = field.type
    if data_type.kind is Kind.STRUCT:
        return f"STRUCT<{', '.join(_member(child, ': ', path) for child in data_type.fields)}>"
    if data_type.kind is Kind.LIST:
        return f"ARRAY<{_spark_type(data_type.item, f'{path}[]')}>"
    if data_type.kind is Kind.MAP:
        return f"MAP<STRING, {_spark_type(data_type.fields[1], f'{path}{{value}}')}>"
    if data_type.kind is Kind.TIMESTAMP:
        return "TIMESTAMP" if data_type.is_utc else "TIMESTAMP_NTZ"
    if data_type.kind is Kind.RAW:
        return "STRING" if data_type.is_json else "BINARY"
    if data_type.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        if data_type.precision > MAX_PRECISION[Kind.DECIMAL128]:
            raise refusal(
                path, f"Spark's decimals have 38 digits at most, not {data_type.precision}"
            )
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return _SPARK_NAMES[data_type.kind]


def check_not_ddl(text: str, path: str) -> None:
    """Refuse a list of columns where one type is wanted."""
    if is_ddl(text):
        raise refusal(path, f'"{text}" is a list of columns, not a type', "use a dict there")
