"""The reader of certificates over bytes that nobody checked."""

from __future__ import annotations

import ssl

from hypothesis import given, settings
from hypothesis import strategies as st

from kfast.security.certificates import (
    MAX_NAME_LENGTH,
    MAX_NAMES,
    CertificateFacts,
    read_certificate,
)
from tests.unit.security.tls.authority import authority, chain_pem

CERTIFICATES = [
    ssl.PEM_cert_to_DER_cert(chain_pem(authority().issue_cert(*names, common_name="b1")))
    for names in (["b1.example"], ["*.a.example", "::1", "127.0.0.1"])
]


def check(facts: CertificateFacts) -> None:
    assert len(facts.names) <= MAX_NAMES
    for shown in (facts.subject, facts.issuer, *facts.names):
        assert shown is None or (shown.isprintable() and len(shown) <= MAX_NAME_LENGTH)
    for moment in (facts.not_before, facts.not_after):
        assert moment is None or moment.tzinfo is not None


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """S-02: nothing is raised, and what is read is printable and bounded."""
    check(read_certificate(data))


@settings(max_examples=400)
@given(
    st.sampled_from(CERTIFICATES),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_changed_certificates(whole: bytes, changes: list[tuple[int, int]]) -> None:
    """S-02"""
    data = bytearray(whole)
    for at, value in changes:
        data[at % len(data)] = value
    check(read_certificate(bytes(data)))


@given(st.sampled_from(CERTIFICATES), st.integers(0, 2_000), st.binary(max_size=20))
def test_certificates_with_bytes_put_in(whole: bytes, at: int, more: bytes) -> None:
    """S-02"""
    check(read_certificate(whole[:at] + more + whole[at:]))
