"""SaslHandshake (key 17): the SASL mechanism of a connection.

Version 1 only: after version 0 the tokens would follow without frames. A listener without SASL
answers error 34, one without the mechanism error 33 with the mechanisms that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message, RequestMessage
from kfast.protocol.schema import I16, STR, ArrayOf, wire


@dataclass(slots=True)
class SaslHandshakeResponse(Message):
    """The mechanisms that the listener has."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    NAME = "SaslHandshake"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SASL_HANDSHAKE]

    error_code: int = wire(I16)
    mechanisms: list[str] = wire(ArrayOf(STR))


@dataclass(slots=True)
class SaslHandshakeRequest(RequestMessage):
    """The mechanism of the SaslAuthenticate requests that follow."""

    API_KEY = ApiKey.SASL_HANDSHAKE
    NAME = "SaslHandshake"
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = API_SPECS[ApiKey.SASL_HANDSHAKE]
    RESPONSE: ClassVar[type[Message]] = SaslHandshakeResponse

    mechanism: str = wire(STR)
