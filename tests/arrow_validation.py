"""Arrow's full validation of everything that kfast exports while tests run.

There are few places of export: the capsules of columns and of streams, and Spark's batches. What
leaves them is imported into pyarrow, validated, and handed on as pyarrow exports it, over the same
buffers. Programs that tests start are not included, but the workers of their Spark session are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from kfast._native import arrow_export
from kfast.columns.arrow import ArrowColumn


def validate_exports() -> None:
    """Wrap the exporting functions of this process."""
    export_stream = arrow_export.stream_capsule

    def column_capsules(column: ArrowColumn) -> tuple[object, object]:
        return _validated(column.schema, column.array)

    def stream_capsule(schema: Any, arrays: Iterable[Any]) -> object:
        return export_stream(schema, _validated_arrays(schema, arrays))

    setattr(ArrowColumn, "capsules", column_capsules)  # noqa: B010 - mypy refuses an assignment
    setattr(arrow_export, "stream_capsule", stream_capsule)  # noqa: B010


def validate_batches(maker: Any) -> None:
    """Wrap the method ``batches`` of a class, which yields ``pyarrow.RecordBatch``."""
    make = maker.batches

    def batches(self: Any, *arguments: Any) -> Iterator[Any]:
        for batch in make(self, *arguments):
            batch.validate(full=True)
            yield batch

    batches.is_validating = True  # type: ignore[attr-defined]
    maker.batches = batches


def _validated_arrays(schema: Any, arrays: Iterable[Any]) -> Iterator[object]:
    for array in arrays:
        yield _validated(schema, array)[1]


def _validated(schema: Any, array: Any) -> tuple[object, object]:
    capsules = arrow_export.schema_capsule(schema), arrow_export.array_capsule(array)
    if sys.modules.get("pyarrow", _NOT_IMPORTED) is None:
        return capsules  # hidden by a test of what works without it
    import pyarrow  # noqa: PLC0415 - most tests export nothing

    made = pyarrow.Array._import_from_c_capsule(*capsules)
    made.validate(full=True)
    again: tuple[object, object] = made.__arrow_c_array__()
    return arrow_export.schema_capsule(schema), again[1]


_NOT_IMPORTED = object()
