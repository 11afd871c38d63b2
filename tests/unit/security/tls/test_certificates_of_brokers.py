"""The certificate of a broker: what is verified, and what an error says when it is refused."""

from __future__ import annotations

import logging
import re
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kfast.errors import SslAuthenticationError
from tests.unit.network.serving import serving
from tests.unit.security.tls.authority import (
    DAY,
    NOW,
    authority,
    ca_pem,
    certificate,
    connected,
    crl_pem,
    server_context,
    until_closed,
)

YESTERDAY, TOMORROW = (f"{NOW + step:%Y-%m-%d}" for step in (-DAY, DAY))


def refusal(
    leaf: trustme.LeafCert, host: str = "127.0.0.1", **settings: Any
) -> tuple[SslAuthenticationError, list[str]]:
    """Return the error of connecting to a server with a certificate; its port becomes 9094."""
    with (
        serving(until_closed, server_context(leaf)) as port,
        pytest.raises(SslAuthenticationError) as caught,
        connected(port, host, **settings),
    ):
        pass
    error = caught.value
    assert not error.retriable
    text = str(error).replace(f":{port}", ":9094")
    return error, [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "NOW", line) for line in text.splitlines()]


def accept(leaf: trustme.LeafCert, host: str = "127.0.0.1", **settings: Any) -> None:
    """Connect to a server with a certificate."""
    with serving(until_closed, server_context(leaf)) as port, connected(port, host, **settings):
        pass


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (("b1.example",), "b1.example"),
        (("b1.example",), "B1.Example."),
        (("*.kafka.internal",), "broker-1.kafka.internal"),
        (("bücher.example",), "bücher.example"),
        (("bücher.example",), "xn--bcher-kva.example"),
        (("127.0.0.1",), "127.0.0.1"),
        (("::1",), "::1"),
        (("::1",), "0:0::0:1%lo"),
    ],
)
def test_a_host_is_what_its_certificate_says(names: tuple[str, ...], host: str) -> None:
    """S-02: names, wildcards, internationalized names and addresses."""
    accept(certificate(*names), host)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (("b1.example",), "b2.example"),
        (("*.kafka.internal",), "a.b.kafka.internal"),
        (("*.kafka.internal",), "kafka.internal"),
        (("127.0.0.1",), "127.0.0.2"),
        (("::1",), "127.0.0.1"),
        (("127.0.0.1",), "b1.example"),  # its common name, which is not looked at
    ],
)
def test_another_host_is_refused(names: tuple[str, ...], host: str) -> None:
    """S-02"""
    _, lines = refusal(certificate(*names), host)
    assert lines == [
        f"the certificate of {host}:9094 is for {names[0]}",
        f"cause: you connected to {host}",
        "try: connect by a name in the certificate",
    ]


def test_many_names_are_counted() -> None:
    """S-02: a broker of metadata may be given another address by its administrator."""
    leaf = certificate(*(f"b{number}.example" for number in range(30)))
    error, lines = refusal(leaf, "c.example", node_id=7)
    assert lines == [
        "the certificate of c.example:9094 is for b0.example, b1.example, b2.example, b3.example, "
        "b4.example and 15 more",
        "cause: you connected to c.example",
        "try: connect by a name in the certificate, or set advertised.listeners to one",
    ]
    assert error.node == 7


def test_an_unknown_authority(tmp_path: Path) -> None:
    """S-02: issuer and truststore are named."""
    other = authority("Another Root")
    _, lines = refusal(certificate(), ssl_ca_pem=ca_pem(other))
    assert lines[:2] == [
        "the certificate of 127.0.0.1:9094 is not trusted",
        'cause: its issuer "Corp Root" is not in ssl_ca_pem',
    ]
    assert re.fullmatch(
        r'found: certificate "b1.example", chain of 1, valid until \d{4}-\d\d-\d\d', lines[2]
    )
    assert lines[3] == 'try: ssl_cafile="..." with the CA that signed it'
    path = tmp_path / "corp.pem"
    path.write_text(ca_pem(other))
    _, lines = refusal(certificate(), ssl_cafile=str(path))
    assert lines[1] == f'cause: its issuer "Corp Root" is not in {path}'
    _, lines = refusal(certificate(), ssl_cafile=None)
    assert lines[1] == 'cause: its issuer "Corp Root" is not in the system\'s store'
    _, lines = refusal(certificate(), ssl_context=ssl.create_default_context())
    assert lines[1] == 'cause: its issuer "Corp Root" is not trusted by ssl_context'


def test_a_missing_intermediate() -> None:
    """S-02: the issuer that is missing is the one named."""
    leaf = authority().create_child_ca().issue_cert("127.0.0.1", common_name="b1")
    accept(leaf)
    alone = trustme.LeafCert(leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes(), [])
    _, lines = refusal(alone)
    assert lines[0] == "the certificate of 127.0.0.1:9094 is not trusted"
    assert re.fullmatch(r'cause: its issuer "Testing CA #.*" is not in ssl_ca_pem', lines[1])


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        (-2 * DAY, -DAY, f"expired on {YESTERDAY}"),
        (DAY, 2 * DAY, f"is not valid before {TOMORROW}"),
    ],
)
def test_a_certificate_of_another_time(begin: timedelta, end: timedelta, text: str) -> None:
    """S-02: it may be renewed, so connections are tried again soon."""
    leaf = authority().issue_cert(
        "127.0.0.1", common_name="b1.example", not_before=NOW + begin, not_after=NOW + end
    )
    error, lines = refusal(leaf)
    assert lines == [
        f"the certificate of 127.0.0.1:9094 {text}",
        'found: certificate "b1.example", issued by "Corp Root"',
        "try: renew it on the broker, or check this machine's clock (NOW UTC)",
    ]
    assert error.is_transient


def test_a_wrong_authority_does_not_get_better_by_trying() -> None:
    error, _ = refusal(certificate(), ssl_ca_pem=ca_pem(authority("Another Root")))
    assert not error.is_transient


def test_revocation_lists(tmp_path: Path) -> None:
    """S-02: a revoked certificate, a list without it, and no list of its issuer."""
    lists = tmp_path / "crl.pem"
    lists.write_text(crl_pem(certificate()))
    _, lines = refusal(certificate(), ssl_crlfile=str(lists))
    assert lines[0] == "the certificate of 127.0.0.1:9094 is revoked"
    lists.write_text(crl_pem(ca=authority("Another Root")))
    _, lines = refusal(certificate(), ssl_crlfile=str(lists))
    assert lines == [
        f'no CRL of issuer "Corp Root" in {lists}',
        "cause: the certificate of 127.0.0.1:9094 cannot be checked for revocation",
        "try: add the CRL of that CA to ssl_crlfile",
    ]
    lists.write_text(crl_pem(certificate("b9.example")))
    accept(certificate(), ssl_crlfile=str(lists))


def test_certificates_beside_a_revocation_list_are_not_trusted(tmp_path: Path) -> None:
    """S-02: the file of the lists is no truststore."""
    lists = tmp_path / "crl.pem"
    lists.write_text(ca_pem() + crl_pem())
    other = ca_pem(authority("Another Root"))
    _, lines = refusal(certificate(), ssl_crlfile=str(lists), ssl_ca_pem=other)
    assert lines[0] == "the certificate of 127.0.0.1:9094 is not trusted"


def test_host_names_are_left_unchecked_in_writing_only(caplog: pytest.LogCaptureFixture) -> None:
    """S-02: the chain is verified all the same, and there is one warning."""
    with caplog.at_level(logging.WARNING, "kfast"):
        accept(certificate("b1.example"), ssl_check_hostname=False)
    assert [record.getMessage() for record in caplog.records] == ["host name verification is off"]
    leaf, other = certificate("b1.example"), ca_pem(authority("Another Root"))
    _, lines = refusal(leaf, ssl_check_hostname=False, ssl_ca_pem=other)
    assert lines[0] == "the certificate of 127.0.0.1:9094 is not trusted"


def test_a_context_of_the_user_is_used_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """S-02: also one that verifies nothing, with a warning."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with caplog.at_level(logging.WARNING, "kfast"):
        accept(certificate("b1.example"), ssl_context=context)
    assert [record.getMessage() for record in caplog.records] == [
        "certificate verification is off: ssl_context does not verify brokers"
    ]


def test_other_words_of_openssl_are_shown() -> None:
    """S-02: whatever else is wrong with a certificate."""
    client = authority().issue_cert("127.0.0.1", common_name="weak", key_type=trustme.KeyType.RSA)
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(strict)
    strict.set_ciphers("DEFAULT:@SECLEVEL=4")
    _, lines = refusal(client, ssl_context=strict)
    assert (
        lines[0] == "the certificate of 127.0.0.1:9094 is not accepted: EE certificate key too weak"
    )
    assert lines[1].startswith('found: certificate "weak", issued by "Corp Root", valid until ')
