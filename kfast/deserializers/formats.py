"""From the name of a format, and what is given with it, to its deserializer.

The command line, the ingests and Spark make theirs here, so that a name and its arguments mean the
same in all of them; each passes the spelling that its users know. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.spans import ColumnOrigin
from kfast.deserializers.deserializer import Deserializer
from kfast.deserializers.numbers import Float32, Float64, Int32, Int64
from kfast.deserializers.struct import Struct
from kfast.deserializers.text import Utf8
from kfast.deserializers.uuid import Uuid
from kfast.errors import ConfigurationError
from kfast.schemas.formats import BYTES, STRUCT, format_named

if TYPE_CHECKING:
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.registry.registered_schema import SchemaSource
    from kfast.schemas.types import SchemaField

Spelling = Callable[[str], str]
"""From the name of an argument here to what a user has to give."""

_PLAIN: Final[Mapping[str, Callable[[], Deserializer]]] = {
    "text": Utf8,
    "int32": Int32,
    "int64": Int64,
    "float32": Float32,
    "float64": Float64,
    "uuid": Uuid,
}
_UNFRAMED: Final = frozenset({"none", "avro-single-object"})


def deserializer_of(
    kind: str,
    *,
    column: str,
    schema: object = None,
    registry: SchemaSource | None = None,
    framing: str | None = None,
    message: str | None = None,
    descriptor_set: bytes | str | None = None,
    imports: Mapping[str, str | bytes] | None = None,
    options: Mapping[str, Any] | None = None,
    spelled: Spelling | None = None,
) -> Deserializer | None:
    """Return the deserializer of a format; None for bytes, which are left as they are.

    Parameters
    ----------
    kind : str
        A name of ``kfast.schemas.formats``.
    column : str
        ``"key"`` or ``"value"``, for messages.
    schema : object, optional
        Of JSON anything that ``Json`` takes; of Avro the writer's schema where values name none,
        else the reader's; of a struct its dtype.
    registry : SchemaSource, optional
        Where the schemas are that values name.
    framing : str, optional
        Default: ``confluent`` with a registry, else ``none``.
    message, descriptor_set : str, bytes or str, optional
        Of Protobuf: a FileDescriptorSet, or ``.proto`` text.
    imports : mapping, optional
        Of Protobuf: the files that the text imports, by name.
    options : mapping, optional
        Further arguments of the deserializer.
    spelled : callable, optional
        How the caller's users give an argument; default ``value_schema`` for ``schema``, and so on.

    Raises
    ------
    ConfigurationError
        An unknown name, with the nearest one; something missing, or that the format does not take.
    """
    spell = spelled or (lambda name: name if name == "registry" else f"{column}_{name}")
    row = format_named(kind, column)
    arguments = {
        "schema": schema,
        "registry": registry,
        "framing": framing,
        "message": message,
        "descriptor_set": descriptor_set,
        "imports": imports,
    }
    arguments = {name: value for name, value in arguments.items() if value is not None}
    more = dict(options or {})
    for name in arguments:
        if name not in row.arguments:
            taken = ", ".join(map(spell, row.arguments))
            raise ConfigurationError(
                f"{spell(name)} is not for {column}s of the format {row.name}",
                hint=f"it takes {taken}" if taken else "leave it out",
            )
    row.check_options(more, spell("options"))
    if row.name == BYTES:
        return None
    if row.name in _PLAIN:
        return _PLAIN[row.name]()
    try:
        return _MAKERS[row.name](arguments, more, spell)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{column}: {error.message}", cause=error.cause, found=error.found, hint=error.hint
        ) from error


def _struct(arguments: dict[str, Any], _options: dict[str, Any], spell: Spelling) -> Deserializer:
    _need(arguments, "schema", STRUCT, spell)
    return Struct(arguments["schema"])


def _json(arguments: dict[str, Any], options: dict[str, Any], spell: Spelling) -> Deserializer:
    from kfast.deserializers.json import Json  # noqa: PLC0415 - not for other formats

    _need(arguments, "schema", "json", spell)
    return Json(arguments["schema"], framing=_framing(arguments), **options)


def _avro(arguments: dict[str, Any], options: dict[str, Any], spell: Spelling) -> Deserializer:
    from kfast.deserializers.avro import Avro  # noqa: PLC0415 - not for other formats

    framing, schema = _framing(arguments), arguments.get("schema")
    registry = arguments.get("registry")
    if framing in _UNFRAMED:
        if schema is None:
            raise ConfigurationError(
                "avro needs the writer's schema where values do not name it",
                hint=f"{spell('schema')}, or {spell('registry')} for values with a schema id",
            )
        return Avro(schema, registry=registry, framing=framing, **options)
    _need(arguments, "registry", f"framing {framing}", spell)
    if schema is not None:
        if "reader" in options:
            raise ConfigurationError(
                f"{spell('schema')} and the option reader are both the reader's schema",
                hint="give one of them",
            )
        options["reader"] = schema
    return Avro(registry=registry, framing=framing, **options)


def _protobuf(arguments: dict[str, Any], options: dict[str, Any], spell: Spelling) -> Deserializer:
    from kfast.deserializers.protobuf import Protobuf  # noqa: PLC0415 - not for other formats

    if "descriptor_set" in arguments or "registry" not in arguments:
        _need(arguments, "descriptor_set", "protobuf", spell)
        _need(arguments, "message", "protobuf", spell)
    return Protobuf(**arguments, **options)


_MAKERS: Final[Mapping[str, Callable[[dict[str, Any], dict[str, Any], Spelling], Deserializer]]] = {
    STRUCT: _struct,
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}


def _need(arguments: Mapping[str, Any], name: str, subject: str, spell: Spelling) -> None:
    if name not in arguments:
        raise ConfigurationError(f"{subject} needs a {name.replace('_', ' ')}", hint=spell(name))


def _framing(arguments: Mapping[str, Any]) -> str:
    default = "none" if arguments.get("registry") is None else "confluent"
    return str(arguments.get("framing", default))


# --- the schema of a column before any record of it -----------------------------------------------


def no_values(topic: str, column: str) -> BytesColumn:
    """Return keys or values of a topic without any row, of which schemas can be asked for."""
    none32, none64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
    return BytesColumn(b"", none32, none32, origin=ColumnOrigin(topic, -1, column, none64))


def known_root(
    deserializer: TypedDeserializer, topic: str, column: str, *, waits: bool = True
) -> SchemaField | None:
    """Return the root of the columns that keys or values of a topic become.

    A version of a subject is looked up in the registry, unless the deserializer has the answer and
    this ``waits`` for none. None if that depends on the records.

    Raises
    ------
    SchemaRegistryError
        The registry cannot be reached, or refuses.
    ConfigurationError
        The registry has no such schema.
    """
    nothing = no_values(topic, column)
    if waits:
        deserializer.wait_for_schemas(nothing, None)
    decoded = deserializer.deserialize_column(nothing, None, stop_at_first=True)
    if deserializer.root is None or decoded.node is None:
        return None
    return decoded.node.field
