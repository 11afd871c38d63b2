"""``sasl.jaas.config``: Java's line for a log-in, read as settings.

Grammar: ``Module flag (name=value)* ;``, where a value is a bare word or a text in double or single
quotes, in which a backslash stands before a quote or a backslash; line ends and tabs are blanks.
There is exactly one entry. Nothing of the line is ever loaded or shown: an error names the
position, and a module that is refused by its name. The values are `Secret` until it is known which
of them are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.settings.secret import Secret

logger = get_logger(__name__)

_KAFKA: Final = r"(?:[\w.]+\.)?org\.apache\.kafka\.common\.security\.(?:plain|scram|oauthbearer)\."
_MODULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(_KAFKA + r"PlainLoginModule", re.ASCII), "PLAIN"),
    (re.compile(_KAFKA + r"ScramLoginModule", re.ASCII), "SCRAM"),
    (re.compile(_KAFKA + r"OAuthBearerLoginModule", re.ASCII), "OAUTHBEARER"),
    (re.compile(r"com\.sun\.security\.auth\.module\.Krb5LoginModule"), "GSSAPI"),
    (re.compile(r"software\.amazon\.msk\.auth\.iam\.IAMLoginModule"), "AWS_MSK_IAM"),
)
_SHADED: Final = ("kafkashaded.", "io.confluent.", "io.strimzi.")
"""What Confluent's and Strimzi's copies of Kafka's classes begin with."""

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_NAME: Final = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_MODULE: Final = re.compile(r"[A-Za-z_$][\w.$]*", re.ASCII)
_BARE: Final = re.compile(r'[^\s;="]+')
_QUOTED: Final = (
    re.compile(r'"((?:[^"\\]|\\["\\])*)"'),
    re.compile(r"'((?:[^'\\]|\\['\\])*)'"),
)
_BLANKS: Final = re.compile(r"\s*")
_MODULE_SHOWN: Final = 120

EXTENSION: Final = "extension_"
_UNSIGNED: Final = "unsecured"

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "PLAIN": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "SCRAM": {
        "username": "sasl_plain_username",
        "password": "sasl_plain_password",
        "tokenauth": "sasl_delegation_token",
    },
    "OAUTHBEARER": {
        "clientId": "sasl_oauthbearer_client_credentials_client_id",
        "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
    "GSSAPI": {
        "keyTab": "sasl_kerberos_keytab",
        "principal": "sasl_kerberos_principal",
        "serviceName": "sasl_kerberos_service_name",
        "useKeyTab": "useKeyTab",
    },
    "AWS_MSK_IAM": {
        "awsProfileName": "awsProfileName",
        "awsRoleArn": "awsRoleArn",
        "awsRoleSessionName": "awsRoleSessionName",
        "awsStsRegion": "awsStsRegion",
    },
}
"""By mechanism: an option of the module, and the setting that it is; some have none."""


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """What a JAAS line says."""

    mechanism: str
    """PLAIN, SCRAM, OAUTHBEARER, GSSAPI or AWS_MSK_IAM; SCRAM leaves the hash open."""
    values: Mapping[str, Secret[str]]
    """By the setting's name, or by the option's where there is no setting."""
    extensions: Mapping[str, str]
    """Extensions of OAUTHBEARER (KIP-342)."""


def read_jaas(line: Secret[str]) -> JaasLogin:
    """Parse a JAAS line; `ConfigurationError` if it cannot be read or is not supported."""
    module, options = _parse(line)
    mechanism = next((name for pattern, name in _MODULES if _is_module(pattern, module)), None)
    if mechanism is None:
        raise ConfigurationError(
            f"sasl_jaas_config: the module {module[:_MODULE_SHOWN]} is not supported",
            hint="use the login module of PLAIN, SCRAM, OAUTHBEARER, GSSAPI or AWS_MSK_IAM",
        )
    if any(name.startswith(_UNSIGNED) for name in options):
        raise ConfigurationError(
            "sasl_jaas_config: unsigned tokens are not supported",
            hint="use a token endpoint, or pass a token provider as "
            "sasl_login_callback_handler_class",
        )
    names = _SETTINGS[mechanism]
    extensions, values, ignored = {}, {}, []
    for name, value in options.items():
        if name in names:
            values[names[name]] = value
        elif mechanism == "OAUTHBEARER" and name.startswith(EXTENSION):
            extensions[name.removeprefix(EXTENSION)] = value.reveal()
        else:
            ignored.append(name)
    if ignored:
        logger.debug("sasl_jaas_config: without effect: %s", ", ".join(sorted(ignored)))
    return JaasLogin(mechanism, values, extensions)


def _is_module(pattern: re.Pattern[str], module: str) -> bool:
    if not pattern.fullmatch(module):
        return False
    before = module.partition("org.apache.kafka.")[0] if "org.apache.kafka." in module else ""
    return not before or before.startswith(_SHADED)


# --- the grammar ----------------------------------------------------------------------------------


def _parse(line: Secret[str]) -> tuple[str, dict[str, Secret[str]]]:
    """Return module and options of the only entry."""
    reader = _Reader(line)
    module = reader.word(_MODULE, "the name of a login module")
    flag = reader.word(_NAME, "required")
    if flag.lower() not in _FLAGS:
        raise reader.error("required, requisite, sufficient or optional was expected")
    options: dict[str, Secret[str]] = {}
    while not reader.takes(";"):
        name = reader.word(_NAME, "the name of an option, or ;")
        if not reader.takes("="):
            raise reader.error("= was expected")
        if name in options:
            raise reader.error("an option is given twice")
        options[name] = reader.value()
    if not reader.is_at_end():
        raise reader.error("there is more than one entry")
    return module, options


class _Reader:
    """A position in a line that is not shown."""

    def __init__(self, line: Secret[str]) -> None:
        self._line = line
        self._position = 0

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        blanks = _BLANKS.match(self._line.reveal(), self._position)
        self._position = blanks.end() if blanks is not None else self._position
        match = pattern.match(self._line.reveal(), self._position)
        if match is None:
            return None
        self._position = match.end()
        return match[match.lastindex or 0]

    def word(self, pattern: re.Pattern[str], expected: str) -> str:
        """Take a word that is no secret."""
        word = self._match(pattern)
        if word is None:
            raise self.error(f"{expected} was expected")
        return word

    def value(self) -> Secret[str]:
        """Take a value."""
        for pattern in _QUOTED:
            quoted = self._match(pattern)
            if quoted is not None:
                return Secret(re.sub(r"\\(.)", r"\1", quoted))
        bare = self._match(_BARE)
        if bare is None:
            raise self.error("a value was expected: a word, or a text in quotes")
        return Secret(bare)

    def takes(self, sign: str) -> bool:
        """Take a sign if it is next."""
        return self._match(re.compile(re.escape(sign))) is not None

    def is_at_end(self) -> bool:
        """Return whether nothing but blanks is left."""
        return not self._line.reveal()[self._position :].strip()

    def error(self, reason: str) -> ConfigurationError:
        """Return the error for this position."""
        return ConfigurationError(
            f"sasl_jaas_config cannot be read at character {self._position + 1}",
            cause=reason,
            hint="write: org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="USER" password="PASSWORD";',
        )
