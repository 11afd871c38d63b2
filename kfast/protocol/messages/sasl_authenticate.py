"""SaslAuthenticate (key 36): one token of a SASL mechanism, and the server's answer.

The tokens are secret: neither message shows them in its ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import BYTES, I16, I64, STR, wire


@dataclass(slots=True, repr=False)
class SaslAuthenticateResponse(Message):
    """The server's token; how long the session lasts, 0 for without end (KIP-368)."""

    API_KEY = ApiKey.SASL_AUTHENTICATE
    NAME = "SaslAuthenticate"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SASL_AUTHENTICATE]

    error_code: int = wire(I16)
    error_message: str | None = wire(STR, nullable="0+")
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(I64, "1+", ignorable=True)


@dataclass(slots=True, repr=False)
class SaslAuthenticateRequest(RequestMessage):
    """The client's token."""

    API_KEY = ApiKey.SASL_AUTHENTICATE
    NAME = "SaslAuthenticate"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SASL_AUTHENTICATE]
    RESPONSE: ClassVar[type[Message]] = SaslAuthenticateResponse

    auth_bytes: bytes = wire(BYTES)
