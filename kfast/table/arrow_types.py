"""Spark's types in Arrow, exactly as Spark expects them from a data source.

Owns the mapping. Spark compares the schema of the first batch with the one it derives itself,
names, types and nullability at every level; ``tests/spark`` compares this one with pyspark's own.
pyarrow is imported when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.table.projection import Projection

_NAMES: Final = {
    "binary": "binary",
    "string": "string",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
    "date": "date32",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def arrow_schema(projection: Projection) -> pa.Schema:
    """Return the Arrow schema of a query's batches."""
    pyarrow = optional_package("pyarrow", "decoding into Arrow")
    return pyarrow.schema(
        [
            pyarrow.field(column.name, arrow_type(column.json_type), column.is_nullable)
            for column in projection.columns
        ]
    )


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a second type of numbers has more bits than a first of the same kind."""
    types = optional_package("pyarrow", "decoding into Arrow").types
    if types.is_signed_integer(kind) and types.is_signed_integer(other):
        return bool(other.bit_width > kind.bit_width)
    return bool(types.is_float32(kind) and types.is_float64(other))


def arrow_type(json_type: Any) -> pa.DataType:
    """Return the Arrow type of a Spark type in its JSON form."""
    pyarrow = optional_package("pyarrow", "decoding into Arrow")
    if json_type in ("timestamp", "timestamp_ntz"):
        return pyarrow.timestamp("us", tz="UTC" if json_type == "timestamp" else None)
    if not isinstance(json_type, Mapping):
        decimal = _DECIMAL.fullmatch(str(json_type))
        if decimal is not None:
            return pyarrow.decimal128(int(decimal[1]), int(decimal[2]))
        return getattr(pyarrow, _NAMES[str(json_type)])()
    if json_type["type"] == "array":
        item = arrow_type(json_type["elementType"])
        return pyarrow.list_(pyarrow.field("element", item, json_type["containsNull"]))
    if json_type["type"] == "map":
        key = pyarrow.field("key", arrow_type(json_type["keyType"]), nullable=False)
        value = arrow_type(json_type["valueType"])
        return pyarrow.map_(
            key, pyarrow.field("value", value, nullable=json_type["valueContainsNull"])
        )
    return pyarrow.struct(
        [
            pyarrow.field(field["name"], arrow_type(field["type"]), field["nullable"])
            for field in json_type["fields"]
        ]
    )
