"""Frames as a client sends and receives them: size, header, body.

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
from typing import TYPE_CHECKING, Final

from kfast._native.frame import read_response_header
from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.primitives import text_writer, write_length16

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast.protocol.message import Message

_SIZE: Final = Struct(">i")
_REQUEST_START: Final = Struct(">hhi")
_NO_TAGS: Final = b"\x00"
_NEVER_FLEXIBLE: Final = 0x8000
_RESPONSE_TAGS_FROM: Final = {
    key: spec.flexible_from for key, spec in API_SPECS.items() if key != ApiKey.API_VERSIONS
}

_write_client_id = text_writer(write_length16, True, "client_id")


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
    message.encode_into(out, version)
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return bytes(out)


def decode_response_header(buf: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Return correlation id and start of the body of a response frame without its size prefix.

    Raises ProtocolError for bytes that are not a response header.
    """
    return read_response_header(buf, has_response_tags(api_key, version))


def has_response_tags(api_key: int, version: int) -> bool:
    """Return whether the header of a response ends with a tag section."""
    return version >= _RESPONSE_TAGS_FROM.get(api_key, _NEVER_FLEXIBLE)
