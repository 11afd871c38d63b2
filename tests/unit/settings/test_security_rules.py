"""Rules between the settings of TLS: what is said without reading a file."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from tests.unit.configs import config
from tests.unit.configs import refusal as any_refusal

PEM = "-----BEGIN CERTIFICATE-----\nS3cr3t"


def refusal(**settings: Any) -> str:
    text = any_refusal(security_protocol="SSL", **settings)
    assert "S3cr3t" not in text
    return text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ssl_truststore_location", "ssl_truststore_certificates"),
        ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
        ("ssl_keyfile", "ssl_keystore_key"),
    ],
)
def test_a_path_and_a_text_are_not_mistaken(path: str, text: str) -> None:
    """E-02, S-09: the right setting is named and nothing of a key is shown."""
    lines = refusal(**{path: PEM}).splitlines()
    assert lines[:2] == [
        f"bad value for {path}: PEM text",
        f"cause: PEM text, not a path; it is given as {text}",
    ]
    assert refusal(**{text: "/etc/S3cr3t.pem"}).splitlines()[:2] == [
        f"bad value for {text}",
        f"cause: no PEM text; a file is given as {path}",
    ]
    both = refusal(**{path: "/etc/a.pem", text: PEM})
    assert both == f"{path} and {text} cannot both be given\ntry: leave one of them out"


def test_a_key_and_a_certificate_belong_together() -> None:
    """E-02"""
    assert refusal(ssl_keyfile="/key.pem") == (
        "ssl_keyfile is given without a certificate\ntry: give the certificate as ssl_certfile"
    )
    assert refusal(ssl_certificate_pem=PEM) == (
        "ssl_certificate_pem is given without a private key\ntry: give the key as ssl_keystore_key"
    )


def test_a_context_stands_alone() -> None:
    """E-02: what would have no effect is refused; the check of host names is a setting of both."""
    context = ssl.create_default_context()
    made = config(security_protocol="SSL", ssl_context=context, ssl_check_hostname=True)
    assert made.ssl_context is context
    assert refusal(ssl_context=context, ssl_cafile="/ca.pem") == (
        "ssl_context and ssl_cafile cannot both be given\ntry: put it into the SSLContext"
    )
    both = refusal(ssl_context=context, ssl_enabled_protocols="TLSv1.3")
    assert both.startswith("ssl_context and ssl_enabled_protocols cannot both be given\n")


@pytest.mark.parametrize("version", ["TLSv1.1", "TLSv1", "SSLv3"])
def test_old_versions_are_refused(version: str) -> None:
    """S-01: there is no way to a weaker protocol."""
    assert f"{version} is not secure" in refusal(ssl_enabled_protocols=[version, "TLSv1.2"])
    assert f"{version} is not secure" in refusal(ssl_protocol=version)


def test_versions_of_tls() -> None:
    """E-02"""
    assert config(ssl_enabled_protocols="tlsv1.2").ssl_enabled_protocols == ("TLSv1.2",)
    assert config(ssl_protocol="TLS").ssl_protocol == "TLSv1.3"
    assert "empty" in refusal(ssl_enabled_protocols=[])
    assert "unknown value" in refusal(ssl_protocol="TLSv2")
    assert refusal(ssl_protocol="TLSv1.2", ssl_enabled_protocols="TLSv1.3") == (
        "ssl_protocol is TLSv1.2, which ssl_enabled_protocols leaves out\n"
        "try: leave ssl_protocol out"
    )


def test_two_kinds_of_cipher_lists() -> None:
    text = refusal(ssl_ciphers="HIGH", ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    assert text.startswith("ssl_ciphers and ssl_cipher_suites cannot both be given")


def test_certificates_are_always_verified() -> None:
    """S-02"""
    assert refusal(enable_ssl_certificate_verification=False) == (
        "enable_ssl_certificate_verification=False is not supported\n"
        "cause: certificates of brokers are always verified\n"
        "try: give the CA as ssl_cafile; for a throw-away test pass an ssl_context"
    )


def test_java_keystores_by_their_type() -> None:
    """E-02: with the command that converts them."""
    assert refusal(ssl_truststore_type="jks", ssl_truststore_location="/etc/trust.jks") == (
        "ssl_truststore_location: /etc/trust.jks is a Java keystore (JKS), kfast reads PEM and "
        "PKCS#12\n"
        "try: keytool -exportcert -rfc -keystore /etc/trust.jks -alias ALIAS -file ca.pem"
    )
    assert refusal(ssl_keystore_type="JCEKS", ssl_keystore_location="/etc/client.jks") == (
        "ssl_keystore_location: /etc/client.jks is a Java keystore (JCEKS), kfast reads PEM and "
        "PKCS#12\n"
        "try: keytool -importkeystore -srckeystore /etc/client.jks -destkeystore client.p12 "
        "-deststoretype PKCS12 -srcstoretype JCEKS"
    )


def test_settings_of_tls_matter_only_where_it_is_used(caplog: pytest.LogCaptureFixture) -> None:
    """E-02: shared configurations have them, and they have no effect."""
    made = config(ssl_keyfile="/key.pem", ssl_truststore_type="JKS")
    assert made.security_protocol == "PLAINTEXT"
    caplog.clear()
    config(
        security_protocol="SASL_PLAINTEXT",
        ssl_cafile="/ca.pem",
        ssl_keyfile="/key.pem",
        sasl_oauthbearer_token_endpoint_url="https://idp/token",
    )
    assert [record.getMessage() for record in caplog.records] == [
        "ssl_keyfile: no effect with security_protocol=SASL_PLAINTEXT"
    ]
