"""Certificates and TLS servers for tests, without Kafka."""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kfast._base.clock import SystemClock
from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.network.network_io import transport_factory
from kfast.network.transport import EVENT_READ
from kfast.security.tls.transport import TlsTransport
from tests.unit.configs import config
from tests.unit.network.serving import LIMIT_S

"""Upper bound of any wait; nothing is expected to take long."""

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@functools.cache
def authority(name: str = "Corp Root") -> trustme.CA:
    """Return the authority with a name."""
    return trustme.CA(organization_name="kfast", organization_unit_name=name)


@functools.cache
def certificate(*names: str, common_name: str = "b1.example") -> trustme.LeafCert:
    """Return a certificate of "Corp Root" for hosts, by default for this one."""
    return authority().issue_cert(*(names or ("127.0.0.1",)), common_name=common_name)


def ca_pem(ca: trustme.CA | None = None) -> str:
    """Return an authority's certificate as a user has it."""
    return (ca or authority()).cert_pem.bytes().decode()


def chain_pem(leaf: trustme.LeafCert) -> str:
    return "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)


def key_pem(leaf: trustme.LeafCert, password: str | None = None) -> str:
    """Return a private key as PKCS#8, encrypted if a password is given."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    ).decode()


def crl_pem(*revoked: trustme.LeafCert, ca: trustme.CA | None = None) -> str:
    """Return an authority's revocation list."""
    ca = ca or authority()
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(NOW - DAY)
        .next_update(NOW + DAY)
    )
    for leaf in revoked:
        serial = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY)
        builder = builder.add_revoked_certificate(entry.build())
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # trustme makes EC keys
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def server_context(
    leaf: trustme.LeafCert | None = None, client_ca: trustme.CA | None = None
) -> ssl.SSLContext:
    """Return a server's context; with ``client_ca`` it wants client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (leaf or certificate()).configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def until_closed(sock: socket.socket) -> None:
    """Handle a connection by reading until it ends."""
    while sock.recv(65_536):
        pass


def start(
    port: int, host: str = "127.0.0.1", *, node_id: int = -1, **settings: Any
) -> TlsTransport:
    """Return a connection that was started, to a server of this machine that is called ``host``."""
    if not {"ssl_context", "ssl_ca_pem", "ssl_cafile"} & set(settings):
        settings["ssl_ca_pem"] = ca_pem()
    made = config(None, security_protocol="SSL", **settings)
    connect = transport_factory(made, SystemClock())
    address = Address(socket.AF_INET, ("127.0.0.1", port))
    transport = connect(Node(node_id, host, port), address)
    assert isinstance(transport, TlsTransport)
    return transport


def wait(transport: TlsTransport, events: int = EVENT_READ) -> None:
    """Wait for a connection."""
    with selectors.DefaultSelector() as selector:
        selector.register(transport, events)
        assert selector.select(LIMIT_S), "nothing happened"


def set_up(transport: TlsTransport) -> TlsTransport:
    """Complete the handshake."""
    while events := transport.setup():
        wait(transport, events)
    return transport


@contextlib.contextmanager
def connected(port: int, host: str = "127.0.0.1", **settings: Any) -> Iterator[TlsTransport]:
    """Provide a connection with a complete handshake; the arguments are those of `start`."""
    with contextlib.closing(start(port, host, **settings)) as transport:
        yield set_up(transport)


def receive(transport: TlsTransport, count: int) -> bytes:
    """Return the next ``count`` bytes."""
    found = bytearray(count)
    at = 0
    while at < count:
        got = transport.recv_into(memoryview(found)[at:])
        if got is None:
            wait(transport)
        else:
            assert got, f"the stream ended after {at} bytes"
            at += got
    return bytes(found)
