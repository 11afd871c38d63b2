"""Certificates of LocalKafka, checked by OpenSSL: who trusts what, for which host and how long."""

from __future__ import annotations

import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import MissingDependencyError
from kfast.local.certificates import Certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("parent") / "certificates")


def handshake(
    server: Path,
    ca: Path,
    host: str,
    client: Path | None = None,
    client_ca: Path | None = None,
    password: str | None = None,
) -> str | None:
    """Shake hands in memory; return the name in the client certificate that the server has seen."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server)
    if client_ca is not None:
        serving.load_verify_locations(client_ca)
        serving.verify_mode = ssl.CERT_REQUIRED
    connecting = ssl.create_default_context(cafile=ca)
    # The default from Python 3.13 on: certificates have to have every part that RFC 5280 wants.
    connecting.verify_flags |= ssl.VERIFY_X509_STRICT
    if client is not None:
        connecting.load_cert_chain(client, password=password)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = connecting.wrap_bio(down, up, server_hostname=host)
    there = serving.wrap_bio(up, down, server_side=True)
    waiting = [here, there]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    subject: Any = (there.getpeercert() or {}).get("subject", ())
    return next((value for ((name, value),) in subject if name == "commonName"), None)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_the_servers_certificate_is_for_loopback(made: Certificates, host: str) -> None:
    handshake(made.server, made.ca, host)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("other.example", "Hostname mismatch"),
        ("127.0.0.2", "IP address mismatch"),
    ],
)
def test_it_is_for_no_other_host(made: Certificates, host: str, text: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=text):
        handshake(made.server, made.ca, host)
    handshake(made.for_host("a.example", host), made.ca, host)


def test_the_other_authority_has_signed_nothing_here(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(made.server, made.other_ca, "localhost")
    handshake(made.for_host("localhost", is_trusted=False), made.other_ca, "localhost")


def test_an_expired_certificate_is_otherwise_good(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        handshake(made.expired(), made.ca, "localhost")


@pytest.mark.parametrize("password", [None, "S3cr3t Ⅸ"])
def test_a_clients_certificate_has_its_name(made: Certificates, password: str | None) -> None:
    client = made.client("app, of \u00fc", password=password)
    assert (b"ENCRYPTED" in client.read_bytes()) == (password is not None)
    name = handshake(made.server, made.ca, "localhost", client, made.ca, password)
    assert name == "app, of \u00fc"


@pytest.mark.parametrize(
    ("is_expired", "is_trusted"), [(True, True), (False, False)], ids=["expired", "other CA"]
)
def test_clients_certificates_that_are_refused(
    made: Certificates, is_expired: bool, is_trusted: bool
) -> None:
    client = made.client("app", is_expired=is_expired, is_trusted=is_trusted)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made.server, made.ca, "localhost", client, made.ca)


def test_only_the_owner_can_read_the_files(made: Certificates) -> None:
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in made.folder.iterdir()} == {0o600}
    assert made.client("app") != made.client("app")


def test_a_folder_that_exists_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Certificates(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_without_cryptography_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingDependencyError) as raised:
        Certificates(tmp_path)
    assert str(raised.value).splitlines() == [
        "LocalKafka with TLS needs cryptography",
        'try: pip install "kfast[tls]"',
    ]
