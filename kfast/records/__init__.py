"""Records as columns: what a poll returns.

``consumer_records`` holds the records of a poll, ``partition_records`` those of one partition;
``kfast.columns`` has the kinds of key and value columns. The public names of both can be imported
from here; each is loaded when it is first used, since NumPy takes long to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.lazy_names import lazy_names

if TYPE_CHECKING:
    from kfast.columns.bytes import BytesColumn
    from kfast.columns.headers import HeadersColumn
    from kfast.columns.record_errors import RecordError, RecordErrors
    from kfast.columns.text import StringColumn
    from kfast.columns.typed import (
        DecimalColumn,
        DictionaryColumn,
        ListColumn,
        MapColumn,
        StructColumn,
    )
    from kfast.columns.uuid import UuidColumn
    from kfast.records.building import (
        BuildResult,
        build_partition_records,
        empty_partition_records,
    )
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.records.row_columns import COLUMN_NAMES

_HOMES = {
    "COLUMN_NAMES": "kfast.records.row_columns",
    "BuildResult": "kfast.records.building",
    "BytesColumn": "kfast.columns.bytes",
    "ConsumerRecord": "kfast.records.consumer_record",
    "ConsumerRecords": "kfast.records.consumer_records",
    "HeadersColumn": "kfast.columns.headers",
    "PartitionRecords": "kfast.records.partition_records",
    "StringColumn": "kfast.columns.text",
    "RecordErrors": "kfast.columns.record_errors",
    "RecordError": "kfast.columns.record_errors",
    "StructColumn": "kfast.columns.typed",
    "MapColumn": "kfast.columns.typed",
    "ListColumn": "kfast.columns.typed",
    "DictionaryColumn": "kfast.columns.typed",
    "DecimalColumn": "kfast.columns.typed",
    "UuidColumn": "kfast.columns.uuid",
    "build_partition_records": "kfast.records.building",
    "empty_partition_records": "kfast.records.building",
}
"""The module of each name, as above."""

__all__ = [
    "COLUMN_NAMES",
    "BuildResult",
    "BytesColumn",
    "ConsumerRecord",
    "ConsumerRecords",
    "HeadersColumn",
    "PartitionRecords",
    "StringColumn",
    "RecordErrors",
    "RecordError",
    "StructColumn",
    "MapColumn",
    "ListColumn",
    "DictionaryColumn",
    "DecimalColumn",
    "UuidColumn",
    "build_partition_records",
    "empty_partition_records",
]

if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these
    __getattr__ = lazy_names(__name__, _HOMES)
