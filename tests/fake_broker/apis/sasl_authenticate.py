"""SaslAuthenticate (key 36): one token of an authentication; a refusal ends the connection."""

from __future__ import annotations

from kfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.sasl import NO_SASL


def handle_sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> Answer:
    """Answer one request."""
    session = context.cluster.connections[context.request.connection_id].sasl
    if session is None:
        return SaslAuthenticateResponse(NO_SASL)
    error, text, token, lifetime_ms = session.authenticate(request.auth_bytes, context.now_ms)
    error = context.plan.top_level_error or error
    context.plan.is_closing = context.plan.is_closing or bool(error)
    return SaslAuthenticateResponse(error, text, token, lifetime_ms)
