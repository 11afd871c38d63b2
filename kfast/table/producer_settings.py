"""Settings of a confluent-kafka producer to the cluster that a consumer's settings name.

Owns the way from kfast's settings to librdkafka's: servers, TLS, SASL. Certificates and keys are
read as a consumer reads them (PEM, PKCS#12, texts), and passed on as PEM; a JAAS line is understood
as well. What would be another connection than the consumer's is an error: nothing is left out that
protects it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kfast.errors import ConfigurationError
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.internals import SaslSettings

_OAUTH: Final = frozenset({"OAUTHBEARER", "AWS_MSK_IAM"})
"""What is OAUTHBEARER on the wire."""

Settings = dict[str, Any]


def producer_settings(config: ConsumerConfig) -> Settings:
    """Return the settings of a connection by librdkafka's names, with secrets as they are sent.

    The result is for the constructor of a producer and must not be shown. Raises
    ``ConfigurationError`` for what librdkafka cannot do, and for certificates and log-ins as a
    consumer does.
    """
    if config.ssl_context is not None:
        raise ConfigurationError(
            "ssl_context is not for a producer of dead letters",
            cause="librdkafka makes its own",
            hint="give ssl_truststore_location and its neighbours",
        )
    settings: Settings = {
        "bootstrap.servers": ",".join(_address(*address) for address in config.bootstrap_servers),
        "client.id": config.client_id,
        "client.dns.lookup": config.client_dns_lookup,
        "security.protocol": config.security_protocol,
        "reconnect.backoff.ms": config.reconnect_backoff_ms,
        "reconnect.backoff.max.ms": config.reconnect_backoff_max_ms,
        "socket.connection.setup.timeout.ms": max(1_000, config.socket_connection_setup_timeout_ms),
    }
    if config.security_protocol.endswith("SSL"):
        settings |= _tls(config)
    if config.security_protocol.startswith("SASL"):
        settings |= _sasl(config)
    return settings


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- TLS ------------------------------------------------------------------------------------------


def _tls(config: ConsumerConfig) -> Settings:
    from kfast.internals import (  # noqa: PLC0415
        ask_passwords,
        client_certificate,
        openssl_name,
        trusted_certificates,
    )

    passwords = ask_passwords(config)
    settings: Settings = {
        "ssl.endpoint.identification.algorithm": config.ssl_endpoint_identification_algorithm
        or "none"
    }
    trusted = trusted_certificates(config, passwords)
    if trusted is not None:
        settings["ssl.ca.pem"] = trusted
    certificate = client_certificate(config, passwords)
    if certificate is not None:
        settings["ssl.certificate.pem"] = certificate.chain
        settings["ssl.key.pem"] = certificate.key.reveal()
        if certificate.password is not None:
            settings["ssl.key.password"] = certificate.password.reveal()
    if config.ssl_crlfile is not None:
        settings["ssl.crl.location"] = config.ssl_crlfile
    if config.ssl_ciphers is not None:
        settings["ssl.cipher.suites"] = config.ssl_ciphers
    elif config.ssl_cipher_suites:
        settings["ssl.cipher.suites"] = ":".join(map(openssl_name, config.ssl_cipher_suites))
    return settings


# --- SASL -----------------------------------------------------------------------------------------


def _sasl(config: ConsumerConfig) -> Settings:
    from kfast.internals import SaslSettings  # noqa: PLC0415 - with SASL only

    login = SaslSettings.of(config)
    if login.is_delegation_token:
        raise ConfigurationError(
            "sasl_delegation_token is not for a producer of dead letters",
            cause="librdkafka logs in with users and passwords",
            hint="give a folder for dead letters, or a user and a password",
        )
    if login.mechanism in _OAUTH:
        return {"sasl.mechanism": "OAUTHBEARER", **_oauth(config, login)}
    if login.mechanism == "GSSAPI":
        return {"sasl.mechanism": "GSSAPI", **_kerberos(login)}
    assert login.password is not None  # the settings were checked
    return {
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password.reveal(),
    }


def _oauth(config: ConsumerConfig, login: SaslSettings) -> Settings:
    endpoint, credentials = login.endpoint, login.credentials
    if endpoint is None or credentials is None:
        return {"oauth_cb": _token_callback(config, login)}
    if credentials.is_urlencoded:
        raise ConfigurationError(
            "sasl_oauthbearer_header_urlencode is not for a producer of dead letters",
            hint="give a folder for dead letters, or a token provider",
        )
    settings: Settings = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint.origin + endpoint.path,
        "sasl.oauthbearer.client.id": credentials.client_id,
        "sasl.oauthbearer.client.secret": credentials.client_secret.reveal(),
    }
    if credentials.scope:
        settings["sasl.oauthbearer.scope"] = credentials.scope
    if login.extensions:
        pairs = (f"{name}={value}" for name, value in login.extensions.items())
        settings["sasl.oauthbearer.extensions"] = ",".join(pairs)
    if config.https_ca_location is not None:
        settings["https.ca.location"] = config.https_ca_location
    elif endpoint.is_https and config.ssl_truststore_location is not None:
        from kfast.internals import (  # noqa: PLC0415 - seldom used
            ask_passwords,
            trusted_certificates,
        )

        settings["https.ca.pem"] = trusted_certificates(config, ask_passwords(config))
    return settings


def _token_callback(
    config: ConsumerConfig, login: SaslSettings
) -> Callable[[str], tuple[str, float, str, Mapping[str, str]]]:
    from kfast.internals import token_source  # noqa: PLC0415 - with OAuth only

    argument = config.sasl_oauthbearer_config or Secret("")
    source = token_source(login.provider, argument, login.mechanism)

    def token(_: str) -> tuple[str, float, str, Mapping[str, str]]:
        access_token = source()
        # librdkafka needs an expiry: of a token without one it asks again soon.
        expires_ms = access_token.expires_at_ms
        expiry_s = _soon_s() if expires_ms is None else expires_ms / 1000
        return access_token.value, expiry_s, access_token.principal or "", access_token.extensions

    return token


def _soon_s() -> float:
    from kfast._base.clock import SystemClock  # noqa: PLC0415 - of few tokens

    return SystemClock().wall_ms() / 1000 + 60


def _kerberos(login: SaslSettings) -> Settings:
    if login.target is not None or login.service_host is not None:
        raise ConfigurationError(
            "sasl_kerberos_name and sasl_kerberos_domain_name are not for a producer of dead "
            "letters",
            hint="give a folder for dead letters",
        )
    settings: Settings = {"sasl.kerberos.service.name": login.service}
    if login.principal is not None:
        settings["sasl.kerberos.principal"] = login.principal
    if login.keytab is not None:
        settings["sasl.kerberos.keytab"] = login.keytab
    else:
        settings["sasl.kerberos.kinit.cmd"] = ""  # the ticket is there
    return settings
