"""Runs an authentication between a mechanism and a server in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.client.cluster import Node
from kfast.security.sasl.mechanism import SaslMechanism, Work
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.testing.sasl import SaslServer

NODE = Node(1, "b1", 9096)


def token_of(step: Secret[bytes] | Work | None) -> bytes | None:
    """Return the token of a step, after the work if it is some."""
    if isinstance(step, Work):
        step = step.run()
    return None if step is None else step.reveal()


def run(mechanism: SaslMechanism, server: SaslServer) -> list[bytes]:
    """Exchange tokens to the end, and return the client's."""
    sent: list[bytes] = []
    token = token_of(mechanism.first())
    while token is not None:
        sent.append(token)
        assert not mechanism.is_complete
        token = token_of(mechanism.answer(Secret(server.respond(token))))
    return sent
