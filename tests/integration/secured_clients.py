"""Other clients' settings for a LocalKafka with security: the same login for each of them.

And how many log-ins it has refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kfast.local.local_kafka import LocalKafka

_CONFLUENT: Final = {
    "security_protocol": "security.protocol",
    "ssl_truststore_location": "ssl.ca.location",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_oauthbearer_token_endpoint_url": "sasl.oauthbearer.token.endpoint.url",
    "sasl_oauthbearer_client_credentials_client_id": "sasl.oauthbearer.client.id",
    "sasl_oauthbearer_client_credentials_client_secret": "sasl.oauthbearer.client.secret",
}
_MODULE: Final = "org.apache.kafka.common.security"


def refusals_logged(kafka: LocalKafka) -> int:
    """Return how many log-ins and handshakes the broker of ``secured_kafka`` has refused so far."""
    return kafka.log_tail(1, 1_000_000).count("Failed authentication with")


def confluent_config(kafka: LocalKafka, *login: str | None) -> dict[str, str]:
    """Return confluent-kafka's settings for ``client_config(*login)``, servers included."""
    ours = kafka.client_config(*login)
    theirs = {_CONFLUENT[key]: value for key, value in ours.items() if key in _CONFLUENT}
    theirs |= {"bootstrap.servers": ours["bootstrap_servers"], "log_level": "0"}
    if "ssl_keystore_location" in ours:
        for key in ("ssl.certificate.location", "ssl.key.location"):
            theirs[key] = ours["ssl_keystore_location"]
    if theirs.get("sasl.mechanism") == "OAUTHBEARER":
        theirs["sasl.oauthbearer.method"] = "oidc"
    return theirs


def kafka_python_config(kafka: LocalKafka, *login: str | None) -> dict[str, Any]:
    """Return kafka-python's settings for ``client_config(*login)``, but for its servers."""
    ours = kafka.client_config(*login)
    theirs = {
        key: value
        for key, value in ours.items()
        if key in ("security_protocol", "sasl_mechanism") or key.startswith("sasl_plain_")
    }
    if "ssl_truststore_location" in ours:
        theirs["ssl_cafile"] = ours["ssl_truststore_location"]
    if "ssl_keystore_location" in ours:
        theirs["ssl_certfile"] = ours["ssl_keystore_location"]
    if ours.get("sasl_mechanism") == "OAUTHBEARER":
        user = ours["sasl_oauthbearer_client_credentials_client_id"]
        theirs["sasl_oauth_token_provider"] = _token_provider(kafka.token(user))
    return theirs


def _token_provider(token: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - not loaded by others

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    return Provider()


def java_config(kafka: LocalKafka, path: Path, *login: str | None) -> Path:
    """Write the properties of a Java client for ``client_config(*login)`` and return their file."""
    ours = kafka.client_config(*login)
    lines = {"security.protocol": ours["security_protocol"]}
    for kind in ("truststore", "keystore"):
        if f"ssl_{kind}_location" in ours:
            lines[f"ssl.{kind}.type"] = "PEM"
            lines[f"ssl.{kind}.location"] = ours[f"ssl_{kind}_location"]
    mechanism = ours.get("sasl_mechanism")
    if mechanism is not None:
        lines["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        names = (
            "token.endpoint.url",
            "client.credentials.client.id",
            "client.credentials.client.secret",
        )
        for name in names:
            key = f"sasl.oauthbearer.{name}"
            lines[key] = ours[key.replace(".", "_")]
        lines["sasl.jaas.config"] = f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required;"
        lines["sasl.login.callback.handler.class"] = (
            f"{_MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler"
        )
    elif mechanism is not None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = f"username={_quoted(ours['sasl_plain_username'])}"
        options += f" password={_quoted(ours['sasl_plain_password'])}"
        lines["sasl.jaas.config"] = f"{_MODULE}.{module} required {options};"
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    escaped = text.replace("\\", "\\\\").encode("ascii", "backslashreplace")  # as Java reads them
    path.write_bytes(escaped)
    return path


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
