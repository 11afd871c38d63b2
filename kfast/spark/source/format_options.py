"""The options of formats: how keys and values are decoded, and the schema registry.

Owns their names and the rules between them. ``valueFormat`` and its neighbours have counterparts
that begin with ``key``. Names of formats are those of ``kfast.schemas.formats``; what follows
``schemaRegistry.`` are arguments of `SchemaRegistry`, and no value of them is ever in a message.
Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.schemas.formats import BYTES, FORMATS, STRUCT, ValueFormat, format_named
from kfast.settings.names import REGISTRY_ARGUMENTS
from kfast.spark.source.option_kinds import Parser, anything, boolean, text, whole_number

LATEST: Final = "latest"
_JSON: Final = "json"
_ARGUMENTS: Final = {
    "schema": "Schema",
    "message": "Message",
    "descriptor_set": "DescriptorSet",
    "imports": "Imports",
    "framing": "Framing",
    "options": "Options",
}
"""Arguments of ``deserializer_of``, and the ends of the options that have them."""

_WORD: Final = re.compile(r"[a-z]+_[a-z_]+")
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
_REGISTRY: Final[Mapping[str, tuple[str, Parser]]] = {
    "url": ("url", text),
    "ssl.truststore.location": ("ssl_cafile", text),
    "ssl.keystore.location": ("ssl_certfile", text),
    **{name.replace("_", "."): (each, text) for name, each in REGISTRY_ARGUMENTS.items()},
    "ssl.key.password": ("ssl_key_password", anything),
    _ALGORITHM: ("ssl_check_hostname", lambda value: value.strip().lower() not in ("", "none")),
    "ssl.check.hostname": ("ssl_check_hostname", boolean),
    "timeout.ms": ("timeout_ms", whole_number(1)),
    "deadline.ms": ("deadline_ms", whole_number(1)),
}
"""What may follow ``schemaRegistry.``: names of Confluent's clients, and the argument of each."""


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


BYTES_AS_THEY_ARE: Final = FormatOptions()


def column_options(source: str) -> tuple[tuple[str, Parser, object, str], ...]:
    """Return name, parser, default and meaning of the options of ``key`` or ``value``."""
    return (
        (f"{source}Format", _format_name, BYTES, f"how {source}s are decoded"),
        (f"{source}Schema", text, None, "Avro: the writer's schema, with schema ids the reader's"),
        (f"{source}Message", text, None, "Protobuf: name of the message"),
        (
            f"{source}DescriptorSet",
            text,
            None,
            "Protobuf: base64 of descriptors, or a file",
        ),
        (
            f"{source}Imports",
            text,
            None,
            "Protobuf: folders of files that a .proto file imports, with commas between",
        ),
        (f"{source}Framing", text, None, "what stands in front of a value"),
        (f"{source}Subject", text, None, "subject of the registry that has the columns' schema"),
        (f"{source}Version", _version, None, "its version: a number, or latest"),
        (f"{source}Options", _object, None, "further arguments of the deserializer, a JSON object"),
    )


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
    for name, ending in _ARGUMENTS.items():
        option, value = f"{source}{ending}", values[f"{source}{ending}"]
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


def registry_arguments(given: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of `SchemaRegistry` from what follows ``schemaRegistry.``.

    Raises
    ------
    ConfigurationError
        A name is unknown, or a value cannot be used; it is not shown.
    """
    made: dict[str, object] = {}
    for name, value in given.items():
        if name not in _REGISTRY:
            near = did_you_mean(name, _REGISTRY)
            asked = f"; did you mean schemaRegistry.{near}?" if near else ""
            raise ConfigurationError(
                f"unknown option schemaRegistry.{name}{asked}",
                hint=f"use schemaRegistry.{near}" if near else f"use {', '.join(_REGISTRY)}",
            )
        argument, parse = _REGISTRY[name]
        try:
            made[argument] = parse(value)
        except ValueError as error:
            raise ConfigurationError(
                f"option schemaRegistry.{name}: not understood", hint=str(error)
            ) from None
    if not made:
        return made
    if "url" not in made:
        raise ConfigurationError(
            "option schemaRegistry.url is missing",
            hint='.option("schemaRegistry.url", "http://host:8081")',
        )
    from kfast.registry.schema_registry import SchemaRegistry  # noqa: PLC0415 - seldom needed

    try:
        SchemaRegistry(**made)  # type: ignore[arg-type]  # it checks them
    except ConfigurationError as error:
        names = {argument: name for name, (argument, _) in _REGISTRY.items()}
        message = _WORD.sub(
            lambda word: f"schemaRegistry.{names[word[0]]}" if word[0] in names else word[0],
            error.message,
        )
        raise ConfigurationError(
            f"option schemaRegistry.*: {message}", cause=error.cause, hint=error.hint
        ) from None
    return made


# --- values ---------------------------------------------------------------------------------------


def _format_name(value: str) -> str:
    try:
        return format_named(value.strip().lower(), "").name
    except ConfigurationError as error:
        near = did_you_mean(value.strip().lower(), FORMATS)
        raise ValueError(f"did you mean {near}?" if near else str(error.hint)) from None


def _version(value: str) -> int | str:
    return LATEST if value.strip().lower() == LATEST else whole_number(1)(value)


def _object(value: str) -> dict[str, Any]:
    try:
        made = json.loads(value)
    except ValueError:
        made = None
    if not isinstance(made, dict):
        raise ValueError('a JSON object such as {"coerce": ["number_text"]}')
    return made
