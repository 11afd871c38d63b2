"""``Schema``: the schema of typed columns as users see it."""

from __future__ import annotations

from typing import Any, Final

from kfast.schemas.arrow_schema import schema_capsule
from kfast.schemas.mapping import read_schema
from kfast.schemas.types import DataType, Kind, SchemaField

_WIDTH: Final = 100
_INDENT: Final = "    "


class Schema:
    """The schema of typed columns: what documents become.

    Parameters
    ----------
    given : dict, list, str, Field, Arrow schema, class or Schema
        Any form in which a deserializer takes a schema.

    Raises
    ------
    ConfigurationError
        It is none, or has a type that columns cannot have; the message has the path.

    Notes
    -----
    Immutable. ``repr`` is a dict to paste into a program; the same schema comes of it again.
    Compared by types, names, nullability, sources, encodings and defaults, in order.
    ``pyarrow.schema(x)``, ``polars.Schema(x)`` and others take it as an Arrow schema
    (``__arrow_c_schema__``); one of a single type is a field there.

    Examples
    --------
    >>> kfast.Schema("id bigint, price double")
    {'id': 'int64', 'price': 'float64'}
    """

    __slots__ = ("_root",)

    def __init__(self, given: object) -> None:
        self._root: SchemaField = given.root if isinstance(given, Schema) else read_schema(given)

    @property
    def root(self) -> SchemaField:
        """The root of the tree of types."""
        return self._root

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns; none if documents are no structs."""
        is_struct = self._root.type.kind is Kind.STRUCT
        return tuple(f.name for f in self._root.type.fields) if is_struct else ()

    def __eq__(self, other: object) -> bool:
        return self._root == other._root if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self._root.type))

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self._root,)

    def __repr__(self) -> str:
        return _text(self._root, "", 0)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an ``arrow_schema`` PyCapsule."""
        return schema_capsule(self._root)


def _text(field: SchemaField, indent: str, before: int) -> str:
    """Return the Python expression of a field; ``before`` characters stand in front of it."""
    details = {
        "source": _shown_source(field),
        "required": (not field.is_nullable) or None,
        "default": field.default,
        "encoding": field.encoding or None,
    }
    needs = {name: value for name, value in details.items() if value is not None}
    is_text = _is_text(field.type)
    if is_text and set(needs) <= {"required"}:
        return repr(field.type_text)
    if not needs:
        return _type_text(field, indent, before)
    inner = repr(str(field.type)) if is_text else _type_text(field, indent, before + 12)
    arguments = ", ".join(f"{name}={value!r}" for name, value in needs.items())
    return f"kfast.Field({inner}, {arguments})"


def _type_text(field: SchemaField, indent: str, before: int) -> str:
    data_type = field.type
    if data_type.kind is Kind.LIST:
        return f"[{_text(data_type.item, indent, before + 1)}]"
    inner = indent + _INDENT
    if data_type.kind is Kind.MAP:
        pairs = [("str", data_type.fields[1])]
    else:
        pairs = [(repr(child.name), child) for child in data_type.fields]
    parts = [f"{key}: {_text(child, inner, len(inner) + len(key) + 2)}" for key, child in pairs]
    line = f"{{{', '.join(parts)}}}"
    if before + len(line) <= _WIDTH and "\n" not in line:
        return line
    return "".join(["{\n", *(f"{inner}{entry},\n" for entry in parts), indent, "}"])


def _is_text(data_type: DataType) -> bool:
    """Return whether a type is written as its name: it has nothing that only a dict can say."""
    kind = data_type.kind
    if kind is Kind.STRUCT or (kind is Kind.LIST and not data_type.is_large):
        return False
    if kind is Kind.MAP:
        return _is_text(data_type.fields[1].type) and not _has_details(data_type.fields[1])
    return True


def _has_details(field: SchemaField) -> bool:
    return bool(field.source or field.encoding or field.default is not None)


def _shown_source(field: SchemaField) -> object:
    if not field.source:
        return None
    is_path = all(step and "." not in step for step in field.source)
    return ".".join(field.source) if is_path else field.source
