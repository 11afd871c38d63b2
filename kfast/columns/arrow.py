"""NumPy arrays as Arrow columns.

Owns: the mapping from NumPy dtypes to Arrow formats. A contiguous native-endian array is exported
without a copy; other byte orders and fields inside structures are copied once, field by field. A
``MaskedArray``'s mask becomes the validity bitmap, NaT becomes null.

==========================  ======================================================================
NumPy                       Arrow
==========================  ======================================================================
bool                        bool (bits)
int, uint, float            the same; longdouble becomes double
datetime64, timedelta64     timestamp without zone / date32, duration; odd units in seconds
bytes ``S``, void ``V``     fixed_size_binary of the item size, padding included
``U``                       utf8
complex                     fixed_size_list<float>[2]
structured                  struct, recursively; subarrays become fixed_size_list
object                      see below
==========================  ======================================================================

``Node`` and its neighbours describe columns for the Arrow C data interface as tuples that
``_native.arrow_export`` reads, with validity bitmaps and capsules. No Arrow library is imported:
``pyarrow.table(x)``, ``polars.DataFrame(x)`` and the like read the capsules.

Object arrays: of only ``bytes``, ``str``, ``bool``, ``int`` or ``float`` (with None for null) they
are exported directly; anything else, such as the dicts of ``json.loads``, is converted by pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kfast._base.optional import optional_package
from kfast._native import arrow_export, columns
from kfast.errors import DeserializationError

INT32_MAX: Final = 2**31 - 1
BINARY_FORMATS: Final = {"z": "z", "Z": "Z", "vz": "vz", "v": "vz"}
TEXT_FORMATS: Final = {"u": "u", "U": "U", "vu": "vu", "v": "vu"}
"""Formats that can be requested of a column of bytes or text; ``v`` means views of either."""

Capsule: TypeAlias = Any
"""A ``PyCapsule``; there is no static type for it."""


class SchemaNode(NamedTuple):
    """One field: its Arrow format string, name, metadata and children.

    ``dictionary`` is the field of the values that indices refer to.
    """

    format: str
    name: str
    is_nullable: bool = True
    metadata: bytes | None = None
    children: tuple[SchemaNode, ...] = ()
    dictionary: SchemaNode | None = None

    @classmethod
    def read(cls, capsule: Capsule) -> SchemaNode:
        """Return the field that an ``arrow_schema`` capsule of any library describes."""
        return _schema_node(arrow_export.read_schema(capsule))


class ArrayNode(NamedTuple):
    """One array: length, nulls, its buffers in Arrow's order (None = absent) and children."""

    length: int
    null_count: int
    buffers: tuple[Any, ...]
    children: tuple[ArrayNode | Capsule, ...] = ()
    dictionary: ArrayNode | None = None


class ArrowColumn(NamedTuple):
    """A field with its data, which may be a capsule of another Arrow library."""

    schema: SchemaNode
    array: ArrayNode | Capsule

    def capsules(self) -> tuple[Capsule, Capsule]:
        """Make the pair that ``__arrow_c_array__`` returns."""
        return arrow_export.schema_capsule(self.schema), arrow_export.array_capsule(self.array)


@dataclass(frozen=True, slots=True)
class CapsulePair:
    """An object with ``__arrow_c_array__`` only, to pass one export to a library."""

    column: ArrowColumn

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.column.capsules()


@dataclass(frozen=True, slots=True)
class CapsuleStream:
    """An object with ``__arrow_c_stream__`` only, to pass one export to a library."""

    capsule: Capsule

    def __arrow_c_stream__(self, requested_schema: Capsule = None) -> Capsule:
        return self.capsule


def _schema_node(node: tuple[Any, ...]) -> SchemaNode:
    text, name, is_nullable, metadata, children, dictionary = node
    return SchemaNode(
        text,
        name,
        is_nullable,
        metadata,
        tuple(map(_schema_node, children)),
        None if dictionary is None else _schema_node(dictionary),
    )


def struct_column(name: str, children: Sequence[ArrowColumn], length: int) -> ArrowColumn:
    """Return columns as a struct without nulls: Arrow's form of a record batch."""
    return ArrowColumn(
        SchemaNode("+s", name, is_nullable=False, children=tuple(c.schema for c in children)),
        ArrayNode(length, 0, (None,), tuple(c.array for c in children)),
    )


def validity(is_null: Any) -> tuple[Any, int]:
    """Return validity bitmap and number of nulls for a bool array; no bitmap without nulls."""
    if is_null is None:
        return None, 0
    contiguous: Any = np.ascontiguousarray(is_null)
    bits, valid = columns.pack_bits(contiguous, True)
    nulls = len(is_null) - valid
    return (bits if nulls else None), nulls


def requested_format(requested_schema: Capsule) -> str | None:
    """Return the format that an Arrow consumer requests for one column."""
    return None if requested_schema is None else SchemaNode.read(requested_schema).format


def requested_columns(requested_schema: Capsule) -> dict[str, str]:
    """Return the formats that an Arrow consumer requests for a table's columns, by name."""
    if requested_schema is None:
        return {}
    return {field.name: field.format for field in SchemaNode.read(requested_schema).children}


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
    arrays = list(chunks)
    types = set(map(type, chain.from_iterable(arrays))) - {type(None)}
    kind = _SIMPLE.get(frozenset(types))
    if kind == "i8" and not all(
        -(2**63) <= value < 2**63 for array in arrays for value in array if value is not None
    ):
        kind = None
    if kind is not None:
        return ObjectPlan(kind)
    pa = optional_package("pyarrow", f"exporting Python objects of column {name!r} to Arrow")
    try:
        return ObjectPlan("pyarrow", pa.infer_type(list(chain.from_iterable(arrays))))
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


AnyArray = NDArray[Any]

_NUMBERS: Final = {
    "i1": "c", "i2": "s", "i4": "i", "i8": "l",
    "u1": "C", "u2": "S", "u4": "I", "u8": "L",
    "f2": "e", "f4": "f", "f8": "g",
}  # fmt: skip
_TIMESTAMPS: Final = {"s": "tss:", "ms": "tsm:", "us": "tsu:", "ns": "tsn:"}
_SHORT_TIMES: Final = frozenset({"tts", "ttm"})
_DURATIONS: Final = {"s": "tDs", "ms": "tDm", "us": "tDu", "ns": "tDn"}


def array_column(name: str, values: AnyArray) -> ArrowColumn:
    """Return an array of shape (n,) and any dtype but ``object`` as an Arrow column.

    Raises TypeError if the dtype has no Arrow form.
    """
    data, is_null = split_mask(values)
    return _column(name, data, is_null)


def flattened_columns(
    column: str, values: AnyArray, taken: set[str], *, nested: bool
) -> Iterator[ArrowColumn]:
    """Yield the fields of a structured array as columns of a table, null where the structure is.

    With ``nested`` those of fields that are structures take their place, named ``a.b``; see
    `free_name` for the names.
    """
    data, is_null = split_mask(values)
    for name, field in _fields(data, nested=nested):
        yield _column(free_name(name, column, taken), field, is_null)


def free_name(member: str, column: str, taken: set[str]) -> str:
    """Return the name that a member of a column has in a table, and add it to ``taken``.

    One that is there already becomes ``column.member``.
    """
    while member in taken:
        member = f"{column}.{member}"
    taken.add(member)
    return member


def _fields(data: AnyArray, *, nested: bool) -> Iterator[tuple[str, AnyArray]]:
    for name in data.dtype.names or ():
        field = data[name]
        if nested and field.dtype.names and field.ndim == 1:
            for inner, values in _fields(field, nested=True):
                yield f"{name}.{inner}", values
        else:
            yield name, field


def constant_column(name: str, value: str, count: int, arrow_format: str = "u") -> ArrowColumn:
    """Return one text repeated ``count`` times as ``utf8``, or past 2 GiB as ``large_utf8``.

    ``arrow_format`` is ``u`` or ``U``.
    """
    raw = value.encode()
    is_wide = arrow_format == "U" or len(raw) * count > INT32_MAX
    offsets, payload = columns.repeat_value(raw, count, is_wide)
    return ArrowColumn(
        SchemaNode("U" if is_wide else "u", name, is_nullable=False),
        ArrayNode(count, 0, (None, offsets, payload)),
    )


def dictionary_of(values: Sequence[str]) -> ArrowColumn:
    """Return texts, less than 2 GiB, as the dictionary of a `coded_column`."""
    raw = [value.encode() for value in values]
    offsets = np.array([0, *accumulate(map(len, raw))], np.int32)
    return ArrowColumn(SchemaNode("u", ""), ArrayNode(len(raw), 0, (None, offsets, b"".join(raw))))


def coded_column(
    name: str, dictionary: ArrowColumn, code: int | NDArray[np.int32], count: int
) -> ArrowColumn:
    """Return texts of a dictionary, or one ``count`` times, as indices into it."""
    if isinstance(code, int):
        codes = np.zeros(count, np.int32)
        if code:
            codes.fill(code)
    else:
        codes = code
    return ArrowColumn(
        SchemaNode("i", name, False, None, (), dictionary.schema),
        ArrayNode(count, 0, (None, codes), (), dictionary.array),
    )


def integer_column(name: str, values: AnyArray) -> ArrowColumn:
    """Return a native integer array as a field that is not nullable."""
    data = np.ascontiguousarray(values)
    schema = SchemaNode(_NUMBERS[data.dtype.str[1:]], name, is_nullable=False)
    return ArrowColumn(schema, ArrayNode(len(data), 0, (None, data)))


def timestamp_column(name: str, values: NDArray[np.int64], is_null: Any) -> ArrowColumn:
    """Return milliseconds since 1970 as ``timestamp[ms, UTC]`` without a copy."""
    bits, nulls = validity(is_null)
    data = np.ascontiguousarray(values)
    return ArrowColumn(SchemaNode("tsm:UTC", name), ArrayNode(len(data), nulls, (bits, data)))


def text_column(name: str, values: list[str | None]) -> ArrowColumn:
    """Return Python strings as a ``utf8`` (past 2 GiB ``large_utf8``) column."""
    encoded = [None if text is None else text.encode("utf-8", "replace") for text in values]
    return bytes_column(name, encoded, ("u", "U"))


def bytes_column(
    name: str, values: list[bytes | None], formats: tuple[str, str] = ("z", "Z")
) -> ArrowColumn:
    """Return Python byte strings as a ``binary`` (past 2 GiB ``large_binary``) column."""
    sizes = np.fromiter((len(v) if v is not None else 0 for v in values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    is_wide = bool(offsets[-1] > INT32_MAX)
    is_null = np.fromiter((v is None for v in values), np.bool_, len(values))
    bits, nulls = validity(is_null)
    payload = b"".join(v for v in values if v)
    return ArrowColumn(
        SchemaNode(formats[is_wide], name),
        ArrayNode(
            len(values),
            nulls,
            (bits, offsets if is_wide else offsets.astype(np.int32), payload),
        ),
    )


def split_mask(values: AnyArray) -> tuple[AnyArray, NDArray[np.bool_] | None]:
    """Separate data and null mask; a structure counts as null when all its fields are masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values, None
    mask: AnyArray = np.ma.getmaskarray(values)
    while mask.dtype.names:
        mask = mask[mask.dtype.names[0]]
    return values.data, mask.reshape(len(values), -1)[:, 0] if len(values) else mask


def _column(name: str, data: AnyArray, is_null: NDArray[np.bool_] | None) -> ArrowColumn:
    if data.ndim > 1:
        return _fixed_list(name, data, is_null)
    if data.dtype.names:
        return _structure(name, data, is_null)
    kind = data.dtype.kind
    if kind in "Mm":
        return _times(name, data, is_null)
    if kind == "U":
        texts = data.tolist()
        if is_null is not None:
            texts = [None if null else text for text, null in zip(texts, is_null, strict=True)]
        return text_column(name, texts)
    if kind == "c":
        real = np.dtype(f"f{data.dtype.itemsize // 2}")
        pairs = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
        return _fixed_list(name, pairs.view(real).reshape(len(data), 2), is_null)
    bits, nulls = validity(is_null)
    if kind in "bSV" and data.dtype.itemsize:
        raw: Any = np.ascontiguousarray(data).view(np.uint8)
        if kind == "b":
            raw, _ = columns.pack_bits(raw)
        code = "b" if kind == "b" else f"w:{data.dtype.itemsize}"
        return ArrowColumn(SchemaNode(code, name), ArrayNode(len(data), nulls, (bits, raw)))
    if kind == "f" and data.dtype.itemsize > 8:
        data = data.astype(np.float64)
    native = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
    number = _NUMBERS.get(native.dtype.str[1:])
    if number is None:
        raise TypeError(f'column "{name}": NumPy type {data.dtype} has no Arrow form')
    return ArrowColumn(SchemaNode(number, name), ArrayNode(len(data), nulls, (bits, native)))


def _structure(name: str, data: AnyArray, is_null: NDArray[np.bool_] | None) -> ArrowColumn:
    bits, nulls = validity(is_null)
    fields = [_column(field, data[field], None) for field in data.dtype.names or ()]
    return ArrowColumn(
        SchemaNode("+s", name, children=tuple(field.schema for field in fields)),
        ArrayNode(len(data), nulls, (bits,), tuple(field.array for field in fields)),
    )


def _fixed_list(name: str, data: AnyArray, is_null: NDArray[np.bool_] | None) -> ArrowColumn:
    """One list of constant length per row, for subarrays; nested for more dimensions."""
    size = data.shape[1]
    item = _column("item", data.reshape((len(data) * size, *data.shape[2:])), None)
    bits, nulls = validity(is_null)
    return ArrowColumn(
        SchemaNode(f"+w:{size}", name, children=(item.schema,)),
        ArrayNode(len(data), nulls, (bits,), (item.array,)),
    )


def _times(name: str, data: AnyArray, is_null: NDArray[np.bool_] | None) -> ArrowColumn:
    kind = data.dtype.kind
    unit, step = np.datetime_data(data.dtype)
    formats = _TIMESTAMPS if kind == "M" else _DURATIONS
    not_a_time = np.isnat(data)
    bits, nulls = validity(not_a_time if is_null is None else is_null | not_a_time)
    if kind == "M" and unit == "D":
        days = data.astype("M8[D]").astype(np.int64).astype(np.int32)
        return ArrowColumn(SchemaNode("tdD", name), ArrayNode(len(data), nulls, (bits, days)))
    if unit not in formats:
        unit = "s"
        step = 0
    if step != 1 or not data.dtype.isnative:
        data = data.astype(f"{kind}8[{unit}]")
    # Times of day, and timestamps that are UTC, say so in the metadata of their dtype.
    metadata: Any = data.dtype.metadata or {}
    arrow_format: str = metadata.get("arrow", formats[unit])
    native: AnyArray = np.ascontiguousarray(data).view(np.int64)
    if arrow_format in _SHORT_TIMES:
        native = native.astype(np.int32)
    return ArrowColumn(SchemaNode(arrow_format, name), ArrayNode(len(data), nulls, (bits, native)))
