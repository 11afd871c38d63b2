"""The HTTP API of schema registries: what a URL may be, paths of requests, and their answers.

Pure functions; Confluent's API, which Apicurio and others have too. All requests are GET:

=====================================================  =========================================
``/schemas/ids/{id}``                                  a schema by its id
``/schemas/guids/{guid}``                              a schema by its GUID
``/subjects/{subject}/versions/{version | latest}``    a version of a subject
``.../apis/registry/v3/search/versions?globalId={n}``  Apicurio's own API: the id of a global id
=====================================================  =========================================

Answers are untrusted: they are bounded in size, have to be JSON of the right shape, and what is
shown of them is short and printable. What an answer means:

===========================  ===================================================================
200, JSON with ``schema``    the schema; without ``schemaType`` it is Avro
404 with a code 404xx        not there
404 without                  another server; to a GUID: a registry without GUIDs
401, 403                     refused
408, 429, 5xx, no answer     may pass
400 to 499, 500 to           the form is not supported: the plain one is asked for instead
``?format=serialized``
anything else                not a schema registry
===========================  ===================================================================
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from kfast.errors import (
    ConfigurationError,
    SchemaRegistryAuthenticationError,
    SchemaRegistryError,
)
from kfast.registry.registered_schema import AVRO, KeyKind, SchemaKey
from kfast.security.authentication_errors import printable

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
MAX_ANSWER_BYTES: Final = 4 << 20
MAX_REFERENCES: Final = 1000
"""Of one schema."""

_SHOWN_BYTES: Final = 80
_SHOWN_TEXT: Final = 200
_MAX_RETRY_AFTER_MS: Final = 3_600_000
_APICURIO: Final = re.compile(r"(.*)/apis/ccompat/v\d+")
_ENCRYPTION: Final = "ENCRYPT"
"""Types of rules that encrypt begin with it."""


# --- URLs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegistryUrl:
    """Where a registry is; ``str`` of it is the URL, which has no credentials."""

    is_https: bool
    host: str
    port: int
    path: str
    """Without a slash at the end; empty for the root."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_https else 'http'}://{host}:{self.port}{self.path}"


def read_url(url: str) -> RegistryUrl:
    """Return what a URL means; `ConfigurationError`, which does not show it, for a bad one."""
    hint = "write http://HOST:8081 or https://HOST/PATH"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ConfigurationError("the URL of the schema registry is none", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "the URL of the schema registry has a user name in it",
            cause="URLs are shown in messages and logs",
            hint="give basic_auth=(USER, PASSWORD)",
        )
    is_plain = url.isascii() and url.isprintable() and " " not in url.strip()
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
        raise ConfigurationError("the URL of the schema registry is none", hint=hint)
    if parts.query or parts.fragment:
        raise ConfigurationError("the URL of the schema registry has a query", hint=hint)
    is_https = parts.scheme == "https"
    return RegistryUrl(
        is_https, parts.hostname, port or (443 if is_https else 80), parts.path.rstrip("/")
    )


def path_of(url: RegistryUrl, key: SchemaKey, *, is_serialized: bool) -> str:
    """Return path and query of the request for a key."""
    if key.kind is KeyKind.VERSION:
        version = "latest" if key.version is None else key.version
        path = f"{url.path}/subjects/{quote(str(key.value), safe='')}/versions/{version}"
    elif key.kind is KeyKind.GUID:
        path = f"{url.path}/schemas/guids/{key.value}"
    elif key.kind is KeyKind.GLOBAL_ID and (apicurio := _APICURIO.fullmatch(url.path)):
        return f"{apicurio[1]}/apis/registry/v3/search/versions?globalId={key.value}"
    else:
        path = f"{url.path}/schemas/ids/{key.value}"
    return f"{path}?format=serialized" if is_serialized else path


def redirected(url: RegistryUrl, path: str, location: str) -> str | None:
    """Return the path that a redirect leads to, None if that is on another server."""
    here = urlsplit(str(url))
    try:
        there = urlsplit(urljoin(f"{here.scheme}://{here.netloc}{path}", location))
        port = there.port or {"http": 80, "https": 443}.get(there.scheme)
    except ValueError:
        return None
    is_same = (there.scheme, there.hostname, port) == (here.scheme, url.host, url.port)
    is_plain = there.path.isascii() and there.path.isprintable() and " " not in there.path
    if not is_same or there.username is not None or not is_plain:
        return None
    return (there.path or "/") + (f"?{there.query}" if there.query else "")


# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer as it came; of a body that is too long a little more than the limit."""

    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class RawReference:
    """A reference that is not resolved."""

    name: str
    key: SchemaKey


@dataclass(frozen=True, slots=True)
class RawSchema:
    """A schema whose references are not resolved."""

    schema_type: str
    text: str
    references: tuple[RawReference, ...] = ()
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """The schema has this key too, and that is the one to ask for."""

    key: SchemaKey


@dataclass(frozen=True, slots=True)
class NotFound:
    """The registry does not have it."""


@dataclass(frozen=True, slots=True)
class NotSupported:
    """The registry has no such form of schemas: the plain one is to be asked for."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer to use. A failure that may pass is retriable."""

    error: SchemaRegistryError
    retry_after_ms: int = 0
    is_refused: bool = False
    """Whether nothing listens there, or there is no such name."""

    @property
    def may_pass(self) -> bool:
        """Whether the request is to be made again."""
        return self.error.retriable


Outcome = RawSchema | Alias | NotFound | NotSupported | Failure


def read_answer(
    url: RegistryUrl, key: SchemaKey, answer: HttpAnswer, wall_ms: int, *, is_serialized: bool
) -> Outcome:
    """Return what an answer to the request for a key means."""
    status = answer.status
    found = _json_object(answer)
    if status == 200:
        return _schema_of(url, key, answer, found)
    code = None if found is None else found.get("error_code")
    if status == 404 and isinstance(code, int) and (code == 404 or 40400 <= code <= 40499):
        return NotFound()
    if status in {401, 403}:
        return Failure(refused(url, key, status, _said(found)))
    if status in {408, 429} or (status >= 500 and not (is_serialized and status == 500)):
        reason = f"it answers {status} {_said(found) or _PHRASES.get(status, '')}".rstrip()
        return Failure(unreachable(url, reason), _retry_after_ms(answer.retry_after, wall_ms))
    if is_serialized and 400 <= status <= 500:
        return NotSupported()
    if status == 404 and key.kind is KeyKind.GUID:
        return Failure(no_guids(url, key))
    if status == 422 or (status == 400 and found is not None):
        return Failure(
            SchemaRegistryError(
                f"the schema registry {url} refuses {key}",
                found=f"{status} {_said(found) or shown_bytes(answer.body)}".rstrip(),
                hint="check what the framing of the records is",
                url=str(url),
                status=status,
            )
        )
    return Failure(not_a_registry(url, answer))


_PHRASES: Final = {
    408: "Request Timeout",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def _schema_of(
    url: RegistryUrl, key: SchemaKey, answer: HttpAnswer, found: dict[str, object] | None
) -> Outcome:
    if len(answer.body) > MAX_ANSWER_BYTES:
        return Failure(too_large(url, key))
    if found is None:
        return Failure(not_a_registry(url, answer))
    if key.kind is KeyKind.GLOBAL_ID and isinstance(found.get("versions"), list):
        return _alias_of(url, answer, found)
    text, kind = found.get("schema"), found.get("schemaType", AVRO)
    references = _references_of(found.get("references"))
    if not isinstance(text, str) or not isinstance(kind, str) or references is None:
        return Failure(not_a_registry(url, answer))
    rule = _encryption_rule(found.get("ruleSet"))
    if rule is not None:
        return Failure(encrypted(url, key, rule))
    return RawSchema(
        kind.upper(),
        text,
        references,
        id=_integer(found.get("id")) if key.kind is not KeyKind.ID else int(key.value),
        guid=_text(found.get("guid")),
        subject=_text(found.get("subject")),
        version=_integer(found.get("version")),
    )


def _alias_of(url: RegistryUrl, answer: HttpAnswer, found: dict[str, object]) -> Outcome:
    versions = found["versions"]
    if not versions:
        return NotFound()
    first = versions[0] if isinstance(versions, list) else None
    number = _integer(first.get("contentId")) if isinstance(first, dict) else None
    if number is None:
        return Failure(not_a_registry(url, answer))
    return Alias(SchemaKey.of_id(number))


def _references_of(found: object) -> tuple[RawReference, ...] | None:
    """Return references, None for what is malformed."""
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > MAX_REFERENCES:
        return None
    references = []
    for each in found:
        if not isinstance(each, dict):
            return None
        name, subject = each.get("name"), each.get("subject")
        version = _integer(each.get("version"))
        if not isinstance(name, str) or not isinstance(subject, str) or version is None:
            return None
        references.append(RawReference(name, SchemaKey.of_version(subject, version)))
    return tuple(references)


def _encryption_rule(rule_set: object) -> str | None:
    """Return the name and type of a rule that encrypts."""
    if not isinstance(rule_set, dict):
        return None
    for rules in rule_set.values():
        for rule in rules if isinstance(rules, list) else ():
            shown = isinstance(rule, dict) and encryption_rule(rule.get("name"), rule.get("type"))
            if shown:
                return shown
    return None


def encryption_rule(name: object, kind: object) -> str | None:
    """Return what messages call a rule that encrypts, None for other rules."""
    if not isinstance(kind, str) or not kind.upper().startswith(_ENCRYPTION):
        return None
    shown = f'"{printable(name, _SHOWN_TEXT)}" ' if isinstance(name, str) else ""
    return f"{shown}({printable(kind, _SHOWN_TEXT)})"


def _json_object(answer: HttpAnswer) -> dict[str, object] | None:
    media = answer.content_type.partition(";")[0].strip().lower()
    if not media.endswith(("/json", "+json")) or len(answer.body) > MAX_ANSWER_BYTES:
        return None
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _said(found: dict[str, object] | None) -> str | None:
    """Return the message of an error of the registry."""
    message = None if found is None else found.get("message")
    return printable(message, _SHOWN_TEXT) if isinstance(message, str) and message else None


def _retry_after_ms(text: str | None, wall_ms: int) -> int:
    """Return ms of a Retry-After header, seconds or a date; 0 for none."""
    if text is None:
        return 0
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        wait_ms = int(text) * 1000
    else:
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return 0
        date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
        wait_ms = round(date.timestamp() * 1000) - wall_ms
    return min(max(0, wait_ms), _MAX_RETRY_AFTER_MS)


# --- errors ---------------------------------------------------------------------------------------


def shown_bytes(body: bytes) -> str:
    """Return the beginning of a body as messages show it."""
    text = printable(body[:_SHOWN_BYTES].decode("utf-8", "replace"), _SHOWN_BYTES)
    return f"{text} …" if len(body) > _SHOWN_BYTES else text or "an empty body"


Where = RegistryUrl | str
"""A server, or what a user's client is called."""


def encrypted(url: Where, key: SchemaKey, rule: str) -> SchemaRegistryError:
    """Return the error for a schema whose rules encrypt fields."""
    return SchemaRegistryError(
        f"{key} encrypts fields: its values cannot be read",
        cause=f"the rule {rule} of the schema's ruleSet",
        hint="read the raw bytes, or a topic whose fields are not encrypted",
        url=str(url),
    )


def redirects_elsewhere(url: RegistryUrl, location: str) -> SchemaRegistryError:
    """Return the error for a redirect to another server, which would get the credentials."""
    try:
        parts = urlsplit(location)
        host = printable(f"{parts.scheme}://{parts.hostname}", _SHOWN_TEXT)
    except ValueError:
        host = "a URL that cannot be read"
    return SchemaRegistryError(
        f"the schema registry {url} redirects to another server, which is not followed",
        found=host,
        hint="give the URL of that server, if it is the registry",
        url=str(url),
    )


def unreachable(url: Where, reason: str, what: str = "") -> SchemaRegistryError:
    """Return the error for a registry that gives no answer for the time being."""
    return SchemaRegistryError(
        f"no answer from the schema registry {url}{f' for {what}' if what else ''}",
        cause=reason,
        hint="check that it runs there, and the URL",
        command_hint="check that it runs there, and --schema-registry",
        url=str(url),
        retriable=True,
    )


def untrusted(url: RegistryUrl, reason: str) -> SchemaRegistryError:
    """Return the error for a server whose certificate is not trusted."""
    return SchemaRegistryError(
        f"the certificate of the schema registry {url} is not trusted",
        cause=reason,
        hint="give its authority's certificate as ssl_cafile",
        command_hint="give its authority's certificate: schema.registry.ssl.ca.location in a file "
        "(-F FILE)",
        url=str(url),
    )


def refused(url: Where, key: SchemaKey, status: int, said: str | None) -> SchemaRegistryError:
    """Return the error for credentials that are missing, wrong or not enough."""
    what = "did not accept the credentials" if status == 401 else f"does not permit {key}"
    return SchemaRegistryAuthenticationError(
        f"the schema registry {url} {what}",
        found=f"{status} {said or ('Unauthorized' if status == 401 else 'Forbidden')}",
        hint="check basic_auth or bearer_token, and what the user may read",
        command_hint="check basic.auth.user.info or bearer.auth.token in a file (-F FILE), and "
        "what the user may read",
        url=str(url),
        status=status,
    )


def no_guids(url: RegistryUrl, key: SchemaKey) -> SchemaRegistryError:
    """Return the error for a registry that does not look GUIDs up."""
    return SchemaRegistryError(
        f"the schema registry {url} has no schemas by GUID: {key} cannot be looked up",
        cause="it answers 404 without an error code to /schemas/guids",
        hint="use the registry that the producer has, or let it write schema ids",
        url=str(url),
        status=404,
    )


def too_large(url: RegistryUrl, key: SchemaKey) -> SchemaRegistryError:
    """Return the error for an answer of more than 4 MiB."""
    return SchemaRegistryError(
        f"the answer of the schema registry {url} for {key} has more than {MAX_ANSWER_BYTES} bytes",
        hint="is the URL that of a schema registry?",
        url=str(url),
    )


def not_a_registry(url: RegistryUrl, answer: HttpAnswer) -> SchemaRegistryError:
    """Return the error for the answer of another kind of server."""
    kind = printable(answer.content_type.partition(";")[0], _SHOWN_BYTES) or "no content type"
    return SchemaRegistryError(
        f"{url} is not a schema registry: is the path right?",
        found=f"{answer.status}, {kind}: {shown_bytes(answer.body)}",
        hint="give the URL whose /subjects lists the subjects, such as http://HOST:8081",
        url=str(url),
        status=answer.status,
    )
