"""The errors of TLS: refused certificates, and listeners that do not speak TLS as configured.

Pure functions from facts to exceptions, as in ``diagnosis``. A refusal of a certificate, by either
side, is an ``SslAuthenticationError``; what is no refusal is a ``KafkaConnectionError``. Nothing of
a certificate is shown but what ``certificates`` has made printable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind, connection_failure
from kfast.errors import KafkaConnectionError, SslAuthenticationError
from kfast.security.certificates import CertificateFacts, names_text

_NOT_TRUSTED: Final = frozenset({18, 19, 20, 21})
_NO_CRL: Final = 3
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_REVOKED: Final = 23
_WRONG_NAME: Final = frozenset({62, 64})
"""Codes of OpenSSL (``X509_V_ERR_``)."""

_NO_CERTIFICATE_ALERTS: Final = frozenset(
    {"bad_certificate", "certificate_required", "handshake_failure", "no_certificate"}
)
_CERTIFICATE_ALERTS: Final = _NO_CERTIFICATE_ALERTS | {
    "certificate_unknown",
    "certificate_expired",
    "certificate_revoked",
    "unsupported_certificate",
    "unknown_ca",
    "access_denied",
    "decrypt_error",
}


@dataclass(frozen=True, slots=True)
class TlsSide:
    """What messages say of this side of a connection: what it trusts and allows, and who it is."""

    trust: str
    """What comes after "is not": ``in /etc/corp.pem``, ``in the system's store``."""
    revocations: str | None = None
    """The file of the certificate revocation lists."""
    versions: str = ""
    """The TLS versions allowed."""
    ciphers: str = ""
    identity: CertificateFacts | None = None
    """The client certificate; None if there is none."""
    has_own_context: bool = False
    """Whether the user gave an SSLContext: whether it has a client certificate is not known."""
    security_protocol: str = "SSL"


# --- this side refuses ----------------------------------------------------------------------------


def certificate_refused(
    node: Node,
    code: int,
    words: str,
    chain: Sequence[CertificateFacts],
    side: TlsSide,
    now: datetime,
) -> SslAuthenticationError:
    """Return the error for a broker's certificate that was refused.

    ``code`` and ``words`` are OpenSSL's, ``chain`` is what the broker sent, its own certificate
    first; it may be empty.
    """
    name = node.address
    leaf = chain[0] if chain else CertificateFacts()
    if code in _NOT_TRUSTED:
        issuer = chain[-1].issuer if chain else None
        return _refused(
            node,
            f"the certificate of {name} is not trusted",
            cause=f"its issuer{_quoted(issuer)} is not {side.trust}",
            found=_described(leaf, f"chain of {len(chain)}", _valid_until(leaf)),
            hint='ssl_cafile="..." with the CA that signed it',
        )
    if code in {_EXPIRED, _NOT_YET_VALID}:
        return _outside_validity(node, chain, now, is_expired=code == _EXPIRED)
    if code in _WRONG_NAME:
        return _wrong_name(node, leaf)
    if code == _NO_CRL:
        issuer = leaf.issuer
        return _refused(
            node,
            f"no CRL of issuer{_quoted(issuer)} in {side.revocations}",
            cause=f"the certificate of {name} cannot be checked for revocation",
            hint="add the CRL of that CA to ssl_crlfile",
        )
    if code == _REVOKED:
        return _refused(
            node,
            f"the certificate of {name} is revoked",
            cause=f"it is in the CRL of its issuer{_quoted(leaf.issuer)}",
            found=_described(leaf, _valid_until(leaf)),
            hint="give the broker another certificate",
        )
    return _refused(
        node,
        f"the certificate of {name} is not accepted: {words}",
        found=_described(leaf, _issued_by(leaf), _valid_until(leaf)),
        hint="give the broker a certificate that OpenSSL accepts, or another CA as ssl_cafile",
    )


def _outside_validity(
    node: Node, chain: Sequence[CertificateFacts], now: datetime, *, is_expired: bool
) -> SslAuthenticationError:
    """Return the error for a chain of which one certificate is not valid now."""
    name = node.address
    whose, when, facts = f"a certificate that the one of {name} depends on", None, None
    for index, certificate in enumerate(chain):
        limit = certificate.not_after if is_expired else certificate.not_before
        if limit is not None and (limit < now if is_expired else limit > now):
            whose = f"the certificate of {name}"
            if index:
                whose = f"the CA certificate{_quoted(certificate.title)} of {name}"
            when, facts = limit, certificate
            break
    if is_expired:
        text = f"{whose} expired on {when:%Y-%m-%d}" if when else f"{whose} has expired"
    else:
        text = f"{whose} is not valid{f' before {when:%Y-%m-%d}' if when else ' yet'}"
    return _refused(
        node,
        text,
        found=_described(facts, _issued_by(facts)) if facts else None,
        hint=f"renew it on the broker, or check this machine's clock ({now:%Y-%m-%d %H:%M} UTC)",
        is_transient=True,
    )


def _wrong_name(node: Node, leaf: CertificateFacts) -> SslAuthenticationError:
    of = f"the certificate of {node.address}"
    hint = "connect by a name in the certificate"
    if node.node_id >= 0:
        hint += ", or set advertised.listeners to one"
    if leaf.names:
        text, text_found = f"{of} is for {names_text(leaf.names)}", None
    else:
        text, text_found = f"{of} is for no host: it has no subjectAltName", _described(leaf)
        hint = "give the broker a certificate with the host's name as subjectAltName"
    return _refused(node, text, cause=f"you connected to {node.host}", found=text_found, hint=hint)


# --- the broker refuses ---------------------------------------------------------------------------


def is_certificate_alert(alert: str) -> bool:
    """Return whether an alert of the peer may be about this side's certificate."""
    return alert in _CERTIFICATE_ALERTS


def client_certificate_refused(node: Node, alert: str, side: TlsSide) -> SslAuthenticationError:
    """Return the error for a broker that refused this side's certificate, or wants one."""
    name, identity = node.address, side.identity
    if identity is not None:
        return _refused(
            node,
            f'{name} refused the client certificate "CN={identity.title or "?"}" (alert {alert})',
            found=_joined(_valid_until(identity), _issued_by(identity)),
            hint="a certificate signed by a CA the broker trusts",
            is_transient=True,
            user=identity.subject,
        )
    if side.has_own_context:
        return _refused(
            node,
            f"{name} refused the client certificate of ssl_context, or wants one (alert {alert})",
            hint="load a certificate signed by a CA the broker trusts into ssl_context",
            is_transient=True,
        )
    return _refused(
        node,
        f"{name} wants a client certificate",
        cause=f"it refused a connection without one (alert {alert})",
        hint="ssl_certfile and ssl_keyfile",
        is_transient=True,
    )


# --- no refusal -----------------------------------------------------------------------------------


def plaintext_listener(node: Node, side: TlsSide) -> KafkaConnectionError:
    """Return the error for a listener that does not answer TLS."""
    protocol = "SASL_PLAINTEXT" if side.security_protocol == "SASL_SSL" else "PLAINTEXT"
    return connection_failure(
        FailureKind.PLAINTEXT,
        f"{node.address} closed the TLS handshake: this looks like a plaintext listener",
        node,
        hint=f'security_protocol="{protocol}", or the TLS port',
    )


def no_common_version(node: Node, side: TlsSide) -> KafkaConnectionError:
    """Return the error for a peer that speaks none of this side's TLS versions."""
    return connection_failure(
        FailureKind.TLS_MISMATCH,
        f"{node.address} and kfast have no TLS version in common",
        node,
        found=f"this side allows {side.versions}",
        hint="ssl_enabled_protocols",
    )


def no_common_cipher(node: Node, alert: str, side: TlsSide) -> KafkaConnectionError:
    """Return the error for a peer that ends the handshake before it has sent a certificate."""
    return connection_failure(
        FailureKind.TLS_MISMATCH,
        f"{node.address} and kfast have no cipher suite in common",
        node,
        cause=f"the broker ended the handshake (alert {alert})",
        found=f"this side allows {side.versions} and {side.ciphers}",
        hint="ssl_cipher_suites, or ssl_enabled_protocols",
    )


def handshake_failed(node: Node, words: str) -> KafkaConnectionError:
    """Return the error for a handshake that failed in another way."""
    return connection_failure(
        FailureKind.TLS_MISMATCH,
        f"the TLS handshake with {node.address} failed: {words}",
        node,
        hint="check that this is the TLS port of a Kafka broker, and the broker's log",
    )


# --- texts ----------------------------------------------------------------------------------------


def _refused(
    node: Node,
    text: str,
    *,
    cause: str | None = None,
    found: str | None = None,
    hint: str,
    is_transient: bool = False,
    user: str | None = None,
) -> SslAuthenticationError:
    return SslAuthenticationError(
        text,
        cause=cause,
        found=found,
        hint=hint,
        node=node.node_id,
        is_transient=is_transient,
        user=user,
    )


def _quoted(name: str | None) -> str:
    return f' "{name}"' if name else ""


def _joined(*parts: str | None) -> str | None:
    return ", ".join(text for text in parts if text) or None


def _described(facts: CertificateFacts, *parts: str | None) -> str | None:
    return _joined(f'certificate "{facts.title}"' if facts.title else None, *parts)


def _valid_until(facts: CertificateFacts) -> str | None:
    return f"valid until {facts.not_after:%Y-%m-%d}" if facts.not_after else None


def _issued_by(facts: CertificateFacts) -> str | None:
    return f'issued by "{facts.issuer}"' if facts.issuer else None
