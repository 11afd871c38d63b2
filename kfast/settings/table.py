"""The table of settings: name, type, default, limits and purpose of each.

Owns nothing but the table. A setting's keyword is Kafka's key with ``.`` replaced by ``_``; no key
of Kafka's contains ``_``, so either spelling gives the other. Defaults and limits are those of
Kafka 4.3's consumer unless the text says otherwise. Other clients' names for the same settings and
the keys that are refused are in ``settings.aliases``; rules between settings are in ``config``.
"""

from __future__ import annotations

from typing import Final

from kfast.settings.kinds import (
    INT64_MAX,
    MINUS_INT64,
    addresses,
    anything,
    boolean,
    choice,
    function,
    integer,
    names,
    names_or_objects,
    number,
    objects,
    offset_reset,
    optional_integer,
    optional_name,
    optional_text,
    socket_options,
    text,
    version_ceiling,
)

DEPRECATED_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
"""Values of ``auto_offset_reset`` from before Kafka 0.9."""

_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


class SettingsTable:
    """Every setting of a consumer, one attribute each."""

    __slots__ = ()

    # --- where the cluster is, and who asks -------------------------------------------------------
    bootstrap_servers = addresses("servers to look the cluster up from; port 9092 if left out")
    client_id = text("", 'name in the broker\'s logs and quotas; "" makes one up')
    client_rack = text("", "where this client runs, to read from a replica nearby (KIP-392)")
    client_dns_lookup = choice(
        "use_all_dns_ips",
        ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "how host names become addresses (KIP-302)",
    )
    security_protocol = choice(
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "how connections are secured",
        any_case=True,
    )

    # --- what is read -----------------------------------------------------------------------------
    auto_offset_reset = offset_reset(
        "latest", DEPRECATED_RESETS, "where to start without a position, or from one that is gone"
    )
    isolation_level = choice(
        "read_uncommitted",
        ("read_uncommitted", "read_committed"),
        "whether records of open and aborted transactions are returned",
    )
    key_deserializer = anything("deserializer", "what turns keys into columns; null keeps bytes")
    value_deserializer = anything(
        "deserializer", "what turns values into columns; null keeps bytes"
    )
    on_deserialization_error = choice(
        "raise", ("raise", "null", "skip"), "what a malformed key or value does"
    )
    check_crcs = boolean(True, "verify the checksum of every batch")
    max_poll_records = optional_integer(
        "most records one poll returns; null leaves it to the bytes (Kafka: 500)", low=1
    )
    allow_auto_create_topics = boolean(
        True, "let the broker create a subscribed topic, if it would"
    )
    exclude_internal_topics = boolean(True, "leave internal topics out of pattern subscriptions")
    interceptor_classes = objects("objects that see records before they are returned (KIP-42)")

    # --- how much at a time -----------------------------------------------------------------------
    fetch_min_bytes = integer(1, "the broker answers when it has this many bytes", low=0)
    fetch_max_wait_ms = integer(500, "or after this long", low=0)
    fetch_max_bytes = integer(52_428_800, "most bytes in one answer of a broker", low=0)
    max_partition_fetch_bytes = integer(
        1_048_576, "most bytes of one partition in one answer", low=0
    )
    buffer_memory_bytes = integer(
        64 << 20, "cap on fetched and decoded data not yet handed out", low=1, high=INT64_MAX
    )
    max_decompressed_batch_bytes = integer(
        256 << 20, "cap on what one compressed batch may unpack to", low=1
    )
    receive_message_max_bytes = integer(
        100_000_000,
        "cap on one answer; at least fetch_max_bytes + max_partition_fetch_bytes + 1 MiB",
        low=1,
    )
    decode_threads = integer(
        -1,
        "threads that decode; 0: poll decodes; -1: one per two CPUs, at most 4",
        low=-1,
        high=256,
        null=-1,
    )
    enable_incremental_fetch_sessions = boolean(True, "fetch only what changed (KIP-227)")

    # --- how long, and how often ------------------------------------------------------------------
    request_timeout_ms = integer(30_000, "until an unanswered request ends its connection", low=0)
    default_api_timeout_ms = integer(60_000, "for blocking calls without a timeout", low=0)
    bootstrap_timeout_ms = integer(30_000, "how long a call tries to reach a first broker", low=0)
    consumer_timeout_ms = number(
        float("inf"), "iteration ends after so long without records", low=0, high=float("inf")
    )
    retry_backoff_ms = integer(100, "first wait before a retry", low=0, high=INT64_MAX)
    retry_backoff_max_ms = integer(
        1_000, "longest wait before a retry (KIP-580)", low=0, high=INT64_MAX
    )
    reconnect_backoff_ms = integer(50, "first wait before a reconnect", low=0, high=INT64_MAX)
    reconnect_backoff_max_ms = integer(
        1_000, "longest wait before a reconnect", low=0, high=INT64_MAX
    )
    metadata_max_age_ms = integer(
        300_000, "the view of the cluster is refreshed after so long", low=0, high=INT64_MAX
    )
    metadata_recovery_strategy = choice(
        "rebootstrap",
        ("rebootstrap", "none"),
        "what to do when no known broker can be reached (KIP-899)",
        any_case=True,
    )
    metadata_recovery_rebootstrap_trigger_ms = integer(
        300_000,
        "look the cluster up anew after so long without a refresh (KIP-1102)",
        low=0,
        high=INT64_MAX,
    )

    # --- sockets ----------------------------------------------------------------------------------
    connections_max_idle_ms = integer(
        540_000,
        "close a connection unused for so long; negative: never",
        low=MINUS_INT64,
        high=INT64_MAX,
    )
    socket_connection_setup_timeout_ms = integer(
        10_000, "first limit on setting up a connection (KIP-601)", low=MINUS_INT64, high=INT64_MAX
    )
    socket_connection_setup_timeout_max_ms = integer(
        30_000, "longest limit on setting up a connection", low=MINUS_INT64, high=INT64_MAX
    )
    # Kafka's 64 KiB switches the system's auto-tuning off and costs a third of the throughput.
    receive_buffer_bytes = integer(-1, "SO_RCVBUF; -1 leaves it to the system", low=-1, null=-1)
    send_buffer_bytes = integer(131_072, "SO_SNDBUF; -1 leaves it to the system", low=-1, null=-1)
    socket_options = socket_options(
        ((6, 1, 1),), "arguments of setsockopt; the default is TCP_NODELAY"
    )
    max_in_flight_requests_per_connection = integer(
        5, "most unanswered requests on one connection", low=1
    )
    api_version = version_ceiling("speak as to a broker of this release at most; null: ask it")
    proxy_url = optional_text("proxy to connect through", is_secret=True)

    # --- groups -----------------------------------------------------------------------------------
    group_id = optional_text(
        "the group to share the topics with", allow_empty=False, max_bytes=32767
    )
    group_instance_id = optional_name("name of a static member (KIP-345)")
    group_protocol = choice(
        "classic", ("classic", "consumer"), "rebalance protocol (KIP-848)", any_case=True
    )
    group_remote_assignor = optional_text("the broker's assignor, with group_protocol=consumer")
    partition_assignment_strategy = names_or_objects(
        ("range", "cooperative-sticky"),
        ("range", "roundrobin", "sticky", "cooperative-sticky"),
        _JAVA_ASSIGNORS,
        "how a classic group shares its partitions",
    )
    session_timeout_ms = integer(45_000, "a member unheard of for so long has left")
    heartbeat_interval_ms = integer(3_000, "how often a member is heard of")
    max_poll_interval_ms = integer(300_000, "a member that does not poll for so long leaves", low=1)
    enable_auto_commit = boolean(True, "commit what was returned, from time to time")
    auto_commit_interval_ms = integer(5_000, "how often that is", low=0)
    default_offset_commit_callback = function("called with the outcome of commit_async")

    # --- metrics ----------------------------------------------------------------------------------
    metrics_enabled = boolean(True, "measure at all")
    metrics_num_samples = integer(2, "samples a metric is computed from", low=1)
    metrics_sample_window_ms = integer(30_000, "length of a sample", low=0, high=INT64_MAX)
    metrics_recording_level = choice(
        "INFO", ("INFO", "DEBUG", "TRACE"), "how much metrics() tells: DEBUG adds every API"
    )
    metric_reporters = objects("objects that are told of metrics")
    metric_group_prefix = text("consumer", "first part of the names of metrics")
    # Kafka's default is true; true is refused, because nothing would be sent.
    enable_metrics_push = boolean(False, "send metrics to brokers that ask for them (KIP-714)")

    # --- TLS: files are PEM -----------------------------------------------------------------------
    ssl_truststore_location = optional_text("file with the trusted certificates")
    ssl_truststore_certificates = optional_text("the trusted certificates", is_secret=True)
    ssl_crlfile = optional_text("file with revoked certificates")
    ssl_keystore_location = optional_text("file with the client's certificate chain")
    ssl_keystore_certificate_chain = optional_text("the client's certificates", is_secret=True)
    ssl_keyfile = optional_text("file with the client's key")
    ssl_keystore_key = optional_text("the client's key", is_secret=True)
    ssl_key_password = optional_text("password of the client's key", is_secret=True)
    ssl_endpoint_identification_algorithm = choice(
        "https",
        ("https", ""),
        'whether the server\'s name is verified; "" switches it off',
        any_case=True,
        synonyms={"none": "", None: ""},
    )
    ssl_enabled_protocols = names(("TLSv1.2", "TLSv1.3"), "versions of TLS that may be used")
    ssl_protocol = text("TLSv1.3", "newest version of TLS to use")
    ssl_cipher_suites = names((), "cipher suites by their IANA names; [] leaves it to OpenSSL")
    ssl_ciphers = optional_text("cipher suites as an OpenSSL string")
    ssl_context = anything("ssl.SSLContext", "a ready-made context, instead of all of the above")

    # --- SASL -------------------------------------------------------------------------------------
    sasl_mechanism = choice(
        "GSSAPI",
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
        "how to log in",
        synonyms={None: "GSSAPI"},
    )
    sasl_plain_username = optional_text("user for PLAIN and SCRAM")
    sasl_plain_password = optional_text("password for PLAIN and SCRAM", is_secret=True)
    sasl_jaas_config = optional_text("Java's form of user and password", is_secret=True)
    sasl_kerberos_service_name = optional_text("the brokers' Kerberos service")
    sasl_kerberos_name = optional_text("the client's Kerberos name")
    sasl_kerberos_domain_name = optional_text("host part of the brokers' Kerberos name")
    sasl_login_callback_handler_class = anything(
        "object", "provider of OAuth tokens: an object, not a class name", is_secret=True
    )
    sasl_login_connect_timeout_ms = optional_integer("for connecting to the token endpoint")
    sasl_login_read_timeout_ms = optional_integer("for an answer of the token endpoint")
    sasl_login_refresh_buffer_seconds = integer(
        300, "a token is renewed this long before its end", low=0, high=3600
    )
    sasl_login_refresh_min_period_seconds = integer(
        60, "but not before it is this old", low=0, high=900
    )
    sasl_login_refresh_window_factor = number(
        0.8, "part of its life after which a token is renewed", low=0.5, high=1.0
    )
    sasl_login_refresh_window_jitter = number(0.05, "spread of that part", low=0.0, high=0.25)
    sasl_login_retry_backoff_ms = integer(
        100, "first wait before asking for a token again", low=MINUS_INT64, high=INT64_MAX
    )
    sasl_login_retry_backoff_max_ms = integer(
        10_000, "longest wait before asking for a token again", low=MINUS_INT64, high=INT64_MAX
    )
    sasl_oauthbearer_token_endpoint_url = optional_text("where tokens are had (https)")
    sasl_oauthbearer_scope = optional_text("scope of the token")
    sasl_oauthbearer_client_credentials_client_id = optional_text("client id at the endpoint")
    sasl_oauthbearer_client_credentials_client_secret = optional_text(
        "secret at the endpoint", is_secret=True
    )
    sasl_oauthbearer_header_urlencode = boolean(False, "URL-encode id and secret (RFC 6749)")
