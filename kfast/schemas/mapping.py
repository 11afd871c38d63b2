"""Schemas as users write them: from any accepted form to the tree of types.

============================  ====================================================================
form                          becomes
============================  ====================================================================
``{"a": type, ...}``          a struct; ``{str: type}`` is a map
``[type]``                    a list
``"int64"``                   the type of that name (``names``)
``"a BIGINT, b STRING"``      a struct, as Spark writes it (``ddl``); only as the whole schema
``Field(type, ...)``          the type, with what else a column can have
``__arrow_c_schema__``        what the Arrow schema says (``arrow_schema``)
a class                       a struct of its annotations (``python_classes``)
============================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfast.errors import ConfigurationError
from kfast.schemas.arrow_schema import field_of_arrow
from kfast.schemas.ddl import check_not_ddl, field_of_ddl, is_ddl
from kfast.schemas.field import Field, checked_field, source_steps
from kfast.schemas.names import field_of_text, list_type, map_type, struct_type
from kfast.schemas.python_classes import field_of_class, is_schema_class
from kfast.schemas.refusals import check_nesting, refusal
from kfast.schemas.types import SchemaField

_FORMS = (
    "give a dict of names and types, a type's name, Spark's DDL, an Arrow schema, a dataclass, "
    "TypedDict, NamedTuple or msgspec.Struct"
)


def read_schema(given: object) -> SchemaField:
    """Return the root of the tree that a schema in any accepted form describes.

    Raises
    ------
    ConfigurationError
        It is none, or has a type that columns cannot have; the message has the path.
    """
    if isinstance(given, SchemaField):
        return given
    if isinstance(given, str):
        if not given.strip():
            raise refusal("", "the schema is empty", _FORMS)
        root = field_of_ddl(given) if is_ddl(given) else field_of_text(given)
    else:
        root = _field(given, "", 0)
    if root.source:
        raise refusal("", "the root of documents has no source", "give it to the fields")
    # An Arrow schema does not say whether a whole row may be null, and some libraries set the flag.
    is_arrow = hasattr(given, "__arrow_c_schema__") and not isinstance(given, type)
    return replace(root, name="", is_nullable=root.is_nullable or is_arrow)


def _field(given: Any, path: str, depth: int) -> SchemaField:
    """Return a field without a name."""
    check_nesting(path, depth)
    if isinstance(given, str):
        check_not_ddl(given, path)
        return field_of_text(given, path, depth)
    if isinstance(given, Field):
        return _with_details(given, path, depth)
    if hasattr(given, "__arrow_c_schema__") and not isinstance(given, type):
        return field_of_arrow(given, path, depth)
    if isinstance(given, Mapping):  # after Arrow schemas: polars' are mappings too
        return SchemaField("", _struct_or_map(given, path, depth))
    if isinstance(given, list):
        if len(given) != 1:
            raise refusal(
                path,
                f"a list has one type, not {len(given)}",
                'write ["int32"] or [{"a": "int32"}]',
            )
        return SchemaField("", list_type(_field(given[0], f"{path}[]", depth + 1)))
    if is_schema_class(given):
        return field_of_class(given, path, depth)
    raise _no_schema(given, path)


def _with_details(given: Field, path: str, depth: int) -> SchemaField:
    inner = _field(given.type, path, depth)
    if given.encoding is not None and not isinstance(given.encoding, str):
        raise refusal(path, f"encoding is a name, not {given.encoding!r}")
    return checked_field(
        replace(
            inner,
            is_nullable=inner.is_nullable and not given.required,
            default=inner.default if given.default is None else given.default,
            source=source_steps(given.source, path) or inner.source,
            encoding=given.encoding or inner.encoding,
        ),
        path,
    )


def _struct_or_map(given: Mapping[Any, Any], path: str, depth: int) -> Any:
    if list(given) == [str]:
        value = _field(given[str], f"{path}{{value}}", depth + 1)
        return map_type(field_of_text("string").type, value, path)
    fields = []
    for name, each in given.items():
        if not isinstance(name, str):
            raise refusal(path, f"names of fields are strings, not {name!r}")
        inner = f"{path}.{name}" if path else name
        fields.append(_field(each, inner, depth + 1).renamed(name))
    return struct_type(fields, path)


def _no_schema(given: object, path: str) -> ConfigurationError:
    if isinstance(given, type):
        names = {int: "int64", float: "float64", bytes: "binary", str: "string", bool: "bool"}
        known = names.get(given)
        hint = f'write "{known}"' if known else _FORMS
        return refusal(path, f"the class {given.__name__} is no type of columns", hint)
    return refusal(path, f"{given!r} is no schema", _FORMS)
