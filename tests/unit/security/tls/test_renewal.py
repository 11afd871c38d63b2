"""Files of certificates that are renewed while a consumer runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from kfast.security.tls import context as contexts
from kfast.security.tls.context import TlsContext
from tests.fake_clock import FakeClock
from tests.unit.configs import config
from tests.unit.security.tls.authority import authority, ca_pem, chain_pem, key_pem

ROOT = authority("Client Root")
FIRST, SECOND = (ROOT.issue_cert("app.example", common_name=name) for name in ("first", "second"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("ca", "crt", "key")}
    found["ca"].write_text(ca_pem())
    found["crt"].write_text(chain_pem(FIRST))
    found["key"].write_text(key_pem(FIRST))
    return found


def context_of(files: dict[str, Path], clock: FakeClock, **settings: Any) -> TlsContext:
    return TlsContext(
        config(
            security_protocol="SSL",
            ssl_cafile=files["ca"],
            ssl_certfile=files["crt"],
            ssl_keyfile=files["key"],
            **settings,
        ),
        clock,
    )


def client_of(context: TlsContext) -> str | None:
    identity = context.side.identity
    return None if identity is None else identity.subject


def later(clock: FakeClock) -> None:
    clock.advance(contexts.CHECK_MS)


def test_renewed_files_are_used_at_the_next_connection(
    files: dict[str, Path], clock: FakeClock
) -> None:
    """S-03: and what has not changed is not read again."""
    context = context_of(files, clock)
    first = context.current()
    later(clock)
    assert context.current() is first
    files["crt"].write_text(chain_pem(SECOND))
    files["key"].write_text(key_pem(SECOND))
    assert context.current() is first, "looked at once in a second"
    later(clock)
    assert context.current() is not first
    assert (client_of(context), context.version) == ("second", 2)


def test_a_pair_half_written_is_not_used(
    files: dict[str, Path], clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S-03: the files before go on, with one warning, until the pair is complete."""
    context = context_of(files, clock)
    first = context.current()
    files["crt"].write_text(chain_pem(SECOND))
    with caplog.at_level(logging.WARNING, "kfast"):
        for _ in range(3):
            later(clock)
            assert context.current() is first
        files["key"].unlink()
        later(clock)
        assert context.current() is first
    assert [record.getMessage() for record in caplog.records] == [
        "changed TLS files are not used: ssl_keyfile: the key in "
        f"{files['key']} does not match the certificate in {files['crt']}",
        f"changed TLS files are not used: ssl_keyfile: no such file: {files['key']}",
    ]
    assert (client_of(context), context.version) == ("first", 1)
    files["key"].write_text(key_pem(SECOND))
    later(clock)
    assert context.current() is not first
    assert client_of(context) == "second"


def test_a_renewed_authority(files: dict[str, Path], clock: FakeClock) -> None:
    """S-02"""
    context = context_of(files, clock)
    files["ca"].write_text(ca_pem(authority("Another Root")))
    later(clock)
    (trusted,) = context.current().get_ca_certs()
    assert ("organizationalUnitName", "Another Root") in [pair[0] for pair in trusted["subject"]]


def test_a_replaced_link_is_seen(tmp_path: Path, files: dict[str, Path], clock: FakeClock) -> None:
    """S-03: as Kubernetes replaces a mounted secret, with files of the same age and size."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.pem").write_text(ca_pem(authority(f"Root {name}")))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    files["ca"] = link / "ca.pem"
    context = context_of(files, clock)
    first = context.current()
    link.unlink()
    link.symlink_to(tmp_path / "b")
    later(clock)
    assert context.current() is not first


def test_a_new_file_in_a_folder_is_seen(
    tmp_path: Path, files: dict[str, Path], clock: FakeClock
) -> None:
    """S-02"""
    folder = tmp_path / "trusted"
    folder.mkdir()
    (folder / "one.pem").write_text(ca_pem())
    context = context_of({**files, "ca": folder}, clock)
    assert len(context.current().get_ca_certs()) == 1
    (folder / "two.pem").write_text(ca_pem(authority("Another Root")))
    later(clock)
    assert len(context.current().get_ca_certs()) == 2


def test_a_password_is_asked_for_once(files: dict[str, Path], clock: FakeClock) -> None:
    """L-06: by the constructor, as the network thread runs no code of the user's."""
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return "hunter2"

    files["key"].write_text(key_pem(FIRST, "hunter2"))
    context = context_of(files, clock, ssl_password=password)
    files["crt"].write_text(chain_pem(SECOND))
    files["key"].write_text(key_pem(SECOND, "hunter2"))
    later(clock)
    context.current()
    assert client_of(context) == "second"
    assert asked == [1]


def test_a_context_of_the_user_stays(clock: FakeClock) -> None:
    """S-02"""
    own = ssl.create_default_context()
    options = own.options
    context = TlsContext(config(security_protocol="SSL", ssl_context=own), clock)
    later(clock)
    assert context.current() is own
    assert own.options == options


def test_what_a_context_allows(files: dict[str, Path], clock: FakeClock) -> None:
    """S-01, S-02: verification, and nothing old; a cut stream is not an end of data."""
    context = context_of(files, clock).current()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.hostname_checks_common_name
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert not context.options & getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    system = TlsContext(config(security_protocol="SSL"), clock).current()
    assert system.verify_mode is ssl.CERT_REQUIRED
