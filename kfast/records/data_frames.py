"""Records as structured arrays and DataFrames.

Owns: the conversions that are not Arrow's. pandas and polars are imported inside the functions.

Thread: any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kfast._optional import optional_package
from kfast.records.arrow_stream import Part
from kfast.records.columns.operations import values_array, values_list
from kfast.records.columns.spans import object_array, read_only
from kfast.records.row_columns import COLUMN_NAMES

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def structured_array(parts: Sequence[Part]) -> NDArray[Any]:
    """Return the rows of all parts as one structured array of shape (n,).

    Variable-length columns are ``object`` fields. With a numeric or structured column that has
    nulls the result is a ``MaskedArray``.
    """
    arrays = [_structured(part) for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        joined: NDArray[Any] = np.ma.MaskedArray(
            np.concatenate([np.ma.getdata(array) for array in arrays]),
            mask=np.concatenate([np.ma.getmaskarray(array) for array in arrays]),
        )
        return joined
    return read_only(np.concatenate(arrays))


def _structured(part: Part) -> NDArray[Any]:
    columns = {name: _array(part, name) for name in COLUMN_NAMES if name in part.rows.selected}
    dtype = np.dtype([(name, array.dtype) for name, array in columns.items()])
    result: NDArray[Any] = np.empty(len(part.rows), dtype)
    has_nulls = any(isinstance(array, np.ma.MaskedArray) for array in columns.values())
    if has_nulls:
        result = np.ma.MaskedArray(result)
    for name, array in columns.items():
        result[name] = array
    return result if has_nulls else read_only(result)


def _array(part: Part, name: str) -> NDArray[Any]:
    rows = part.rows
    if name == "topic":
        return np.full(len(rows), part.topic, np.object_)
    if name == "partition":
        return np.full(len(rows), part.partition, np.int32)
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


def pandas_frame(parts: Sequence[Part]) -> pd.DataFrame:
    """Return the rows of all parts as a pandas DataFrame.

    Columns of bytes, strings, UUIDs, structures (as dicts) and headers have dtype ``object``;
    integers and floats with nulls have pandas' nullable dtypes.

    Raises
    ------
    MissingDependencyError
        pandas is not installed.
    """
    pandas = optional_package("pandas", "to_pandas()")
    frames = []
    for part in parts:
        columns: dict[str, Any] = {}
        for name in COLUMN_NAMES:
            if name not in part.rows.selected:
                continue
            array = _array(part, name)
            if name == "timestamp":
                columns[name] = pandas.DatetimeIndex(array).tz_localize("UTC")
            elif isinstance(array, np.ma.MaskedArray) and not array.dtype.names:
                make = pandas.arrays.IntegerArray
                if array.dtype.kind == "f":
                    make = pandas.arrays.FloatingArray
                columns[name] = make(array.data.copy(), np.ma.getmaskarray(array).copy())
            elif array.dtype.names:
                names = array.dtype.names
                columns[name] = pandas.Series(
                    [
                        None if item is None else dict(zip(names, item.tolist(), strict=True))
                        for item in values_list(array)
                    ],
                    dtype=object,
                )
            elif array.dtype.kind == "V":
                columns[name] = pandas.Series(values_list(_objects(part, name)), dtype=object)
            elif array.dtype.kind == "O" and name != "topic":
                columns[name] = pandas.Series(array, dtype=object)
            else:
                columns[name] = array
        frames.append(pandas.DataFrame(columns))
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def _objects(part: Part, name: str) -> NDArray[Any]:
    column = part.rows.keys if name == "key" else part.rows.values
    return object_array([] if column is None else values_list(column))


def polars_frame(records: Any) -> pl.DataFrame:
    """Return anything with the Arrow PyCapsule interface as a polars DataFrame.

    Raises
    ------
    MissingDependencyError
        polars is not installed.
    """
    polars = optional_package("polars", "to_polars()")
    frame: pl.DataFrame = polars.DataFrame(records)
    return frame
