"""The cipher suites of a context: by OpenSSL's names, or by the IANA names that Java uses.

OpenSSL chooses those of TLS 1.2 and those of TLS 1.3 apart from each other. The latter can be
chosen only where ``SSLContext`` has ``set_ciphersuites``.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)

_IANA: Final = re.compile(r"(?:TLS|SSL)_(?P<key>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)")
_TLS_1_3: Final = re.compile(r"TLS_(?:AES|CHACHA20)_(?!.*WITH)[A-Z0-9_]+")


def limit_ciphers(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    """Allow only the cipher suites that were given, if any were."""
    if config.ssl_ciphers is not None:
        _set_ciphers(context, config.ssl_ciphers, config.spelling("ssl_ciphers"))
    suites = config.ssl_cipher_suites
    if not suites:
        return
    name = config.spelling("ssl_cipher_suites")
    newest = [suite for suite in suites if _TLS_1_3.fullmatch(suite)]
    older = [suite for suite in suites if suite not in newest]
    if older:
        _set_ciphers(context, ":".join(openssl_name(suite) for suite in older), name)
    if newest:
        _set_tls_1_3(context, newest, name)
    # A version without any suite is not offered, as with Java. An OpenSSL list is of TLS 1.2 only.
    if not newest and all(_IANA.fullmatch(suite) for suite in older):
        _leave(context, ssl.TLSVersion.TLSv1_2, name)
    elif not older:
        _leave(context, ssl.TLSVersion.TLSv1_3, name)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite; a name that is not IANA's as it is."""
    match = _IANA.fullmatch(suite)
    if match is None:
        return suite
    key = "" if match["key"] == "RSA" else match["key"].replace("_", "-") + "-"
    cipher = re.sub(r"^(AES|ARIA|CAMELLIA)_(128|256)", r"\1\2", match["cipher"])
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    cipher = cipher.replace("_CBC_", "_").replace("CCM_8", "CCM8")
    return key + cipher.replace("_", "-")


def _set_ciphers(context: ssl.SSLContext, ciphers: str, name: str) -> None:
    """Set those of TLS 1.2; all that are named have to exist, or OpenSSL leaves them out."""
    for cipher in [*filter(None, re.split(r"[:, ]+", ciphers)), ciphers]:
        try:
            # Removals, orders and keywords of the language of lists mean nothing by themselves.
            if cipher == ciphers or re.fullmatch(r"[A-Z0-9]+(?:-[A-Z0-9]+)+", cipher):
                context.set_ciphers(cipher)
        except ssl.SSLError:
            raise ConfigurationError(
                f"{name}: this OpenSSL has no cipher suite {cipher}",
                found=ssl.OPENSSL_VERSION,
                hint="ssl.SSLContext.get_ciphers() lists those there are",
            ) from None


def _set_tls_1_3(context: ssl.SSLContext, suites: Sequence[str], name: str) -> None:
    choose = getattr(context, "set_ciphersuites", None)
    if choose is not None:
        try:
            choose(":".join(suites))
            return
        except ssl.SSLError:
            unknown = ", ".join(suites)
    else:
        there = {cipher["name"] for cipher in context.get_ciphers()}
        unknown = ", ".join(suite for suite in suites if suite not in there)
        others = sorted(n for n in there if _TLS_1_3.fullmatch(n) and n not in suites)
        if not unknown and others and context.maximum_version >= ssl.TLSVersion.TLSv1_3:
            logger.warning(
                "%s: this Python cannot switch off %s of TLS 1.3", name, ", ".join(others)
            )
    if unknown:
        raise ConfigurationError(
            f"{name}: {unknown} cannot be used",
            cause="this Python uses OpenSSL's default cipher suites of TLS 1.3",
            hint="leave it out, or pass an ssl_context",
        )


def _leave(context: ssl.SSLContext, version: ssl.TLSVersion, name: str) -> None:
    """Allow one TLS version only, the one that the cipher suites are of."""
    if not context.minimum_version <= version <= context.maximum_version:
        raise ConfigurationError(
            f"{name} has cipher suites of {version.name.replace('_', '.')} only",
            cause="ssl_enabled_protocols, or ssl_protocol, does not allow that version",
            hint="name cipher suites of the TLS versions that are allowed",
        )
    context.minimum_version = context.maximum_version = version
