"""Facts of certificates for messages: read from DER that anybody may have made."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kfast.security.certificates import (
    MAX_NAME_LENGTH,
    MAX_NAMES,
    CertificateFacts,
    names_text,
    printable,
    read_certificate,
)
from tests.unit.security.tls.authority import authority, chain_pem

KEY = ec.generate_private_key(ec.SECP256R1())
BEGIN, END = datetime(2025, 1, 3, 4, 5, 6, tzinfo=UTC), datetime(2061, 12, 31, 23, tzinfo=UTC)


def name(**parts: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(getattr(NameOID, key), value) for key, value in parts.items()]
    )


def der(
    subject: x509.Name, issuer: x509.Name | None = None, names: list[x509.GeneralName] | None = None
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or name(COMMON_NAME="Corp Root"))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(BEGIN)
        .not_valid_after(END)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_what_messages_need() -> None:
    """S-02"""
    facts = read_certificate(
        der(
            name(COUNTRY_NAME="DE", ORGANIZATION_NAME="Corp", COMMON_NAME="b1.example"),
            names=[
                x509.DNSName("*.example"),
                x509.RFC822Name("admin@example"),
                x509.IPAddress(ipaddress.ip_address("10.0.0.5")),
                x509.IPAddress(ipaddress.ip_address("2001:db8::1")),
            ],
        )
    )
    assert facts == CertificateFacts(
        "b1.example", "Corp Root", ("*.example", "10.0.0.5", "2001:db8::1"), BEGIN, END
    )
    assert facts.title == "b1.example"


@pytest.mark.parametrize(
    ("parts", "subject"),
    [
        ({"ORGANIZATION_NAME": "Corp", "ORGANIZATIONAL_UNIT_NAME": "CA 1"}, "CA 1"),
        ({"ORGANIZATION_NAME": "Corp"}, "Corp"),
        ({"COUNTRY_NAME": "DE"}, None),
        ({}, None),
        ({"COMMON_NAME": "Müller 漢字"}, "Müller 漢字"),
        ({"COMMON_NAME": "a\nb\x1b[31m\u202e"}, "a?b?[31m?"),
    ],
)
def test_names_of_subjects(parts: dict[str, str], subject: str | None) -> None:
    """S-02: printable, whatever is in them."""
    assert read_certificate(der(name(**parts))).subject == subject


def test_a_certificate_without_a_subject_has_a_title() -> None:
    facts = read_certificate(der(name(), names=[x509.DNSName("b1.example")]))
    assert (facts.subject, facts.title) == (None, "b1.example")


def test_names_are_bounded() -> None:
    """S-02: a certificate may have thousands of names."""
    names: list[x509.GeneralName] = [x509.DNSName(f"b{n}.example") for n in range(1_000)]
    facts = read_certificate(der(name(), names=names))
    assert len(facts.names) == MAX_NAMES
    assert names_text(facts.names[:5]) == ", ".join(facts.names[:5])
    assert names_text(facts.names[:7]).endswith("b4.example and 2 more")
    assert len(printable("x" * 500)) == MAX_NAME_LENGTH
    assert printable("x" * MAX_NAME_LENGTH) == "x" * MAX_NAME_LENGTH


def test_times_before_and_after_2050() -> None:
    """Two encodings: with two digits of the year up to 2049, with four from then on."""
    facts = read_certificate(der(name()))
    assert (facts.not_before, facts.not_after) == (BEGIN, END)


def test_what_python_reads_too() -> None:
    """The facts are those that ssl finds."""
    leaf = authority().issue_cert("a.example", "127.0.0.1", common_name="a")
    pem = chain_pem(leaf)
    facts = read_certificate(ssl.PEM_cert_to_DER_cert(pem))
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert facts.names == ("a.example", "127.0.0.1")
    assert facts.not_after == certificate.not_valid_after_utc
    assert facts.not_before == certificate.not_valid_before_utc


def test_damaged_certificates_have_no_facts() -> None:
    """S-02: wherever they are cut."""
    whole = der(name(COMMON_NAME="b1"), names=[x509.DNSName("b1.example")])
    assert read_certificate(whole).names == ("b1.example",)
    for size in range(len(whole)):
        assert read_certificate(whole[:size]) == CertificateFacts()
    assert read_certificate(b"\x30\x80" + whole) == CertificateFacts()
    assert read_certificate(bytes(1 << 17)) == CertificateFacts()
