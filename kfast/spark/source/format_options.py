"""The options of formats: how keys and values are decoded, and the schema registry.

Owns the rules between them. ``valueFormat`` and its neighbours have counterparts that begin with
``key``. Names of formats are those of ``kfast.schemas.formats``; what follows ``schemaRegistry.``
are arguments of `SchemaRegistry`, and no value of them is ever in a message. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.schemas.formats import BYTES, FORMATS, STRUCT, ValueFormat
from kfast.spark.source.option_table import LATEST, OPTIONS, REGISTRY_OPTIONS

_JSON: Final = "json"
_ARGUMENTS: Final = {
    source: {
        row.name: row.argument
        for row in OPTIONS.values()
        if row.argument and row.name.startswith(source)
    }
    for source in ("key", "value")
}
"""The options that have arguments of ``deserializer_of``, which are the values."""
_WORD: Final = re.compile(r"[a-z]+_[a-z_]+")


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How keys or values are decoded, as the options say."""

    kind: str = BYTES
    """A name of ``kfast.schemas.formats``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Those of ``deserializer_of`` that are texts, and ``options``; of Protobuf the descriptor set
    as it was given: base64, or a path; and imports, which are folders."""
    subject: str | None = None
    """Whose schema gives the columns, ``<topic>-value`` if None."""
    version: int | None = None
    """None for the latest."""

    @property
    def row(self) -> ValueFormat:
        """The format's row."""
        return FORMATS[self.kind]

    @property
    def takes_registry(self) -> bool:
        """Whether values may name schemas of a registry."""
        return "registry" in self.row.arguments


def format_options(source: str, values: Mapping[str, Any], *, has_registry: bool) -> FormatOptions:
    """Return the options of ``key`` or ``value`` from parsed ones.

    Raises
    ------
    ConfigurationError
        One does not belong to the format, or needs a registry.
    """
    kind = values[f"{source}Format"]
    row = FORMATS[kind]
    arguments: dict[str, Any] = {}
    for option, name in _ARGUMENTS[source].items():
        value = values[option]
        if value is None:
            continue
        if name == "schema" and kind in {_JSON, STRUCT}:
            raise ConfigurationError(
                f"option {option} is not for {source}Format={kind}",
                hint=f'the schema is the type of the column: .schema("{source} struct<id: long>")',
            )
        if name not in ("options", *row.arguments):
            raise ConfigurationError(
                f"option {option} is not for {source}Format={kind}", hint="leave it out"
            )
        if name == "options":
            if "columns" in value and "columns" in row.options:
                raise ConfigurationError(
                    f"option {option}: columns are those of the query's schema",
                    hint='.schema("value struct<id: long>")',
                )
            row.check_options(value, f"option {option}")
        arguments[name] = value
    subject, version = values[f"{source}Subject"], values[f"{source}Version"]
    for option, value in (("Subject", subject), ("Version", version)):
        if value is None:
            continue
        if not has_registry or kind == _JSON or not row.is_typed:
            raise ConfigurationError(
                f"option {source}{option} is for schemas of a registry",
                hint=f"set {source}Format=avro or protobuf, and schemaRegistry.url",
            )
        if "schema" in arguments:
            raise ConfigurationError(
                f"{source}Schema and {source}{option} both say which columns there are",
                hint="give one of them",
            )
    return FormatOptions(kind, arguments, subject, None if version == LATEST else version)


def registry_arguments(texts: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of `SchemaRegistry` from what follows ``schemaRegistry.``.

    Raises
    ------
    ConfigurationError
        A name is unknown, or a value cannot be used; it is not shown.
    """
    arguments: dict[str, object] = {}
    for name, value in texts.items():
        if name not in REGISTRY_OPTIONS:
            near = did_you_mean(name, REGISTRY_OPTIONS)
            asked = f"; did you mean schemaRegistry.{near}?" if near else ""
            raise ConfigurationError(
                f"unknown option schemaRegistry.{name}{asked}",
                hint=f"use schemaRegistry.{near}" if near else f"use {', '.join(REGISTRY_OPTIONS)}",
            )
        argument, parse = REGISTRY_OPTIONS[name]
        try:
            arguments[argument] = parse(value)
        except ValueError as error:
            raise ConfigurationError(
                f"option schemaRegistry.{name}: not understood", hint=str(error)
            ) from None
    if not arguments:
        return arguments
    if "url" not in arguments:
        raise ConfigurationError(
            "option schemaRegistry.url is missing",
            hint='.option("schemaRegistry.url", "http://host:8081")',
        )
    from kfast.registry.schema_registry import SchemaRegistry  # noqa: PLC0415 - seldom needed

    try:
        SchemaRegistry(**arguments)  # type: ignore[arg-type]  # it checks them
    except ConfigurationError as error:
        names = {argument: name for name, (argument, _) in REGISTRY_OPTIONS.items()}
        message = _WORD.sub(
            lambda word: f"schemaRegistry.{names[word[0]]}" if word[0] in names else word[0],
            error.message,
        )
        raise ConfigurationError(
            f"option schemaRegistry.*: {message}", cause=error.cause, hint=error.hint
        ) from None
    return arguments
