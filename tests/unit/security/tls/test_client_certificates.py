"""The client certificate: which forms are understood, and what a broker's refusal becomes."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kfast.errors import ConfigurationError, SslAuthenticationError
from tests.unit.network.serving import serving
from tests.unit.security.tls.authority import (
    authority,
    ca_pem,
    chain_pem,
    connected,
    key_pem,
    receive,
    server_context,
    start,
    until_closed,
)
from tests.unit.security.tls.client_files import CLIENT, files, pkcs12_store

STRANGER = authority("Another Root").issue_cert("app.example", common_name="app")


def tell_subject(sock: socket.socket) -> None:
    """Handle a connection by sending the client's common name, as in "app:"."""
    assert isinstance(sock, ssl.SSLSocket)
    subject = (sock.getpeercert() or {}).get("subject", ())
    names = [pair[1] for part in subject for pair in part if pair[0] == "commonName"]
    sock.sendall(f"{names[0]}:".encode())
    sock.recv(1)


def subject_seen_by_server(**settings: Any) -> str:
    context = server_context(client_ca=authority("Client Root"))
    with serving(tell_subject, context) as port, connected(port, **settings) as transport:
        return receive(transport, 4).decode()


# --- forms ----------------------------------------------------------------------------------------


def test_two_files(tmp_path: Path) -> None:
    """S-03"""
    assert subject_seen_by_server(**files(tmp_path)) == "app:"


def test_one_file_with_the_key_first(tmp_path: Path) -> None:
    """S-03: as Java's PEM keystores are."""
    path = tmp_path / "app.pem"
    path.write_text(key_pem(CLIENT) + "a comment: ä\n" + chain_pem(CLIENT))
    assert subject_seen_by_server(ssl_keystore_location=path) == "app:"


@pytest.mark.parametrize("password", ["hunter2", lambda: "hunter2"])
def test_an_encrypted_key(tmp_path: Path, password: object) -> None:
    """S-03"""
    found = subject_seen_by_server(**files(tmp_path, "hunter2"), ssl_password=password)
    assert found == "app:"


def test_texts() -> None:
    """S-03: line ends may be those of .properties files."""
    settings = {
        "ssl.keystore.certificate.chain": chain_pem(CLIENT).replace("\n", "\\n"),
        "ssl.key.pem": key_pem(CLIENT, "hunter2"),
        "ssl.key.password": "hunter2",
        "ssl.truststore.certificates": ca_pem().replace("\n", "\\n"),
        "ssl_ca_pem": ca_pem(),
    }
    assert subject_seen_by_server(**settings) == "app:"


@pytest.mark.parametrize("password", ["hunter2", None])
@pytest.mark.parametrize("name", ["ssl_keystore_password", "ssl_key_password"])
def test_pkcs12(tmp_path: Path, password: str | None, name: str) -> None:
    """S-03: certificate and key of a store, as keytool and openssl write it."""
    store = pkcs12_store(tmp_path, password)
    settings = {} if password is None else {name: password}
    assert subject_seen_by_server(ssl_keystore_location=store, **settings) == "app:"


def test_pkcs12_of_trusted_certificates(tmp_path: Path) -> None:
    """S-02"""
    path = tmp_path / "trust.p12"
    ca = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(ca_pem().encode()), b"corp")
    protection = serialization.BestAvailableEncryption(b"changeit")
    store = pkcs12.serialize_key_and_certificates(None, None, None, [ca], protection)
    path.write_bytes(store)
    settings = {"ssl.truststore.location": str(path), "ssl.truststore.password": "changeit"}
    assert subject_seen_by_server(ssl_ca_pem=None, **settings, **files(tmp_path)) == "app:"


def test_no_file_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-09: a key that is not in a file of the user's is in one only while it is loaded."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    store = pkcs12_store(tmp_path, "hunter2")
    with serving(until_closed) as port:
        start(port, ssl_keystore_location=store, ssl_keystore_password="hunter2").close()
        start(port, ssl_certificate_pem=chain_pem(CLIENT), ssl_key_pem=key_pem(CLIENT)).close()
        with pytest.raises(ConfigurationError):
            start(port, ssl_certificate_pem=chain_pem(CLIENT), ssl_key_pem=key_pem(STRANGER))
    assert list((tmp_path / "tmp").iterdir()) == []
    (tmp_path / "tmp").rmdir()
    with pytest.raises(ConfigurationError, match="no temporary file for OpenSSL: no such file"):
        start(1, ssl_certificate_pem=chain_pem(CLIENT), ssl_key_pem=key_pem(CLIENT))


# --- refusals by the broker -----------------------------------------------------------------------


def first_answer(port: int, **settings: Any) -> bytes:
    """Return the first bytes that a server sends after it has received some."""
    with connected(port, **settings) as transport:
        transport.send(memoryview(b"ApiVersions"))
        return receive(transport, 4)


def refusal(version: ssl.TLSVersion, **settings: Any) -> tuple[SslAuthenticationError, list[str]]:
    """Return the error of a server that wants a certificate of "Client Root"."""
    context = server_context(client_ca=authority("Client Root"))
    context.maximum_version = version
    with serving(tell_subject, context) as port, pytest.raises(SslAuthenticationError) as caught:
        first_answer(port, **settings)
    assert not caught.value.retriable
    assert caught.value.is_transient, "it may be renewed"
    return caught.value, str(caught.value).replace(f":{port}", ":9093").splitlines()


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_certificate_is_wanted(version: ssl.TLSVersion) -> None:
    """S-02: TLS 1.3 says it after the handshake of this side."""
    _, lines = refusal(version)
    assert lines[0] == "127.0.0.1:9093 wants a client certificate"
    assert lines[1] in {
        "cause: it refused a connection without one (alert handshake_failure)",
        "cause: it refused a connection without one (alert certificate_required)",
    }
    assert lines[2:] == ["try: ssl_certfile and ssl_keyfile"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_certificate_is_refused(version: ssl.TLSVersion) -> None:
    """S-02"""
    error, lines = refusal(
        version, ssl_certificate_pem=chain_pem(STRANGER), ssl_key_pem=key_pem(STRANGER)
    )
    assert lines[0] == '127.0.0.1:9093 refused the client certificate "CN=app" (alert unknown_ca)'
    assert re.fullmatch(r'found: valid until \d{4}-\d\d-\d\d, issued by "Another Root"', lines[1])
    assert lines[2:] == ["try: a certificate signed by a CA the broker trusts"]
    assert error.user == "app"


def test_the_certificate_of_a_context_is_not_known() -> None:
    """S-02: whether there is one is not said."""
    context = ssl.create_default_context(cadata=ca_pem())
    _, lines = refusal(ssl.TLSVersion.TLSv1_3, ssl_context=context)
    assert lines == [
        "127.0.0.1:9093 refused the client certificate of ssl_context, or wants one "
        "(alert certificate_required)",
        "try: load a certificate signed by a CA the broker trusts into ssl_context",
    ]
