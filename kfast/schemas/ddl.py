"""Schemas as Spark writes them: ``"id BIGINT NOT NULL, lines ARRAY<STRUCT<sku: STRING>>"``.

The words of a column behind its type are ``NOT NULL`` and ``COMMENT 'text'``, which is ignored.
Types that Kafka's formats have no value for (intervals, variants, void) are refused by name.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.schemas.names import TypeText, struct_type
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


def check_not_ddl(text: str, path: str) -> None:
    """Refuse a list of columns where one type is wanted."""
    if is_ddl(text):
        raise refusal(path, f'"{text}" is a list of columns, not a type', "use a dict there")
