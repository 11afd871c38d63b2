"""Frames as a broker receives and sends them: request headers to read, responses to write.

The counterpart of ``kfast.protocol.headers``, which has the wire layout.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfast.errors import ProtocolError
from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.primitives import read_length16, read_uvarint, text_reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast.protocol.message import Message

_SIZE: Final = Struct(">i")
_REQUEST_START: Final = Struct(">hhi")
_NO_TAGS: Final = b"\x00"
_LONGEST_HEADER: Final = 0x10000
_NEVER_FLEXIBLE: Final = 0x8000

_read_client_id = text_reader(read_length16, True, "client_id")


class RequestHeader(NamedTuple):
    """Header of a request, whose API key and version may be unknown; the body starts after it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """Return a response as a whole frame, size prefix included."""
    out = bytearray(_SIZE.size)
    out += _SIZE.pack(correlation_id)
    if version >= message.FLEXIBLE_FROM and message.API_KEY != ApiKey.API_VERSIONS:
        out += _NO_TAGS
    message.encode_into(out, version)
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return bytes(out)


def decode_request_header(buf: Buffer) -> RequestHeader:
    """Return the header of a request frame without its size prefix.

    An unknown API is read as if it were not flexible; an unknown version of a known API by the
    API's rule, so that a refused ApiVersions request can be read (KIP-511).

    Raises
    ------
    ProtocolError
        The bytes are not a request header.
    """
    data = bytes(memoryview(buf)[:_LONGEST_HEADER])
    try:
        api_key, version, correlation_id = _REQUEST_START.unpack_from(data)
        client_id: list[Any] = []
        pos = _read_client_id(data, _REQUEST_START.size, client_id)
        spec = API_SPECS.get(api_key)
        if version >= (_NEVER_FLEXIBLE if spec is None else spec.flexible_from):
            pos = _skip_tags(data, pos)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise ProtocolError("malformed request header", cause=str(error)) from error
    return RequestHeader(api_key, version, correlation_id, client_id[0], pos)


def _skip_tags(data: bytes, pos: int) -> int:
    count, pos = read_uvarint(data, pos)
    previous = -1
    for _ in range(count):
        tag, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        pos += size
        if tag <= previous or pos > len(data):
            raise ProtocolError("malformed header", cause="its tag section is not well-formed")
        previous = tag
    return pos
