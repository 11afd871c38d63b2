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


def read_schema(schema: object) -> SchemaField:
    """Return the root of the tree that a schema in any accepted form describes.

    Raises
    ------
    ConfigurationError
        It is none, or has a type that columns cannot have; the message has the path.
    """
    if isinstance(schema, SchemaField):
        return schema
    if isinstance(schema, str):
        if not schema.strip():
            raise refusal("", "the schema is empty", _FORMS)
        root = field_of_ddl(schema) if is_ddl(schema) else field_of_text(schema)
    else:
        root = _field(schema, "", 0)
    if root.source:
        raise refusal("", "the root of documents has no source", "give it to the fields")
    # An Arrow schema does not say whether a whole row may be null, and some libraries set the flag.
    is_arrow = hasattr(schema, "__arrow_c_schema__") and not isinstance(schema, type)
    return replace(root, name="", is_nullable=root.is_nullable or is_arrow)


def _field(schema: Any, path: str, depth: int) -> SchemaField:
    """Return a field without a name."""
    check_nesting(path, depth)
    if isinstance(schema, str):
        check_not_ddl(schema, path)
        return field_of_text(schema, path, depth)
    if isinstance(schema, Field):
        return _with_details(schema, path, depth)
    if hasattr(schema, "__arrow_c_schema__") and not isinstance(schema, type):
        return field_of_arrow(schema, path, depth)
    if isinstance(schema, Mapping):  # after Arrow schemas: polars' are mappings too
        return SchemaField("", _struct_or_map(schema, path, depth))
    if isinstance(schema, list):
        if len(schema) != 1:
            raise refusal(
                path,
                f"a list has one type, not {len(schema)}",
                'write ["int32"] or [{"a": "int32"}]',
            )
        return SchemaField("", list_type(_field(schema[0], f"{path}[]", depth + 1)))
    if is_schema_class(schema):
        return field_of_class(schema, path, depth)
    raise _no_schema(schema, path)


def _with_details(field: Field, path: str, depth: int) -> SchemaField:
    inner = _field(field.type, path, depth)
    if field.encoding is not None and not isinstance(field.encoding, str):
        raise refusal(path, f"encoding is a name, not {field.encoding!r}")
    return checked_field(
        replace(
            inner,
            is_nullable=inner.is_nullable and not field.required,
            default=inner.default if field.default is None else field.default,
            source=source_steps(field.source, path) or inner.source,
            encoding=field.encoding or inner.encoding,
        ),
        path,
    )


def _struct_or_map(schema: Mapping[Any, Any], path: str, depth: int) -> Any:
    if list(schema) == [str]:
        value = _field(schema[str], f"{path}{{value}}", depth + 1)
        return map_type(field_of_text("string").type, value, path)
    fields = []
    for name, member in schema.items():
        if not isinstance(name, str):
            raise refusal(path, f"names of fields are strings, not {name!r}")
        inner = f"{path}.{name}" if path else name
        fields.append(_field(member, inner, depth + 1).renamed(name))
    return struct_type(fields, path)


def _no_schema(schema: object, path: str) -> ConfigurationError:
    if isinstance(schema, type):
        names = {int: "int64", float: "float64", bytes: "binary", str: "string", bool: "bool"}
        name = names.get(schema)
        hint = f'write "{name}"' if name else _FORMS
        return refusal(path, f"the class {schema.__name__} is no type of columns", hint)
    return refusal(path, f"{schema!r} is no schema", _FORMS)
