"""Files of an Iceberg table as its manifests list them, from the footers of Parquet.

Owns the statistics by field id, which are in the files: column sizes, numbers of values and nulls,
and bounds of the columns that the files have statistics of (`file_formats`), shortened as the
properties of the table say. A field that was dropped from the table meanwhile is left out. Bounds
that could be wrong are left out: of a column where one row group has none.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.errors import KafkaError
from kfast.table.batches import DataFile
from kfast.table.iceberg_partitions import stored_values
from kfast.table.location import is_local
from kfast.table.store import TableStore

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_METRICS: Final = "write.metadata.metrics"


def file_url(store: TableStore, path: str) -> str:
    """The name of a file of a store in an Iceberg table."""
    return f"{'file://' if is_local(store.url) else ''}{store.url}/{path}"


def data_files(store: TableStore, files: list[DataFile], metadata: Any, name: str) -> list[Any]:
    """The files of an entry as data files of pyiceberg, for the table with this metadata."""
    spec = metadata.spec()
    types = [field.field_type for field in spec.partition_type(metadata.schema()).fields]
    manifests = optional_package("pyiceberg.manifest", "an Iceberg table")
    record = optional_package("pyiceberg.typedef", "an Iceberg table").Record
    parquet = optional_package("pyarrow.parquet", "a table of files")
    listed = []
    for file in files:
        spec_id, values = _partition(file, spec, types, name)
        with store.open_input(file.path) as source:
            footer = parquet.read_metadata(source)
        data_file = manifests.DataFile.from_args(
            content=manifests.DataFileContent.DATA,
            file_path=file_url(store, file.path),
            file_format=manifests.FileFormat.PARQUET,
            partition=record(*values),
            record_count=footer.num_rows,
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            spec_id=spec_id,
            equality_ids=None,
            key_metadata=None,
            **_Statistics(footer, metadata).arguments(),
        )
        data_file.spec_id = spec_id
        listed.append(data_file)
    return listed


def _partition(file: DataFile, spec: Any, types: list[Any], name: str) -> tuple[int, list[Any]]:
    """The spec of a file and its values, which must be those of the table's spec."""
    written_by = None
    if file.partition_values:
        try:
            written_by, values = stored_values(file.partition_values, types)
            if written_by == spec.spec_id:
                return spec.spec_id, values
        except ValueError:  # another number of fields
            pass
    elif not types:
        return spec.spec_id, []
    raise KafkaError(
        f"the partitions of the Iceberg table {name} were changed while it was written",
        found=f"spec {spec.spec_id} now, and files of "
        + ("an unpartitioned table" if written_by is None else f"spec {written_by}"),
        hint="start the ingest again: it goes on where the table ends",
    )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of Parquet."""

    path: str
    field_id: int
    is_repeated: bool
    """Whether it is inside of a list or a map, whose values have no bounds in Iceberg."""


def _leaves(columns: Any, above: str = "", *, is_repeated: bool = False) -> Iterator[_Leaf]:
    """The columns of Parquet, from the schema of a file."""
    types = optional_package("pyarrow", "a table of files").types
    for column in columns:
        path, kind = f"{above}{column.name}", column.type
        if types.is_struct(kind):
            members = [kind.field(number) for number in range(kind.num_fields)]
            yield from _leaves(members, f"{path}.", is_repeated=is_repeated)
        elif types.is_map(kind):
            inner = [kind.key_field, kind.item_field]
            yield from _leaves(inner, f"{path}.key_value.", is_repeated=True)
        elif types.is_list(kind):
            yield from _leaves([kind.value_field], f"{path}.list.", is_repeated=True)
        else:
            field_id = int((column.metadata or {}).get(b"PARQUET:field_id", -1))
            yield _Leaf(path, field_id, is_repeated)


class _Statistics:
    """Those of one file, by field id."""

    def __init__(self, footer: pq.FileMetaData, metadata: Any) -> None:
        self._schema = metadata.schema()
        self._properties = metadata.properties
        leaves = {leaf.path: leaf for leaf in _leaves(footer.schema.to_arrow_schema())}
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        self._splits = sorted(_begin(group) for group in groups)
        self._sizes: dict[int, int] = {}
        self._values: dict[int, int] = {}
        self._nulls: dict[int, int] = {}
        self._lower: dict[int, bytes] = {}
        self._upper: dict[int, bytes] = {}
        for number in range(footer.num_columns):
            leaf = leaves.get(footer.schema.column(number).path)
            chunks = [group.column(number) for group in groups]
            if leaf is not None and chunks and self._schema.find_column_name(leaf.field_id):
                self._put(leaf, chunks)

    def _mode(self, leaf: _Leaf) -> tuple[str, int | None]:
        """Which statistics the table wants of a column, and the length of bounds."""
        metrics = optional_package("pyiceberg.io.pyarrow", "an Iceberg table")
        column = self._schema.find_column_name(leaf.field_id)
        text = self._properties.get(f"{_METRICS}.column.{column}")
        mode = metrics.match_metrics_mode(
            text or self._properties.get(f"{_METRICS}.default", "truncate(16)")
        )
        name = str(mode.type.value)
        return ("counts" if leaf.is_repeated and name != "none" else name), mode.length

    def _put(self, leaf: _Leaf, chunks: list[Any]) -> None:
        field_id = leaf.field_id
        mode, length = self._mode(leaf)
        self._sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        if mode == "none":
            return
        self._values[field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if any(group is None for group in statistics):
            return
        if all(group.has_null_count for group in statistics):
            self._nulls[field_id] = sum(group.null_count for group in statistics)
        # A row group of nulls has no bounds.
        bounded = [group for group in statistics if group.num_values]
        if mode == "counts" or not bounded or not all(group.has_min_max for group in bounded):
            return
        kind = self._schema.find_type(field_id)
        lower = _bound(min(_value(group, "min", kind) for group in bounded), kind, length)
        upper = _bound(
            max(_value(group, "max", kind) for group in bounded), kind, length, is_upper=True
        )
        if lower is not None and upper is not None:
            self._lower[field_id], self._upper[field_id] = lower, upper

    def arguments(self) -> dict[str, Any]:
        """As pyiceberg names them."""
        return {
            "column_sizes": self._sizes,
            "value_counts": self._values,
            "null_value_counts": self._nulls,
            "nan_value_counts": {},
            "lower_bounds": self._lower,
            "upper_bounds": self._upper,
            "split_offsets": self._splits or None,
        }


def _begin(group: Any) -> int:
    column = group.column(0)
    if column.has_dictionary_page and column.dictionary_page_offset < column.data_page_offset:
        return int(column.dictionary_page_offset)
    return int(column.data_page_offset)


def _value(statistics: Any, end: str, kind: Any) -> Any:
    """A bound as Iceberg stores it: dates, times and unscaled decimals as numbers."""
    raw = getattr(statistics, f"{end}_raw")
    name = type(kind).__name__
    if name == "DecimalType":
        number = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        with decimal.localcontext(decimal.Context(prec=80)):
            return decimal.Decimal(number).scaleb(-kind.scale)
    if name in {"DateType", "TimestampType", "TimestamptzType"}:
        return raw
    return getattr(statistics, end)


def _bound(value: Any, kind: Any, length: int | None, *, is_upper: bool = False) -> bytes | None:
    """A bound in Iceberg's binary form, None if it cannot be shortened."""
    if length is not None and isinstance(value, str | bytes) and len(value) > length:
        truncation = optional_package("pyiceberg.utils.truncate", "an Iceberg table")
        if not is_upper:
            value = value[:length]
        elif isinstance(value, str):
            value = truncation.truncate_upper_bound_text_string(value, length)
        else:
            value = truncation.truncate_upper_bound_binary_string(value, length)
        if value is None:
            return None
    conversions = optional_package("pyiceberg.conversions", "an Iceberg table")
    return bytes(conversions.to_bytes(kind, value))
