"""Schemas of a registry, and the protocol by which a deserializer asks for them.

A deserializer knows a registry only as a `SchemaSource`. It scans a chunk for the distinct keys of
its values, and then either waits (``decode()``, in the calling thread) or comes back later (a
consumer, whose chunk is in stage ``AWAITING_SCHEMA`` meanwhile)::

    answers = source.wait_for(keys)                    # blocks, at most deadline_ms

    request = source.lookup(keys, on_done=wake)        # never blocks and does no I/O
    answers = request.answers()                        # None: pending; ``wake`` is called once
    if answers is not None and answers.error is not None:
        raise answers.error                            # the next look-up tries again

What is known is answered at once, without a thread. ``answers.not_found`` are keys that the
registry does not have: their rows are ``unknown_schema``, which the error mode handles.
``answers.error`` is what prevented an answer; then other keys may be in neither set. An answer
keeps its schemas, also when the cache has dropped them. Values are immutable; any thread.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from kfast.errors import KafkaError

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class KeyKind(Enum):
    """What a `SchemaKey` is; the value is what messages call it."""

    ID = "schema id"
    GUID = "schema GUID"
    GLOBAL_ID = "global id"
    VERSION = "subject"


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """What names a schema to a registry."""

    kind: KeyKind
    value: int | str
    """An id, the text of a GUID, or a subject."""
    version: int | None = None
    """Of a subject; None: the latest one."""

    @classmethod
    def of_id(cls, number: int) -> SchemaKey:
        """Schema id of Confluent's wire format."""
        return cls(KeyKind.ID, number)

    @classmethod
    def of_guid(cls, guid: str | bytes | uuid.UUID) -> SchemaKey:
        """GUID: its text, or its 16 bytes as a record header has them."""
        if isinstance(guid, bytes):
            guid = uuid.UUID(bytes=guid)
        return cls(KeyKind.GUID, str(uuid.UUID(guid) if isinstance(guid, str) else guid))

    @classmethod
    def of_global_id(cls, number: int) -> SchemaKey:
        """Global id of Apicurio's wire format."""
        return cls(KeyKind.GLOBAL_ID, number)

    @classmethod
    def of_version(cls, subject: str, version: int | None = None) -> SchemaKey:
        """Version of a subject, by default the latest one."""
        return cls(KeyKind.VERSION, subject, version)

    def __str__(self) -> str:
        if self.kind is not KeyKind.VERSION:
            return f"{self.kind.value} {self.value}"
        version = "latest version" if self.version is None else f"version {self.version}"
        subject = "".join(c if c.isprintable() else "?" for c in str(self.value))  # of a reference
        return f'the {version} of subject "{subject}"'


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it, with the schemas it refers to.

    Attributes
    ----------
    schema_type : str
        ``"AVRO"``, ``"JSON"``, ``"PROTOBUF"``, or what the registry says.
    text : str
        The schema. Of Protobuf the ``.proto`` text, or base64 of a FileDescriptorProto.
    references : tuple of SchemaReference
        What the text refers to by name, resolved.
    id, guid, subject, version : int, str, str, int or None
        As far as the answer of the registry had them.

    Examples
    --------
    >>> with kfast.SchemaRegistry("http://localhost:8081") as registry:
    ...     print(registry.schema(1))
    AVRO schema id 1
    """

    schema_type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None

    @property
    def descriptor(self) -> bytes | None:
        """Of Protobuf, the FileDescriptorProto that ``text`` is base64 of; None for other texts.

        No ``.proto`` text is base64: it has blanks or punctuation that base64 has not.
        """
        if self.schema_type != PROTOBUF:
            return None
        try:
            return base64.b64decode(self.text.strip(), validate=True) or None
        except (binascii.Error, ValueError):  # the latter for characters that are not ASCII
            return None

    def dependencies(self) -> tuple[SchemaReference, ...]:
        """All references, those of references too, each once and behind those it needs."""
        collected: dict[tuple[str, str, int], SchemaReference] = {}

        def collect(schema: RegisteredSchema) -> None:
            for reference in schema.references:  # no cycles, and no deeper than a registry may
                key = reference.name, reference.subject, reference.version
                if key not in collected:
                    collect(reference.schema)
                    collected[key] = reference

        collect(self)
        return tuple(collected.values())

    def __str__(self) -> str:
        name = "" if self.id is None else f" id {self.id}"
        if self.subject is not None:
            name += f' subject "{self.subject}" version {self.version}'
        return f"{self.schema_type} schema{name}"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one refers to: ``name`` is that of a type, or of a ``.proto`` file."""

    name: str
    subject: str
    version: int
    schema: RegisteredSchema


# --- looking schemas up ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaAnswers:
    """What became of the keys of a look-up."""

    schemas: Mapping[SchemaKey, RegisteredSchema]
    not_found: frozenset[SchemaKey] = frozenset()
    """Keys that the registry does not have."""
    error: KafkaError | None = None
    """Why a key has no answer, to be raised; the next look-up tries again."""


class SchemaRequest(Protocol):
    """A look-up under way, or done."""

    def answers(self) -> SchemaAnswers | None:
        """The answers, None while some are pending; after the deadline an error."""
        ...

    def cancel(self) -> None:
        """Drop the request: nothing is fetched for it any more, and ``on_done`` is not called."""
        ...


OnDone = Callable[[], object] | None


class SchemaSource(Protocol):
    """A registry as deserializers use it. Any thread.

    With ``is_serialized`` schemas of Protobuf are asked for as descriptors, if the registry has
    that form.
    """

    def lookup(
        self, keys: Collection[SchemaKey], on_done: OnDone = None, *, is_serialized: bool = False
    ) -> SchemaRequest:
        """Begin to look keys up, without waiting.

        ``on_done`` is called once, on another thread and under no lock, when a request that was
        pending has its answers. It must not block.
        """
        ...

    def wait_for(
        self, keys: Collection[SchemaKey], *, is_serialized: bool = False
    ) -> SchemaAnswers:
        """Look keys up and wait for all of them, no longer than the deadline; errors are raised."""
        ...
