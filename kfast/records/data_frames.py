"""Records as structured arrays, tables and DataFrames.

Owns: the conversions to objects of other libraries, which are imported inside the functions.

Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow import CapsuleStream
from kfast.columns.headers import HeadersColumn
from kfast.columns.operations import is_object_array, values_array, values_list
from kfast.columns.spans import object_array, read_only
from kfast.columns.uuid import UuidColumn
from kfast.errors import KafkaError
from kfast.records.arrow_stream import Flatten, Form, PartitionRows, record_stream
from kfast.records.row_columns import COLUMN_NAMES, common_columns

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def structured_array(chunks: Sequence[PartitionRows]) -> NDArray[Any]:
    """Return the rows of all chunks as one structured array of shape (n,).

    Variable-length columns are ``object`` fields. With a numeric or structured column that has
    nulls the result is a ``MaskedArray``.
    """
    common_columns([chunk.rows for chunk in chunks])
    arrays = [_structured(chunk) for chunk in chunks]
    if len(arrays) == 1:
        return arrays[0]
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        joined: NDArray[Any] = np.ma.MaskedArray(
            np.concatenate([np.ma.getdata(array) for array in arrays]),
            mask=np.concatenate([np.ma.getmaskarray(array) for array in arrays]),
        )
        return joined
    return read_only(np.concatenate(arrays))


def _structured(chunk: PartitionRows) -> NDArray[Any]:
    columns = {name: _array(chunk, name) for name in COLUMN_NAMES if name in chunk.rows.selected}
    dtype = np.dtype([(name, array.dtype) for name, array in columns.items()])
    result: NDArray[Any] = np.empty(len(chunk.rows), dtype)
    has_nulls = any(isinstance(array, np.ma.MaskedArray) for array in columns.values())
    if has_nulls:
        result = np.ma.MaskedArray(result)
    for name, array in columns.items():
        result[name] = array
    return result if has_nulls else read_only(result)


def _array(chunk: PartitionRows, name: str) -> NDArray[Any]:
    rows = chunk.rows
    if name == "topic":
        return np.full(len(rows), chunk.topic, np.object_)
    if name == "partition":
        return np.full(len(rows), chunk.partition, np.int32)
    if name == "offset":
        return rows.offsets
    if name == "timestamp":
        return rows.datetimes
    if name == "timestamp_type":
        return rows.type_array
    if name == "headers":
        return object_array([] if rows.headers is None else rows.headers.to_list())
    column = rows.keys if name == "key" else rows.values
    return object_array([]) if column is None else values_array(column)


def arrow_table(chunks: Sequence[PartitionRows], form: Form, function: str) -> pa.Table:
    """Return the rows of all chunks as a ``pyarrow.Table``; ``function`` is what the user called.

    Raises
    ------
    MissingDependencyError
        pyarrow is not installed.
    """
    pyarrow = optional_package("pyarrow", function)
    with _own_error() as failures:
        stream = CapsuleStream(record_stream(chunks, form, failures))
        table: pa.Table = pyarrow.RecordBatchReader.from_stream(stream).read_all()
    return table


@contextmanager
def _own_error() -> Iterator[list[KafkaError]]:
    """Raise the error that has ended a stream, for that which its reader made of the text."""
    failures: list[KafkaError] = []
    try:
        yield failures
    except Exception:
        if failures:
            raise failures[0] from None
        raise


def pandas_frame(
    chunks: Sequence[PartitionRows], *, topic_dictionary: bool, flatten: Flatten = False
) -> pd.DataFrame:
    """Return the rows of all chunks as a pandas DataFrame, made through Arrow.

    Python objects stay the objects they are: what callables made, UUIDs, and headers as lists of
    pairs. Numbers and bools with nulls have pandas' nullable dtypes.

    Raises
    ------
    MissingDependencyError
        pandas or pyarrow is not installed.
    """
    pandas = optional_package("pandas", "to_pandas()")
    objects = {
        name: object_array(list(chain.from_iterable(_objects(chunk, name) for chunk in chunks)))
        for name in ("key", "value", "headers")
        if name in chunks[0].rows.selected and any(_is_of_objects(chunk, name) for chunk in chunks)
    }
    form = Form.of(topic_dictionary=topic_dictionary, flatten=flatten)
    form = replace(form, without=frozenset(objects))
    table = arrow_table(chunks, form, "to_pandas()")
    frame: pd.DataFrame = table.to_pandas()
    for name in table.column_names:
        column = table.column(name)
        nullable = _nullable_dtype(pandas, str(column.type))
        if column.null_count and nullable is not None:
            frame[name] = column.to_pandas(types_mapper=lambda _, dtype=nullable: dtype)
    names = [name for name in COLUMN_NAMES if name in chunks[0].rows.selected]
    for name, values in objects.items():
        # Members of structs stand behind the columns before the key.
        at = names.index(name) if name == "key" or not flatten else len(frame.columns)
        frame.insert(at, name, pandas.Series(values, dtype=object))
    return frame


def _objects(chunk: PartitionRows, name: str) -> list[Any]:
    rows = chunk.rows
    column = {"key": rows.keys, "value": rows.values, "headers": rows.headers}[name]
    if column is None:
        return []
    return column.to_list() if isinstance(column, HeadersColumn) else values_list(column)


def _is_of_objects(chunk: PartitionRows, name: str) -> bool:
    column = chunk.rows.keys if name == "key" else chunk.rows.values
    return name == "headers" or isinstance(column, UuidColumn) or is_object_array(column)


def _nullable_dtype(pandas: Any, arrow_type: str) -> Any:
    """Return the dtype of pandas for numbers or bools of which some are null."""
    name = {"bool": "Boolean", "float": "Float32", "double": "Float64"}.get(arrow_type)
    if name is None and arrow_type.startswith(("int", "uint")):
        name = arrow_type.replace("int", "Int").replace("u", "U")
    return None if name is None else getattr(pandas, f"{name}Dtype")()


def polars_frame(
    chunks: Sequence[PartitionRows], *, topic_dictionary: bool, flatten: Flatten = False
) -> pl.DataFrame:
    """Return the rows of all chunks as a polars DataFrame.

    Raises
    ------
    MissingDependencyError
        polars is not installed.
    """
    polars = optional_package("polars", "to_polars()")
    form = Form.of(topic_dictionary=topic_dictionary, flatten=flatten)
    with _own_error() as failures:
        frame: pl.DataFrame = polars.DataFrame(CapsuleStream(record_stream(chunks, form, failures)))
    return frame
