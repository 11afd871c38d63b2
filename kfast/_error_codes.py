"""ErrorInfo: Kafka's error codes, each with the exception that is raised for it.

Owns how the rows of ``kfast._error_table`` become classes. The classes themselves are those of
``kfast.errors``, which hands its names in; for a code that nobody treats apart one is made there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from kfast._error_table import CONSUMER_ERRORS, OTHER_ERRORS, ErrorRow, exception_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.errors import KafkaError


@dataclass(slots=True, frozen=True)
class ErrorInfo:
    """One error code of the protocol.

    Attributes
    ----------
    code : int
        The number on the wire.
    name : str
        Kafka's name, e.g. ``NOT_LEADER_OR_FOLLOWER``.
    exception : type
        The class raised for it (for code 0, which is no error, ``KafkaError``).
    retriable, refresh_metadata, rediscover_coordinator : bool
        What the Java client does about it.
    meaning : str
        One line for people; may be empty.
    """

    code: int
    name: str
    exception: type[KafkaError]
    retriable: bool = False
    refresh_metadata: bool = False
    rediscover_coordinator: bool = False
    meaning: str = ""


def error_table(namespace: dict[str, Any]) -> Mapping[int, ErrorInfo]:
    """Return all error codes of Kafka 4.3, by number.

    Parameters
    ----------
    namespace : dict of str to object
        The names of ``kfast.errors``; classes that are missing are added.
    """
    return MappingProxyType(
        {row.code: _info(row, namespace) for row in sorted(CONSUMER_ERRORS + OTHER_ERRORS)}
    )


def _info(row: ErrorRow, namespace: dict[str, Any]) -> ErrorInfo:
    name = exception_name(row)
    cls = cast("type[KafkaError] | None", namespace.get(name))
    if cls is None:  # nobody treats the code apart: its class is made here, importable all the same
        base = namespace["RetriableError" if "R" in row.flags else "KafkaError"]
        doc = f"A broker answered {row.name} (error {row.code}){row.meaning and ': '}{row.meaning}."
        members = {"__doc__": doc, "__module__": namespace["__name__"]}
        cls = cast("type[KafkaError]", type(name, (base,), members))
        namespace[name] = cls
    if row.code:
        cls.code = row.code
    flags = ("R" in row.flags, "M" in row.flags, "C" in row.flags)
    return ErrorInfo(row.code, row.name, cls, *flags, meaning=row.meaning)
