"""Formats of keys and values: one table for the command line, the ingests and Spark.

Owns their names, and what each is given besides. The deserializers are made by
``kfast.deserializers.formats``. Pure, and without NumPy: the command line has the names in its
help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError

BYTES: Final = "bytes"
STRUCT: Final = "struct"


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """One row of the table."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names, those of Spark among them."""
    arguments: tuple[str, ...] = ()
    """What it takes: some of schema, registry, framing, message, descriptor_set, imports."""
    options: tuple[str, ...] = ()
    """Further arguments of its deserializer, by name."""
    framings: tuple[str, ...] = ()
    """What may stand in front of a value."""

    @property
    def is_typed(self) -> bool:
        """Whether it has typed columns, by a schema or by that of a registry."""
        return bool(self.framings)

    def check_options(self, names: Iterable[str], option: str) -> None:
        """Check the names of further arguments; ``option`` is where they are given.

        Raises
        ------
        ConfigurationError
            It has no such argument; the message has the nearest name.
        """
        for name in names:
            if name not in self.options:
                near = did_you_mean(name, self.options)
                asked = f'; did you mean "{near}"?' if near else ""
                raise ConfigurationError(
                    f'{option}: {self.name} has no "{name}"{asked}',
                    hint=f"one of {', '.join(self.options)}" if self.options else "leave it out",
                )


_FRAMINGS: Final = ("none", "confluent", "apicurio")
_ROWS: Final = (
    ValueFormat(BYTES, ("binary",)),
    ValueFormat("text", ("utf8", "string")),
    ValueFormat("int32"),
    ValueFormat("int64"),
    ValueFormat("float32"),
    ValueFormat("float64"),
    ValueFormat("uuid"),
    ValueFormat(STRUCT, arguments=("schema",)),
    ValueFormat(
        "json",
        arguments=("schema", "registry", "framing"),
        options=("coerce", "duplicates", "allow_nan", "max_depth"),
        framings=_FRAMINGS,
    ),
    ValueFormat(
        "avro",
        arguments=("schema", "registry", "framing"),
        options=("reader", "columns", "max_depth"),
        framings=(*_FRAMINGS, "avro-single-object"),
    ),
    ValueFormat(
        "protobuf",
        arguments=("registry", "framing", "message", "descriptor_set", "imports"),
        options=("reader", "columns", "enums", "absent", "max_depth"),
        framings=_FRAMINGS,
    ),
)

FORMATS: Final[Mapping[str, ValueFormat]] = {row.name: row for row in _ROWS}
TYPED_FORMATS: Final = tuple(row.name for row in _ROWS if row.is_typed)
_NAMES: Final = {name: row for row in _ROWS for name in (row.name, *row.aliases)}


def format_named(name: str, option: str) -> ValueFormat:
    """Return a format by one of its names; ``option`` is the option that has the name.

    Raises
    ------
    ConfigurationError
        There is none; the message has the nearest name.
    """
    row = _NAMES.get(name)
    if row is None:
        near = did_you_mean(name, _NAMES)
        asked = f'; did you mean "{near}"?' if near else ""
        raise ConfigurationError(
            f'{option}: there is no format "{name}"{asked}', hint=f"one of {', '.join(FORMATS)}"
        )
    return row
