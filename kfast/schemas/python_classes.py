"""Python classes as schemas: dataclass, TypedDict, NamedTuple and msgspec.Struct.

A field is required unless its type has ``| None`` (or it may be absent from a TypedDict); a
constant default is the default. msgspec is not imported: its classes are known by their attributes,
and what it renames is read under the new name.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kfast.errors import ConfigurationError
from kfast.schemas.field import Field, checked_field, source_steps
from kfast.schemas.names import field_of_text, list_type, map_type, struct_type
from kfast.schemas.refusals import check_nesting, refusal
from kfast.schemas.types import DataType, Kind, SchemaField

_SCALARS: Final[Mapping[Any, DataType]] = {
    int: DataType(Kind.INT64),
    float: DataType(Kind.FLOAT64),
    str: DataType(Kind.STRING),
    bytes: DataType(Kind.BINARY),
    bool: DataType(Kind.BOOL),
    datetime.datetime: DataType(Kind.TIMESTAMP, unit="us", is_utc=True),
    datetime.date: DataType(Kind.DATE32),
    datetime.time: DataType(Kind.TIME64, unit="us"),
    uuid.UUID: DataType(Kind.UUID),
}
_UNION: Final = (typing.Union, types.UnionType)
_ABSENT: Final = ("NoneType", "UnsetType")
_WRAPPERS: Final = (typing.Required, typing.NotRequired)
_READ_ONLY: Final = getattr(typing, "ReadOnly", None)


class Member(NamedTuple):
    """One annotated field of a class; no default is `_NO_DEFAULT`."""

    name: str
    annotation: Any
    default: Any
    source: str | None = None
    may_be_absent: bool = False


_NO_DEFAULT: Final = object()


def is_schema_class(cls: object) -> bool:
    """Return whether a class is one of the four kinds."""
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or hasattr(cls, "__struct_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def field_of_class(cls: Any, path: str, depth: int, inside: tuple[Any, ...] = ()) -> SchemaField:
    """Return the struct without a name that a class describes; ``inside`` are those around it.

    Raises
    ------
    ConfigurationError
        An annotation has no type of columns, or the class contains itself.
    """
    check_nesting(path, depth)
    if cls in inside:
        raise refusal(
            path, f"{cls.__name__} contains itself", 'annotate it as Annotated[object, "raw"]'
        )
    fields = []
    for member in _members(cls, path):
        inner = f"{path}.{member.name}" if path else member.name
        field = _annotated(member.annotation, inner, depth + 1, (*inside, cls))
        if member.source is not None and not field.source:
            field = replace(field, source=(member.source,))
        if member.may_be_absent:
            field = replace(field, is_nullable=True)
        if member.default is not _NO_DEFAULT and member.default is not None:
            field = replace(field, default=_constant(member.default))
        fields.append(checked_field(field, inner).renamed(member.name))
    return SchemaField("", struct_type(fields, path), is_nullable=True)


def _members(cls: Any, path: str) -> Iterator[Member]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:  # annotations are code of the user's
        raise ConfigurationError(
            f"schema: the annotations of {cls.__name__} cannot be read",
            cause=f"{type(error).__name__}: {error}",
            hint="define the classes it names at the top of a module",
        ) from error
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            default = _NO_DEFAULT if field.default is dataclasses.MISSING else field.default
            if field.default_factory is not dataclasses.MISSING:
                default = _made_by(field.default_factory, path, field.name)
            yield Member(field.name, hints[field.name], default)
    elif hasattr(cls, "__struct_fields__"):
        yield from _struct_members(cls, hints, path)
    elif typing.is_typeddict(cls):
        for name, annotation in hints.items():
            # The set of keys does not know what stood in annotations that were text.
            wrapper = typing.get_origin(annotation)
            is_optional = wrapper is typing.NotRequired or (
                wrapper is not typing.Required and name in cls.__optional_keys__
            )
            yield Member(name, annotation, _NO_DEFAULT, None, is_optional)
    else:
        for name in cls._fields:
            default = cls._field_defaults.get(name, _NO_DEFAULT)
            yield Member(name, hints.get(name, Any), default)


def _struct_members(cls: Any, hints: Mapping[str, Any], path: str) -> Iterator[Member]:
    if cls.__struct_config__.array_like:
        raise refusal(path, f"{cls.__name__} is written as an array, not as an object")
    names = cls.__struct_fields__
    defaults: list[Any] = [_NO_DEFAULT] * (len(names) - len(cls.__struct_defaults__))
    for default in cls.__struct_defaults__:
        if type(default).__module__.startswith("msgspec"):
            factory = getattr(default, "factory", None)
            name = names[len(defaults)]
            defaults.append(_made_by(factory, path, name) if factory else _NO_DEFAULT)
        else:
            defaults.append(default)
    encoded = cls.__struct_encode_fields__
    for name, default, key in zip(names, defaults, encoded, strict=True):
        yield Member(name, hints[name], default, key if key != name else None)


def _made_by(factory: Any, path: str, name: str) -> Any:
    if factory in {list, dict}:
        return factory()
    inner = f"{path}.{name}" if path else name
    raise refusal(inner, "the default is made by a function, not a constant", "give a constant")


def _constant(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _annotated(annotation: Any, path: str, depth: int, inside: tuple[Any, ...]) -> SchemaField:
    """Return the field of one annotation, required unless it has ``| None``."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _with_text(annotation, path, depth, inside)
    if origin in _WRAPPERS or (_READ_ONLY is not None and origin is _READ_ONLY):
        return _annotated(arguments[0], path, depth, inside)
    if hasattr(annotation, "__supertype__"):  # NewType
        return _annotated(annotation.__supertype__, path, depth, inside)
    if type(annotation).__name__ == "TypeAliasType":
        return _annotated(annotation.__value__, path, depth, inside)
    if origin in _UNION:
        rest = [
            argument for argument in arguments if getattr(argument, "__name__", "") not in _ABSENT
        ]
        if len(rest) != 1:
            raise refusal(
                path,
                f"a column has one type, not a union of {len(rest)}",
                f'write Annotated[{_text(annotation)}, "raw"]',
            )
        field = _annotated(rest[0], path, depth, inside)
        return replace(field, is_nullable=len(rest) < len(arguments) or field.is_nullable)
    return SchemaField("", _type(annotation, path, depth, inside), is_nullable=False)


def _with_text(annotation: Any, path: str, depth: int, inside: tuple[Any, ...]) -> SchemaField:
    """``Annotated``: a type's name or a Field in it decides the type; the rest is others'."""
    inner, *details = typing.get_args(annotation)
    is_optional = typing.get_origin(inner) in _UNION and any(
        getattr(argument, "__name__", "") in _ABSENT for argument in typing.get_args(inner)
    )
    for detail in details:
        if isinstance(detail, str):
            field = field_of_text(detail, path, depth)
            return replace(field, is_nullable=is_optional)
        if isinstance(detail, Field) and isinstance(detail.type, str):
            field = field_of_text(detail.type, path, depth)
            return replace(
                field,
                is_nullable=is_optional and not detail.required,
                default=detail.default,
                source=source_steps(detail.source, path),
                encoding=detail.encoding or "",
            )
    return _annotated(inner, path, depth, inside)


def _type(annotation: Any, path: str, depth: int, inside: tuple[Any, ...]) -> DataType:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    scalar = _SCALARS.get(annotation) if isinstance(annotation, type) else None
    if scalar is not None:
        return scalar
    if origin is list:
        check_nesting(path, depth)
        return list_type(_annotated(arguments[0], f"{path}[]", depth + 1, inside))
    if origin is dict:
        check_nesting(path, depth)
        key = _annotated(arguments[0], f"{path}{{key}}", depth + 1, inside)
        value = _annotated(arguments[1], f"{path}{{value}}", depth + 1, inside)
        return map_type(key.type, value, path)
    if origin is typing.Literal and all(isinstance(argument, str) for argument in arguments):
        return DataType(Kind.DICTIONARY)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        if all(isinstance(member.value, str) for member in annotation):
            return DataType(Kind.DICTIONARY)
        raise refusal(path, f"{annotation.__name__} is no Enum of strings", _by_name(annotation))
    if annotation is decimal.Decimal:
        raise refusal(
            path,
            "Decimal does not say its precision and scale",
            'write Annotated[Decimal, "decimal128(18, 4)"]',
        )
    if is_schema_class(annotation):
        return field_of_class(annotation, path, depth, inside).type
    raise refusal(path, f"{_text(annotation)} is no type of columns", _by_name(annotation))


def _text(annotation: Any) -> str:
    is_plain = isinstance(annotation, type) and not typing.get_args(annotation)
    return annotation.__name__ if is_plain else str(annotation)


def _by_name(annotation: Any) -> str:
    return f'name the type: Annotated[{_text(annotation)}, "raw"], or "int64", "string", ...'
