"""Base of requests and responses: encoding and decoding of their body.

Owns the versions of a message and the rule that malformed bytes raise nothing but ``KafkaError``
(D-22). Any thread.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.decoders import message_decoder
from kfast.protocol.encoders import message_encoder

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Message(Protocol):
    """A request or response of one API, in all versions kfast supports.

    ``NAME`` is Kafka's name of the API; ``FLEXIBLE_FROM`` is the first version with compact types
    and tag sections (KIP-482).
    """

    __slots__ = ()

    API_KEY: ClassVar[int]
    NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def encode(self, version: int) -> bytes:
        """Return the body in one version of the API.

        Raises
        ------
        UnsupportedVersionError
            The version is not in range, or cannot carry a field's value.
        ProtocolError
            A value does not fit its type.
        """
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Append the body to ``out``; raises the same as ``encode``."""
        write = message_encoder(type(self), version, _is_flexible(type(self), version))
        try:
            write(out, self)
        except (struct.error, UnicodeEncodeError) as error:
            raise ProtocolError(
                f"cannot encode {type(self).__name__} version {version}", cause=str(error)
            ) from error

    @classmethod
    def decode(cls, buf: Buffer, version: int, offset: int = 0) -> Self:
        """Return the message at ``offset`` of a frame; bytes after its end are ignored (KIP-482).

        Raises
        ------
        ProtocolError
            The bytes are not a well-formed message.
        UnsupportedVersionError
            The version is not in range.
        """
        read = message_decoder(cls, version, _is_flexible(cls, version)).read
        # One copy: bytes are indexed and sliced several times faster than a memoryview, and the
        # strings and byte strings taken out of them can never alias a frame that is reused.
        data = buf if isinstance(buf, bytes) else bytes(buf)
        values: list[Self] = []
        try:
            read(data, offset, values)
        except ProtocolError as error:
            error.message = f"malformed {cls.__name__} version {version}"
            raise
        except (IndexError, struct.error) as error:
            raise ProtocolError(
                f"malformed {cls.__name__} version {version}",
                cause=f"{len(data) - offset} bytes are not the whole message",
            ) from error
        except UnicodeDecodeError as error:
            raise ProtocolError(
                f"malformed {cls.__name__} version {version}", cause="a string is not UTF-8"
            ) from error
        return values[0]


class RequestMessage(Message, Protocol):
    """A request; ``RESPONSE`` is the class of its response."""

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


def _is_flexible(cls: type[Message], version: int) -> bool:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedVersionError(
            f"{cls.__name__} has no version {version}",
            found=f"versions {cls.MIN_VERSION} to {cls.MAX_VERSION}",
            api=cls.NAME,
            client_range=(cls.MIN_VERSION, cls.MAX_VERSION),
        )
    return version >= cls.FLEXIBLE_FROM
