"""ConsumerSettings: the types of all settings, for type checkers.

Made by ``python -m tools.settings_types`` out of the table of settings; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict


class ConsumerSettings(TypedDict, total=False):
    """Every setting of a consumer by keyword, with the other names it is known by.

    For functions that hand settings on: ``def open(**settings: Unpack[ConsumerSettings])``. The
    values are described by `kfast.ConsumerConfig.describe`; one that is read from a file may also
    be text.

    Examples
    --------
    >>> def open_topic(topic: str, **settings: Unpack[kfast.ConsumerSettings]):
    ...     return kfast.KafkaConsumer(topic, **settings)
    """

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    auto_offset_reset: str
    isolation_level: Literal["read_uncommitted", "read_committed"]
    key_deserializer: Any
    value_deserializer: Any
    on_deserialization_error: Literal["raise", "null", "skip"]
    check_crcs: bool
    max_poll_records: int | None
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    interceptor_classes: Sequence[object]
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    buffer_memory_bytes: int
    max_decompressed_batch_bytes: int
    receive_message_max_bytes: int
    decode_threads: int | None
    enable_incremental_fetch_sessions: bool
    request_timeout_ms: int
    default_api_timeout_ms: int
    bootstrap_timeout_ms: int
    consumer_timeout_ms: float
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    socket_options: Sequence[tuple[Any, ...]] | None
    max_in_flight_requests_per_connection: int
    api_version: str | tuple[int, ...] | None
    proxy_url: str | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[object]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    default_offset_commit_callback: Callable[..., object] | None
    metrics_enabled: bool
    metrics_num_samples: int
    metrics_sample_window_ms: int
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]
    metric_reporters: Sequence[object]
    metric_group_prefix: str
    enable_metrics_push: bool
    ssl_truststore_location: str | PathLike[str] | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS", "JCEKS", None]
    ssl_truststore_password: str | Callable[[], str] | None
    ssl_crlfile: str | PathLike[str] | None
    ssl_keystore_location: str | PathLike[str] | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS", "JCEKS", None]
    ssl_keystore_password: str | Callable[[], str] | None
    ssl_keyfile: str | PathLike[str] | None
    ssl_keystore_key: str | None
    ssl_key_password: str | Callable[[], str] | None
    ssl_endpoint_identification_algorithm: Literal["https", "", "none", None, False]
    ssl_enabled_protocols: str | Sequence[str]
    ssl_protocol: Literal["TLSv1.2", "TLSv1.3", "TLS"]
    ssl_cipher_suites: str | Sequence[str]
    ssl_ciphers: str | None
    ssl_context: Any
    enable_ssl_certificate_verification: bool
    sasl_mechanism: Literal[
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
        "GSSAPI",
        "AWS_MSK_IAM",
        None,
    ]
    sasl_plain_username: str | None
    sasl_plain_password: str | Callable[[], str] | None
    sasl_delegation_token: bool
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | None
    sasl_login_callback_handler_class: object
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_refresh_buffer_seconds: int
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_oauthbearer_method: Literal["default", "oidc"]
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_extensions: str | Mapping[str, str]
    sasl_oauthbearer_config: str | None
    https_ca_location: str | None

    # Other clients' names
    metadata_broker_list: str | Sequence[str]
    fetch_wait_max_ms: int
    fetch_message_max_bytes: int
    max_in_flight: int
    socket_receive_buffer_bytes: int | None
    socket_send_buffer_bytes: int | None
    sasl_mechanisms: Literal[
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
        "GSSAPI",
        "AWS_MSK_IAM",
        None,
    ]
    sasl_username: str | None
    sasl_password: str | Callable[[], str] | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    oauth_cb: object
    ssl_ca_location: str | PathLike[str] | None
    ssl_ca_pem: str | None
    ssl_crl_location: str | PathLike[str] | None
    ssl_certificate_location: str | PathLike[str] | None
    ssl_certificate_pem: str | None
    ssl_key_location: str | PathLike[str] | None
    ssl_key_pem: str | None
    sasl_oauth_token_provider: object
    ssl_cafile: str | PathLike[str] | None
    ssl_certfile: str | PathLike[str] | None
    ssl_password: str | Callable[[], str] | None
    ssl_check_hostname: bool
