"""Names of settings, aliases and refused keys."""

from __future__ import annotations

import importlib
import re
import warnings

import pytest

from kfast.config import ConsumerConfig
from kfast.settings.names import ALIASES, REFUSED, SETTINGS
from tests.unit.configs import config, refusal

# The keys of Kafka 4.3's consumer and their defaults, as `kafka-clients` documents them.
KAFKA_DEFAULTS: dict[str, object] = {
    "allow.auto.create.topics": True,
    "auto.commit.interval.ms": 5000,
    "auto.offset.reset": "latest",
    "bootstrap.servers": (),
    "check.crcs": True,
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "",
    "client.rack": "",
    "connections.max.idle.ms": 540000,
    "default.api.timeout.ms": 60000,
    "enable.auto.commit": True,
    "enable.metrics.push": True,
    "exclude.internal.topics": True,
    "fetch.max.bytes": 52428800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "group.id": None,
    "group.instance.id": None,
    "group.protocol": "classic",
    "group.remote.assignor": None,
    "heartbeat.interval.ms": 3000,
    "interceptor.classes": (),
    "isolation.level": "read_uncommitted",
    "key.deserializer": None,
    "max.partition.fetch.bytes": 1048576,
    "max.poll.interval.ms": 300000,
    "max.poll.records": None,  # Kafka: 500
    "metadata.max.age.ms": 300000,
    "metadata.recovery.rebootstrap.trigger.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "metric.reporters": (),
    "metrics.num.samples": 2,
    "metrics.recording.level": "INFO",
    "metrics.sample.window.ms": 30000,
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
    "receive.buffer.bytes": -1,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "send.buffer.bytes": 131072,
    "session.timeout.ms": 45000,
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "value.deserializer": None,
    "ssl.cipher.suites": (),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.key.password": None,
    "ssl.keystore.certificate.chain": None,
    "ssl.keystore.key": None,
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.keystore.type": None,  # Kafka: JKS
    "ssl.protocol": "TLSv1.3",
    "ssl.truststore.certificates": None,
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "ssl.truststore.type": None,  # Kafka: JKS
    "sasl.jaas.config": None,
    "sasl.kerberos.service.name": None,
    "sasl.login.callback.handler.class": None,
    "sasl.login.connect.timeout.ms": None,
    "sasl.login.read.timeout.ms": None,
    "sasl.login.refresh.buffer.seconds": 300,
    "sasl.login.refresh.min.period.seconds": 60,
    "sasl.login.refresh.window.factor": 0.8,
    "sasl.login.refresh.window.jitter": 0.05,
    "sasl.login.retry.backoff.max.ms": 10000,
    "sasl.login.retry.backoff.ms": 100,
    "sasl.mechanism": "GSSAPI",
    "sasl.oauthbearer.client.credentials.client.id": None,
    "sasl.oauthbearer.client.credentials.client.secret": None,
    "sasl.oauthbearer.header.urlencode": False,
    "sasl.oauthbearer.scope": None,
    "sasl.oauthbearer.token.endpoint.url": None,
}

JAVA_ONLY = [
    "config.providers",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "security.providers",
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "sasl.client.callback.handler.class",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.class",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
]


OTHER_DEFAULTS: dict[str, object] = {
    "enable.metrics.push": False,
    "sasl.login.connect.timeout.ms": 10_000,
    "sasl.login.read.timeout.ms": 10_000,
}
"""Where kfast differs on purpose: no metrics are pushed, and no token is waited for without end."""

# --- the table ------------------------------------------------------------------------------------


def test_every_key_of_kafka_is_known() -> None:
    """E-03: all 116 keys of the Java consumer are either accepted or refused with a reason."""
    assert len(KAFKA_DEFAULTS) + len(JAVA_ONLY) == 116
    for key, default in KAFKA_DEFAULTS.items():
        assert SETTINGS[key.replace(".", "_")].default == OTHER_DEFAULTS.get(key, default), key


@pytest.mark.parametrize("key", JAVA_ONLY)
def test_java_only_keys_name_the_replacement(key: str) -> None:
    """E-01: a Java-only key raises with the replacement, or says that it has none."""
    for spelling in (key, key.replace(".", "_")):
        text = refusal({spelling: "x"})
        assert text.startswith(f'config "{spelling}" is not supported\ntry: ')


def test_refusals_name_settings_that_exist() -> None:
    for key, advice in REFUSED.items():
        for word in re.findall(r"\buse ([a-z]+_[a-z_]+)", advice):
            assert word in SETTINGS, (key, word)
        assert key not in SETTINGS
        assert key not in ALIASES
    for key, alias in ALIASES.items():
        assert alias.name in SETTINGS
        assert key not in SETTINGS


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "bootstrap_servers"])
def test_every_default_is_what_its_own_parser_makes_of_it(name: str) -> None:
    row = SETTINGS[name]
    if row.default is not None and row.default not in ("", ()):
        assert row.parse(row.default) == row.default
    assert row.doc
    assert row.name == name


def test_describe_lists_everything() -> None:
    rows = {info.name: info for info in ConsumerConfig.describe()}
    assert list(rows) == list(SETTINGS)
    assert rows["fetch_min_bytes"].key == "fetch.min.bytes"
    assert (rows["fetch_min_bytes"].type, rows["fetch_min_bytes"].default) == ("int", "1")
    assert rows["fetch_min_bytes"].valid == "0 to 2147483647"
    assert rows["fetch_max_wait_ms"].aliases == ("fetch_wait_max_ms",)
    assert rows["bootstrap_servers"].default == "required"
    assert rows["group_id"].default == "null"
    assert rows["check_crcs"].default == "true"
    assert rows["client_id"].default == '""'


def test_class_attributes_are_the_rows() -> None:
    assert ConsumerConfig.fetch_min_bytes is SETTINGS["fetch_min_bytes"]
    assert repr(SETTINGS["fetch_min_bytes"]) == "<Setting fetch_min_bytes: int, default 1>"


# --- names ----------------------------------------------------------------------------------------


def test_dotted_names_keywords_and_aliases_are_one() -> None:
    """E-03: Java's, the keywords' and librdkafka's names give the same configuration."""
    same = [
        config(fetch_max_wait_ms=200),
        config({"fetch.max.wait.ms": 200}),
        config({"fetch_max_wait_ms": "200"}),
        config({"fetch.wait.max.ms": 200}),
        config(fetch_wait_max_ms=200),
        config({"fetch.max.wait.ms": 200}, fetch_max_wait_ms=200),
    ]
    assert {item.fetch_max_wait_ms for item in same} == {200}
    assert config({"bootstrap.servers": "a:1"}).bootstrap_servers == (("a", 1),)
    assert config({"buffer.memory.bytes": 1 << 20}).buffer_memory_bytes == 1 << 20


def test_one_setting_given_two_values_raises() -> None:
    """E-03: the same setting twice is an error if, and only if, the values differ."""
    text = refusal({"fetch.min.bytes": 1}, fetch_min_bytes=2)
    assert text.startswith(
        "fetch.min.bytes and fetch_min_bytes are the same setting, given two values: 1 and 2"
    )
    assert "fetch.message.max.bytes" in refusal(
        {"fetch.message.max.bytes": 1, "max.partition.fetch.bytes": 2}
    )
    assert "given twice: 1 and 2" in refusal({"fetch_min_bytes": 1}, fetch_min_bytes=2)
    assert config({"fetch.min.bytes": "7"}, fetch_min_bytes=7).fetch_min_bytes == 7


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("fetch.min.bytez", "fetch.min.bytes (int, default 1)"),
        ("fetch_min_bytez", "fetch_min_bytes (int, default 1)"),
        ("bootstrap_server", "bootstrap_servers (list, required)"),
        ("Group.Id", "group.id (str, default null)"),
        ("check.crc", "check.crcs (bool, default true)"),
        ("fetch.min_bytes", "fetch.min.bytes (int, default 1)"),
        ("fetch.wait.max.m", "fetch.wait.max.ms (int, default 500)"),
        ("partition_assignment_strategi", "partition_assignment_strategy (list, default [range, "),
    ],
)
def test_unknown_names_get_the_nearest(given: str, near: str) -> None:
    """E-01: an unknown setting raises with the nearest name, in the user's own spelling."""
    assert refusal({given: 1}).startswith(f'unknown config "{given}"; did you mean {near}')


def test_names_far_from_all_get_similar_ones_or_none() -> None:
    """E-01: no silly guesses."""
    assert "similar: fetch_min_bytes" in refusal(fetch_bytes=1)
    assert refusal(zzz=1).splitlines()[0] == 'unknown config "zzz"'
    assert "the name of a setting is a str, not 3" in refusal({3: 4})


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("socket.timeout.ms", "request_timeout_ms"),
        ("queued.max.messages.kbytes", "buffer_memory_bytes"),
        ("statistics.interval.ms", "metrics()"),
        ("enable.auto.offset.store", "commit()"),
        ("kafka_client", "network thread"),
        ("selector", "network thread"),
        ("socks5_proxy", "proxy_url"),
        ("linger.ms", "producer"),
        ("value_serializer", "value_deserializer"),
    ],
)
def test_other_clients_names_are_refused_with_advice(key: str, advice: str) -> None:
    """E-01: a key of another client that means nothing here says what to use."""
    assert advice in refusal({key: 1})


def test_kafka_python_keywords_are_all_known() -> None:
    """E-03: every keyword of kafka-python's KafkaConsumer is accepted or refused with advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it is not clean on every Python
        theirs = importlib.import_module("kafka").KafkaConsumer.DEFAULT_CONFIG
    refused = {"kafka_client", "selector", "socks5_proxy"}
    assert refused <= set(REFUSED)
    unknown = set(theirs) - refused - set(SETTINGS) - set(ALIASES)
    assert unknown == set()
    elsewhere = {  # their defaults, where Kafka's are others or we have our own
        "client_id",
        "default_offset_commit_callback",
        "max_poll_records",
        "metric_reporters",
        "partition_assignment_strategy",
        "reconnect_backoff_max_ms",
        "sasl_kerberos_service_name",
        "bootstrap_servers",
    }
    same = set(theirs) - refused - elsewhere - set(ALIASES)
    ours = config({name: theirs[name] for name in same} | {"enable_auto_commit": False})
    null_means = {"receive_buffer_bytes": -1, "send_buffer_bytes": -1, "sasl_mechanism": "GSSAPI"}
    for name in same - {"enable_auto_commit", "socket_options"}:
        expected = null_means.get(name, theirs[name])
        assert getattr(ours, name) == expected, name
        if name not in null_means:
            assert SETTINGS[name].default == expected, name


TLS_NAMES = {
    "ssl_truststore_location": ("ssl.ca.location", "ssl_cafile"),
    "ssl_truststore_certificates": ("ssl.ca.pem",),
    "ssl_crlfile": ("ssl.crl.location",),
    "ssl_keystore_location": ("ssl.certificate.location", "ssl_certfile"),
    "ssl_keyfile": ("ssl.key.location",),
    "ssl_keystore_certificate_chain": ("ssl.certificate.pem",),
    "ssl_keystore_key": ("ssl.key.pem",),
    "ssl_key_password": ("ssl_password",),
    "ssl_keystore_password": (),
    "ssl_endpoint_identification_algorithm": (),
    "ssl_cipher_suites": (),
    "enable_ssl_certificate_verification": (),
}


@pytest.mark.parametrize("name", TLS_NAMES)
def test_the_names_of_tls_settings_are_one(name: str) -> None:
    """E-03: librdkafka's, kafka-python's and Java's, each with dots and as a keyword."""
    value: object = {
        "ssl_endpoint_identification_algorithm": "none",
        "enable_ssl_certificate_verification": "true",
    }.get(name, "/a.pem" if name.endswith(("location", "file")) else "-----BEGIN x")
    expected = getattr(config({name: value}), name)
    for spelling in (name, *TLS_NAMES[name]):
        for key in (spelling, spelling.replace(".", "_"), spelling.replace("_", ".")):
            made = config({key: value})
            assert getattr(made, name) == expected
            assert made.spelling(name) == key


@pytest.mark.parametrize(
    ("name", "spellings", "value"),
    [
        ("sasl_mechanism", ["sasl.mechanisms"], "PLAIN"),
        ("sasl_plain_username", ["sasl.username"], "app"),
        ("sasl_plain_password", ["sasl.password"], "secret"),
        (
            "sasl_login_callback_handler_class",
            ["oauth_cb", "sasl_oauth_token_provider"],
            print,
        ),
        (
            "sasl_oauthbearer_client_credentials_client_id",
            ["sasl.oauthbearer.client.id"],
            "app",
        ),
        (
            "sasl_oauthbearer_client_credentials_client_secret",
            ["sasl.oauthbearer.client.secret"],
            "secret",
        ),
        ("sasl_oauthbearer_token_endpoint_url", [], "https://idp"),
        ("sasl_oauthbearer_scope", [], "kafka"),
        ("sasl_oauthbearer_extensions", [], "a=b,c=d"),
        ("sasl_oauthbearer_method", [], "oidc"),
        ("sasl_kerberos_service_name", [], "kafka"),
        ("sasl_kerberos_keytab", [], "/k"),
        ("sasl_kerberos_principal", [], "app@R"),
        ("https_ca_location", [], "/ca.pem"),
    ],
)
def test_the_names_of_sasl_settings_are_one(name: str, spellings: list[str], value: object) -> None:
    """E-03: librdkafka's, kafka-python's and Java's, each with dots and as a keyword."""
    expected = getattr(config({name: value}), name)
    assert expected is not None
    for spelling in (name, *spellings):
        for key in (spelling, spelling.replace(".", "_"), spelling.replace("_", ".")):
            made = config({key: value})
            assert getattr(made, name) == expected
            assert made.was_given(name)


def test_extensions_are_a_mapping_or_a_text() -> None:
    """E-03: as librdkafka writes them."""
    for value in ({"a": "b", "c": "d=e"}, "a=b,c=d=e", " a=b , c=d=e"):
        assert config(sasl_oauthbearer_extensions=value).sasl_oauthbearer_extensions == {
            "a": "b",
            "c": "d=e",
        }
    assert config(sasl_oauthbearer_extensions=None).sasl_oauthbearer_extensions == {}
    wrong: list[object] = ["a", "=b", 5, {"a": 5}, ["a=b"]]
    for each in wrong:
        text = refusal(sasl_oauthbearer_extensions=each)
        assert "bad value for sasl_oauthbearer_extensions" in text


def test_aliases_translate_values_that_are_written_otherwise() -> None:
    """E-03: ssl_check_hostname and librdkafka's 0 for "the system decides"."""
    assert config(ssl_check_hostname=False).ssl_endpoint_identification_algorithm == ""
    for value in (False, "none", "", None):
        made = config(ssl_endpoint_identification_algorithm=value)
        assert made.ssl_endpoint_identification_algorithm == ""
    assert config({"ssl.ca.location": "probe"}).ssl_truststore_location is None
    assert config(ssl_check_hostname="True").ssl_endpoint_identification_algorithm == "https"
    assert config({"socket.receive.buffer.bytes": 0}).receive_buffer_bytes == -1
    assert config({"socket.receive.buffer.bytes": "0"}).receive_buffer_bytes == -1
    assert config({"socket.send.buffer.bytes": 4096}).send_buffer_bytes == 4096
    assert config({"receive.buffer.bytes": 0}).receive_buffer_bytes == 0
