"""The limit of connecting: one blocking SSLSocket that does what a client cannot leave out.

TLS with the certificate verified, ApiVersions, a log-in by SCRAM-SHA-512, Metadata of one topic: no
thread, no selector, no second look at anything. What a client takes beyond this is its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar

from bench.e2e.drain import first_address
from kfast._native.frame import FrameReceiver
from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_HASH = "sha512"
_METADATA_VERSION = 8
_Response = TypeVar("_Response", bound=Message)


class BareLogin:
    """A connection that is logged in once it is made."""

    def __init__(self, login: Mapping[str, Any]) -> None:
        address = first_address(login["bootstrap_servers"])
        plain = socket.create_connection(address)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ssl.create_default_context(cafile=login["ssl_truststore_location"])
        self._socket = context.wrap_socket(plain, server_hostname=address[0])
        self._frames = FrameReceiver(1 << 20)
        self._sent = 0
        self._ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        self._ask(SaslHandshakeRequest("SCRAM-SHA-512"), SaslHandshakeResponse, 1)
        self._authenticate(login["sasl_plain_username"], login["sasl_plain_password"])

    def partitions(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (found,) = self._ask(request, MetadataResponse, _METADATA_VERSION).topics
        return {each.partition_index for each in found.partitions}

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _authenticate(self, user: str, password: str) -> None:
        first = f"n={user},r={base64.b64encode(os.urandom(24)).decode()}"
        challenge = self._token(f"n,,{first}")
        parts = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac(
            _HASH, password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
        )
        key = hmac.digest(salted, b"Client Key", _HASH)
        last = f"c=biws,r={parts['r']}"
        signed = f"{first},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.sha512(key).digest(), signed, _HASH)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._token(f"{last},p={base64.b64encode(proof).decode()}")

    def _token(self, text: str) -> str:
        answer = self._ask(SaslAuthenticateRequest(text.encode()), SaslAuthenticateResponse, 1)
        assert not answer.error_code, answer.error_message
        return answer.auth_bytes.decode()

    def _ask(self, request: RequestMessage, response: type[_Response], version: int) -> _Response:
        self._sent += 1
        self._socket.sendall(encode_request(request, version, self._sent, "bare"))
        frame = None
        while frame is None:
            count = self._socket.recv_into(self._frames.next_view())
            assert count, "the broker closed the connection"
            frame = self._frames.advance(count)
        _, start = decode_response_header(frame, request.API_KEY, version)
        return response.decode(frame, version, start)
