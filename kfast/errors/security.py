"""Exceptions of log-ins, certificates and permissions."""

from __future__ import annotations

from kfast.errors.base import KafkaError


class AuthenticationError(KafkaError):
    """The broker refused this client, or this client the broker: a log-in or a certificate.

    A refusal is final for the call that raises it.

    Attributes
    ----------
    mechanism : str or None
        The SASL mechanism of the log-in.
    user : str or None
        User name, principal of the token, or subject of the client certificate, where known.
    node : int, str or None
        The broker: its id; negative for a bootstrap server.
    is_transient : bool
        Whether the cause may pass without the caller's doing, as a certificate that is being
        renewed: connections are tried again after 1 to 30 s instead of 10 to 300 s.
    """

    mechanism: str | None = None
    user: str | None = None
    is_transient: bool = False


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer the SASL mechanism asked for."""


class IllegalSaslStateError(AuthenticationError):
    """The listener has no SASL, or a request came at the wrong point of the log-in."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials."""


class SslAuthenticationError(AuthenticationError):
    """The certificate of the broker, or of this client, was not accepted."""


class AuthorizationError(KafkaError):
    """The user is not allowed to do this.

    Attributes
    ----------
    user : str or None
        Who that is, as far as this client knows: the brokers may map it to another name.
    operation : str
        What was denied of a topic: ``read`` or ``describe``.
    """

    user: str | None = None
    operation: str = "read"


class TopicAuthorizationError(AuthorizationError):
    """The user may not read or describe the topic; works again once granted."""

    hint = "grant READ and DESCRIBE on the topic to this user"


class GroupAuthorizationError(AuthorizationError):
    """The user may not use the group; works again once granted."""

    hint = "grant READ on the group to this user"


class ClusterAuthorizationError(AuthorizationError):
    """The user may not do this with the cluster."""
