"""SaslHandshake (key 17): begins an authentication, the first one or another one."""

from __future__ import annotations

from kfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.fake_broker.context import Answer, RequestContext
from tests.fake_broker.sasl import NO_SASL


def handle_sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> Answer:
    """Answer one request."""
    listener = context.cluster.sasl
    session = context.cluster.connections[context.request.connection_id].sasl
    if listener is None or session is None:
        return SaslHandshakeResponse(NO_SASL)
    error = context.plan.top_level_error or session.handshake(request.mechanism)
    return SaslHandshakeResponse(error, list(listener.mechanisms))
