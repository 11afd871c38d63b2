"""Rules between settings: which exclude each other, which follow from others.

Owns the order of time-outs, the settings of groups that go together, the settings this version
refuses, and values that depend on other values.

Of TLS: what can be said without reading a file. What files hold is checked by ``security.tls``,
which is imported only where TLS is used.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.settings.kinds import INT32_MAX

_PATH_OR_TEXT: Final = (
    ("ssl_truststore_location", "ssl_truststore_certificates"),
    ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
    ("ssl_keyfile", "ssl_keystore_key"),
)
_CHAIN: Final = ("ssl_keystore_location", "ssl_keystore_certificate_chain")
_KEY: Final = ("ssl_keyfile", "ssl_keystore_key")

_BESIDE_CONTEXT: Final = frozenset(
    {"ssl_context", "ssl_endpoint_identification_algorithm", "enable_ssl_certificate_verification"}
)
"""What may be given beside an ``ssl_context``."""

_STORE_TYPES: Final = (
    ("ssl_truststore_type", "ssl_truststore_location", True),
    ("ssl_keystore_type", "ssl_keystore_location", False),
)


def apply_tls_rules(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Check the settings of TLS; ``spellings`` has the user's spelling of what was given."""

    def is_set(name: str) -> bool:
        return name in spellings and values[name] is not None

    if is_set("ssl_context"):
        others = [n for n in spellings if n.startswith("ssl_") and n not in _BESIDE_CONTEXT]
        for name in others:
            if is_set(name):
                raise _both(spellings["ssl_context"], spellings[name], "put it into the SSLContext")
    for path, text in _PATH_OR_TEXT:
        if is_set(path) and is_set(text):
            raise _both(spellings[path], spellings[text], "leave one of them out")
    if is_set("ssl_ciphers") and values["ssl_cipher_suites"]:
        raise _both(
            spellings["ssl_ciphers"], spellings["ssl_cipher_suites"], "leave one of them out"
        )
    key = next((name for name in _KEY if is_set(name)), None)
    if key is not None and not any(map(is_set, _CHAIN)):
        raise ConfigurationError(
            f"{spellings[key]} is given without a certificate",
            hint="give the certificate as ssl_certfile",
        )
    if is_set("ssl_keystore_certificate_chain") and key is None:
        raise ConfigurationError(
            f"{spellings['ssl_keystore_certificate_chain']} is given without a private key",
            hint="give the key as ssl_keystore_key",
        )
    for kind, location, is_truststore in _STORE_TYPES:
        if values[kind] in {"JKS", "JCEKS"}:
            path = values[location] or "the store"
            raise java_keystore_error(
                spellings.get(location, spellings[kind]),
                path,
                values[kind],
                is_truststore=is_truststore,
            )
    newest = values["ssl_protocol"]
    if newest < min(values["ssl_enabled_protocols"]):
        name = spellings["ssl_protocol"]
        raise ConfigurationError(
            f"{name} is {newest}, which {spellings['ssl_enabled_protocols']} leaves out",
            hint=f"leave {name} out",
        )


def refuse_unverified(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Refuse to leave certificates unverified, whatever the protocol."""
    if not values["enable_ssl_certificate_verification"]:
        raise ConfigurationError(
            f"{spellings['enable_ssl_certificate_verification']}=False is not supported",
            cause="certificates of brokers are always verified",
            hint="give the CA as ssl_cafile; for a throw-away test pass an ssl_context",
        )


def _both(one: str, other: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{one} and {other} cannot both be given", hint=hint)


def java_keystore_error(
    name: str, path: str, kind: str, *, is_truststore: bool
) -> ConfigurationError:
    """Return the error for a keystore that only Java reads, with the command that converts it."""
    if is_truststore:
        command = f"keytool -exportcert -rfc -keystore {path} -alias ALIAS -file ca.pem"
        option = "-storetype"
    else:
        command = (
            f"keytool -importkeystore -srckeystore {path} "
            "-destkeystore client.p12 -deststoretype PKCS12"
        )
        option = "-srcstoretype"
    if kind != "JKS":
        command += f" {option} {kind}"
    return ConfigurationError(
        f"{name}: {path} is a Java keystore ({kind}), kfast reads PEM and PKCS#12", hint=command
    )


logger = get_logger(__name__)

_MIB: Final = 1 << 20
_MAX_DEFAULT_DECODE_THREADS: Final = 4
_GROUP_ID_IN_CLIENT_ID: Final = 200
"""Most characters of the group id in a generated ``client_id``: Kafka limits the length of both."""

_client_numbers: Final = itertools.count(1)


def apply_rules(values: dict[str, Any], spellings: Mapping[str, str]) -> None:
    """Check the rules between settings and fill in values that depend on others.

    ``spellings`` has the user's spelling of each setting that was given.
    """
    if not values["bootstrap_servers"]:
        raise ConfigurationError(
            "bootstrap_servers is not set", hint='pass bootstrap_servers="host:9092"'
        )
    _check_security(values, spellings)
    _refuse_reporting(values, spellings)
    _refuse_proxies(values)
    _check_order(values, spellings)
    _check_group_rules(values, spellings)
    if not values["client_id"]:
        group = f"{values['group_id'][:_GROUP_ID_IN_CLIENT_ID]}-" if values["group_id"] else ""
        values["client_id"] = f"kfast-{group}{next(_client_numbers)}"
    for base in ("reconnect_backoff", "retry_backoff", "sasl_login_retry_backoff"):
        low, high = values[f"{base}_ms"], values[f"{base}_max_ms"]
        values[f"{base}_max_ms"] = max(low, high)
    values["receive_message_max_bytes"] = min(
        INT32_MAX,
        max(
            values["receive_message_max_bytes"],
            values["fetch_max_bytes"] + values["max_partition_fetch_bytes"] + _MIB,
        ),
    )
    if values["decode_threads"] < 0:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        # The application thread decodes too, and other processes need the remaining CPUs.
        values["decode_threads"] = max(1, min(_MAX_DEFAULT_DECODE_THREADS, (cpus or 1) // 2))


def _check_security(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Check the settings of TLS; warn of those of TLS and SASL that have no effect.

    Their settings without a protocol that uses them are common in shared configurations and change
    nothing, but a user who gives them may expect a secure connection: hence a warning.
    """
    refuse_unverified(values, spellings)
    protocol = values["security_protocol"]
    if protocol.endswith("SSL"):
        apply_tls_rules(values, spellings)
    unused_prefixes = [] if protocol.endswith("SSL") else ["ssl_"]
    unused_prefixes += [] if protocol.startswith("SASL_") else ["sasl_"]
    # The certificate of a token endpoint is verified with the truststore, whatever the protocol.
    has_endpoint = values["sasl_oauthbearer_token_endpoint_url"] and protocol.startswith("SASL_")
    used_prefixes = ("ssl_truststore",) if has_endpoint else ()
    unused = sorted(
        spelling
        for name, spelling in spellings.items()
        if name.startswith(tuple(unused_prefixes)) and not name.startswith(used_prefixes)
    )
    if unused:
        logger.warning("%s: no effect with security_protocol=%s", ", ".join(unused), protocol)


def _refuse_reporting(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Refuse metrics reporters and the push of metrics, which this version does not support."""
    if values["metric_reporters"]:
        raise ConfigurationError(
            f"{spellings['metric_reporters']} is not supported",
            cause="this version of kfast has no metrics reporters",
            hint=f"leave {spellings['metric_reporters']} out, and call metrics()",
        )
    if values["enable_metrics_push"]:
        raise ConfigurationError(
            f"{spellings['enable_metrics_push']}=True is not supported",
            cause="this version of kfast does not push metrics to brokers (KIP-714)",
            hint=f"leave {spellings['enable_metrics_push']} out, and call metrics()",
        )


def _refuse_proxies(values: Mapping[str, Any]) -> None:
    """Refuse proxies, which this version does not support."""
    if values["proxy_url"] is not None:
        raise ConfigurationError(
            "proxy_url is not supported",
            cause="this version of kfast connects to brokers directly",
            hint="leave proxy_url out, or forward the brokers' ports",
        )


def _check_order(values: dict[str, Any], spellings: Mapping[str, str]) -> None:
    """Check the order of time-outs and intervals."""
    if "default_api_timeout_ms" not in spellings:
        floor = values["request_timeout_ms"]
        values["default_api_timeout_ms"] = max(values["default_api_timeout_ms"], floor)
    rules = [
        ("fetch_max_wait_ms", "<", "request_timeout_ms"),
        ("request_timeout_ms", "<=", "default_api_timeout_ms"),
    ]
    if values["connections_max_idle_ms"] >= 0:  # negative: never closed as idle
        rules.append(("request_timeout_ms", "<", "connections_max_idle_ms"))
    if values["group_protocol"] == "classic":
        rules.append(("heartbeat_interval_ms", "<", "session_timeout_ms"))
    for left, relation, right in rules:
        low, high = values[left], values[right]
        if low > high or (low == high and relation == "<"):
            names = [spellings.get(name, name) for name in (left, right)]
            must = "less than" if relation == "<" else "at most"
            raise ConfigurationError(
                f"{names[0]} ({low}) must be {must} {names[1]} ({high})",
                hint=f"lower {names[0]} or raise {names[1]}",
            )


def _check_group_rules(values: dict[str, Any], spellings: Mapping[str, str]) -> None:
    """Check that the settings of groups go together."""
    if values["group_id"] is None:
        if "enable_auto_commit" in spellings and values["enable_auto_commit"]:
            raise ConfigurationError(
                f"{spellings['enable_auto_commit']}=True needs a consumer group",
                cause="group_id is not set",
                hint=f"set group_id, or leave {spellings['enable_auto_commit']} out",
            )
        values["enable_auto_commit"] = False
        if values["group_instance_id"] is not None:
            raise ConfigurationError(
                f"{spellings['group_instance_id']} needs a consumer group",
                cause="group_id is not set",
                hint=f"set group_id, or leave {spellings['group_instance_id']} out",
            )
    if values["group_protocol"] == "consumer":
        for name in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "partition_assignment_strategy",
        ):
            if name in spellings:
                raise ConfigurationError(
                    f"{spellings[name]} cannot be set with group_protocol=consumer",
                    cause="the group coordinator decides this in the consumer protocol (KIP-848)",
                    hint=f"leave {spellings[name]} out, or use group_protocol=classic",
                )
    elif values["group_remote_assignor"] is not None:
        raise ConfigurationError(
            f"{spellings['group_remote_assignor']} needs group_protocol=consumer",
            cause="in the classic protocol the group leader assigns the partitions",
            hint="set group_protocol=consumer, or use partition_assignment_strategy",
        )
