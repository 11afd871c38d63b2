"""Rules between the settings of TLS, and the values of them that are refused.

Owns what can be said without reading a file; what files hold is checked by ``network.tls``, which
is imported only where TLS is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError

logger = get_logger(__name__)

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


def apply_tls_rules(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Check the settings of TLS; ``given`` has the user's spelling of what was given."""

    def is_set(name: str) -> bool:
        return name in given and values[name] is not None

    if is_set("ssl_context"):
        others = [n for n in given if n.startswith("ssl_") and n not in _BESIDE_CONTEXT]
        for name in others:
            if is_set(name):
                raise _both(given["ssl_context"], given[name], "put it into the SSLContext")
    for path, text in _PATH_OR_TEXT:
        if is_set(path) and is_set(text):
            raise _both(given[path], given[text], "leave one of them out")
    if is_set("ssl_ciphers") and values["ssl_cipher_suites"]:
        raise _both(given["ssl_ciphers"], given["ssl_cipher_suites"], "leave one of them out")
    key = next((name for name in _KEY if is_set(name)), None)
    if key is not None and not any(map(is_set, _CHAIN)):
        raise ConfigurationError(
            f"{given[key]} is given without a certificate",
            hint="give the certificate as ssl_certfile",
        )
    if is_set("ssl_keystore_certificate_chain") and key is None:
        raise ConfigurationError(
            f"{given['ssl_keystore_certificate_chain']} is given without a private key",
            hint="give the key as ssl_keystore_key",
        )
    for kind, location, is_truststore in _STORE_TYPES:
        if values[kind] in {"JKS", "JCEKS"}:
            path = values[location] or "the store"
            raise java_keystore_error(
                given.get(location, given[kind]), path, values[kind], is_truststore=is_truststore
            )
    newest = values["ssl_protocol"]
    if newest < min(values["ssl_enabled_protocols"]):
        name = given["ssl_protocol"]
        raise ConfigurationError(
            f"{name} is {newest}, which {given['ssl_enabled_protocols']} leaves out",
            hint=f"leave {name} out",
        )


def refuse_unverified(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse to leave certificates unverified, whatever the protocol."""
    if not values["enable_ssl_certificate_verification"]:
        raise ConfigurationError(
            f"{given['enable_ssl_certificate_verification']}=False is not supported",
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
