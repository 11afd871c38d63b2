"""The columns of an Iceberg table and those of an ingest's files: which is which, and what differs.

Owns field ids. Iceberg knows columns by number: the files have the table's ids, so that a column
which was renamed in the table stays the same one. Which column of the ingest has which id is a
property of the table, `COLUMNS`; a column without an id there is found by its name, once.

======================================  ===========================================================
difference                              is
======================================  ===========================================================
the table has no such column            added, if it may be null; members of structs too
the table's int is long here,           widened in the table; also float to double, and decimals
                                        to more digits
the other way around                    written as it is: Iceberg's readers widen it
the table has more columns              null, if they may be
renamed in the table                    followed
dropped from the table, required,       refused by name
of another type
======================================  ===========================================================

Paths have the names of the ingest: ``value.price``, ``value.tags.element``, ``value.map.key``.
Nothing is written to the table here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError, TableError
from kfast.table.arrow_types import arrow_schema
from kfast.table.projection import Projection

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = "kfast.columns"
"""The property with the field id of each column of the ingest, by path, in JSON."""

_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamptype")
"""Sources whose columns may be required by the table: every record has them."""
_HINT: Final = "columns may be added, not changed or left out: change it back, or write to another \
table"


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that the table gets."""

    parent_id: int | None
    """Of the struct that it is in, or of the list's element; None at the top."""
    name: str
    type: Any
    path: str


@dataclass(slots=True)
class SchemaMatch:
    """How the columns of an ingest go with those of a table."""

    ids: dict[str, int] = field(default_factory=dict)
    added: list[AddedColumn] = field(default_factory=list)
    widened: list[tuple[int, Any]] = field(default_factory=list)
    """Field id and new type."""

    @property
    def is_complete(self) -> bool:
        """Whether the table has all columns, in types that hold their values."""
        return not self.added and not self.widened


def iceberg_schema(projection: Projection) -> Any:
    """The schema of a new table, of pyiceberg; its ids are preliminary."""
    schema = optional_package("pyiceberg.schema", "an Iceberg table").Schema
    return schema(*_fields(arrow_schema(projection), itertools.count(1)))


def columns_of(properties: Mapping[str, str], name: str) -> dict[str, int]:
    """The ids by path that a table remembers."""
    text = properties.get(COLUMNS, "{}")
    try:
        return {str(path): int(field_id) for path, field_id in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise TableError(
            f"the property {COLUMNS} of the Iceberg table {name} is damaged",
            cause=str(error),
            hint="restore it; or remove it, if no column was renamed since the ingest began",
        ) from error


def match_schema(
    table_schema: Any, projection: Projection, columns: Mapping[str, int], name: str
) -> SchemaMatch:
    """Compare the columns of a table and those of an ingest.

    ``columns`` has the ids that the table remembers, ``name`` is for messages. Raises
    ``ConfigurationError`` for what cannot be written, with column and both types.
    """
    matcher = _Matcher(table_schema, columns, name)
    required = {
        column.name for column in projection.columns if column.source.lower() in _NEVER_NULL
    }
    matcher.match(iceberg_schema(projection).fields, table_schema.fields, "", None, required)
    matcher.check_left_out()
    return matcher.schema_match


class _Matcher:
    def __init__(self, table_schema: Any, columns: Mapping[str, int], name: str) -> None:
        self._schema = table_schema
        self._columns = columns
        self._name = name
        self._seen: set[str] = set()
        self.schema_match = SchemaMatch()

    def match(
        self, ours: Any, theirs: Any, above: str, parent_id: int | None, required: set[str]
    ) -> None:
        """Match the members of a struct; those in ``required`` are never null."""
        rest = {column.field_id: column for column in theirs}
        for column in ours:
            path = f"{above}{column.name}"
            other = self._other(path, column.name, rest)
            if other is None:
                self._check_new_name(path, column.name, theirs)
                self._add(column, path, parent_id)
                continue
            del rest[other.field_id]
            if other.required and not column.required and column.name not in required:
                raise self._refused(
                    f"has the required column {self._column(other.field_id)}",
                    f"{path} may be null here",
                    "make it optional in the table",
                )
            self._put(path, other.field_id)
            self._compare(column.field_type, other.field_type, path, other.field_id)
        for other in rest.values():
            if other.required:
                raise self._refused(
                    f"has the required column {self._column(other.field_id)}",
                    "this ingest has no such column",
                    "make it optional in the table, or drop it",
                )

    def check_left_out(self) -> None:
        """Refuse an ingest without a column that an earlier one wrote, unless it was dropped."""
        for path, field_id in self._columns.items():
            if path not in self._seen and self._column(field_id):
                raise self._refused(
                    f"has the column {path} of an earlier ingest",
                    "this one has no such column",
                    _HINT,
                )

    def _other(self, path: str, name: str, rest: Mapping[int, Any]) -> Any:
        """The column of the table, None if it has none yet."""
        self._seen.add(path)
        field_id = self._columns.get(path)
        if field_id is not None:
            if field_id in rest:
                return rest[field_id]
            raise self._refused(
                f"has no column {path} any more",
                f"its field {field_id} was dropped from the table",
                "a column that was dropped does not come back: leave it out, or write to another "
                "table",
            )
        own = set(self._columns.values())
        for other in rest.values():
            if other.name == name and other.field_id not in own:
                return other
        for other in rest.values():
            if other.name.lower() == name.lower() and other.field_id not in own:
                return other
        return None

    def _check_new_name(self, path: str, name: str, theirs: Any) -> None:
        """Refuse a new column with the name of one that is another of the ingest, renamed."""
        for other in theirs:
            if other.name.lower() == name.lower():
                former = next(
                    at for at, field_id in self._columns.items() if field_id == other.field_id
                )
                raise self._refused(
                    f"has a column {other.name} that is {former} of the ingest, renamed",
                    f"this ingest has a column {path} as well",
                    "rename one of the two",
                )

    def _add(self, column: Any, path: str, parent_id: int | None) -> None:
        if column.required:
            raise self._refused(
                f"has no column {path}",
                f"{path} {_text(column.field_type)} not null",
                "rows of before would be null there: leave NOT NULL out",
            )
        added = AddedColumn(parent_id, column.name, column.field_type, path)
        self.schema_match.added.append(added)

    def _compare(self, ours: Any, theirs: Any, path: str, field_id: int) -> None:
        kinds = type(ours).__name__, type(theirs).__name__
        if kinds == ("StructType", "StructType"):
            self.match(ours.fields, theirs.fields, f"{path}.", field_id, set())
        elif kinds == ("ListType", "ListType"):
            self._inner("element", ours, theirs, path)
        elif kinds == ("MapType", "MapType"):
            self._inner("key", ours, theirs, path)
            self._inner("value", ours, theirs, path)
        elif ours != theirs and not _widens(ours, theirs):
            if not _widens(theirs, ours):
                raise self._refused(
                    f"has the column {self._column(field_id)} of type {_text(theirs)}",
                    f"{path} is {_text(ours)} here",
                    _HINT,
                )
            self.schema_match.widened.append((field_id, ours))

    def _inner(self, role: str, ours: Any, theirs: Any, path: str) -> None:
        """Match the element of a list, or the keys or values of a map."""
        inner = f"{path}.{role}"
        self._seen.add(inner)
        field_id = getattr(theirs, f"{role}_id")
        is_required = role != "key" and getattr(theirs, f"{role}_required")
        if is_required and not getattr(ours, f"{role}_required"):
            raise self._refused(
                f"has the required column {self._column(field_id)}",
                f"{inner} may be null here",
                "make it optional in the table",
            )
        self._put(inner, field_id)
        self._compare(
            getattr(ours, f"{role}_type"), getattr(theirs, f"{role}_type"), inner, field_id
        )

    def _put(self, path: str, field_id: int) -> None:
        self.schema_match.ids[path] = field_id

    def _column(self, field_id: int) -> str:
        """The name of a column in the table, "" if it has none with this id."""
        return self._schema.find_column_name(field_id) or ""

    def _refused(self, has: str, actual: str, hint: str) -> ConfigurationError:
        return ConfigurationError(f"the Iceberg table {self._name} {has}", found=actual, hint=hint)


def _widens(narrow: Any, wide: Any) -> bool:
    """Whether every value of a type is one of another, by the promotions of Iceberg."""
    names = type(narrow).__name__, type(wide).__name__
    if names == ("DecimalType", "DecimalType"):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    return names in {("IntegerType", "LongType"), ("FloatType", "DoubleType")}


def _text(kind: Any) -> str:
    return str(kind)


# --- types ----------------------------------------------------------------------------------------


def _fields(columns: Any, ids: Iterator[int]) -> list[Any]:
    types = optional_package("pyiceberg.types", "an Iceberg table")
    numbers = [next(ids) for _ in columns]
    return [
        types.NestedField(
            number, column.name, iceberg_type(column.type, ids), required=not column.nullable
        )
        for number, column in zip(numbers, columns, strict=True)
    ]


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> Any:
    """The type of pyiceberg for a column of Arrow; nested ones take their ids from ``ids``."""
    arrow_types = optional_package("pyarrow", "a table of files").types
    types = optional_package("pyiceberg.types", "an Iceberg table")
    if arrow_types.is_struct(kind):
        members = [kind.field(number) for number in range(kind.num_fields)]
        return types.StructType(*_fields(members, ids))
    if arrow_types.is_map(kind):
        key_id, value_id = next(ids), next(ids)
        return types.MapType(
            key_id,
            iceberg_type(kind.key_type, ids),
            value_id,
            iceberg_type(kind.item_type, ids),
            value_required=not kind.item_field.nullable,
        )
    if arrow_types.is_list(kind):
        element_id = next(ids)
        return types.ListType(
            element_id,
            iceberg_type(kind.value_type, ids),
            element_required=not kind.value_field.nullable,
        )
    if arrow_types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if arrow_types.is_timestamp(kind):
        return types.TimestamptzType() if kind.tz else types.TimestampType()
    return getattr(types, _TYPES[str(kind)])()


_TYPES: Final = {
    "string": "StringType",
    "binary": "BinaryType",
    "bool": "BooleanType",
    "int8": "IntegerType",
    "int16": "IntegerType",
    "int32": "IntegerType",
    "int64": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "date32[day]": "DateType",
}
