"""SaslSettings: what a configuration says about logging in, checked as a whole.

Read once, when the consumer is made. A JAAS line gives the same settings as the keywords do; given
both ways they have to agree. Everything that cannot work is refused here with a
`ConfigurationError`, before any connection: a mechanism without its credentials, a client secret
that would cross the network readable, a package that is missing. Messages contain no secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.security.sasl import msk_iam
from kfast.security.sasl.gssapi_token import gssapi_package
from kfast.security.sasl.msk_iam import MskIamProvider
from kfast.security.sasl.oauthbearer import problem_of_extensions
from kfast.security.sasl.oidc import ClientCredentials, Endpoint, read_endpoint
from kfast.settings.jaas import JaasLogin, read_jaas
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)

_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_PROVIDER: Final = "sasl_login_callback_handler_class"
_READABLE: Final = {"PLAIN": "the password crosses", "OAUTHBEARER": "tokens cross"}
_DEFAULT_SERVICE: Final = "kafka"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The log-in of one consumer; what its mechanism does not use is None."""

    mechanism: str
    is_named: bool
    """Whether the caller chose the mechanism, rather than leaving Kafka's default."""
    is_encrypted: bool
    user: str = ""
    password: Secret[str] | None = None
    is_delegation_token: bool = False
    provider: Any = field(default=None, repr=False)
    endpoint: Endpoint | None = None
    credentials: ClientCredentials | None = None
    extensions: Mapping[str, str] | None = None
    """Of a token of the endpoint."""
    service: str = _DEFAULT_SERVICE
    service_host: str | None = None
    """None: the host of each node."""
    target: str | None = None
    """Kerberos name of the brokers, in place of service and host."""
    principal: str | None = None
    keytab: str | None = None

    @classmethod
    def of(cls, config: ConsumerConfig) -> SaslSettings:
        """Return the log-in of a configuration whose security protocol has SASL."""
        return _Reader(config).read()


class _Reader:
    """Reads keywords and JAAS line as one."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        jaas = config.sasl_jaas_config
        self._jaas: JaasLogin | None = None if jaas is None else read_jaas(jaas)
        self._is_encrypted = config.security_protocol == "SASL_SSL"

    def read(self) -> SaslSettings:
        """Return the checked settings."""
        mechanism = self._mechanism()
        if not self._is_encrypted and mechanism in _READABLE:
            logger.warning(
                "%s over SASL_PLAINTEXT: %s the network readable", mechanism, _READABLE[mechanism]
            )
        if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
            return self._password(mechanism)
        if mechanism == "OAUTHBEARER":
            return self._oauth(mechanism)
        return self._kerberos(mechanism) if mechanism == "GSSAPI" else self._msk_iam(mechanism)

    # --- one value --------------------------------------------------------------------------------

    def _value(self, name: str) -> Any:
        """Return a setting of the JAAS line or of the keyword; they may not differ."""
        keyword_value = getattr(self._config, name)
        line = None if self._jaas is None else self._jaas.values.get(name)
        if line is None:
            return keyword_value
        value: object = line if name in _SECRETS else line.reveal()
        if name == "sasl_delegation_token":
            value = line.reveal().lower() == "true"
        if self._config.was_given(name) and keyword_value != value:
            raise ConfigurationError(
                f"{name} and sasl_jaas_config are given two values",
                hint=f"leave {name} out, or sasl_jaas_config",
            )
        return value

    def _option(self, name: str) -> str | None:
        value = None if self._jaas is None else self._jaas.values.get(name)
        return None if value is None else value.reveal()

    def _mechanism(self) -> str:
        config = self._config
        mechanism: str = config.sasl_mechanism
        if self._jaas is None:
            if not config.was_given("sasl_mechanism"):
                self._check_default()
            return mechanism
        module = self._jaas.mechanism
        if not config.was_given("sasl_mechanism"):
            if module == "SCRAM":
                raise ConfigurationError(
                    "sasl_mechanism is not set, and ScramLoginModule has two",
                    hint="sasl_mechanism=SCRAM-SHA-512 or SCRAM-SHA-256",
                )
            return module
        # MSK's module is given with the mechanism that Java calls AWS_MSK_IAM, or with none.
        if mechanism != module and not (module == "SCRAM" and mechanism.startswith("SCRAM")):
            raise ConfigurationError(
                f"sasl_mechanism={mechanism} does not fit the module of sasl_jaas_config",
                cause=f"that module is for {module}",
                hint=f"sasl_mechanism={'SCRAM-SHA-512' if module == 'SCRAM' else module}",
            )
        return mechanism

    def _check_default(self) -> None:
        """Refuse Kafka's default mechanism, GSSAPI, with the credentials of another one."""
        for names, mechanisms in (
            (("sasl_plain_username", "sasl_plain_password"), "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
            ((_PROVIDER, _ENDPOINT, _CLIENT_ID, _CLIENT_SECRET), "OAUTHBEARER"),
        ):
            set_names = [name for name in names if self._config.was_given(name)]
            if set_names:
                raise ConfigurationError(
                    f"sasl_mechanism is not set, but {' and '.join(set_names)}",
                    cause="Kafka's default is GSSAPI, which does not use them",
                    hint=f"set sasl_mechanism: {mechanisms}",
                )

    # --- mechanisms -------------------------------------------------------------------------------

    def _password(self, mechanism: str) -> SaslSettings:
        user, password = self._value("sasl_plain_username"), self._value("sasl_plain_password")
        _check_credential("sasl_plain_username", user, mechanism)
        _check_credential("sasl_plain_password", password, mechanism)
        is_token = self._value("sasl_delegation_token")
        if is_token and mechanism == "PLAIN":
            raise ConfigurationError(
                "sasl_delegation_token is for SCRAM, not for PLAIN",
                hint="sasl_mechanism=SCRAM-SHA-512 or SCRAM-SHA-256",
            )
        return self._settings(mechanism, user=user, password=password, is_delegation_token=is_token)

    def _oauth(self, mechanism: str) -> SaslSettings:
        config = self._config
        handler, url = config.sasl_login_callback_handler_class, self._value(_ENDPOINT)
        provider = None if handler is None else handler.source
        if provider is not None and url is not None:
            raise ConfigurationError(
                f"{_PROVIDER} and {_ENDPOINT} exclude each other",
                hint=f"give {_PROVIDER} to make tokens, or {_ENDPOINT} to request them",
            )
        if provider is None and url is None:
            raise ConfigurationError(
                "sasl_mechanism=OAUTHBEARER needs a source of tokens",
                hint=f"set {_ENDPOINT} with client id and secret, or {_PROVIDER}",
            )
        extensions = {
            **config.sasl_oauthbearer_extensions,
            **(self._jaas.extensions if self._jaas else {}),
        }
        if url is None:
            self._check_provider(provider, extensions)
            return self._settings(mechanism, provider=provider)
        problem = problem_of_extensions(extensions)
        if problem is not None:
            raise ConfigurationError(
                f"bad value for sasl_oauthbearer_extensions: {problem}",
                hint="write name=value,name=value",
            )
        client_id, client_secret = self._value(_CLIENT_ID), self._value(_CLIENT_SECRET)
        _check_credential(_CLIENT_ID, client_id, mechanism)
        _check_credential(_CLIENT_SECRET, client_secret, mechanism)
        return self._settings(
            mechanism,
            endpoint=read_endpoint(url),
            extensions=extensions,
            credentials=ClientCredentials(
                client_id,
                client_secret,
                self._value("sasl_oauthbearer_scope"),
                config.sasl_oauthbearer_header_urlencode,
            ),
        )

    def _check_provider(self, provider: Any, extensions: Mapping[str, str]) -> None:
        if self._config.sasl_oauthbearer_method == "oidc":
            raise ConfigurationError(
                f"sasl_oauthbearer_method=oidc needs {_ENDPOINT}",
                hint=f"set {_ENDPOINT} with client id and secret",
            )
        if not callable(provider) and not callable(getattr(provider, "token", None)):
            raise ConfigurationError(
                f"bad value for {_PROVIDER}: {type(provider).__name__}",
                hint="pass a callable that returns a token, or an object with token()",
            )
        if extensions:
            raise ConfigurationError(
                f"sasl_oauthbearer_extensions is for {_ENDPOINT}",
                hint="return the extensions with the token: OAuthToken(..., extensions=...)",
            )

    def _kerberos(self, mechanism: str) -> SaslSettings:
        keytab = self._value("sasl_kerberos_keytab")
        if (self._option("useKeyTab") or "true").lower() != "true":
            keytab = None
        if keytab is not None and not os.access(keytab, os.R_OK):
            raise ConfigurationError(
                f"sasl_kerberos_keytab: no such file, or it cannot be read: {keytab}",
                hint="give the path of a keytab that this user may read",
            )
        gssapi_package()
        return self._settings(
            mechanism,
            service=self._value("sasl_kerberos_service_name") or _DEFAULT_SERVICE,
            service_host=self._config.sasl_kerberos_domain_name,
            target=self._config.sasl_kerberos_name,
            principal=self._value("sasl_kerberos_principal"),
            keytab=keytab,
        )

    def _msk_iam(self, mechanism: str) -> SaslSettings:
        if not self._is_encrypted:
            raise ConfigurationError(
                "sasl_mechanism=AWS_MSK_IAM needs TLS", hint="security_protocol=SASL_SSL"
            )
        if self._option("awsStsRegion") is not None:
            raise ConfigurationError(
                "sasl_jaas_config: awsStsRegion is not supported",
                hint="set AWS_DEFAULT_REGION for the requests to STS",
            )
        msk_iam.signer_module()
        provider = MskIamProvider(
            msk_iam.region_of([host for host, _ in self._config.bootstrap_servers]),
            self._option("awsProfileName"),
            self._option("awsRoleArn"),
            self._option("awsRoleSessionName"),
        )
        return self._settings(mechanism, provider=provider)

    def _settings(self, mechanism: str, **values: Any) -> SaslSettings:
        is_named = self._jaas is not None or self._config.was_given("sasl_mechanism")
        return SaslSettings(mechanism, is_named, self._is_encrypted, **values)


_SECRETS: Final = frozenset({"sasl_plain_password", _CLIENT_SECRET})


def _check_credential(name: str, value: str | Secret[str] | None, mechanism: str) -> None:
    """Check a user name, an id or a secret; what a callable returns is checked when it is asked."""
    if isinstance(value, Secret) and value.is_callable:
        return
    problem = _problem_of(value.reveal() if isinstance(value, Secret) else value)
    if problem is not None:
        raise ConfigurationError(
            f"{name} {problem}",
            cause=f"sasl_mechanism={mechanism} needs it",
            hint=f"set {name}",
        )


def _problem_of(text: str | None) -> str | None:
    if not text:
        return "is not set" if text is None else "is empty"
    return "contains a NUL character" if "\0" in text else None
