"""Files and texts of certificates and keys: what is wrong with them is said at construction."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast._base.clock import SystemClock
from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.network.network_io import transport_factory
from tests.unit.configs import config
from tests.unit.network.serving import serving
from tests.unit.security.tls.authority import (
    authority,
    ca_pem,
    chain_pem,
    connected,
    key_pem,
    server_context,
    until_closed,
)

CLIENT = authority("Client Root").issue_cert("app.example", common_name="app")
OTHER = authority("Client Root").issue_cert("other.example", common_name="other")


def refusal(**settings: Any) -> str:
    """Return the error of what a consumer's constructor makes; nothing of a key is in it."""
    with pytest.raises(ConfigurationError) as caught:
        transport_factory(config(None, security_protocol="SSL", **settings), SystemClock())
    text = str(caught.value)
    assert text.splitlines()[-1].startswith("try: ")
    shown = "".join(traceback.format_exception(caught.value)) + variables_of(caught.value)
    for secret in (key_pem(CLIENT).splitlines()[1], "S3cr3t"):
        assert secret not in shown
    return text


def variables_of(error: BaseException) -> str:
    """Return the local variables of kfast's functions that an error came through."""
    found = []
    each: BaseException | None = error
    while each is not None:
        for frame, _ in traceback.walk_tb(each.__traceback__):
            if "kfast/network" in frame.f_code.co_filename:
                for value in frame.f_locals.values():
                    with contextlib.suppress(AttributeError):  # it is being made
                        found.append(repr(value))
        each = each.__cause__ or each.__context__
    return "\n".join(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("ca.pem", ca_pem()),
        ("app.crt", chain_pem(CLIENT)),
        ("app.key", key_pem(CLIENT)),
        ("secret.key", key_pem(CLIENT, "S3cr3t")),
        ("other.key", key_pem(OTHER)),
        ("empty.pem", ""),
        ("text.pem", "hello"),
        ("damaged.pem", ca_pem().replace("MII", "MI\u00e9", 1)),
        ("damaged.key", key_pem(CLIENT).replace("MI", "M\u00e9", 1)),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "trust.jceks").write_bytes(b"\xce\xce\xce\xce\0\0\0\2")
    (tmp_path / "ca.der").write_bytes(bytes.fromhex("308201fe308201a4a003"))
    (tmp_path / "broken.p12").write_bytes(bytes.fromhex("3082010002010330820100") + bytes(240))
    return tmp_path


def pair(folder: Path, key: str = "app.key", **settings: Any) -> dict[str, Any]:
    return {"ssl_certfile": str(folder / "app.crt"), "ssl_keyfile": str(folder / key), **settings}


CASES: list[tuple[Callable[[Path], dict[str, Any]], list[str]]] = [
    (
        lambda d: {"ssl_cafile": str(d / "no.pem")},
        ["ssl_cafile: no such file: {d}/no.pem"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / ("x" * 300))},
        ["ssl_cafile: cannot read {d}/" + "x" * 300 + ": file name too long"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / "text.pem")},
        ["ssl_cafile: {d}/text.pem is not a PEM file", "found: 68 65 6c 6c 6f"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / "empty.pem")},
        ["ssl_cafile: {d}/empty.pem is not a PEM file", "found: an empty file"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / "ca.der")},
        ["ssl_cafile: {d}/ca.der is not a PEM file", "found: 30 82 01 fe 30 82 01 a4"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / "app.key")},
        ["ssl_cafile: {d}/app.key has no certificate", "found: a private key"],
    ),
    (
        lambda d: {"ssl_ca_pem": "-----BEGIN NOTHING-----"},
        ["ssl_ca_pem: the text has no certificate"],
    ),
    (
        lambda d: {"ssl_ca_pem": ca_pem().replace("MII", "AAA", 1)},
        ["ssl_ca_pem: a certificate cannot be read"],
    ),
    (
        lambda d: {"ssl_cafile": str(d / "damaged.pem")},
        [
            "ssl_cafile: {d}/damaged.pem is damaged",
            "found: a certificate with characters that are not ASCII",
        ],
    ),
    (
        lambda d: {"ssl_cafile": str(d)},
        ["ssl_cafile: {d}/damaged.pem is damaged"],
    ),
    (
        lambda d: {"ssl_ca_pem": (d / "damaged.pem").read_text()},
        ["ssl_ca_pem: the text is damaged"],
    ),
    (
        lambda d: pair(d, "damaged.key"),
        [
            "ssl_keyfile: {d}/damaged.key is damaged",
            "found: a private key with characters that are not ASCII",
        ],
    ),
    (
        lambda d: {"ssl_truststore_location": str(d / "trust.jks")},
        [
            "ssl_truststore_location: {d}/trust.jks is a Java keystore (JKS), kfast reads PEM and "
            "PKCS#12",
            "try: keytool -exportcert -rfc -keystore {d}/trust.jks -alias ALIAS -file ca.pem",
        ],
    ),
    (
        lambda d: {"ssl.keystore.location": str(d / "trust.jceks"), "ssl.keystore.type": "PKCS12"},
        [
            "ssl.keystore.location: {d}/trust.jceks is a Java keystore (JCEKS), kfast reads PEM "
            "and PKCS#12",
            "try: keytool -importkeystore -srckeystore {d}/trust.jceks -destkeystore client.p12 "
            "-deststoretype PKCS12 -srcstoretype JCEKS",
        ],
    ),
    (
        lambda d: {"ssl_crlfile": str(d / "ca.pem")},
        ["ssl_crlfile: {d}/ca.pem has no certificate revocation list", "found: a certificate"],
    ),
    (
        lambda d: pair(d, "no.key"),
        ["ssl_keyfile: no such file: {d}/no.key"],
    ),
    (
        lambda d: {"ssl_certfile": str(d / "app.crt")},
        ["ssl_certfile: {d}/app.crt has no private key", "found: a certificate"],
    ),
    (
        lambda d: pair(d, "secret.key", ssl_password="wrong S3cr3t"),
        ["ssl_keyfile: wrong password for {d}/secret.key (ssl_password)"],
    ),
    (
        lambda d: pair(d, "secret.key"),
        ["ssl_keyfile: {d}/secret.key is encrypted"],
    ),
    (
        lambda d: pair(d, "other.key"),
        ["ssl_keyfile: the key in {d}/other.key does not match the certificate in {d}/app.crt"],
    ),
    (
        lambda d: {"ssl_certificate_pem": chain_pem(CLIENT), "ssl_key_pem": key_pem(OTHER)},
        ["ssl_key_pem: the key does not match the certificate"],
    ),
    (
        lambda d: {
            "ssl_keystore_location": str(d / "broken.p12"),
            "ssl_keystore_password": "S3cr3t",
        },
        ["ssl_keystore_location: wrong password for {d}/broken.p12 (ssl_keystore_password)"],
    ),
    (
        lambda d: {"ssl_keystore_location": str(d / "broken.p12")},
        ["ssl_keystore_location: {d}/broken.p12 needs a password"],
    ),
    (
        lambda d: {"ssl_truststore_location": str(d / "ca.pem"), "ssl_truststore_type": "PKCS12"},
        ["ssl_truststore_location: {d}/ca.pem is not a PKCS#12 store"],
    ),
    (
        lambda d: pair(d, ssl_keystore_location=str(d / "broken.p12"), ssl_certfile=None),
        ["ssl_keyfile: the key is in {d}/broken.p12, which is PKCS#12"],
    ),
    (
        lambda d: {"ssl_context": "x"},
        ["bad value for ssl_context: 'x'"],
    ),
    (
        lambda d: {"ssl_context": [1]},
        ["ssl_context is a list, not an ssl.SSLContext"],
    ),
    (
        lambda d: {"ssl_context": server_context()},
        ["ssl_context is a context for servers"],
    ),
]


@pytest.mark.parametrize(("settings", "lines"), CASES)
def test_what_is_wrong_is_said_by_the_constructor(
    folder: Path, settings: Callable[[Path], dict[str, Any]], lines: list[str]
) -> None:
    """E-02, E-11, S-09"""
    given = {name: value for name, value in settings(folder).items() if value is not None}
    found = refusal(**given).splitlines()
    expected = [line.format(d=folder) for line in lines]
    assert found[0] == expected[0]
    assert set(expected) <= set(found)


def test_a_callable_for_a_password_that_fails(folder: Path) -> None:
    """E-02"""

    def fail() -> str:
        raise LookupError("no such entry")

    settings = pair(folder, "secret.key", ssl_password=fail)
    assert refusal(**settings).startswith("ssl_password: the callable raised LookupError\n")
    settings = pair(folder, "secret.key", ssl_password=lambda: 3)
    assert refusal(**settings).startswith("ssl_password: the callable did not return a str\n")


def test_pkcs12_without_its_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-11"""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    path = folder / "broken.p12"
    with pytest.raises(MissingDependencyError) as caught:
        kfast.KafkaConsumer(
            bootstrap_servers="b1:9094", security_protocol="SSL", ssl_keystore_location=path
        )
    assert str(caught.value).splitlines() == [
        "PKCS#12 stores need cryptography",
        f"found: ssl_keystore_location: {path}",
        'try: pip install "kfast[tls]", or convert: '
        f"openssl pkcs12 -in {path} -out broken.pem -nodes",
    ]


def test_a_folder_of_trusted_certificates(folder: Path) -> None:
    """S-02: whatever the names of its files are."""
    cafile = str(folder)
    (folder / "damaged.pem").unlink()
    with serving(until_closed, server_context()) as port, connected(port, ssl_cafile=cafile):
        pass
    (folder / "none").mkdir()
    assert refusal(ssl_cafile=folder / "none").startswith(
        f"ssl_cafile: no file in {folder / 'none'} has a certificate\n"
    )


def test_a_file_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-02"""

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    text = refusal(ssl_cafile=folder / "ca.pem")
    assert text.startswith(f"ssl_cafile: cannot read {folder}/ca.pem: permission denied\n")
