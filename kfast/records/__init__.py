"""Records as columns: what a poll returns.

``consumer_records`` holds the records of a poll, ``partition_records`` those of one partition,
``columns`` the kinds of key and value columns, ``arrow`` their export by the Arrow C data
interface. The public names can be imported from here; each is loaded when it is first used, since
the columns are needed by the deserializers, which in turn are needed to build records.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.records.building import (
        BuildResult,
        build_partition_records,
        empty_partition_records,
    )
    from kfast.records.columns.bytes import BytesColumn
    from kfast.records.columns.decimal import DecimalColumn
    from kfast.records.columns.dictionary import DictionaryColumn
    from kfast.records.columns.headers import HeadersColumn
    from kfast.records.columns.text import StringColumn
    from kfast.records.columns.typed import ListColumn, MapColumn, StructColumn
    from kfast.records.columns.uuid import UuidColumn
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.errors import RecordError, RecordErrors
    from kfast.records.partition_records import PartitionRecords
    from kfast.records.row_columns import COLUMN_NAMES

_HOMES = {
    "COLUMN_NAMES": "row_columns",
    "BuildResult": "building",
    "BytesColumn": "columns.bytes",
    "ConsumerRecord": "consumer_record",
    "ConsumerRecords": "consumer_records",
    "HeadersColumn": "columns.headers",
    "PartitionRecords": "partition_records",
    "StringColumn": "columns.text",
    "RecordErrors": "errors",
    "RecordError": "errors",
    "StructColumn": "columns.typed",
    "MapColumn": "columns.typed",
    "ListColumn": "columns.typed",
    "DictionaryColumn": "columns.dictionary",
    "DecimalColumn": "columns.decimal",
    "UuidColumn": "columns.uuid",
    "build_partition_records": "building",
    "empty_partition_records": "building",
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

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value  # found without this function from now on
        return value
