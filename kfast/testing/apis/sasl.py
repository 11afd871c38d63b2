"""SaslHandshake (key 17) and SaslAuthenticate (key 36); a refusal closes the connection."""

from __future__ import annotations

from kfast.errors import ErrorCode
from kfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kfast.testing.answers import Answer
from kfast.testing.context import RequestContext


def handle_sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> Answer:
    """Begin an authentication, the first one or another one."""
    listener = context.cluster.sasl
    session = context.cluster.connections[context.request.connection_id].sasl
    if listener is None or session is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    error = context.plan.top_level_error or session.handshake(request.mechanism)
    return SaslHandshakeResponse(error, list(listener.mechanisms))


def handle_sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> Answer:
    """Take one token of an authentication."""
    session = context.cluster.connections[context.request.connection_id].sasl
    if session is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE)
    error, text, token, lifetime_ms = session.authenticate(request.auth_bytes, context.now_ms)
    error = context.plan.top_level_error or error
    context.plan.is_closing = context.plan.is_closing or bool(error)
    return SaslAuthenticateResponse(error, text, token, lifetime_ms)
