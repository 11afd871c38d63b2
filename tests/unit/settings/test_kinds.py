"""Kinds of settings: accepted values and what they are parsed into."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError
from tests.unit.configs import config, refusal

# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, "7", " 7 ", "+7", np.int64(7), np.uint8(7)], ids=repr)
def test_whole_numbers(value: object) -> None:
    result = config(fetch_min_bytes=value).fetch_min_bytes
    assert result == 7
    assert type(result) is int


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (-1, "less than 0"),
        (2**31, "more than 2147483647"),
        (7.0, "of type float, not int"),
        (True, "of type bool, not int"),
        (None, "of type NoneType, not int"),
        ("7.5", "not a whole number"),
        ("1_000", "not a whole number"),
        ("\u0667", "not a whole number"),
        ("", "not a whole number"),
        ([], "of type list, not int"),
    ],
)
def test_bad_numbers_name_key_value_and_range(value: object, cause: str) -> None:
    """E-02: the message names the key as given, the value and the range."""
    text = refusal({"fetch.min.bytes": value})
    assert text.splitlines() == [
        f"bad value for fetch.min.bytes: {value!r}",
        f"cause: {cause}",
        "try: int, 0 to 2147483647 (default 1)",
    ]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("auto_commit_interval_ms", 0, 2**31 - 1),
        ("fetch_max_bytes", 0, 2**31 - 1),
        ("fetch_max_wait_ms", 0, None),
        ("max_partition_fetch_bytes", 0, 2**31 - 1),
        ("max_poll_interval_ms", 1, 2**31 - 1),
        ("max_poll_records", 1, 2**31 - 1),
        ("metadata_max_age_ms", 0, 2**63 - 1),
        ("metrics_num_samples", 1, 2**31 - 1),
        ("receive_buffer_bytes", -1, 2**31 - 1),
        ("send_buffer_bytes", -1, 2**31 - 1),
        ("reconnect_backoff_ms", 0, 2**63 - 1),
        ("retry_backoff_ms", 0, 2**63 - 1),
        ("sasl_login_refresh_buffer_seconds", 0, 3600),
        ("sasl_login_refresh_min_period_seconds", 0, 900),
        ("sasl_login_refresh_window_factor", 0.5, 1.0),
        ("sasl_login_refresh_window_jitter", 0.0, 0.25),
        ("socket_connection_setup_timeout_ms", -(2**63), 2**63 - 1),
        ("max_decompressed_batch_bytes", 1, 2**31 - 1),
        ("buffer_memory_bytes", 1, 2**63 - 1),
        ("max_in_flight_requests_per_connection", 1, 2**31 - 1),
    ],
)
def test_limits_are_kafkas(name: str, low: float, high: float | None) -> None:
    """E-02: both ends of a range are allowed, one beyond is not."""
    assert getattr(config({name: low}), name) == low
    assert "bad value" in refusal({name: low - 1})
    if high is not None:
        assert getattr(config({name: high}), name) == high
        assert "bad value" in refusal({name: high + 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (False, False), ("true", True), (" FALSE", False), (np.bool_(True), True)],
)
def test_switches(value: object, expected: bool) -> None:
    assert config(check_crcs=value).check_crcs is expected


@pytest.mark.parametrize("value", [1, 0, "yes", "1", None, []])
def test_bad_switches(value: object) -> None:
    """E-02"""
    assert "cause: neither true nor false\ntry: bool, true, false" in refusal(check_crcs=value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("isolation_level", "read_committed", "read_committed"),
        ("group_protocol", "CLASSIC", "classic"),
        ("metadata_recovery_strategy", "REBOOTSTRAP", "rebootstrap"),
        ("metadata_recovery_strategy", "None", "none"),
        ("security_protocol", "plaintext", "PLAINTEXT"),
        ("client_dns_lookup", "resolve_canonical_bootstrap_servers_only", None),
        ("metrics_recording_level", "TRACE", "TRACE"),
        ("sasl_mechanism", "SCRAM-SHA-512", "SCRAM-SHA-512"),
        ("sasl_mechanism", "aws_msk_iam", "AWS_MSK_IAM"),
        ("ssl_endpoint_identification_algorithm", "none", ""),
        ("ssl_endpoint_identification_algorithm", "HTTPS", "https"),
        ("on_deserialization_error", "skip", "skip"),
    ],
)
def test_words(name: str, value: str, expected: str | None) -> None:
    assert getattr(config({name: value}), name) == (value if expected is None else expected)


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        ("isolation_level", "READ_COMMITTED", "read_committed"),
        ("isolation_level", "read_commited", "read_committed"),
        ("client_dns_lookup", "use_all_dns_ip", "use_all_dns_ips"),
        ("metrics_recording_level", "info", "INFO"),
        ("auto_offset_reset", "Earliest", "earliest"),
        ("sasl_mechanism", "plane", "PLAIN"),
        ("group_protocol", "clasic", "classic"),
    ],
)
def test_bad_words_get_the_nearest(name: str, value: str, near: str) -> None:
    """E-02: exact case where Kafka wants it, and the nearest word in the message."""
    text = refusal({name: value})
    assert f"bad value for {name}: {value!r}" in text
    assert f'did you mean "{near}"?' in text


def test_text() -> None:
    assert config(client_id="app", client_rack="eu-1").client_rack == "eu-1"
    assert "of type int, not str" in refusal(client_id=5)
    assert "of type NoneType, not str" in refusal(client_id=None)
    assert "cause: empty" in refusal(group_instance_id="")
    assert config(group_instance_id=None).group_instance_id is None


def test_lists() -> None:
    assert config(ssl_enabled_protocols="TLSv1.3, TLSv1.2").ssl_enabled_protocols == (
        "TLSv1.3",
        "TLSv1.2",
    )
    assert config(ssl_enabled_protocols=["TLSv1.3"]).ssl_enabled_protocols == ("TLSv1.3",)
    assert config(ssl_cipher_suites="").ssl_cipher_suites == ()
    assert "of type int, not a list" in refusal(ssl_enabled_protocols=3)
    assert "of type bytes, not a list" in refusal(ssl_enabled_protocols=b"TLS")


def test_numbers_with_fractions() -> None:
    assert config(consumer_timeout_ms=5).consumer_timeout_ms == 5
    assert config(consumer_timeout_ms="1e3").consumer_timeout_ms == 1000
    assert config().consumer_timeout_ms == float("inf")
    for value in (-1, float("nan"), None, "soon", True):
        assert "bad value" in refusal(consumer_timeout_ms=value)


def test_objects_are_never_loaded_by_name() -> None:
    """S-09: a string where an object is needed is refused, not imported."""
    for name in (
        "key_deserializer",
        "value_deserializer",
        "interceptor_classes",
        "metric_reporters",
        "ssl_context",
        "sasl_login_callback_handler_class",
    ):
        assert "does not load classes by name" in refusal({name: "os.system"})
    assert "where an object is needed" in refusal(value_deserializer=5)
    assert config(value_deserializer=len).value_deserializer is len
    thing = object()
    assert config(interceptor_classes=[thing]).interceptor_classes == (thing,)
    assert "cannot be called" in refusal(default_offset_commit_callback=5)
    assert config(default_offset_commit_callback=len).default_offset_commit_callback is len


def test_assignors_by_name_or_object() -> None:
    java = "org.apache.kafka.clients.consumer.StickyAssignor"
    thing = object()
    value = config(partition_assignment_strategy=[java, "range", thing])
    assert value.partition_assignment_strategy == ("sticky", "range", thing)
    assert config(partition_assignment_strategy="roundrobin").partition_assignment_strategy == (
        "roundrobin",
    )
    assert config(partition_assignment_strategy=len).partition_assignment_strategy == (len,)
    assert 'did you mean "range"' in refusal(partition_assignment_strategy="rang")
    assert "cause: empty" in refusal(partition_assignment_strategy=[])


def test_release_ceiling() -> None:
    assert config(api_version=(2, 8)).api_version == (2, 8)
    assert config(api_version="3.7.1").api_version == (3, 7, 1)
    assert config(api_version=None).api_version is None
    for value in ("auto", (), (1, 2, 3, 4, 5), (-1,), 2):
        assert "bad value for api_version" in refusal(api_version=value)


def test_a_list_may_end_with_a_comma() -> None:
    """U-04: bootstrap servers and every other list that is given as one text."""
    assert config(bootstrap_servers="a:1,").bootstrap_servers == (("a", 1),)
    assert config(bootstrap_servers=" a:1 , b:2 , ").bootstrap_servers == (("a", 1), ("b", 2))
    assert config(ssl_enabled_protocols="TLSv1.3,").ssl_enabled_protocols == ("TLSv1.3",)


def test_a_group_may_have_any_name() -> None:
    """U-05: as brokers take it; log lines escape it."""
    assert config(group_id="a\tb\n").group_id == "a\tb\n"
    assert "32768 bytes" in refusal(group_id="x" * 32_768)


@pytest.mark.parametrize("name", ["client_id", "client_rack"])
def test_names_in_log_lines_are_one_line(name: str) -> None:
    """U-05: a line end, such as one read from a file, would break every log line."""
    for value in ("a\n", "a\rb", "a\x00", "\x1b[31m", "a\x85"):
        assert "it has a control character" in refusal({name: value})
    assert "32768 bytes" in refusal({name: "x" * 32_768})
    assert getattr(config({name: "Größe 1: ж"}), name) == "Größe 1: ж"


def test_a_path_that_no_file_can_have_is_refused() -> None:
    """U-02: bytes that are not UTF-8 may be in one, half a character not."""
    assert "half a character" in refusal(ssl_cafile="a\ud800")
    assert config(ssl_cafile="a\udcff").ssl_truststore_location == "a\udcff"


def test_socket_options() -> None:
    assert config().socket_options == ((6, 1, 1),)
    assert config(socket_options=[[1, 9, 1]]).socket_options == ((1, 9, 1),)
    assert config(socket_options=None).socket_options == ()
    assert config(socket_options=[(1, 13, b"12345678")]).socket_options[0][2] == b"12345678"
    for value in ("x", 5, [1], [(1, 2)], ["abc"], [(1, 2, "x")], [(1, 2, 1 << 31)], [(b"", 1, 1)]):
        assert "bad value for socket_options" in refusal(socket_options=value)


@pytest.mark.parametrize(
    "value",
    [
        "earliest",
        "latest",
        "none",
        "by_duration:P7D",
        "by_duration:PT12H",
        "by_duration:P1DT2H3M4.5S",
        "by_duration:pt0.001s",
        "by_duration:P-1DT25H",
    ],
)
def test_offset_reset(value: str) -> None:
    """P-02: earliest, latest, none and by_duration:<ISO-8601>."""
    assert config(auto_offset_reset=value).auto_offset_reset == value


@pytest.mark.parametrize(
    "value",
    [
        "by_duration:",
        "by_duration:7D",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:P1H",
        "by_duration:P1Y",
        "by_duration:PT1.0000000001S",
        "by_duration:-PT1S",
        "by_duration:PT-1S",
        "by_duration:PT-0.5S",
        "by_duration:P1DT-25H",
        "by_duration:P99999999999999999D",
        "by_duration:P\u0667D",
        "beginning",
    ],
)
def test_bad_offset_reset_is_refused_at_construction(value: str) -> None:
    """P-02: negative or malformed durations are refused at construction."""
    assert refusal(auto_offset_reset=value).startswith(f"bad value for auto_offset_reset: '{value}")


@pytest.mark.parametrize(("old", "new"), [("smallest", "earliest"), ("largest", "latest")])
def test_deprecated_offset_resets(old: str, new: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="kfast"):
        assert config(auto_offset_reset=old).auto_offset_reset == new
    assert [record.getMessage() for record in caplog.records] == [
        f"auto_offset_reset={old} is deprecated: {new} is used"
    ]


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a:1,b.example.org:65535", [("a", 1), ("b.example.org", 65535)]),
        (" a:1 , b:2 ", [("a", 1), ("b", 2)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        (("a:1",), [("a", 1)]),
        ("a", [("a", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[2001:db8::1]", [("2001:db8::1", 9092)]),
        (["[fe80::1%eth0]:1"], [("fe80::1%eth0", 1)]),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2)]),
        ("my_host-1:9092", [("my_host-1", 9092)]),
    ],
)
def test_bootstrap_servers(value: object, expected: list[tuple[str, int]]) -> None:
    """E-04: strings and lists of host:port, IPv6 in brackets."""
    assert config(bootstrap_servers=value).bootstrap_servers == tuple(expected)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("", "empty"),
        ([], "empty"),
        ("a:1,,b:2", "an empty entry between two commas"),
        (",", "empty"),
        ("a:1,,", "an empty entry between two commas"),
        (["a:1", ""], "an empty entry between two commas"),
        ("a:1;b:2", '"a:1;b:2": servers are separated by commas, as in "b1:9092,b2:9092"'),
        ("a:1 b:2", '"a:1 b:2": servers are separated by commas, as in "b1:9092,b2:9092"'),
        ("a:0", '"a:0": a port must be between 1 and 65535'),
        ("a:65536", '"a:65536": a port must be between 1 and 65535'),
        ("a:b", '"a:b" is not host:port'),
        ("a:", '"a:" is not host:port'),
        (":9092", '":9092" is not host:port'),
        ("a b:1", '"a b:1" is not host:port'),
        ("::1", '"::1": an IPv6 address needs brackets, as in "[::1]:9092"'),
        ("::1:9092", '"::1:9092": an IPv6 address needs brackets, as in "[::1]:9092"'),
        ("[a]:1", '"[a]:1": only an IPv6 address may be in brackets'),
        ("[::1", '"[::1" is not host:port'),
        (
            "PLAINTEXT://a:1",
            '"PLAINTEXT://a:1" is not host:port; the protocol is set by security_protocol',
        ),
        (5, "of type int, not a list"),
        ([5], "of type int, not str"),
        (b"a:1", "of type bytes, not a list"),
        ({"a": 1}, "of type dict, not a list"),
    ],
)
def test_bad_bootstrap_servers(value: object, cause: str) -> None:
    """E-04: malformed input says which entry and what is expected."""
    lines = refusal(bootstrap_servers=value).splitlines()
    assert lines[:2] == ["bad value for bootstrap_servers", f"cause: {cause}"]
    assert "host:port" in lines[2]


def test_bootstrap_servers_must_be_given() -> None:
    """E-04: the error says what to pass."""
    with pytest.raises(ConfigurationError, match='pass bootstrap_servers="host:9092"'):
        ConsumerConfig()
