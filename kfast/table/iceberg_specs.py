"""Partition specs of Iceberg tables, and ``partition_by``: which is which.

Owns the spec of a new table, and the comparison with that of an existing one. Names of fields are
those of their columns (``country``, ``timestamp_day``, ``id_bucket``, ``name_trunc``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError
from kfast.table.iceberg_partitions import (
    IcebergField,
    PartitionColumn,
    partition_columns,
    split_transform,
)
from kfast.table.projection import Projection

_FIRST_FIELD_ID: Final = 1_000
_INEXACT: Final = ("FloatType", "DoubleType")
_SUFFIXES: Final = {"bucket": "_bucket", "truncate": "_trunc", "identity": ""}


def spec_of(names: Sequence[str], schema: Any, table: str) -> Any:
    """The spec of a new table with a schema, of pyiceberg.

    Raises ``ConfigurationError`` for a column that does not exist or a transform that it does not
    have; ``table`` is for messages.
    """
    partitioning = optional_package("pyiceberg.partitioning", "an Iceberg table")
    transforms = optional_package("pyiceberg.transforms", "an Iceberg table")
    columns = partition_columns(names)
    fields: list[Any] = []
    for number, (text, column) in enumerate(zip(names, columns, strict=True)):
        source = _source(schema, column, text, table)
        transform = transforms.parse_transform(column.transform)
        kind = type(source.field_type).__name__
        if not transform.can_transform(source.field_type) or kind in _INEXACT:
            raise ConfigurationError(
                f"cannot partition the Iceberg table {table} by {text}",
                found=f"{'.'.join(column.path)} is {source.field_type}",
                hint="use a column or a transform of another kind",
            )
        name = _field_name(column, schema, [field.name for field in fields], source.field_id)
        fields.append(
            partitioning.PartitionField(source.field_id, _FIRST_FIELD_ID + number, transform, name)
        )
    return partitioning.PartitionSpec(*fields)


def _source(schema: Any, column: PartitionColumn, text: str, table: str) -> Any:
    try:
        return schema.find_field(".".join(column.path))
    except ValueError as error:
        raise ConfigurationError(
            f"cannot partition the Iceberg table {table} by {text}: its files have no column "
            f"{'.'.join(column.path)}",
            found=f"columns {', '.join(field.name for field in schema.fields)}",
            hint="name it in the columns as well, or partition by another one",
        ) from error


def _field_name(column: PartitionColumn, schema: Any, others: list[str], source_id: int) -> str:
    """The name of a partition field, which no other column or field has."""
    suffix = _SUFFIXES.get(split_transform(column.transform)[0], f"_{column.transform}")
    names = {field.name: field.field_id for field in schema.fields}
    for name in (column.path[-1], "_".join(column.path)):
        full = f"{name}{suffix}"
        is_own = not suffix and names.get(full) == source_id
        if full not in others and (full not in names or is_own):
            return full
    return f"{'_'.join(column.path)}_{column.transform.replace('[', '_').rstrip(']')}"


def partition_fields(
    spec: Any, schema: Any, ids: Mapping[str, int], projection: Projection, table: str
) -> tuple[IcebergField, ...]:
    """The fields of a table's spec, for the files of an ingest.

    ``ids`` has the field ids of its columns, by path. A field of a column that the ingest does not
    write is null. Raises ``ConfigurationError`` for transforms that cannot be computed exactly.
    """
    paths = {field_id: path for path, field_id in ids.items()}
    fields = []
    for field in spec.fields:
        transform = str(field.transform)
        path = paths.get(field.source_id, "")
        column = schema.find_column_name(field.source_id) or "a column that is gone"
        if split_transform(transform)[0] not in _KNOWN:
            raise ConfigurationError(
                f"the Iceberg table {table} is partitioned by {transform} of {column}",
                hint="its transform is not known here: write to another table",
            )
        if path and transform != "void":
            kind = schema.find_type(field.source_id)
            if type(kind).__name__ in _INEXACT:
                raise ConfigurationError(
                    f"the Iceberg table {table} is partitioned by {column}, which is {kind}",
                    hint="values of floating-point numbers are not exact: write to another table",
                )
        names = _split(path, projection) if path else ()
        fields.append(IcebergField(field.name, transform, spec.spec_id, names))
    return tuple(fields)


def _split(path: str, projection: Projection) -> tuple[str, ...]:
    """The names in a path; those of columns at the top may have dots."""
    for column in projection.columns:
        if path == column.name or path.startswith(f"{column.name}."):
            rest = path[len(column.name) + 1 :]
            return (column.name, *rest.split(".")) if rest else (column.name,)
    return tuple(path.split("."))


_KNOWN: Final = ("identity", "void", "bucket", "truncate", "year", "month", "day", "hour")


def check_spec(names: Sequence[str], fields: Sequence[IcebergField], table: str) -> None:
    """Check that an existing table is partitioned as ``partition_by`` says."""
    columns = [column.text for column in partition_columns(names)]
    has = [
        PartitionColumn(field.path or (field.name,), field.transform).text
        for field in fields
        if field.transform != "void"
    ]
    if columns != has:
        raise ConfigurationError(
            f"the Iceberg table {table} is partitioned by {', '.join(has) or 'nothing'}",
            found=f"this ingest by {', '.join(columns)}",
            hint="leave partition_by out, to write it as it is; or write to another table",
        )
