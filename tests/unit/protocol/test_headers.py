"""Frames and headers: which version of a header goes with which request and response."""

from __future__ import annotations

import pytest

from kfast._native.buffers import copy_of
from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kfast.testing.headers import RequestHeader, decode_request_header, encode_response

ALL = [
    (request, version)
    for request in REQUESTS.values()
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1)
]


def body(frame: bytes) -> bytes:
    """Return a frame without its size prefix, which must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize(("request_class", "version"), ALL)
@pytest.mark.parametrize("client_id", ["kfast", "", None])
def test_request_header(request_class: type[Message], version: int, client_id: str | None) -> None:
    frame = body(encode_request(request_class(), version, 77, client_id))
    header = decode_request_header(copy_of(frame))
    is_flexible = version >= API_SPECS[request_class.API_KEY].flexible_from
    size = 8 + 2 + len(client_id or "") + is_flexible
    assert header == RequestHeader(request_class.API_KEY, version, 77, client_id, size)
    assert frame[8:10] == (b"\xff\xff" if client_id is None else bytes([0, len(client_id)]))
    assert request_class.decode(frame, version, header.body_offset) == request_class()


@pytest.mark.parametrize(("request_class", "version"), ALL)
def test_response_header(request_class: type[Message], version: int) -> None:
    response_class = REQUESTS[request_class.API_KEY].RESPONSE
    frame = body(encode_response(response_class(), version, -3))
    correlation_id, start = decode_response_header(copy_of(frame), request_class.API_KEY, version)
    is_flexible = version >= API_SPECS[request_class.API_KEY].flexible_from
    has_tags = is_flexible and request_class.API_KEY != ApiKey.API_VERSIONS
    assert (correlation_id, start) == (-3, 4 + has_tags)
    assert response_class.decode(frame, version, start) == response_class()


def test_api_versions_refusal() -> None:
    """N-02: the answer to an unknown version has a plain header and the layout of version 0."""
    refusal = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)])
    frame = body(encode_response(refusal, 0, 1))
    assert frame.hex() == "00000001" + "0023" + "00000001" + "001200000004"
    _, start = decode_response_header(frame, ApiKey.API_VERSIONS, 9)
    assert ApiVersionsResponse.decode(frame, 0, start) == refusal


def test_a_request_of_an_unknown_version_or_api_still_has_a_readable_header() -> None:
    newer = bytes.fromhex("0012 0009 00000005 0001 61 00 0362")
    assert decode_request_header(newer) == RequestHeader(18, 9, 5, "a", 12)
    unknown = bytes.fromhex("7fff 0009 00000005 0001 61")
    assert decode_request_header(unknown) == RequestHeader(0x7FFF, 9, 5, "a", 11)


def test_header_tags_are_skipped() -> None:
    """D-22: unknown tags in headers."""
    frame = bytes.fromhex("00000007" + "02" + "0002aabb" + "0500")
    assert decode_response_header(frame, ApiKey.METADATA, 9) == (7, 11)
    assert decode_response_header(frame, ApiKey.METADATA, 8) == (7, 4)


@pytest.mark.parametrize(
    "tail", ["", "01", "0100", "010005aa", "02000000" + "00", "ffffffff0f", "ffffffffff"]
)
def test_malformed_response_headers(tail: str) -> None:
    """D-22: missing bytes and bad tags in headers are protocol errors."""
    with pytest.raises(ProtocolError):
        decode_response_header(bytes.fromhex("00000007" + tail), ApiKey.METADATA, 12)


@pytest.mark.parametrize("data", ["", "000000", "000300090000000100", "0003000c00000001ffff"])
def test_malformed_request_headers(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes.fromhex(data))


def test_an_empty_frame_has_no_header() -> None:
    with pytest.raises(ProtocolError):
        decode_response_header(b"", ApiKey.METADATA, 12)


def test_a_response_header_is_read_without_copying_the_frame() -> None:
    frame = copy_of(body(encode_response(MetadataResponse(), 12, 5)) + bytes(1 << 20))
    assert decode_response_header(frame, ApiKey.METADATA, 12) == (5, 5)


def test_versions_out_of_range_are_refused_locally() -> None:
    with pytest.raises(UnsupportedVersionError):
        encode_request(MetadataRequest(), 6, 1, "kfast")
    with pytest.raises(UnsupportedVersionError):
        encode_request(ApiVersionsRequest(), 5, 1, "kfast")
