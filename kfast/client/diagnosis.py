"""The errors of connections, with cause and hint.

Pure functions from facts to exceptions; no I/O, no state. Every error is a ``KafkaConnectionError``
(or its subclass ``DisconnectError``) with the attribute ``kind``, names the address the user gave
or the broker advertised, and ends with something to do. Texts live here and nowhere else, so that
Python and the command line say the same.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from kfast.client.cluster import Node
from kfast.errors import DisconnectError, KafkaConnectionError, KafkaError


class FailureKind(IntEnum):
    """Why a connection failed; the lowest points most clearly to a wrong setting."""

    HTTP = 1
    TLS = 2
    PLAINTEXT = 3
    TLS_MISMATCH = 4
    NOT_KAFKA = 5
    NO_LOGIN = 6
    CLOSED_IN_LOGIN = 7
    CLOSED_EARLY = 8
    NO_ANSWER = 9
    REFUSED = 10
    UNREACHABLE = 11
    CONNECT_TIMEOUT = 12
    UNRESOLVABLE = 13
    LOST = 14
    DENIED = 15
    EXHAUSTED = 16
    OTHER = 17


_ERRNO_KINDS: Final = {
    errno.ECONNREFUSED: FailureKind.REFUSED,
    errno.ETIMEDOUT: FailureKind.CONNECT_TIMEOUT,
    errno.ECONNRESET: FailureKind.CLOSED_EARLY,
    errno.EPIPE: FailureKind.CLOSED_EARLY,
    errno.ENETUNREACH: FailureKind.UNREACHABLE,
    errno.EHOSTUNREACH: FailureKind.UNREACHABLE,
    errno.ENETDOWN: FailureKind.UNREACHABLE,
    errno.EHOSTDOWN: FailureKind.UNREACHABLE,
    errno.EACCES: FailureKind.DENIED,
    errno.EPERM: FailureKind.DENIED,
    errno.EAFNOSUPPORT: FailureKind.DENIED,
    errno.EMFILE: FailureKind.EXHAUSTED,
    errno.ENFILE: FailureKind.EXHAUSTED,
    errno.ENOBUFS: FailureKind.EXHAUSTED,
    errno.ENOMEM: FailureKind.EXHAUSTED,
    errno.EADDRNOTAVAIL: FailureKind.EXHAUSTED,
}
"""Kinds of the errors of this machine; of others nothing is known but their words."""

_DENIED: Final = (
    "a firewall, a security module or the sandbox of this process forbids it",
    "allow this process to connect there",
)
_FULL: Final = (
    "this machine has no memory for another socket",
    "close other connections, or raise the limits of this machine or container",
)
_ERRNO_WORDS: Final = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EAFNOSUPPORT: (
        "this machine does not support addresses of that family (IPv6, or IPv4)",
        "give addresses of the other family, or enable this one",
    ),
    errno.EMFILE: (
        "this process has as many files and sockets open as it may",
        "close what is not needed, or raise the limit (ulimit -n)",
    ),
    errno.ENFILE: (
        "this machine has as many files and sockets open as it may",
        "close what is not needed, or raise the limit (fs.file-max)",
    ),
    errno.ENOBUFS: _FULL,
    errno.ENOMEM: _FULL,
    errno.EADDRNOTAVAIL: (
        "this machine has no address for it, or no free port: too many connections are open",
        "check bootstrap_servers, and how many connections this machine has",
    ),
}
"""Cause and hint where those of the kind are not enough."""

_FIRST_BYTES: Final[tuple[tuple[bytes, FailureKind], ...]] = (
    (b"HTTP", FailureKind.HTTP),
    (b"<!DO", FailureKind.HTTP),  # an error page in the manner of HTTP/0.9, without a status line
    (b"<!do", FailureKind.HTTP),
    (b"<htm", FailureKind.HTTP),
    (b"<HTM", FailureKind.HTTP),
    (b"\x15\x03", FailureKind.TLS),  # alert record
    (b"\x16\x03", FailureKind.TLS),  # handshake record
    (b"SSH-", FailureKind.NOT_KAFKA),
)

_CAUSES: Final = {
    FailureKind.REFUSED: "nothing listens there",
    FailureKind.UNREACHABLE: "this machine has no route to that address",
    FailureKind.CONNECT_TIMEOUT: "the host is down, or a firewall drops the packets",
    FailureKind.NO_ANSWER: "it is no Kafka listener, or the broker is slow or hangs",
    FailureKind.CLOSED_EARLY: "it expects TLS or SASL, or is no Kafka broker",
}

_HINTS: Final = {
    FailureKind.HTTP: "the Kafka port is usually 9092",
    FailureKind.NOT_KAFKA: "check the address: the Kafka port is usually 9092",
    FailureKind.CLOSED_EARLY: "check security_protocol, and the port: usually 9092",
    FailureKind.NO_ANSWER: "check the address: the Kafka port is usually 9092",
    FailureKind.REFUSED: "check bootstrap_servers, and that the broker runs",
    FailureKind.UNREACHABLE: "check bootstrap_servers and the network",
    FailureKind.CONNECT_TIMEOUT: "check bootstrap_servers and the network",
    FailureKind.UNRESOLVABLE: "check the spelling of the name, and this machine's DNS",
    FailureKind.LOST: "check that the brokers still run",
    FailureKind.OTHER: "check bootstrap_servers, the socket options and this machine's network",
}

_ADVERTISED: Final = {
    FailureKind.UNRESOLVABLE: "which does not resolve here",
    FailureKind.REFUSED: "where nothing listens",
    FailureKind.UNREACHABLE: "which cannot be reached from here",
    FailureKind.CONNECT_TIMEOUT: "which does not answer",
    FailureKind.NO_ANSWER: "which does not answer",
    FailureKind.CLOSED_EARLY: "which closes the connection",
    FailureKind.HTTP: "which answers HTTP",
    FailureKind.TLS: "which answers TLS",
    FailureKind.PLAINTEXT: "which does not answer TLS",
    FailureKind.TLS_MISMATCH: "with which a TLS handshake fails",
    FailureKind.NOT_KAFKA: "which is not a Kafka listener",
    FailureKind.NO_LOGIN: "which wants a log-in",
    FailureKind.CLOSED_IN_LOGIN: "which closes the connection during the log-in",
}

_TEXT_LIMIT: Final = 60


def failure_kind(error: KafkaError | None) -> FailureKind | None:
    """Return the kind of an error made here, None for any other."""
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, FailureKind) else None


def kind_of_first_bytes(data: bytes) -> FailureKind | None:
    """Return the kind of server whose answer begins with these bytes; None if it may be Kafka."""
    for prefix, kind in _FIRST_BYTES:
        if data.startswith(prefix):
            return kind
    return None


def describe(node: Node) -> str:
    """Return how a message names a node: a bootstrap server by its address, a broker by both."""
    return node.address if node.node_id < 0 else f"broker {node.node_id} ({node.address})"


def seconds(ms: int) -> str:
    """Return a time span for a message."""
    return f"{ms / 1000:.1f} s"


# --- one connection -------------------------------------------------------------------------------


def connect_failed(node: Node, error: OSError, ips: Sequence[str] = ()) -> KafkaConnectionError:
    """Return the error for a TCP connection that could not be made."""
    kind = _ERRNO_KINDS.get(error.errno or 0, FailureKind.OTHER)
    cause, hint = _ERRNO_WORDS.get(error.errno or 0, (_CAUSES.get(kind), None))
    if len(ips) > 1:
        tried = f"tried {', '.join(ips)}"
        cause = tried if cause is None else f"{cause} ({tried})"
    return connection_failure(
        kind, f"cannot connect to {describe(node)}: {_words(error)}", node, cause=cause, hint=hint
    )


def no_sockets(error: OSError) -> KafkaConnectionError:
    """Return the error for a client that cannot open what it waits for sockets with."""
    kind = _ERRNO_KINDS.get(error.errno or 0, FailureKind.OTHER)
    cause, hint = _ERRNO_WORDS.get(error.errno or 0, (None, _HINTS[FailureKind.OTHER]))
    return KafkaConnectionError(
        f"cannot open sockets: {_words(error)}", cause=cause, hint=hint, kind=kind
    )


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def unresolvable(node: Node, error: OSError) -> KafkaConnectionError:
    """Return the error for a host name the resolver does not know."""
    origin = "from bootstrap_servers" if node.node_id < 0 else f"address of broker {node.node_id}"
    words = error.strerror or str(error)
    return connection_failure(
        FailureKind.UNRESOLVABLE, f'cannot resolve "{node.host}" ({origin})', node, cause=words
    )


def look_up_timed_out(node: Node, elapsed_ms: int) -> KafkaConnectionError:
    """Return the error for a host name whose look-up takes too long."""
    words = f"the name server did not answer within {seconds(elapsed_ms)}"
    return unresolvable(node, OSError(words))


def setup_timed_out(
    node: Node, elapsed_ms: int, *, is_connected: bool = False, is_handshaking: bool = False
) -> KafkaConnectionError:
    """Return the error for a connection whose set-up takes too long.

    It ``is_connected`` once TCP and TLS are; ``is_handshaking`` while TCP is and TLS is not.
    """
    within = seconds(elapsed_ms)
    if is_connected:
        kind = FailureKind.NO_ANSWER
        text = f"{describe(node)} accepted the connection but did not answer within {within}"
    elif is_handshaking:
        kind = FailureKind.NO_ANSWER
        text = f"{describe(node)} did not complete the TLS handshake within {within}"
    else:
        kind = FailureKind.CONNECT_TIMEOUT
        text = f"cannot connect to {describe(node)}: no answer within {within}"
    return connection_failure(kind, text, node, cause=_CAUSES[kind])


def closed_in_login(node: Node) -> KafkaConnectionError:
    """Return the error for a server that closes between two steps of a log-in."""
    return KafkaConnectionError(
        f"{describe(node)} closed the connection during the log-in",
        cause="the broker is stopping, or refuses without a reason",
        hint="see the broker's log, and check the credentials",
        node=node.node_id,
        kind=FailureKind.CLOSED_IN_LOGIN,
    )


def login_timed_out(node: Node, elapsed_ms: int) -> KafkaConnectionError:
    """Return the error for a log-in that takes too long."""
    return KafkaConnectionError(
        f"{describe(node)} did not complete the SASL log-in within {seconds(elapsed_ms)}",
        cause="the broker hangs or is slow, or the source of the credentials does",
        hint="see the broker's log, or raise socket_connection_setup_timeout_ms",
        node=node.node_id,
        kind=FailureKind.NO_ANSWER,
    )


def sasl_expected(node: Node, security_protocol: str) -> KafkaConnectionError:
    """Return the error for a broker that closes at the first request after ApiVersions."""
    secure = f"SASL_{security_protocol}"
    return KafkaConnectionError(
        f"{describe(node)} sent its versions and closed the connection at the first request",
        cause=f"this looks like a SASL listener, and security_protocol is {security_protocol}",
        hint=f'security_protocol="{secure}" and sasl_mechanism',
        node=node.node_id,
        kind=FailureKind.NO_LOGIN,
    )


def closed_early(node: Node) -> KafkaConnectionError:
    """Return the error for a server that closes before it answered the first request."""
    kind = FailureKind.CLOSED_EARLY
    text = f"{describe(node)} closed the connection without an answer"
    return connection_failure(kind, text, node, cause=_CAUSES[kind])


def not_kafka(
    node: Node, received: bytes, security_protocol: str = "PLAINTEXT"
) -> KafkaConnectionError:
    """Return the error for a server whose first bytes are no Kafka answer."""
    kind = kind_of_first_bytes(received) or FailureKind.NOT_KAFKA
    name = describe(node)
    if kind is FailureKind.TLS:
        text = f"{name} answers TLS, not plaintext: this looks like a TLS listener"
        protocol = security_protocol.replace("PLAINTEXT", "SSL")
        hint = f'security_protocol="{protocol}", or the plaintext port'
        return connection_failure(kind, text, node, hint=hint)
    answer = "HTTP, not Kafka" if kind is FailureKind.HTTP else "something other than Kafka"
    quoted = f'"{_printable(received)}"'
    return connection_failure(kind, f"{name} answers {answer}", node, found=quoted)


def connection_lost(node: Node, reason: str) -> DisconnectError:
    """Return the error for a connection that worked and ended."""
    return DisconnectError(
        f"lost the connection to {describe(node)}",
        cause=reason,
        node=node.node_id,
        kind=FailureKind.LOST,
    )


def request_timed_out(node: Node, name: str, elapsed_ms: int) -> DisconnectError:
    """Return the error for a request that was not answered in time."""
    return DisconnectError(
        f"{describe(node)} did not answer {name} within {seconds(elapsed_ms)}",
        cause="the connection was closed: later responses on it can no longer be matched",
        node=node.node_id,
        kind=FailureKind.LOST,
    )


def connection_failure(
    kind: FailureKind,
    text: str,
    node: Node,
    *,
    cause: str | None = None,
    found: str | None = None,
    hint: str | None = None,
) -> KafkaConnectionError:
    """Return the error for a connection that could not be made, with the hint of its kind."""
    return KafkaConnectionError(
        text, cause=cause, found=found, hint=hint or _HINTS.get(kind), node=node.node_id, kind=kind
    )


def _printable(data: bytes) -> str:
    line = data.splitlines()[0] if data.splitlines() else b""
    text = line.decode("ascii", "backslashreplace")
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text).strip()
    return text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "..."


# --- the whole cluster ----------------------------------------------------------------------------


def bootstrap_failed(
    failures: Sequence[tuple[Node, KafkaError]], server_count: int, elapsed_ms: int
) -> KafkaError:
    """Return one error for ``server_count`` bootstrap servers of which at least one failed."""
    ranked = sorted(failures, key=lambda f: failure_kind(f[1]) or 0)
    _, best = ranked[0]
    kind = failure_kind(best)
    tried = f"tried {len(failures)} of {server_count} servers for {seconds(elapsed_ms)}"
    message = best.message
    if kind is FailureKind.UNRESOLVABLE and len(failures) > 1:
        names = ", ".join(f'"{node.host}"' for node, _ in failures)
        message = f"cannot resolve any of {names} (from bootstrap_servers)"
    others = "; ".join(other.message for _, other in ranked[1:3])
    if len(ranked) > 3:
        others += f"; and {len(ranked) - 3} more"
    return KafkaConnectionError(
        message,
        cause=f"{best.cause} ({tried})" if best.cause else tried,
        found=best.found or (others if kind is not FailureKind.UNRESOLVABLE else None) or None,
        hint=best.hint or (_HINTS.get(kind) if kind else None),
        node=best.node,
        kind=kind,
    )


def advertised_address_dead(
    bootstrap: Node, broker: Node, error: KafkaError
) -> KafkaConnectionError:
    """Return the error for a ``broker`` that ``bootstrap`` named and that cannot be reached."""
    kind = failure_kind(error)
    why = _ADVERTISED.get(kind, "which does not work") if kind else "which does not work"
    return KafkaConnectionError(
        f"connected to {bootstrap.address}, but that broker gives its address as "
        f"{broker.address}, {why}",
        cause=f"advertised.listeners on broker {broker.node_id} names a host of another network",
        found=error.cause if kind is FailureKind.UNRESOLVABLE else None,
        hint="set advertised.listeners, or connect from inside that network",
        node=broker.node_id,
        kind=kind,
    )
