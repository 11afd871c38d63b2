"""The errors of log-ins and of permissions, with cause and hint.

Pure functions from facts to exceptions; no I/O, no state. Texts live here and nowhere else, so that
Python and the command line say the same; ``diagnosis`` has those of connections. Nothing secret is
an argument. What a server sent is hostile: it is shown shortened, and printable characters only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

from kfast.client.cluster import Node
from kfast.errors import (
    AuthenticationError,
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    IllegalSaslStateError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
    TopicAuthorizationError,
    UnsupportedSaslMechanismError,
    error_info,
)

BROKER_TEXT_LIMIT: Final = 300
"""Most characters shown of a broker's text about a refused log-in."""

_NAME_LIMIT: Final = 80
_MECHANISMS_SHOWN: Final = 10
_REFUSED: Final = "SASL_AUTHENTICATION_FAILED (error 58)"


def printable(text: str, limit: int = _NAME_LIMIT) -> str:
    """Return a server's text for a message: one line, printable, at most ``limit`` characters."""
    shown = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return " ".join(shown.split()) if len(text) <= limit else shown[:limit].rstrip() + "..."


def _who(user: str | None, mechanism: str) -> str:
    return f'user "{printable(user)}" ({mechanism})' if user else mechanism


# --- refused by the broker ------------------------------------------------------------------------


def credentials_refused(
    node: Node, mechanism: str, user: str | None, text: str | None
) -> SaslAuthenticationError:
    """Return the error for a password that the broker refused; ``text`` is the broker's."""
    return SaslAuthenticationError(
        f"login failed for {_who(user, mechanism)} on {node.address}",
        cause=f"the broker refused the credentials: {_REFUSED}",
        found=_quoted(text),
        hint="check sasl_plain_username and sasl_plain_password",
        node=node.node_id,
        mechanism=mechanism,
        user=user,
    )


def token_refused(
    node: Node,
    mechanism: str,
    user: str | None,
    status: str | None,
    scope: str | None,
    text: str | None,
    expired_ms: int | None,
) -> SaslAuthenticationError:
    """Return the error for a token that the broker refused.

    ``status`` and ``scope`` are those of its JSON, ``text`` is that of error 58, and ``expired_ms``
    says how long ago the token expired; negative if it has not.
    """
    cause = "the broker refused the token" + (f" ({printable(status)})" if status else "")
    if expired_ms is not None and expired_ms >= 0:
        cause += f", which expired {expired_ms // 1000} s ago"
    details = f"it wants the scope {printable(scope)}" if scope else _quoted(text)
    return SaslAuthenticationError(
        f"login failed for {_who(user, mechanism)} on {node.address}",
        cause=cause,
        found=details,
        hint="check the token's issuer, audience and expiry",
        node=node.node_id,
        mechanism=mechanism,
        user=user,
    )


def ticket_refused(node: Node, user: str | None, text: str | None) -> SaslAuthenticationError:
    """Return the error for a Kerberos ticket that the broker refused."""
    error = credentials_refused(node, "GSSAPI", user, text)
    error.hint = "check sasl_kerberos_service_name, and the principal of the broker's keytab"
    return error


def mechanism_not_offered(
    node: Node, asked: str, offered: Sequence[str], *, is_named: bool
) -> UnsupportedSaslMechanismError:
    """Return the error for a listener without the mechanism.

    ``is_named`` says whether the caller chose it, rather than leaving Kafka's default.
    """
    names = [printable(name) for name in offered[:_MECHANISMS_SHOWN]]
    others = len(offered) - len(names)
    listed = ", ".join(names) + (f" and {others} more" if others > 0 else "")
    first = f'sasl_mechanism="{names[0]}"' if names else "sasl_mechanism"
    return UnsupportedSaslMechanismError(
        f"{node.address} offers {listed or 'no mechanism'}; you asked for {asked}",
        cause=None if is_named else "sasl_mechanism is not set, and GSSAPI is Kafka's default",
        hint=f"{first}, or the listener that has {asked}",
        node=node.node_id,
        mechanism=asked,
    )


def no_sasl(node: Node, mechanism: str, *, is_encrypted: bool) -> IllegalSaslStateError:
    """Return the error for a listener that knows no log-in."""
    protocol = "SSL" if is_encrypted else "PLAINTEXT"
    article = "an" if is_encrypted else "a"
    return IllegalSaslStateError(
        f"{node.address} has no SASL: this looks like {article} {protocol} listener",
        hint=f'security_protocol="{protocol}", or the port of the SASL listener',
        node=node.node_id,
        mechanism=mechanism,
    )


# --- refused by this side -------------------------------------------------------------------------


def untrusted_server(
    node: Node, mechanism: str, user: str | None, cause: str
) -> AuthenticationError:
    """Return the error for a server that does not prove what it has to."""
    return AuthenticationError(
        f"{node.address} is not to be trusted with {_who(user, mechanism)}",
        cause=printable(cause, BROKER_TEXT_LIMIT),
        hint="check that the address is that of your broker, and that nothing is in between",
        node=node.node_id,
        mechanism=mechanism,
        user=user,
    )


def untrusted_scram(node: Node, mechanism: str, user: str, cause: str) -> AuthenticationError:
    """Return the error for a SCRAM server that must not get this user's proof, or went on."""
    return untrusted_server(node, mechanism, user, cause)


def wrong_server_signature(node: Node, mechanism: str, user: str) -> AuthenticationError:
    """Return the error for a server that does not know the user's password."""
    return untrusted_server(
        node,
        mechanism,
        user,
        "wrong server signature: it does not know this user's password, so it is not the broker "
        "you think, or a proxy",
    )


def malformed_scram(node: Node, mechanism: str, user: str, attribute: str) -> AuthenticationError:
    """Return the error for a SCRAM message that cannot be read."""
    cause = f"its attribute {attribute}" if len(attribute) == 1 else attribute
    return AuthenticationError(
        f"{node.address} sent a malformed SCRAM message",
        cause=cause,
        hint="check that the address is that of your broker",
        node=node.node_id,
        mechanism=mechanism,
        user=user,
    )


def out_of_order(node: Node, mechanism: str, user: str | None) -> AuthenticationError:
    """Return the error for a server token where none belongs."""
    return untrusted_server(node, mechanism, user, "it sent a token where none belongs")


def unexpected_answer(node: Node, name: str) -> ProtocolError:
    """Return the error for a server that does not keep to the order of a log-in."""
    return ProtocolError(
        f"{node.address} does not keep to the order of a log-in",
        cause=f"it answered {name} with something else",
        hint="check that the address is that of a Kafka broker",
        node=node.node_id,
    )


# --- permissions ----------------------------------------------------------------------------------


def denied(error: KafkaError, user: str | None, group_id: str | None) -> KafkaError:
    """Return an error with the words for a denial by ACLs, if it is one.

    ``user`` is who this client is as far as it knows. The principal of brokers may be another one:
    their rules decide.
    """
    if not isinstance(error, AuthorizationError):
        return error
    import shlex  # noqa: PLC0415 - for this text only

    who = f'user "{printable(user)}"' if user else "this connection"
    if isinstance(error, TopicAuthorizationError) and error.topic is not None:
        message = f"{who} may not {error.operation} topic {error.topic}"
        resource = f"--operation READ --topic {error.topic}"
    elif isinstance(error, GroupAuthorizationError) and group_id is not None:
        message = f"{who} may not use group {group_id}"
        resource = f"--operation READ --group {shlex.quote(group_id)}"
    elif isinstance(error, ClusterAuthorizationError):
        message = f"{who} may not do this on the cluster"
        resource = "--operation DESCRIBE --cluster"
    else:
        return error
    principal = shlex.quote(f"User:{printable(user) if user else 'ANONYMOUS'}")
    twin = copy.copy(error)
    twin.message, twin.args = message, (message,)
    twin.cause = f"{error_info(error.code).name} (error {error.code})" if error.code else None
    twin.hint = f"kafka-acls.sh --add --allow-principal {principal} {resource}"
    twin.user = user
    return twin


# --- credentials that cannot be had ---------------------------------------------------------------


def bad_password(node: Node, mechanism: str, user: str, cause: str) -> AuthenticationError:
    """Return the error for a password callable without a usable password."""
    return AuthenticationError(
        f"no password for {_who(user, mechanism)}",
        cause=cause,
        hint="let sasl_plain_password return the password as str",
        node=node.node_id,
        mechanism=mechanism,
        user=user,
    )


def provider_failed(mechanism: str, cause: str) -> AuthenticationError:
    """Return the error for a token provider that raised, or returned no token."""
    return AuthenticationError(
        "no OAuth token: the token provider failed",
        cause=cause,
        hint="see the exception of the provider above this one",
        mechanism=mechanism,
    )


def no_aws_credentials(mechanism: str) -> AuthenticationError:
    """Return the error for a machine on which the AWS SDK has nothing to sign with."""
    return AuthenticationError(
        "no OAuth token: the AWS SDK finds no credentials",
        hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give this machine a role",
        mechanism=mechanism,
    )


def unusable_token(mechanism: str, cause: str) -> AuthenticationError:
    """Return the error for a token that cannot be sent."""
    return AuthenticationError(
        "no OAuth token: the token provider's token cannot be sent",
        cause=cause,
        hint="let the provider return a bearer token, such as a JWT",
        mechanism=mechanism,
    )


def endpoint_refused(
    client_id: str, status: int, code: str | None, description: str | None, *, is_final: bool
) -> AuthenticationError:
    """Return the error for a token endpoint's refusal: ``error`` and ``error_description``."""
    words = f"{status} {code}" if code else str(status)
    return AuthenticationError(
        f'no OAuth token: the token endpoint refused client "{printable(client_id)}": {words}',
        found=description,
        hint="check client id, client secret and scope"
        if is_final
        else "check the token endpoint, or try again later",
        mechanism="OAUTHBEARER",
        user=client_id,
        is_transient=not is_final,
    )


def endpoint_malformed(client_id: str, cause: str) -> AuthenticationError:
    """Return the error for an answer of a token endpoint that has no token."""
    return AuthenticationError(
        f'no OAuth token: the token endpoint sent none for client "{printable(client_id)}"',
        cause=cause,
        hint="check sasl_oauthbearer_token_endpoint_url",
        mechanism="OAUTHBEARER",
        user=client_id,
    )


def endpoint_unreachable(origin: str, client_id: str, cause: str) -> AuthenticationError:
    """Return the error for a token endpoint that cannot be reached or does not answer."""
    return AuthenticationError(
        f"no OAuth token: no answer from the token endpoint {origin}",
        cause=cause,
        hint="check sasl_oauthbearer_token_endpoint_url and the network",
        mechanism="OAUTHBEARER",
        user=client_id,
        is_transient=True,
    )


def no_ticket(node: Node, target: str, words: str) -> AuthenticationError:
    """Return the error for a Kerberos ticket that cannot be had; ``words`` are GSSAPI's."""
    return AuthenticationError(
        f"no Kerberos ticket for {target}",
        found=printable(words, BROKER_TEXT_LIMIT),
        hint="kinit USER, or sasl_kerberos_keytab",
        node=node.node_id,
        mechanism="GSSAPI",
    )


def _quoted(text: str | None) -> str | None:
    return f'"{printable(text, BROKER_TEXT_LIMIT)}"' if text else None
