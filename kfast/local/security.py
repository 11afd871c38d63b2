"""LocalSecurity: listeners, users, certificates and ACLs of a LocalKafka.

Owns what the brokers' settings say about them, what a client has to be given to log in, and their
changes while the brokers run. A listener has the name of its security protocol, and there is one
more, SSL_REQUIRED, for clients that need a certificate: a broker cannot change that for a listener
that it has. The one called PLAINTEXT is always there, on loopback: brokers, Kafka's tools and
``requests`` use it, and whoever connects to it is ``User:ANONYMOUS``, whom the authorizer allows
everything.

Kept in ``<folder>/security``, which only its owner can read: certificates and ``jwks.json``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    LocalKafkaError,
    did_you_mean,
)
from kfast.local.acl import Acl, create_acls, delete_acls, has_acl
from kfast.local.certificates import LOCAL_HOSTS, Certificates
from kfast.local.credentials import (
    SCRAM,
    alter_broker_config,
    alter_scram_credentials,
    broker_config,
    scram_iterations,
)

if TYPE_CHECKING:
    from kfast.local.node import LocalNode
    from kfast.local.requests import Address
    from kfast.local.tokens import TokenEndpoint, TokenIssuer

logger = get_logger(__name__)

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MECHANISMS: Final = (*_DEFAULT_MECHANISMS, "GSSAPI")
_PREFERRED: Final = "SCRAM-SHA-512"
_SSL_REQUIRED: Final = "SSL_REQUIRED"
CLIENT_AUTH: Final = ("requested", "required")

_ITERATIONS: Final = 4096
_CHECK_SECONDS: Final = 0.01
_CHANGE_TIMEOUT_SECONDS: Final = 30
_KAFKA_SECURITY: Final = "org.apache.kafka.common.security"
_OAUTHBEARER: Final = f"{_KAFKA_SECURITY}.oauthbearer"
_PRINCIPAL_RULES: Final = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"
_ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class LocalSecurity:
    """The security of one LocalKafka; parameters as there.

    ``start`` and ``stop`` bracket each run of the cluster. It has no reference to the LocalKafka.
    """

    def __init__(
        self,
        protocols: str | Iterable[str],
        users: Mapping[str, str] | None,
        acls: Iterable[Acl] | None,
        mechanisms: Iterable[str] | None,
        reauth_ms: int,
        certificates: Certificates | None,
    ) -> None:
        self.protocols = _chosen("security", protocols, PROTOCOLS)
        self.mechanisms = _chosen("mechanisms", mechanisms or _DEFAULT_MECHANISMS, MECHANISMS)
        self.users = dict(users) if users is not None else {"app": os.urandom(12).hex()}
        if not all(user and secret for user, secret in self.users.items()):
            raise ConfigurationError("users: a name or a password is empty")
        if reauth_ms < 0:
            raise ConfigurationError(f"reauth_ms = {reauth_ms}: must be at least 0")
        self._acls = None if acls is None else tuple(acls)
        self._reauth_ms = reauth_ms
        self._given_certificates = certificates
        self._certificates = certificates
        self._client_auth = "requested"
        self._issuer: TokenIssuer | None = None
        self._endpoint: TokenEndpoint | None = None

    # --- one run ----------------------------------------------------------------------------------

    @property
    def listeners(self) -> dict[str, str]:
        """Names and protocols of the listeners besides PLAINTEXT."""
        protocols = {protocol: protocol for protocol in self.protocols if protocol != PLAINTEXT}
        return protocols | {_SSL_REQUIRED: "SSL"} if "SSL" in protocols else protocols

    @property
    def _tls_listeners(self) -> list[str]:
        return [name for name, protocol in self.listeners.items() if protocol.endswith("SSL")]

    @property
    def _sasl_listeners(self) -> list[str]:
        return [name for name in self.listeners if name.startswith("SASL")]

    @property
    def _scram_mechanisms(self) -> list[str]:
        return [name for name in self.mechanisms if name in SCRAM and self._sasl_listeners]

    def start(self, folder: Path, host: str) -> None:
        """Make what the brokers' settings refer to, in a folder of its own."""
        if not self.listeners:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        if self._tls_listeners and self._given_certificates is None:
            self._certificates = Certificates(folder / f"certificates-{time.time_ns():x}")
        if self._sasl_listeners and "OAUTHBEARER" in self.mechanisms:
            # It imports ssl.
            from kfast.local.tokens import TokenEndpoint, TokenIssuer  # noqa: PLC0415

            self._issuer = TokenIssuer(folder)
            self._endpoint = TokenEndpoint(host, self.users, self._issuer)

    def stop(self) -> None:
        """End what runs in this process."""
        if self._endpoint is not None:
            self._endpoint.close()
        self._endpoint = self._issuer = None
        self._certificates = self._given_certificates

    def broker_config(self) -> dict[str, str]:
        """Return the settings of every broker; none for a cluster without security."""
        config: dict[str, str] = {}
        if self._acls is not None:
            config["authorizer.class.name"] = (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            )
            config["super.users"] = "User:ANONYMOUS"
        if not self.listeners:
            return config
        names = {PLAINTEXT: PLAINTEXT, **self.listeners, "CONTROLLER": PLAINTEXT}
        config["listener.security.protocol.map"] = ",".join(map(":".join, names.items()))
        if self._tls_listeners:
            config |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.certificates.ca),
                "ssl.allow.dn.changes": "true",
                "ssl.allow.san.changes": "true",
            }
        if self._sasl_listeners:
            config["connections.max.reauth.ms"] = str(self._reauth_ms)
            config["delegation.token.secret.key"] = "a key for one cluster on loopback"
        for name in self.listeners:
            settings = self._listener_config(name)
            prefix = f"listener.name.{name.lower()}."
            config |= {f"{prefix}{key}": value for key, value in settings.items()}
        return config

    def _listener_config(self, listener: str) -> dict[str, str]:
        config: dict[str, str] = {}
        if listener == _SSL_REQUIRED:
            config["num.network.threads"] = "1"  # each takes time to start and to change
        if listener in self._tls_listeners:
            config["ssl.keystore.type"] = "PEM"
            config["ssl.keystore.location"] = str(self.certificates.server)
        if self.listeners[listener] == "SSL":
            config["ssl.client.auth"] = "required" if listener == _SSL_REQUIRED else "requested"
            config["ssl.principal.mapping.rules"] = _PRINCIPAL_RULES
        if listener in self._sasl_listeners:
            config["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
            for mechanism in self.mechanisms:
                settings = self._mechanism_config(mechanism)
                prefix = f"{mechanism.lower()}."
                config |= {f"{prefix}{key}": value for key, value in settings.items()}
            if "GSSAPI" in self.mechanisms:
                config["sasl.kerberos.service.name"] = "kafka"
        return config

    def _mechanism_config(self, mechanism: str) -> dict[str, str]:
        if mechanism == "PLAIN":
            users = "".join(
                f" {_quoted(f'user_{user}')}={_quoted(secret)}"
                for user, secret in self.users.items()
            )
            module = f"{_KAFKA_SECURITY}.plain.PlainLoginModule required{users};"
            return {"sasl.jaas.config": module}
        if mechanism in SCRAM:
            return {"sasl.jaas.config": f"{_KAFKA_SECURITY}.scram.ScramLoginModule required;"}
        if mechanism == "OAUTHBEARER":
            assert self._issuer is not None
            return {
                "sasl.jaas.config": f"{_OAUTHBEARER}.OAuthBearerLoginModule required;",
                "sasl.server.callback.handler.class": (
                    f"{_OAUTHBEARER}.OAuthBearerValidatorCallbackHandler"
                ),
                **self._issuer.validator_config(),
            }
        return {}  # GSSAPI: the keytab is the caller's

    def java_options(self) -> tuple[str, ...]:
        """Return options for the brokers' Java."""
        if self._issuer is None:
            return ()
        return (f"-D{_ALLOWED_URLS}={self._issuer.jwks.as_uri()}",)

    def apply(self, nodes: Sequence[LocalNode]) -> None:
        """Give users and ACLs to brokers that have just started."""
        addresses = [node.client_address(PLAINTEXT) for node in nodes]
        if self._scram_mechanisms:
            self._set_scram(addresses, self.users)
        if self._acls:
            self.add_acls(addresses, self._acls)
        if self._tls_listeners:  # an earlier run on this data may have changed it
            self.set_server_certificate(nodes, "server")

    # --- clients ----------------------------------------------------------------------------------

    def protocol(self, name: str | None) -> str:
        """Return the protocol of this name, which must have a listener; by default the first."""
        if name is None:
            return self.protocols[0]
        protocols = dict.fromkeys((PLAINTEXT, *self.listeners.values()))
        if name not in protocols:
            raise ConfigurationError(
                f'this LocalKafka has no listener for "{name}"',
                found=", ".join(protocols),
                hint=f'LocalKafka(security=["{name}", ...])' if name in PROTOCOLS else None,
            )
        return name

    def listener(self, protocol: str) -> str:
        """Return the name of the listener that clients of a protocol are to use."""
        is_required = protocol == "SSL" and self._client_auth == "required"
        return _SSL_REQUIRED if is_required else protocol

    def client_config(
        self, protocol: str, user: str | None, mechanism: str | None
    ) -> dict[str, Any]:
        """Return the keywords for a client of this protocol but for its bootstrap servers."""
        config: dict[str, Any] = {"security_protocol": protocol}
        if user is not None and user not in self.users:
            raise ConfigurationError(f'no user "{user}"', found=", ".join(self.users) or "no users")
        if protocol in self._tls_listeners:
            config["ssl_truststore_location"] = str(self.certificates.ca)
        if protocol == "SSL" and (user is not None or self._client_auth == "required"):
            keystore = self.certificates.client(user or self._first_user())
            config["ssl_keystore_location"] = str(keystore)
        if protocol not in self._sasl_listeners:
            if mechanism is not None:
                raise ConfigurationError(
                    f"{protocol} has no mechanisms: {mechanism} is one of SASL"
                )
            return config
        preferred = _PREFERRED if _PREFERRED in self.mechanisms else self.mechanisms[0]
        (chosen,) = _chosen("mechanism", mechanism or preferred, self.mechanisms)
        return config | {"sasl_mechanism": chosen, **self._login_config(chosen, user)}

    def _login_config(self, mechanism: str, user: str | None) -> dict[str, str]:
        if mechanism == "GSSAPI":
            return {"sasl_kerberos_service_name": "kafka"}
        user = user or self._first_user()
        if mechanism != "OAUTHBEARER":
            return {"sasl_plain_username": user, "sasl_plain_password": self.users[user]}
        return {
            "sasl_oauthbearer_token_endpoint_url": self.token_endpoint,
            "sasl_oauthbearer_client_credentials_client_id": user,
            "sasl_oauthbearer_client_credentials_client_secret": self.users[user],
        }

    def _first_user(self) -> str:
        for user in self.users:
            return user
        raise ConfigurationError("this LocalKafka has no users", hint='users={"app": "secret"}')

    @property
    def certificates(self) -> Certificates:
        """The certificates of this run."""
        if self._certificates is None:
            raise IllegalStateError("no listener with TLS runs", hint='LocalKafka(security="SSL")')
        return self._certificates

    @property
    def token_endpoint(self) -> str:
        """URL for the client credentials grant."""
        if self._endpoint is None:
            raise IllegalStateError(
                "no listener with OAUTHBEARER runs", hint='LocalKafka(security="SASL_PLAINTEXT")'
            )
        return self._endpoint.url

    def token(self, user: str, lifetime_s: float, claims: Mapping[str, object]) -> str:
        """Return a signed token."""
        if self._issuer is None:
            raise IllegalStateError("no listener with OAUTHBEARER runs")
        return self._issuer.token(user, lifetime_s, claims)

    # --- changes of running brokers ---------------------------------------------------------------

    def set_password(self, addresses: Sequence[Address], user: str, secret: str) -> None:
        """Add a user or change a password; PLAIN's are in the brokers' settings."""
        if not user or not secret:
            raise ConfigurationError("the name or the password is empty")
        self.users[user] = secret
        if self._scram_mechanisms:
            self._set_scram(addresses, {user: secret})

    def _set_scram(self, addresses: Sequence[Address], users: Mapping[str, str]) -> None:
        """Set credentials twice: when a broker shows the second, it logs in with the first.

        A broker applies changes in their order, but shows one before it has applied all of it.
        """
        credentials = [(user, name) for user in users for name in self._scram_mechanisms]
        for iterations in (_ITERATIONS + 1, _ITERATIONS):
            for mechanism in self._scram_mechanisms:
                alter_scram_credentials(addresses[0], users, mechanism, iterations)
            for address in addresses:
                _wait(
                    "the passwords",
                    lambda: _shows(address, credentials, iterations),  # noqa: B023
                )

    def add_acls(self, addresses: Sequence[Address], acls: Sequence[Acl]) -> None:
        """Add rules and wait until every broker applies them."""
        create_acls(addresses[0], acls)
        self._wait_for_acls(addresses, acls, True)

    def remove_acls(self, addresses: Sequence[Address], acls: Sequence[Acl]) -> None:
        """Remove rules and wait until no broker applies them."""
        delete_acls(addresses[0], acls)
        self._wait_for_acls(addresses, acls, False)

    @staticmethod
    def _wait_for_acls(addresses: Sequence[Address], acls: Sequence[Acl], is_present: bool) -> None:
        for address in addresses:
            for acl in acls:
                _wait("the ACLs", lambda: has_acl(address, acl) is is_present)  # noqa: B023

    def set_client_auth(self, mode: str) -> None:
        """Change which listener clients of SSL are to use."""
        (self._client_auth,) = _chosen("client_auth", mode, CLIENT_AUTH)

    def set_server_certificate(
        self, nodes: Iterable[LocalNode], certificate: str | os.PathLike[str]
    ) -> None:
        """Change the certificate of brokers and wait until they show it."""
        path = str(self._server_certificate(certificate))
        names = self._tls_listeners
        config = {f"listener.name.{name.lower()}.ssl.keystore.location": path for name in names}
        for node in nodes:
            address = node.client_address(PLAINTEXT)
            if broker_config(address, node.node_id, config) == config:
                continue
            alter_broker_config(address, node.node_id, config)
            _wait(
                "the certificate",
                lambda: broker_config(address, node.node_id, config) == config,  # noqa: B023
            )

    def _server_certificate(self, certificate: str | os.PathLike[str]) -> Path:
        certificates = self.certificates
        if certificate == "server":
            return certificates.server
        if certificate == "expired":
            return certificates.expired()
        if certificate == "other_ca":
            return certificates.for_host(*LOCAL_HOSTS, is_trusted=False)
        path = Path(certificate)
        if not path.exists():
            raise ConfigurationError(
                f"no such file: {path}", hint='a PEM file, or "server", "expired" or "other_ca"'
            )
        return path


def _shows(address: Address, credentials: Iterable[tuple[str, str]], iterations: int) -> bool:
    iterations_of = scram_iterations(address)
    return all(iterations_of.get(credential) == iterations for credential in credentials)


def _wait(change: str, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _CHANGE_TIMEOUT_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise LocalKafkaError(
                f"a broker did not apply {change} within {_CHANGE_TIMEOUT_SECONDS} s"
            )
        time.sleep(_CHECK_SECONDS)


def _chosen(setting: str, names: str | Iterable[str], choices: Sequence[str]) -> tuple[str, ...]:
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for value in chosen:
        if value not in choices:
            nearest = did_you_mean(value, choices)
            raise ConfigurationError(
                f'{setting} = "{value}": not one of {", ".join(choices)}',
                hint=None if nearest is None else f'did you mean "{nearest}"?',
            )
    if not chosen or len(set(chosen)) != len(chosen):
        raise ConfigurationError(f"{setting}: empty, or one is given twice")
    return chosen


def _quoted(text: str) -> str:
    """Return a text as the value of an option in a JAAS line."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escaped)
    return f'"{text}"'
