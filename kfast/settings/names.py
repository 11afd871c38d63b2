"""Other names for settings, and names that are refused with advice.

Owns four tables. ``ALIASES`` holds the names of librdkafka (confluent-kafka) and kafka-python for
a setting, only where they mean the same; ``REFUSED`` holds keys of other clients that kfast does
not support, with what to use instead; ``FOREIGN`` holds further keys that a file of settings may
have for programs of another kind; ``REGISTRY_ARGUMENTS`` holds those of a schema registry. Names
are in keyword form (``_`` for ``.``).

Also settings by name: ``SETTINGS`` has every setting by its keyword, and mistakes in names and
values have their texts here. An ``origin`` is where a name was written, such as
``./client.properties:4``; it stands in the message.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.settings.kinds import PEM_START, Setting, default_text
from kfast.settings.secret import Secret
from kfast.settings.table import SettingsTable

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    name: row for name, row in vars(SettingsTable).items() if isinstance(row, Setting)
}
"""Every setting by its keyword."""

_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def keyword(spelling: str) -> str:
    """Return a name with ``_`` for ``.``; no name has both."""
    return spelling if "." in spelling and "_" in spelling else spelling.replace(".", "_")


def setting_of(spelling: object) -> Setting[Any] | None:
    """Return the setting that a name stands for, None if there is none."""
    if not isinstance(spelling, str):
        return None
    name = keyword(spelling)
    return SETTINGS.get(ALIASES[name].name if name in ALIASES else name)


def may_be_secret(name: object, value: object) -> bool:
    """Return whether a value must not be shown: of a secret, or text under an unknown name."""
    if value is None or isinstance(value, Secret) or not isinstance(name, str):
        return False
    row = setting_of(name)
    return isinstance(value, str) if row is None else row.is_secret


def find(spelling: object, raw: object, origin: str | None = None) -> tuple[Setting[Any], object]:
    """Return the setting a name stands for, and the value as kfast writes it."""
    if not isinstance(spelling, str):
        raise ConfigurationError(
            f"the name of a setting is a str, not {show(spelling)}",
            hint='pass settings as keywords or as a mapping such as {"group.id": ...}',
        )
    name = keyword(spelling)
    row = setting_of(name)
    if row is None:
        if name in REFUSED:
            raise ConfigurationError(
                f'config "{spelling}" is not supported{at(origin)}', hint=REFUSED[name]
            )
        raise _unknown(spelling, origin)
    if name in ALIASES:
        alias = ALIASES[name]
        key = raw.strip().lower() if isinstance(raw, str) else raw
        if isinstance(key, str | int) and key in alias.values:
            raw = alias.values[key]
    return row, raw


def parse(row: Setting[Any], spelling: str, raw: object, origin: str | None = None) -> Any:
    """Return the value of a setting, or raise what is wrong with it."""
    try:
        return row.parse(raw)
    except ValueError as error:
        reason = str(error)  # never quotes a secret
    # Raised outside the handler: a chained exception would carry the value of a secret along. Nor
    # are addresses shown: they may contain passwords.
    shown = "" if row.is_secret or row.is_required else f": {show(raw)}"
    expected = ", ".join(filter(None, (row.type_name, row.valid)))
    default = "" if row.is_required else f" (default {default_text(row.default)})"
    raise ConfigurationError(
        f"bad value for {spelling}{shown}{at(origin)}", cause=reason, hint=f"{expected}{default}"
    )


def in_style(name: str, spelling: str) -> str:
    """Return a keyword written with dots if the user writes dots."""
    return name.replace("_", ".") if "." in spelling else name


def show(value: object) -> str:
    """Return the ``repr`` of a value for a message, shortened; PEM may be a private key."""
    return "PEM text" if isinstance(value, str) and PEM_START in value else _short.repr(value)


def at(origin: str | None) -> str:
    """Return the origin of a name in parentheses, for a message."""
    return "" if origin is None else f" ({origin})"


def _unknown(spelling: str, origin: str | None) -> ConfigurationError:
    names = {in_style(name, spelling): name for name in (*SETTINGS, *ALIASES)}
    message = f'unknown config "{spelling}"{at(origin)}'
    near = did_you_mean(spelling, names)
    if near is not None:
        row = setting_of(near)
        assert row is not None
        advice = f"did you mean {near} ({row.summary})?"
        if origin is not None:
            return ConfigurationError(message, hint=advice)
        return ConfigurationError(f"{message}; {advice}", hint=f"use {near}")
    ours = [in_style(name, spelling) for name in SETTINGS]
    import difflib  # noqa: PLC0415 - for mistakes only

    similar = difflib.get_close_matches(spelling, ours, n=3, cutoff=0.6)
    return ConfigurationError(
        message + (f"; similar: {', '.join(similar)}" if similar else ""),
        hint="see ConsumerConfig.describe() for all settings",
        command_hint="kfast config list",
    )


@dataclass(slots=True, frozen=True)
class Alias:
    """Another client's name for a setting."""

    name: str
    """kfast's keyword."""
    values: Mapping[object, object] = field(default_factory=dict)
    """Values that the other client writes differently: theirs to kfast's."""


_OS_DEFAULT: Final = {0: -1, "0": -1}
_HOST_CHECK: Final = {True: "https", "true": "https", False: "", "false": ""}

ALIASES: Final[Mapping[str, Alias]] = {
    # librdkafka
    "metadata_broker_list": Alias("bootstrap_servers"),
    "fetch_wait_max_ms": Alias("fetch_max_wait_ms"),
    "fetch_message_max_bytes": Alias("max_partition_fetch_bytes"),
    "max_in_flight": Alias("max_in_flight_requests_per_connection"),
    "socket_receive_buffer_bytes": Alias("receive_buffer_bytes", _OS_DEFAULT),
    "socket_send_buffer_bytes": Alias("send_buffer_bytes", _OS_DEFAULT),
    "sasl_mechanisms": Alias("sasl_mechanism"),
    "sasl_username": Alias("sasl_plain_username"),
    "sasl_password": Alias("sasl_plain_password"),
    "sasl_oauthbearer_client_id": Alias("sasl_oauthbearer_client_credentials_client_id"),
    "sasl_oauthbearer_client_secret": Alias("sasl_oauthbearer_client_credentials_client_secret"),
    "oauth_cb": Alias("sasl_login_callback_handler_class"),
    "ssl_ca_location": Alias("ssl_truststore_location", {"probe": None}),
    "ssl_ca_pem": Alias("ssl_truststore_certificates"),
    "ssl_crl_location": Alias("ssl_crlfile"),
    "ssl_certificate_location": Alias("ssl_keystore_location"),
    "ssl_certificate_pem": Alias("ssl_keystore_certificate_chain"),
    "ssl_key_location": Alias("ssl_keyfile"),
    "ssl_key_pem": Alias("ssl_keystore_key"),
    # kafka-python
    "sasl_oauth_token_provider": Alias("sasl_login_callback_handler_class"),
    "ssl_cafile": Alias("ssl_truststore_location"),
    "ssl_certfile": Alias("ssl_keystore_location"),
    "ssl_password": Alias("ssl_key_password"),
    "ssl_check_hostname": Alias("ssl_endpoint_identification_algorithm", _HOST_CHECK),
}

_PEM = "give PEM files to ssl_truststore_location, ssl_keystore_location and ssl_keyfile"
_TLS_ENGINE = "it has no meaning outside Java; pass an ssl.SSLContext as ssl_context"
_KERBEROS = "it has no meaning outside Java; tickets come from the ticket cache or a keytab"
_SHARE = "it is for share groups, which kfast does not support"
_LOGIN_CLASS = "it has no meaning outside Java; pass an object as sasl_login_callback_handler_class"
_ASSERTION = "sign the assertion in an object passed as sasl_login_callback_handler_class"
_BROKER_SIDE = "it is for brokers, which validate tokens; a consumer only sends them"
_PRODUCER = "it is a producer setting; kfast is a consumer"
_LOGGING = 'configure the logger "kfast" of the logging module'
_METRICS = "call metrics()"
_BUFFER = "use buffer_memory_bytes, which limits the prefetched data"
_OPTIONS = "use socket_options, a list of (level, option, value)"
_TRANSPORT = "kfast always uses its own network thread"

REFUSED: Final[Mapping[str, str]] = {
    # Java only
    "config_providers": "it has no meaning outside Java; pass resolved values",
    "internal_throw_on_fetch_stable_offset_unsupported": "it is internal to the Java client",
    "security_providers": _TLS_ENGINE,
    "share_acknowledgement_mode": _SHARE,
    "share_acquire_mode": _SHARE,
    "ssl_engine_factory_class": _TLS_ENGINE,
    "ssl_keymanager_algorithm": _TLS_ENGINE,
    "ssl_provider": _TLS_ENGINE,
    "ssl_secure_random_implementation": _TLS_ENGINE,
    "ssl_trustmanager_algorithm": _TLS_ENGINE,
    "sasl_client_callback_handler_class": "use sasl_plain_username and sasl_plain_password",
    "sasl_kerberos_kinit_cmd": _KERBEROS,
    "sasl_kerberos_min_time_before_relogin": _KERBEROS,
    "sasl_kerberos_ticket_renew_jitter": _KERBEROS,
    "sasl_kerberos_ticket_renew_window_factor": _KERBEROS,
    "sasl_login_class": _LOGIN_CLASS,
    "sasl_oauthbearer_assertion_algorithm": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_aud": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_exp_seconds": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_iss": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_jti_include": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_nbf_seconds": _ASSERTION,
    "sasl_oauthbearer_assertion_claim_sub": _ASSERTION,
    "sasl_oauthbearer_assertion_file": _ASSERTION,
    "sasl_oauthbearer_assertion_private_key_file": _ASSERTION,
    "sasl_oauthbearer_assertion_private_key_passphrase": _ASSERTION,
    "sasl_oauthbearer_assertion_template_file": _ASSERTION,
    "sasl_oauthbearer_clock_skew_seconds": _BROKER_SIDE,
    "sasl_oauthbearer_expected_audience": _BROKER_SIDE,
    "sasl_oauthbearer_expected_issuer": _BROKER_SIDE,
    "sasl_oauthbearer_jwks_endpoint_refresh_ms": _BROKER_SIDE,
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": _BROKER_SIDE,
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": _BROKER_SIDE,
    "sasl_oauthbearer_jwks_endpoint_url": _BROKER_SIDE,
    "sasl_oauthbearer_jwt_retriever_class": _LOGIN_CLASS,
    "sasl_oauthbearer_jwt_validator_class": _BROKER_SIDE,
    "sasl_oauthbearer_scope_claim_name": _BROKER_SIDE,
    "sasl_oauthbearer_sub_claim_name": _BROKER_SIDE,
    # librdkafka, without an equivalent
    "socket_timeout_ms": "use request_timeout_ms",
    "socket_nagle_disable": f"TCP_NODELAY is set by default; otherwise {_OPTIONS}",
    "socket_keepalive_enable": _OPTIONS,
    "socket_max_fails": "a connection is closed at its first error",
    "broker_address_ttl": "host names are resolved again before every reconnect",
    "broker_address_family": "all addresses of a host name are tried",
    "reconnect_backoff_jitter_ms": "use reconnect_backoff_ms; the jitter is 20 %",
    "topic_metadata_refresh_interval_ms": "use metadata_max_age_ms",
    "topic_metadata_refresh_fast_interval_ms": "use retry_backoff_ms",
    "metadata_request_timeout_ms": "use request_timeout_ms",
    "queued_min_messages": _BUFFER,
    "queued_max_messages_kbytes": _BUFFER,
    "fetch_queue_backoff_ms": f"fetching continues as soon as memory is free; {_BUFFER}",
    "fetch_error_backoff_ms": "use retry_backoff_ms",
    "enable_auto_offset_store": "only returned records are committed; for less, call commit()",
    "auto_commit_enable": "use enable_auto_commit",
    "enable_partition_eof": "read_topic() and scan_topic() stop at the end; or call current_lag()",
    "offset_store_method": "offsets are always stored in Kafka",
    "consume_callback_max_messages": "use max_poll_records",
    "api_version_request": "ApiVersions is always requested",
    "api_version_request_timeout_ms": "use socket_connection_setup_timeout_ms",
    "api_version_fallback_ms": "ApiVersions is requested on every connection",
    "broker_version_fallback": "use api_version",
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "error_cb": "errors are raised by the calls of the consumer",
    "throttle_cb": _METRICS,
    "on_commit": "use default_offset_commit_callback",
    "debug": _LOGGING,
    "log_level": _LOGGING,
    "logger": _LOGGING,
    "log_connection_close": _LOGGING,
    "ssl_keystore": _PEM,
    "ssl_curves_list": _TLS_ENGINE,
    "ssl_sigalgs_list": _TLS_ENGINE,
    "enable_sasl_oauthbearer_unsecure_jwt": "use sasl_login_callback_handler_class",
    # kafka-python and aiokafka
    "kafka_client": _TRANSPORT,
    "selector": _TRANSPORT,
    "socks5_proxy": "use proxy_url",
    "loop": "kfast is synchronous; run the consumer in a thread",
    "rebalance_timeout_ms": "use max_poll_interval_ms",
    "api_version_auto_timeout_ms": "use bootstrap_timeout_ms",
    # producers
    "acks": _PRODUCER,
    "batch_size": _PRODUCER,
    "buffer_memory": f"{_PRODUCER}; a consumer's memory is limited by buffer_memory_bytes",
    "compression_type": _PRODUCER,
    "delivery_timeout_ms": _PRODUCER,
    "enable_idempotence": _PRODUCER,
    "key_serializer": f"{_PRODUCER}; use key_deserializer",
    "linger_ms": _PRODUCER,
    "max_block_ms": _PRODUCER,
    "max_request_size": _PRODUCER,
    "message_max_bytes": _PRODUCER,
    "retries": f"{_PRODUCER}; a consumer retries until the timeout of the call",
    "transactional_id": _PRODUCER,
    "value_serializer": f"{_PRODUCER}; use value_deserializer",
}

FOREIGN: Final = frozenset(
    [
        "key_deserializer",
        "value_deserializer",
        "interceptor_classes",
        "metric_reporters",
        "batch_num_messages",
        "builtin_features",
        "compression_codec",
        "compression_gzip_level",
        "compression_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "coordinator_query_interval_ms",
        "delivery_report_only_error",
        "enable_gapless_guarantee",
        "enable_random_seed",
        "group_protocol_type",
        "internal_termination_signal",
        "key_converter",
        "message_copy_max_bytes",
        "message_send_max_retries",
        "message_timeout_ms",
        "metadata_max_idle_ms",
        "partitioner",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "partitioner_class",
        "partitioner_ignore_keys",
        "plugin_library_paths",
        "produce_offset_report",
        "queue_buffering_backpressure_threshold",
        "queue_buffering_max_kbytes",
        "queue_buffering_max_messages",
        "queue_buffering_max_ms",
        "queuing_strategy",
        "request_required_acks",
        "ssl_ca_certificate_stores",
        "ssl_engine_id",
        "ssl_engine_location",
        "ssl_providers",
        "sticky_partitioning_linger_ms",
        "topic_blacklist",
        "topic_metadata_propagation_max_ms",
        "topic_metadata_refresh_sparse",
        "transaction_timeout_ms",
        "transaction_two_phase_commit_enable",
        "value_converter",
    ]
)
"""In a file the first four are names of Java classes."""

REGISTRY_PREFIXES: Final = ("schema_registry_", "basic_auth_", "bearer_auth_")
"""What the settings of a schema registry begin with, of which the clients of Kafka know nothing."""

REGISTRY_ARGUMENTS: Final = {
    "basic_auth_user_info": "basic_auth",
    "bearer_auth_token": "bearer_token",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_key_password",
}
"""Confluent's names for settings of a schema registry, and the arguments of `SchemaRegistry`."""

_FOREIGN_PREFIXES: Final = ("admin_", "confluent_", "producer_", "topic_")


def is_foreign(name: str) -> bool:
    """Return whether a name in a file is a setting for other clients than kfast."""
    return name in REFUSED or name in FOREIGN or name.startswith(_FOREIGN_PREFIXES)
