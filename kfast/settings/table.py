"""The table of settings: name, type, default, limits and purpose of each.

Owns nothing but the table. A setting's keyword is Kafka's key with ``.`` replaced by ``_``; no key
of Kafka's contains ``_``, so either spelling gives the other. Defaults and limits are those of
Kafka 4.3's consumer unless the text says otherwise. Other clients' names for the same settings and
the keys that are refused are in ``settings.aliases``; rules between settings in ``settings.rules``.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.settings.kinds import (
    INT64_MAX,
    MINUS_INT64,
    TEXTS,
    Setting,
    any_name,
    anything,
    boolean,
    choice,
    function,
    integer,
    items_of,
    names,
    names_or_objects,
    number,
    objects,
    optional_choice,
    optional_integer,
    optional_name,
    optional_text,
    pairs,
    parse_text,
    path,
    pem_text,
    secret,
    secret_object,
    socket_options,
    text,
    tls_version,
    tls_versions,
    version_ceiling,
)
from kfast.settings.offset_reset import offset_reset

DEFAULT_PORT: Final = 9092

Address = tuple[str, int]


def parse_address(entry: str) -> Address:
    """Return host and port of ``host:port``, ``host``, ``[v6]:port`` or ``[v6]``."""
    shown = entry.rpartition("@")[2]  # the part before an @ may contain a password
    if "://" in entry or "@" in entry or "/" in entry:
        raise ValueError(f'"{shown}" is not host:port; the protocol is set by security_protocol')
    if re.search(r";|:[0-9]+\s", entry):
        raise ValueError(f'"{shown}": servers are separated by commas, as in "b1:9092,b2:9092"')
    match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^\[\]\s:]+))(?::([0-9]+))?", entry)
    if match is None:
        if entry.count(":") > 1 and "[" not in entry:
            raise ValueError(f'"{shown}": an IPv6 address needs brackets, as in "[::1]:9092"')
        raise ValueError(f'"{shown}" is not host:port')
    v6, host, port_text = match.groups()
    if v6 is not None and not re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?", v6):
        raise ValueError(f'"{shown}": only an IPv6 address may be in brackets')
    port = int(port_text) if port_text else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f'"{shown}": a port must be between 1 and 65535')
    return (v6 or host, port)


def addresses(doc: str) -> Setting[tuple[Address, ...]]:
    """Make the setting for the bootstrap servers; it has no default."""

    def parse(value: object) -> tuple[Address, ...]:
        entries = [parse_text(item).strip() for item in items_of(value)]
        if not entries:
            raise ValueError("empty")
        if "" in entries:
            raise ValueError("an empty entry between two commas")
        return tuple(dict.fromkeys(parse_address(entry) for entry in entries))

    valid = '"host:port,host:port" or a list of "host:port"; IPv6 in brackets'
    return Setting((), parse, "list", valid, doc, annotation=TEXTS, is_required=True)


DEPRECATED_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
"""Values of ``auto_offset_reset`` from before Kafka 0.9."""

FILE_SETTINGS: Final = frozenset(
    {
        "https_ca_location",
        "sasl_kerberos_keytab",
        "ssl_crlfile",
        "ssl_keyfile",
        "ssl_keystore_location",
        "ssl_truststore_location",
    }
)
"""Settings that are the path of a file."""

_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS", "JCEKS")
"""The last two are refused, with the command that converts them."""


class SettingsTable:
    """Every setting of a consumer, one attribute each."""

    __slots__ = ()

    # --- cluster and client -----------------------------------------------------------------------
    bootstrap_servers = addresses("brokers to discover the cluster from; default port 9092")
    client_id = text("", 'name of this client in broker logs, metrics and quotas; "": generated')
    client_rack = text("", "rack of this client, to fetch from the nearest replica (KIP-392)")
    client_dns_lookup = choice(
        "use_all_dns_ips",
        ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "how host names are resolved (KIP-302)",
    )
    security_protocol = choice(
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "protocol of the connections to brokers",
        any_case=True,
    )

    # --- records ----------------------------------------------------------------------------------
    auto_offset_reset = offset_reset(
        "latest",
        DEPRECATED_RESETS,
        "where to start without a committed offset, or when the offset is out of range",
    )
    isolation_level = choice(
        "read_uncommitted",
        ("read_uncommitted", "read_committed"),
        "read_committed leaves out records of open and aborted transactions",
    )
    key_deserializer = anything("deserializer", "deserializer of keys; null keeps bytes")
    value_deserializer = anything("deserializer", "deserializer of values; null keeps bytes")
    on_deserialization_error = choice(
        "raise",
        ("raise", "null", "skip"),
        "what happens to a record whose key or value cannot be deserialized",
    )
    check_crcs = boolean(True, "verify the CRC32C of every record batch")
    max_poll_records = optional_integer(
        "maximum records one poll returns; null: limited by bytes only (Kafka: 500)",
        low=1,
    )
    allow_auto_create_topics = boolean(
        True,
        "let the broker create a subscribed topic, if it is configured to",
    )
    exclude_internal_topics = boolean(True, "exclude internal topics from pattern subscriptions")
    interceptor_classes = objects("interceptors of returned records and commits (KIP-42)")

    # --- fetching and memory ----------------------------------------------------------------------
    fetch_min_bytes = integer(
        1, "minimum bytes of a Fetch response, until fetch_max_wait_ms expires", low=0
    )
    fetch_max_wait_ms = integer(500, "maximum time the broker waits for fetch_min_bytes", low=0)
    fetch_max_bytes = integer(52_428_800, "maximum bytes of a Fetch response", low=0)
    max_partition_fetch_bytes = integer(
        1_048_576, "maximum bytes per partition in a Fetch response", low=0
    )
    buffer_memory_bytes = integer(
        64 << 20,
        "maximum bytes of fetched and decoded data that poll has not returned yet",
        low=1,
        high=INT64_MAX,
    )
    max_decompressed_batch_bytes = integer(
        256 << 20, "maximum size of one record batch after decompression, and of its index", low=1
    )
    receive_message_max_bytes = integer(
        100_000_000,
        "maximum size of a response; at least fetch_max_bytes + max_partition_fetch_bytes + 1 MiB",
        low=1,
    )
    decode_threads = integer(
        -1,
        "number of decode threads; 0: poll decodes; -1: one per two CPUs, at most 4",
        low=-1,
        high=256,
        null=-1,
    )
    enable_incremental_fetch_sessions = boolean(True, "use incremental fetch sessions (KIP-227)")

    # --- timeouts and back-off --------------------------------------------------------------------
    request_timeout_ms = integer(30_000, "timeout of a request; its connection is closed", low=0)
    default_api_timeout_ms = integer(60_000, "timeout of blocking calls that are given none", low=0)
    bootstrap_timeout_ms = integer(
        30_000,
        "timeout for the first connection to any broker; if not given, 1 s when all refuse",
        low=0,
    )
    consumer_timeout_ms = number(
        float("inf"), "iteration ends after this long without records", low=0, high=float("inf")
    )
    retry_backoff_ms = integer(
        100,
        "back-off before the first retry; it doubles with every failure",
        low=0,
        high=INT64_MAX,
    )
    retry_backoff_max_ms = integer(
        1_000, "maximum back-off before a retry (KIP-580)", low=0, high=INT64_MAX
    )
    reconnect_backoff_ms = integer(
        50,
        "back-off before the first reconnect; it doubles with every failure",
        low=0,
        high=INT64_MAX,
    )
    reconnect_backoff_max_ms = integer(
        1_000, "maximum back-off before a reconnect", low=0, high=INT64_MAX
    )
    metadata_max_age_ms = integer(
        300_000, "maximum age of metadata before it is refreshed", low=0, high=INT64_MAX
    )
    metadata_recovery_strategy = choice(
        "rebootstrap",
        ("rebootstrap", "none"),
        "what to do when no known broker is available (KIP-899)",
        any_case=True,
    )
    metadata_recovery_rebootstrap_trigger_ms = integer(
        300_000,
        "rebootstrap after this long without a metadata refresh (KIP-1102)",
        low=0,
        high=INT64_MAX,
    )

    # --- sockets ----------------------------------------------------------------------------------
    connections_max_idle_ms = integer(
        540_000,
        "close connections idle for this long; negative: never",
        low=MINUS_INT64,
        high=INT64_MAX,
    )
    socket_connection_setup_timeout_ms = integer(
        10_000,
        "timeout of each step of an attempt to connect; doubles with each failure (KIP-601)",
        low=MINUS_INT64,
        high=INT64_MAX,
    )
    socket_connection_setup_timeout_max_ms = integer(
        30_000, "maximum timeout of a connection attempt", low=MINUS_INT64, high=INT64_MAX
    )
    # Kafka's 64 KiB switches the system's auto-tuning off and costs a third of the throughput.
    receive_buffer_bytes = integer(-1, "SO_RCVBUF; -1: the system's default", low=-1, null=-1)
    send_buffer_bytes = integer(131_072, "SO_SNDBUF; -1: the system's default", low=-1, null=-1)
    socket_options = socket_options(
        ((6, 1, 1),), "socket options to set; the default is TCP_NODELAY"
    )
    max_in_flight_requests_per_connection = integer(
        5, "maximum number of in-flight requests on one connection", low=1
    )
    api_version = version_ceiling("newest Kafka release whose API versions are used; null: any")
    proxy_url = secret("proxy for the connections to brokers")

    # --- groups -----------------------------------------------------------------------------------
    group_id = any_name("id of the consumer group")
    group_instance_id = optional_name("id of a static group member (KIP-345)")
    group_protocol = choice(
        "classic", ("classic", "consumer"), "group protocol: classic, or KIP-848's", any_case=True
    )
    group_remote_assignor = any_name("assignor on the broker, with group_protocol=consumer")
    partition_assignment_strategy = names_or_objects(
        ("range", "cooperative-sticky"),
        ("range", "roundrobin", "sticky", "cooperative-sticky"),
        _JAVA_ASSIGNORS,
        "assignors of a classic group, in order of preference",
    )
    session_timeout_ms = integer(
        45_000, "the coordinator removes a member without heartbeats for this long"
    )
    heartbeat_interval_ms = integer(3_000, "time between heartbeats to the coordinator")
    max_poll_interval_ms = integer(
        300_000, "maximum time between polls; then the member leaves", low=1
    )
    enable_auto_commit = boolean(True, "commit the offsets of returned records periodically")
    auto_commit_interval_ms = integer(5_000, "time between automatic commits", low=0)
    default_offset_commit_callback = function("callback of commit_async calls that are given none")

    # --- metrics ----------------------------------------------------------------------------------
    metrics_enabled = boolean(True, "collect metrics")
    metrics_num_samples = integer(2, "number of samples a metric is computed from", low=1)
    metrics_sample_window_ms = integer(30_000, "length of one sample", low=0, high=INT64_MAX)
    metrics_recording_level = choice(
        "INFO",
        ("INFO", "DEBUG", "TRACE"),
        "level of the metrics of metrics(): DEBUG adds those of each API",
    )
    metric_reporters = objects("metrics reporters; not supported")
    metric_group_prefix = text("consumer", "prefix of the names of metric groups")
    # Kafka's default is true; true is refused, because nothing would be sent.
    enable_metrics_push = boolean(False, "push metrics to the brokers (KIP-714); not supported")

    # --- TLS: files are PEM, stores may be PKCS#12 ------------------------------------------------
    ssl_truststore_location = path(
        "file or folder of the trusted certificates; null: those of the system",
        text="ssl_truststore_certificates",
    )
    ssl_truststore_certificates = pem_text(
        "the trusted certificates", path="ssl_truststore_location"
    )
    ssl_truststore_type = optional_choice(_STORE_TYPES, "kind of the truststore; null: by content")
    ssl_truststore_password = secret("password of a PKCS#12 truststore", may_be_callable=True)
    ssl_crlfile = path("file of certificate revocation lists")
    ssl_keystore_location = path(
        "file of the client's certificate chain, which may have the private key, too",
        text="ssl_keystore_certificate_chain",
    )
    ssl_keystore_certificate_chain = pem_text(
        "the client's certificate chain", path="ssl_keystore_location"
    )
    ssl_keystore_type = optional_choice(_STORE_TYPES, "kind of the keystore; null: by content")
    ssl_keystore_password = secret("password of a PKCS#12 keystore", may_be_callable=True)
    ssl_keyfile = path("file of the client's private key", text="ssl_keystore_key")
    ssl_keystore_key = pem_text("the client's private key", path="ssl_keyfile")
    ssl_key_password = secret("password of the client's private key", may_be_callable=True)
    ssl_endpoint_identification_algorithm = choice(
        "https",
        ("https", ""),
        'verification of the broker\'s host name; "": none',
        any_case=True,
        synonyms={"none": "", None: "", False: ""},
    )
    ssl_enabled_protocols = tls_versions(_TLS_VERSIONS, "TLS versions that may be used")
    ssl_protocol = tls_version("TLSv1.3", _TLS_VERSIONS, "newest TLS version to use")
    ssl_cipher_suites = names(
        (), "cipher suites by their IANA names, or an OpenSSL cipher list; []: OpenSSL's default"
    )
    ssl_ciphers = optional_text("cipher suites as an OpenSSL cipher list")
    ssl_context = anything("ssl.SSLContext", "an SSL context, in place of the other ssl settings")
    enable_ssl_certificate_verification = boolean(
        True, "verify the brokers' certificates; false is refused"
    )

    # --- SASL -------------------------------------------------------------------------------------
    sasl_mechanism = choice(
        "GSSAPI",
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"),
        "SASL mechanism of the login",
        any_case=True,
        synonyms={None: "GSSAPI"},
    )
    sasl_plain_username = optional_text("user name for PLAIN and SCRAM")
    sasl_plain_password = secret(
        "password for PLAIN and SCRAM; a callable is asked before each login",
        may_be_callable=True,
    )
    sasl_delegation_token = boolean(
        False, "user name and password are id and HMAC of a delegation token (SCRAM)"
    )
    sasl_jaas_config = secret("login settings as a line for Java's JAAS")
    sasl_kerberos_service_name = optional_text("Kerberos service name of the brokers; null: kafka")
    sasl_kerberos_domain_name = optional_text("host in the brokers' Kerberos name; null: its own")
    sasl_kerberos_name = optional_text("Kerberos name of the brokers, in place of the two")
    sasl_kerberos_principal = optional_text("Kerberos principal of this client")
    sasl_kerberos_keytab = optional_text("file with the key of the Kerberos principal")
    sasl_login_callback_handler_class = secret_object(
        "object", "provider of OAuth tokens: an object or a callable"
    )
    sasl_login_connect_timeout_ms = integer(
        10_000, "timeout of connecting to the token endpoint", low=1, null=10_000
    )
    sasl_login_read_timeout_ms = integer(
        10_000, "timeout of reading from the token endpoint", low=1, null=10_000
    )
    sasl_login_refresh_buffer_seconds = integer(
        300, "minimum time before a token's expiry at which it is refreshed", low=0, high=3600
    )
    sasl_login_refresh_min_period_seconds = integer(
        60, "minimum age of a token at which it is refreshed", low=0, high=900
    )
    sasl_login_refresh_window_factor = number(
        0.8, "fraction of a token's lifetime after which it is refreshed", low=0.5, high=1.0
    )
    sasl_login_refresh_window_jitter = number(
        0.05, "maximum random difference of that fraction", low=0.0, high=0.25
    )
    sasl_login_retry_backoff_ms = integer(
        100, "back-off before the first retry of a token request", low=0, high=INT64_MAX
    )
    sasl_login_retry_backoff_max_ms = integer(
        10_000, "maximum back-off before a retry of a token request", low=0, high=INT64_MAX
    )
    sasl_oauthbearer_method = choice(
        "default", ("default", "oidc"), "oidc: the token comes from the token endpoint"
    )
    sasl_oauthbearer_token_endpoint_url = optional_text("URL of the token endpoint (https)")
    sasl_oauthbearer_scope = optional_text("scope of the requested token")
    sasl_oauthbearer_client_credentials_client_id = optional_text("client id at the token endpoint")
    sasl_oauthbearer_client_credentials_client_secret = secret(
        "client secret at the token endpoint"
    )
    sasl_oauthbearer_header_urlencode = boolean(False, "URL-encode client id and secret (RFC 6749)")
    sasl_oauthbearer_extensions = pairs("SASL extensions for a token of the endpoint (KIP-342)")
    sasl_oauthbearer_config = secret("argument of a token provider that is a callable with one")
    https_ca_location = optional_text(
        "file of the certificates trusted at the token endpoint; null: ssl_truststore_location"
    )
