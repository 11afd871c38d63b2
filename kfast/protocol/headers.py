"""Request and response frames: size, header, body.

Wire layout (all integers big-endian)::

    frame            i32 size of what follows, header, body
    request header   api_key i16, api_version i16, correlation_id i32, client_id string?
                     + tag section when the request's version is flexible
    response header  correlation_id i32
                     + tag section when the version is flexible, never for ApiVersions

``client_id`` keeps its classic i16 length in flexible headers too. ApiVersions responses always
have the plain header, because a client that does not know the broker's versions has to read them
(KIP-511). Owns no state; any thread.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfast._native.frame import read_response_header
from kfast.errors import ProtocolError
from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.primitives import (
    read_length16,
    read_uvarint,
    text_reader,
    text_writer,
    write_length16,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast.protocol.message import Message

_SIZE: Final = Struct(">i")
_REQUEST_START: Final = Struct(">hhi")
_NO_TAGS: Final = b"\x00"
_LONGEST_HEADER: Final = 0x10000
_NEVER_FLEXIBLE: Final = 0x8000
_RESPONSE_TAGS_FROM: Final = {
    key: spec.flexible_from for key, spec in API_SPECS.items() if key != ApiKey.API_VERSIONS
}

_read_client_id = text_reader(read_length16, True, "client_id")
_write_client_id = text_writer(write_length16, True, "client_id")


class RequestHeader(NamedTuple):
    """Header of a request, whose API key and version may be unknown; the body starts after it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a request as a whole frame, size prefix included.

    Raises
    ------
    UnsupportedVersionError
        The version is out of range, or cannot carry a field's value.
    """
    out = bytearray(_SIZE.size)
    out += _REQUEST_START.pack(message.API_KEY, version, correlation_id)
    _write_client_id(out, client_id)
    if version >= message.FLEXIBLE_FROM:
        out += _NO_TAGS
    return _finish(out, message, version)


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """Return a response as a whole frame, size prefix included."""
    out = bytearray(_SIZE.size)
    out += _SIZE.pack(correlation_id)
    if version >= message.FLEXIBLE_FROM and message.API_KEY != ApiKey.API_VERSIONS:
        out += _NO_TAGS
    return _finish(out, message, version)


def _finish(out: bytearray, message: Message, version: int) -> bytes:
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


def decode_response_header(buf: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Return correlation id and start of the body of a response frame without its size prefix.

    Raises ProtocolError for bytes that are not a response header.
    """
    return read_response_header(buf, has_response_tags(api_key, version))


def has_response_tags(api_key: int, version: int) -> bool:
    """Return whether the header of a response ends with a tag section."""
    return version >= _RESPONSE_TAGS_FROM.get(api_key, _NEVER_FLEXIBLE)


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
