"""TlsContext: the ``SSLContext`` of a consumer, built again when its files have changed.

Built by the constructor, so that what is wrong with files and passwords is raised there; afterwards
network thread only. Certificates are verified and host names are checked unless the user has
switched the latter off or brings a context of their own, which is used as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, KafkaError
from kfast.security.tls import stores
from kfast.security.tls.ciphers import limit_ciphers
from kfast.security.tls.stores import ClientCertificate
from kfast.security.tls_errors import TlsSide
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)

CHECK_MS: Final = 1_000
"""Files are looked at for changes at most this often."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_DEFAULT_CIPHERS: Final = "OpenSSL's default cipher suites"

_Print = tuple[tuple[str, int, int, int], ...]
"""Path, time of change, inode and size of each file; nothing of one that is not there."""


class TlsContext:
    """The SSLContext in use, and what messages say of this side.

    ``side`` changes with the files. ``version`` counts the contexts built: credentials that were
    refused may be tried again when it has changed.
    """

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._passwords = stores.ask_passwords(config)
        self._files = [
            path
            for path in (
                config.ssl_truststore_location,
                config.ssl_crlfile,
                config.ssl_keystore_location,
                config.ssl_keyfile,
            )
            if path is not None
        ]
        self._seen = self._fingerprint()
        self._checked_ms = clock.now_ms()
        self._failure: str | None = None
        self.version = 1
        if config.ssl_context is None:
            self._context, self.side = self._build()
        else:
            self._context = _checked_context(config)
            self.side = TlsSide(
                "trusted by ssl_context",
                versions="what ssl_context allows",
                ciphers="the cipher suites of ssl_context",
                has_own_context=True,
                security_protocol=config.security_protocol,
            )
        _warn_of_what_is_off(self._context)

    def now(self) -> datetime:
        """Return the time that certificates are compared with."""
        return datetime.fromtimestamp(self._clock.wall_ms() // 1000, UTC)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        If files have changed and cannot be used, such as one half of a pair that is being written,
        the context before goes on being used.
        """
        self.reload()
        return self._context

    def reload(self) -> None:
        """Build the context again if files have changed since they were last used."""
        now_ms = self._clock.now_ms()
        if not self._files or now_ms - self._checked_ms < CHECK_MS:
            return
        self._checked_ms = now_ms
        fingerprint = self._fingerprint()
        if fingerprint == self._seen:
            return
        try:
            self._context, self.side = self._build()
        except KafkaError as error:
            level = logging.DEBUG if error.message == self._failure else logging.WARNING
            self._failure = error.message
            logger.log(level, "changed TLS files are not used: %s", error.message)
            return
        self._seen = fingerprint
        self._failure = None
        self.version += 1
        logger.info("TLS files have changed and are used from now on: %s", ", ".join(self._files))

    def _fingerprint(self) -> _Print:
        files = []
        for name in self._files:
            with contextlib.suppress(OSError):  # what is not there has no fingerprint
                inside = sorted(os.listdir(name)) if os.path.isdir(name) else []
                for path in (name, *(os.path.join(name, entry) for entry in inside)):
                    stat = os.stat(path)
                    files.append((path, stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(files)

    # --- building ---------------------------------------------------------------------------------

    def _build(self) -> tuple[ssl.SSLContext, TlsSide]:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
        context.hostname_checks_common_name = False
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        # A stream that ends without close_notify is cut, not ended.
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        self._limit_versions(context)
        limit_ciphers(context, config)
        trust = self._load_trust(context)
        self._load_revocations(context)
        identity = stores.client_certificate(config, self._passwords)
        if identity is not None:
            load_identity(context, identity, config.spelling("ssl_key_password"))
        lowest, highest = (
            version.name for version in (context.minimum_version, context.maximum_version)
        )
        return context, TlsSide(
            trust,
            config.ssl_crlfile,
            " and ".join(dict.fromkeys(version.replace("_", ".") for version in (lowest, highest))),
            ", ".join(config.ssl_cipher_suites)
            or config.ssl_ciphers
            or "OpenSSL's default cipher suites",
            None if identity is None else identity.facts(),
            security_protocol=config.security_protocol,
        )

    def _limit_versions(self, context: ssl.SSLContext) -> None:
        allowed = self._config.ssl_enabled_protocols
        context.minimum_version = _VERSIONS[min(allowed)]
        context.maximum_version = _VERSIONS[min(max(allowed), self._config.ssl_protocol)]

    def _load_trust(self, context: ssl.SSLContext) -> str:
        """Load the trusted certificates; return what messages say of them."""
        config = self._config
        trusted = stores.trusted_certificates(config, self._passwords)
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return "in the system's store"
        where = "ssl_truststore_location"
        if config.ssl_truststore_certificates is not None:
            where = "ssl_truststore_certificates"
        try:
            context.load_verify_locations(cadata=trusted)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{config.spelling(where)}: a certificate cannot be read",
                cause=words(error),
                hint="check the file with: openssl x509 -in FILE -text",
            ) from None
        return f"in {config.ssl_truststore_location or config.spelling(where)}"

    def _load_revocations(self, context: ssl.SSLContext) -> None:
        lists = stores.revocation_lists(self._config)
        if lists is None:
            return
        name = self._config.spelling("ssl_crlfile")
        # From a file with nothing else in it: certificates in the user's would be trusted.
        with stores.private_file(Secret(lists)) as path:
            try:
                context.load_verify_locations(cafile=path)
            except ssl.SSLError as error:
                raise ConfigurationError(
                    f"{name}: a certificate revocation list cannot be read",
                    cause=words(error),
                    hint="check the file with: openssl crl -in FILE -text",
                ) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def __repr__(self) -> str:
        return f"<TlsContext version={self.version} {self.side.versions}>"


def words(error: ssl.SSLError) -> str:
    """Return OpenSSL's text of an error, without numbers of its source."""
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if reason else str(error.args[-1]).lower()


class _NoPasswordError(Exception):
    """OpenSSL asks for a password and there is none."""


def load_identity(
    context: ssl.SSLContext, identity: ClientCertificate, password_setting: str
) -> None:
    """Load the client certificate and its key; ``password_setting`` is what errors name."""
    has_asked = False

    def password() -> str:
        nonlocal has_asked
        has_asked = True
        if identity.password is None:
            raise _NoPasswordError
        return identity.password.reveal()

    key = f"the key in {identity.key_path}" if identity.key_path else "the key"
    chain = "the certificate"
    if identity.chain_path and identity.chain_path != identity.key_path:
        chain += f" in {identity.chain_path}"
    hint = f"give the password of the key as {password_setting}"
    cause = None
    with identity.files() as (chain_file, key_file):
        try:
            context.load_cert_chain(chain_file, key_file, password)
            return
        except _NoPasswordError:
            problem = f"{identity.key_path or 'the text'} is encrypted"
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"{key} does not match {chain}"
                hint = "give the key of that certificate"
            elif has_asked:
                where = identity.key_path or "the key"
                problem = f"wrong password for {where} ({password_setting})"
            else:
                problem = f"OpenSSL does not accept {key} with {chain}"
                cause, hint = words(error), "check both with openssl x509 and openssl pkey"
        except (OSError, ValueError) as error:  # the file is gone again; a password of 1 KiB
            problem = f"cannot load {key} with {chain}"
            cause, hint = type(error).__name__, "check both with openssl x509 and openssl pkey"
    # Raised outside of the handlers: a chained error would have the frame of the password.
    raise ConfigurationError(f"{identity.key_setting}: {problem}", cause=cause, hint=hint)


def _checked_context(config: ConsumerConfig) -> ssl.SSLContext:
    """Return the user's context, after what can be said of it."""
    context, name = config.ssl_context, config.spelling("ssl_context")
    if not isinstance(context, ssl.SSLContext):
        raise ConfigurationError(
            f"{name} is a {type(context).__name__}, not an ssl.SSLContext",
            hint="make one with ssl.create_default_context()",
        )
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ConfigurationError(
            f"{name} is a context for servers",
            hint="make one with ssl.create_default_context()",
        )
    check = "ssl_endpoint_identification_algorithm"
    is_on = config.ssl_endpoint_identification_algorithm == "https"
    if config.was_given(check) and is_on != context.check_hostname:
        raise ConfigurationError(
            f"{config.spelling(check)} and {name} disagree about host name verification",
            hint=f"leave {config.spelling(check)} out and set check_hostname of the SSLContext",
        )
    return context


def _warn_of_what_is_off(context: ssl.SSLContext) -> None:
    if context.verify_mode != ssl.CERT_REQUIRED:
        logger.warning("certificate verification is off: ssl_context does not verify brokers")
    elif not context.check_hostname:
        logger.warning("host name verification is off")
