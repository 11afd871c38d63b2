"""How rows of a table are divided into files: by folders, or by partition fields of Iceberg.

Owns the choice between the two, and the common interface: a `Divider` yields the rows of a batch by
`Place`. Folders are in the names of files, fields of Iceberg in its metadata only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kfast.errors import ConfigurationError
from kfast.table.file_names import Parts, parts_at, split_records
from kfast.table.folders import BatchFolders, check_folders, folder_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from kfast.records.partition_records import PartitionRecords
    from kfast.table.iceberg_partitions import IcebergField
    from kfast.table.projection import Projection
    from kfast.table.time_limits import TimeLimits

    ToBatches = Callable[[PartitionRecords], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows belong."""

    folders: Parts = ()
    values: str = ""
    """Values of Iceberg's partition fields, in JSON."""


class Divider(Protocol):
    """Divides records, which must not be empty; ``to_batches`` makes Arrow batches of them."""

    def divide(
        self, records: PartitionRecords, to_batches: ToBatches
    ) -> Iterator[tuple[Place, pa.RecordBatch, PartitionRecords]]:
        """Yield batches by place, each with the records that it is from."""
        ...

    def place_at(self, topic: str, partition: int, now_ms: int) -> Place:
        """The place of a file without rows."""
        ...


class FolderDivider:
    """Divides rows by folders."""

    def __init__(
        self, partition_by: Sequence[str], projection: Projection, limits: TimeLimits | None
    ) -> None:
        self._limits = limits
        self._columns = folder_columns(partition_by)
        self._of_record = [column.name for column in self._columns if column.of_record]
        self._of_values = BatchFolders(partition_by, projection)

    def divide(
        self, records: PartitionRecords, to_batches: ToBatches
    ) -> Iterator[tuple[Place, pa.RecordBatch, PartitionRecords]]:
        """Yield batches by folder."""
        for parts, some in split_records(records, self._of_record, self._limits):
            for whole in to_batches(some):
                for values, batch in self._of_values.divide(whole):
                    yield Place(self._in_order(parts, values)), batch, some

    def _in_order(self, parts: Parts, values: Mapping[str, str]) -> Parts:
        """The folders of rows, in the order of the table."""
        if not values:
            return parts
        named = {**dict(parts), **values}
        return tuple((column.name, named[column.name]) for column in self._columns)

    def place_at(self, topic: str, partition: int, now_ms: int) -> Place:
        """The folders of a time."""
        return Place(parts_at(topic, partition, self._columns, now_ms))


class FieldDivider:
    """Divides rows by the partition fields of an Iceberg table."""

    def __init__(self, fields: Sequence[IcebergField], projection: Projection) -> None:
        from kfast.table.iceberg_partitions import (  # noqa: PLC0415 - needs pyiceberg
            IcebergPartitions,
        )

        self._partitions = IcebergPartitions(tuple(fields), projection)

    def divide(
        self, records: PartitionRecords, to_batches: ToBatches
    ) -> Iterator[tuple[Place, pa.RecordBatch, PartitionRecords]]:
        """Yield batches by values."""
        for whole in to_batches(records):
            for values, batch in self._partitions.divide(whole):
                yield Place(values=values), batch, records

    def place_at(self, topic: str, partition: int, now_ms: int) -> Place:  # noqa: ARG002
        """A table with a catalog needs no file without rows."""
        raise AssertionError


def check_partition_by(table_format: str, names: Sequence[str]) -> None:
    """Check the spelling of ``partition_by``; ``ConfigurationError`` if it is not understood."""
    if table_format == "iceberg":
        from kfast.table import iceberg_partitions  # noqa: PLC0415 - of this format only

        iceberg_partitions.check_partition_by(names)
    else:
        folder_columns(names)


def check_partitioning(table_format: str, names: Sequence[str], projection: Projection) -> None:
    """Check that the columns can be divided so; ``projection`` has all columns of the table.

    Raises ``ConfigurationError``. Of an Iceberg table its log checks the rest.
    """
    if table_format == "iceberg":
        return
    if not projection.without(names).columns:
        raise ConfigurationError(
            "the files would have no column", hint="add one that is not in partition-by"
        )
    check_folders(names, projection)


def divider(
    table_format: str,
    partition_by: Sequence[str],
    fields: Sequence[Any],
    projection: Projection,
    limits: TimeLimits | None,
) -> Divider:
    """What divides the rows of a table; ``limits`` are those of record timestamps."""
    if table_format == "iceberg" and fields:
        return FieldDivider(fields, projection)
    names = () if table_format == "iceberg" else partition_by
    return FolderDivider(names, projection, limits)
