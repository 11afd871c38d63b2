"""What every request and response can do: turn itself into bytes and back.

Owns the seam between definitions and plans, and the rule that bytes can raise nothing but
``KafkaError`` (D-22). Any thread.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.decoders import read_plan
from kfast.protocol.encoders import write_plan

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Message(Protocol):
    """A request or response of one API, in all versions kfast speaks.

    Attributes
    ----------
    API_KEY : int
        Number of the API.
    NAME : str
        Kafka's name of the API.
    MIN_VERSION, MAX_VERSION : int
        Lowest and highest version the definition covers.
    FLEXIBLE_FROM : int
        First version with compact types and tag sections (KIP-482).
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
            The version is not in range, or a field holds something it cannot carry.
        ProtocolError
            A value does not fit its type.
        """
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Append the body to ``out``; raises as ``encode`` does."""
        write = write_plan(type(self), version, _is_flexible(type(self), version))
        try:
            write(out, self)
        except (struct.error, UnicodeEncodeError) as error:
            raise ProtocolError(
                f"cannot encode {type(self).__name__} version {version}", cause=str(error)
            ) from error

    @classmethod
    def decode(cls, buf: Buffer, version: int, offset: int = 0) -> Self:
        """Return the message in ``buf``; bytes behind its end are tolerated (KIP-482).

        Parameters
        ----------
        buf : bytes-like
            A frame, or part of one.
        version : int
            Version the bytes are in.
        offset : int
            Where the body starts.

        Raises
        ------
        ProtocolError
            The bytes are not a well-formed message.
        UnsupportedVersionError
            The version is not in range.
        """
        read = read_plan(cls, version, _is_flexible(cls, version)).read
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
    """A request: it also names its response.

    Attributes
    ----------
    RESPONSE : type
        Class of the response.
    """

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
