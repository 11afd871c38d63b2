"""OptionSpelling: how the options of a table are written where they were given.

A hint is about what the user has typed: a command, a call of Python's, or options of Spark. Pure.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final


@unique
class OptionSpelling(StrEnum):
    """Where options come from; the values are kept in plans, which are JSON."""

    COMMAND = "command"
    """``kfast ingest``, with and without Spark."""
    PYTHON = "python"
    """``kfast.ingest``."""
    SPARK = "spark"
    """``format("kfast")``."""
    SPARK_INGEST = "spark ingest"
    """``kfast.spark.ingest``."""

    @property
    def on_error_hint(self) -> str:
        """What lets an ingest or a query go on after a malformed record."""
        return _ON_ERROR[self]

    @property
    def upsert_hint(self) -> str:
        """What lets an ingest by keys go on after a malformed record, or read it."""
        return _UPSERTS[self]

    @property
    def dead_letter_hint(self) -> str:
        """What makes dead letters possible."""
        return _DEAD_LETTERS[self]

    @property
    def json_hint(self) -> str:
        """What makes values columns of JSON."""
        return _JSON[self]

    def framing_hint(self, source: str) -> str:
        """Return the options that read ``key`` or ``value`` with a schema id in front."""
        return _FRAMING[self].format(source=source)


_ON_ERROR: Final = {
    OptionSpelling.COMMAND: "--on-error null, or --on-error skip",
    OptionSpelling.PYTHON: 'on_error="null", or on_error="skip"',
    OptionSpelling.SPARK: 'set mode to "PERMISSIVE" or "DROPMALFORMED"',
    OptionSpelling.SPARK_INGEST: "the option mode=PERMISSIVE, or mode=DROPMALFORMED",
}
_UPSERTS: Final = {
    OptionSpelling.COMMAND: "--key and --key-schema, or the schema of the values, say what they "
    "are; --on-error skip leaves the record out",
    OptionSpelling.PYTHON: 'key= or value= says what they are; on_error="skip" leaves the record '
    "out",
}
"""Null is no way out there: it would delete rows."""
_DEAD_LETTERS: Final = {
    OptionSpelling.COMMAND: "--on-error skip, or null, with --value json or another, or the column "
    "timestamp",
    OptionSpelling.PYTHON: 'on_error="skip", or "null", with a value that is decoded, or the '
    "column timestamp",
    OptionSpelling.SPARK: "mode=PERMISSIVE or DROPMALFORMED, with valueFormat=json or another, or "
    "the column timestamp",
    OptionSpelling.SPARK_INGEST: 'value_format="json" or another, or the column timestamp, with '
    "the option mode=PERMISSIVE or DROPMALFORMED",
}
_JSON: Final = {
    OptionSpelling.COMMAND: "--value json with --value-schema, and the column value",
    OptionSpelling.PYTHON: "value=kfast.Json(...), and the column value",
    OptionSpelling.SPARK: "valueFormat=json, and the column value",
    OptionSpelling.SPARK_INGEST: 'value_format="json", and the column value',
}
_FRAMING: Final = {
    OptionSpelling.COMMAND: "--{source}-framing confluent",
    OptionSpelling.PYTHON: '{source}=... with framing="confluent"',
    OptionSpelling.SPARK: "set {source}Framing to confluent",
    OptionSpelling.SPARK_INGEST: "the option {source}Framing=confluent",
}
