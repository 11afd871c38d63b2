"""Python objects, made by a per-record deserializer, as Arrow columns.

Owns: the choice of an Arrow type for an ``object`` array. Columns of only ``bytes``, ``str``,
``bool``, ``int`` or ``float`` (with None for null) are exported directly; anything else, such as
the dicts of ``json.loads``, is converted by ``pyarrow``, which is imported only then.

All chunks of one stream must have one type, so the type is chosen by :func:`plan_objects` over all
of them before the first is exported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow.arrays import AnyArray, array_column, bytes_column, text_column
from kfast.columns.arrow.nodes import ArrayNode, ArrowColumn, SchemaNode
from kfast.errors import DeserializationError

_SIMPLE: Final[dict[frozenset[type], str]] = {
    frozenset(): "null",
    frozenset({bytes}): "bytes",
    frozenset({str}): "text",
    frozenset({bool}): "?",
    frozenset({int}): "i8",
    frozenset({float}): "f8",
    frozenset({int, float}): "f8",
}

_REFUSALS: Final = (ValueError, TypeError, OverflowError, NotImplementedError)
"""What pyarrow raises for objects it cannot convert; its own exceptions derive from these."""


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """The Arrow type for a column of objects: a simple kind, or a pyarrow type."""

    kind: str
    arrow_type: Any = None


def plan_objects(name: str, chunks: Iterable[AnyArray]) -> ObjectPlan:
    """Choose a type that fits every value of every chunk."""
    parts = list(chunks)
    types = set(map(type, chain.from_iterable(parts))) - {type(None)}
    kind = _SIMPLE.get(frozenset(types))
    if kind == "i8" and not all(
        -(2**63) <= value < 2**63 for part in parts for value in part if value is not None
    ):
        kind = None
    if kind is not None:
        return ObjectPlan(kind)
    pa = optional_package("pyarrow", f"exporting Python objects of column {name!r} to Arrow")
    try:
        return ObjectPlan("pyarrow", pa.infer_type(list(chain.from_iterable(parts))))
    except _REFUSALS as error:
        raise _no_type(name, types, error) from error


def object_sizes(values: AnyArray) -> NDArray[np.int64]:
    """Return the most bytes that each object takes in any one buffer of an Arrow column.

    Text and bytes count, wherever they are in dicts and lists, and the items of lists, which have
    32-bit positions too; numbers have a fixed width.
    """
    return np.fromiter(map(_size, values), np.int64, len(values))


def _size(item: object) -> int:
    if isinstance(item, str):
        return len(item) if item.isascii() else 4 * len(item)
    if isinstance(item, bytes | bytearray):
        return len(item)
    if isinstance(item, dict):
        return sum(map(_size, item.values()))
    if isinstance(item, list | tuple | set | frozenset):
        return len(item) + sum(map(_size, item))
    return item.nbytes + item.size if isinstance(item, np.ndarray) else 0


def object_column(name: str, values: AnyArray, plan: ObjectPlan | None = None) -> ArrowColumn:
    """Return an object array as an Arrow column of the planned type."""
    plan = plan or plan_objects(name, [values])
    items: list[Any] = values.tolist()
    if plan.kind == "null":
        return ArrowColumn(SchemaNode("n", name), ArrayNode(len(items), len(items), ()))
    if plan.kind == "bytes":
        return bytes_column(name, items)
    if plan.kind == "text":
        return text_column(name, items)
    if plan.kind != "pyarrow":
        is_null = np.fromiter((item is None for item in items), np.bool_, len(items))
        numbers = np.array([0 if item is None else item for item in items], plan.kind)
        return array_column(name, np.ma.MaskedArray(numbers, mask=is_null))
    pa = optional_package("pyarrow", f"exporting Python objects of column {name!r} to Arrow")
    try:
        array = pa.array(items, type=plan.arrow_type)
    except pa.ArrowCapacityError:
        array = None
    except _REFUSALS as error:
        raise _no_type(name, set(map(type, items)), error) from error
    if not isinstance(array, pa.Array):  # several of them, past 2 GiB
        raise DeserializationError(
            f'column "{name}" holds more than 2 GiB of Python objects, too much for one batch',
            hint="pyarrow.table(records) makes several batches",
            column=name,
        )
    schema = SchemaNode.read(pa.field(name, plan.arrow_type).__arrow_c_schema__())
    return ArrowColumn(schema, array.__arrow_c_array__()[1])


def _no_type(name: str, types: set[type], error: Exception) -> DeserializationError:
    names = ", ".join(sorted(kind.__name__ for kind in types))
    return DeserializationError(
        f'column "{name}" holds Python objects that Arrow has no single type for',
        cause=str(error).splitlines()[0],
        found=names,
        hint="make the deserializer return one type, or use to_list()",
        column=name,
    )
