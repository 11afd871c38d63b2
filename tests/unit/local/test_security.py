"""What of LocalKafka's security needs no broker: settings, logins, ACLs, and what is refused."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError, IllegalStateError, LocalKafkaError
from kfast.local.acl import Acl, create_acls, delete_acls, has_acl
from kfast.local.credentials import (
    alter_broker_config,
    alter_scram_credentials,
    broker_config,
    scram_iterations,
)
from kfast.local.local_kafka import LocalKafka
from kfast.local.node import _escape
from kfast.local.requests import Address
from kfast.local.security import LocalSecurity, _quoted

HOST = "127.0.0.1"


def make(protocols: Any = "SASL_SSL", **more: Any) -> LocalSecurity:
    defaults = {
        "users": {"app": "secret"},
        "acls": None,
        "mechanisms": None,
        "reauth_ms": 0,
        "certificates": None,
    }
    return LocalSecurity(protocols, **{**defaults, **more})


@pytest.fixture
def secured(tmp_path: Path) -> Any:
    made = make(("SASL_SSL", "SSL"), acls=[], reauth_ms=5000)
    made.start(tmp_path / "security", HOST)
    yield made
    made.stop()


# --- settings of brokers --------------------------------------------------------------------------


def test_without_security_nothing_is_set() -> None:
    plain = make("PLAINTEXT")
    plain.start(Path("/does/not/exist"), HOST)
    assert plain.broker_config() == {}
    assert plain.java_options() == ()
    assert not plain.listeners
    plain.apply([])
    assert plain.client_config("PLAINTEXT", None, None) == {"security_protocol": "PLAINTEXT"}
    plain.stop()


def test_without_security_no_tls_is_loaded() -> None:
    program = (
        "import sys; from kfast.local.local_kafka import LocalKafka; LocalKafka()\n"
        "sys.exit(bool({'ssl', 'cryptography', 'http.server'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_rules_without_another_listener_make_an_authorizer() -> None:
    assert make("PLAINTEXT", acls=[]).broker_config() == {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def test_each_protocol_has_a_listener_of_its_name(secured: LocalSecurity) -> None:
    config = secured.broker_config()
    assert config["listener.security.protocol.map"] == (
        "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,SSL_REQUIRED:SSL,CONTROLLER:PLAINTEXT"
    )
    assert config["connections.max.reauth.ms"] == "5000"
    assert config["listener.name.ssl.ssl.client.auth"] == "requested"
    assert config["listener.name.ssl_required.ssl.client.auth"] == "required"
    assert config["listener.name.sasl_ssl.sasl.enabled.mechanisms"] == (
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    )
    assert 'user_app"="secret"' in config["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    keystore = Path(config["listener.name.sasl_ssl.ssl.keystore.location"])
    assert keystore == secured.certificates.server
    assert (keystore.parent.stat().st_mode & 0o777) == 0o700
    (option,) = secured.java_options()
    assert option.endswith(
        config["listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"]
    )


@pytest.mark.parametrize(
    ("text", "jaas"),
    [
        ("secret", '"secret"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb\r", '"a\\nb\\r"'),
    ],
)
def test_jaas_values_are_quoted(text: str, jaas: str) -> None:
    assert _quoted(text) == jaas


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        (" a b", "\\ a b"),
        ("a\\b", "a\\\\b"),
        ("a\nb", "a\\nb"),
        ("Ⅸ", "\\u2168"),
        ("🔑", "\\ud83d\\udd11"),
        ("\t", "\\u0009"),
    ],
)
def test_properties_files_are_as_java_reads_them(value: str, written: str) -> None:
    assert _escape(value) == written


# --- logins ---------------------------------------------------------------------------------------


def test_logins_by_password(secured: LocalSecurity) -> None:
    expected = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(secured.certificates.ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "app",
        "sasl_plain_password": "secret",
    }
    assert secured.client_config("SASL_SSL", None, None) == expected
    plain = {"sasl_mechanism": "PLAIN"}
    assert secured.client_config("SASL_SSL", "app", "PLAIN") == expected | plain


def test_logins_by_token(secured: LocalSecurity) -> None:
    config = secured.client_config("SASL_SSL", None, "OAUTHBEARER")
    assert config["sasl_oauthbearer_token_endpoint_url"] == secured.token_endpoint
    assert config["sasl_oauthbearer_client_credentials_client_id"] == "app"
    assert config["sasl_oauthbearer_client_credentials_client_secret"] == "secret"


def test_logins_by_certificate(secured: LocalSecurity) -> None:
    assert "ssl_keystore_location" not in secured.client_config("SSL", None, None)
    assert Path(secured.client_config("SSL", "app", None)["ssl_keystore_location"]).exists()
    assert secured.listener("SSL") == "SSL"
    secured.set_client_auth("required")
    assert secured.listener("SSL") == "SSL_REQUIRED"
    assert secured.listener("SASL_SSL") == "SASL_SSL"
    assert Path(secured.client_config("SSL", None, None)["ssl_keystore_location"]).exists()


def test_what_a_login_cannot_be(secured: LocalSecurity) -> None:
    with pytest.raises(ConfigurationError, match='no user "other"'):
        secured.client_config("SASL_SSL", "other", None)
    with pytest.raises(ConfigurationError, match='mechanism = "SCRAM-SHA-1"') as raised:
        secured.client_config("SASL_SSL", None, "SCRAM-SHA-1")
    assert "SCRAM-SHA-256" in str(raised.value)
    with pytest.raises(ConfigurationError, match="SSL has no mechanisms"):
        secured.client_config("SSL", None, "PLAIN")
    with pytest.raises(ConfigurationError, match='no listener for "SASL_PLAINTEXT"') as raised:
        secured.protocol("SASL_PLAINTEXT")
    assert str(raised.value).splitlines()[1] == "found: PLAINTEXT, SASL_SSL, SSL"
    assert secured.protocol(None) == "SASL_SSL"
    assert secured.protocol("PLAINTEXT") == "PLAINTEXT"


def test_arguments_are_checked() -> None:
    for arguments, text in (
        ({"security": "TLS"}, 'security = "TLS": not one of PLAINTEXT, SSL'),
        ({"security": "SASL_SSI"}, 'did you mean "SASL_SSL"'),
        ({"security": ()}, "security: empty"),
        ({"security": ["SSL", "SSL"]}, "one is given twice"),
        ({"mechanisms": ["PLAIN", "LDAP"]}, 'mechanisms = "LDAP"'),
        ({"users": {"app": ""}}, "a name or a password is empty"),
        ({"reauth_ms": -1}, "reauth_ms = -1"),
    ):
        with pytest.raises(ConfigurationError) as raised:
            LocalKafka(**arguments)
        assert text in str(raised.value)


def test_what_is_not_there_before_the_start() -> None:
    kafka = LocalKafka(security="SASL_SSL")
    for use in (
        lambda: kafka.certificates,
        lambda: kafka.token_endpoint,
        lambda: kafka.token("app"),
        kafka.client_config,
        lambda: kafka.add_acl(Acl("User:a", "READ", topic="t")),
    ):
        with pytest.raises(IllegalStateError):
            use()
    assert make(users=None).users.keys() == {"app"}
    assert make(users=None).users != make(users=None).users
    with pytest.raises(ConfigurationError, match="no users"):
        make("SASL_PLAINTEXT", users={}).client_config("SASL_PLAINTEXT", None, "PLAIN")


# --- ACLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acl", "encoded"),
    [
        (
            Acl("User:a", "READ", topic="t"),
            "02 0001 74 03 0006 557365723a61 0001 2a 03 03",
        ),
        (
            Acl("User:a", "ALL", group="g*", permission="DENY", host="::1"),
            "03 0001 67 04 0006 557365723a61 0003 3a3a31 02 02",
        ),
        (
            Acl("User:*", "WRITE", transactional_id="*"),
            "05 0001 2a 03 0006 557365723a2a 0001 2a 04 03",
        ),
        (
            Acl("User:a", "CLUSTER_ACTION"),
            "04 000d 6b61666b612d636c7573746572 03 0006 557365723a61 0001 2a 09 03",
        ),
    ],
)
def test_rules_are_written_as_kafka_reads_them(acl: Acl, encoded: str) -> None:
    assert acl.encoded() == bytes.fromhex(encoded)


@pytest.mark.parametrize(
    ("make_acl", "text"),
    [
        (lambda: Acl("app", "READ", topic="t"), 'principal = "app": not TYPE:NAME'),
        (lambda: Acl("User:", "READ", topic="t"), "not TYPE:NAME"),
        (lambda: Acl("User:a", "REED", topic="t"), 'did you mean "READ"?'),
        (lambda: Acl("User:a", "READ", topic="t", permission="GRANT"), "not one of DENY, ALLOW"),
        (lambda: Acl("User:a", "READ", topic="t", group="g"), "one topic, group or"),
    ],
)
def test_rules_are_checked(make_acl: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make_acl()
    assert text in str(raised.value)


# --- requests -------------------------------------------------------------------------------------


class Broker:
    """Answers one request with a body and keeps what it has received."""

    def __init__(self, body: bytes) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._body = body
        self.received = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> Address:
        host, port = self._listener.getsockname()
        return host, port

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            self.received = connection.recv(65536)
            connection.sendall(struct.pack(">ii", 4 + len(self._body), 1) + self._body)

    def end(self) -> bytes:
        """Return what it has received."""
        self._thread.join(10)
        return self.received


def test_a_rule_that_is_refused_says_why() -> None:
    text = "No Authorizer is configured."
    body = struct.pack(f">iihh{len(text)}s", 0, 1, 54, len(text), text.encode())
    for change in (create_acls, delete_acls):
        broker = Broker(body)
        with pytest.raises(LocalKafkaError) as raised:
            change(broker.address, [Acl("User:a", "READ", topic="t")])
        broker.end()
        assert f"cause: {text} (error 54)" in str(raised.value)
        assert "LocalKafka(acls=[]) has an authorizer" in str(raised.value)


@pytest.mark.parametrize("count", [0, 1])
def test_a_broker_shows_the_rules_that_it_applies(count: int) -> None:
    broker = Broker(struct.pack(">ihhi", 0, 0, -1, count))
    assert has_acl(broker.address, Acl("User:a", "READ", topic="t")) is (count == 1)
    assert broker.end()[4:8] == bytes.fromhex("001d 0001")


def test_settings_that_are_refused_say_why() -> None:
    broker = Broker(struct.pack(">iihh3s", 0, 1, 40, 3, b"bad"))
    with pytest.raises(LocalKafkaError, match="broker 7 refuses new settings") as raised:
        alter_broker_config(broker.address, 7, {"a": "b"})
    assert raised.value.node == 7
    expected = "002c 0000 00000001 ffff 00000001 04 0001 37 00000001 0001 61 00 0001 62 00"
    assert broker.end()[4:] == bytes.fromhex(expected)


def test_settings_are_read_with_null_for_what_is_secret() -> None:
    entries = bytes.fromhex(
        "00000002 0001 61 0001 62 00 01 00 00000000 0001 63 ffff 00 01 01 00000000"
    )
    broker = Broker(bytes.fromhex("00000000 00000001 0000 ffff 04 0001 37") + entries)
    assert broker_config(broker.address, 7, ["a", "c"]) == {"a": "b", "c": None}
    broker.end()


def test_a_password_leaves_salted() -> None:
    broker = Broker(bytes.fromhex("00 00000000 02 04 617070 0000 00 00 00"))
    alter_scram_credentials(broker.address, {"app": "S3cr3t"}, "SCRAM-SHA-256", 4097)
    request = broker.end()
    assert b"S3cr3t" not in request
    # No deletion; one credential of app, SHA-256, 4097 iterations, 16 bytes of salt.
    assert bytes.fromhex("01 02 04 617070 01 00001001 11") in request


def test_a_password_that_is_refused_says_why() -> None:
    broker = Broker(bytes.fromhex("00 00000000 02 04 617070 005b 03 6e6f 00 00"))
    with pytest.raises(LocalKafkaError) as raised:
        alter_scram_credentials(broker.address, {"app": "x"}, "SCRAM-SHA-512", 4096)
    broker.end()
    assert str(raised.value) == 'cannot set the password of user "app"\ncause: no (error 91)'


def test_iterations_of_users_are_read() -> None:
    two = "03 01 00001000 00 02 00001001 00"
    broker = Broker(bytes.fromhex(f"00 00000000 0000 00 02 04 617070 0000 00 {two} 00 00"))
    assert scram_iterations(broker.address) == {
        ("app", "SCRAM-SHA-256"): 4096,
        ("app", "SCRAM-SHA-512"): 4097,
    }
    broker.end()
