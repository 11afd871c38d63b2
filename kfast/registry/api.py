"""The HTTP API of schema registries as data: settings, paths of requests, and their answers.

Pure. It is Confluent's API, which Apicurio and others have too. All requests are GET:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin, urlsplit

from kfast.errors import (
    ConfigurationError,
    SchemaRegistryAuthenticationError,
    SchemaRegistryError,
)
from kfast.registry.registered_schema import AVRO, KeyKind, RegisteredSchema, SchemaKey
from kfast.security.authentication_errors import printable
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast._base.http_exchange import HttpReply

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
MAX_ANSWER_BYTES: Final = 4 << 20
MAX_REFERENCES: Final = 1000
"""Of one schema."""
SHOWN_CHARACTERS: Final = 200
"""Most that messages show of a text that is not ours."""

_SHOWN_BYTES: Final = 80
_MAX_RETRY_AFTER_MS: Final = 3_600_000
_APICURIO: Final = re.compile(r"(.*)/apis/ccompat/v\d+")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""RFC 9110."""
_RESERVED: Final = frozenset({"authorization", "host", "content-length", "connection", "accept"})
_PORTS: Final = {"http": 80, "https": 443}
_MAY_BE_0: Final = ("retry_backoff_ms", "miss_cache_ms")


# --- settings -------------------------------------------------------------------------------------


def url_of(text: str) -> str:
    """Check a URL and write its port out; the `ConfigurationError` for a bad one does not show it.

    It has no credentials, and no slash at the end.
    """
    hint = "write http://HOST:8081 or https://HOST/PATH"
    try:
        url = urlsplit(text.strip())
        port = url.port or _PORTS.get(url.scheme)
    except ValueError:
        raise ConfigurationError("the URL of the schema registry is none", hint=hint) from None
    if url.username is not None or url.password is not None:
        raise ConfigurationError(
            "the URL of the schema registry has a user name in it",
            cause="URLs are shown in messages and logs",
            hint="give basic_auth=(USER, PASSWORD)",
        )
    if url.scheme not in _PORTS or not url.hostname or not _is_plain(text.strip(" ")):
        raise ConfigurationError("the URL of the schema registry is none", hint=hint)
    if url.query or url.fragment:
        raise ConfigurationError("the URL of the schema registry has a query", hint=hint)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}:{port}{url.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The arguments of a ``SchemaRegistry``. Equal ones are one registry with one user."""

    urls: tuple[str, ...]
    basic_auth: Secret[str] | None = None
    """``USER:PASSWORD``."""
    bearer_token: Secret[str] | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: Secret[str] | None = None
    ssl_check_hostname: bool = True
    headers: tuple[tuple[str, Secret[str]], ...] = ()
    timeout_ms: int = 10_000
    deadline_ms: int = 30_000
    retry_backoff_ms: int = 200
    miss_cache_ms: int = 60_000
    max_schemas: int = 10_000
    client: Any = field(default=None, repr=False)
    """The user's own, which is called instead of the URLs."""

    def __post_init__(self) -> None:
        if self.basic_auth is not None and self.bearer_token is not None:
            raise _bad("basic_auth and bearer_token are both given", "give one of them")
        has_tls = any(url.startswith("https:") for url in self.urls)
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password"):
            if getattr(self, name) is not None and not has_tls:
                raise _bad(f"{name} has no effect with http", "give an https URL, or leave it out")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise _bad("ssl_keyfile without ssl_certfile", "give the client certificate too")
        for name in ("timeout_ms", "deadline_ms", "max_schemas", *_MAY_BE_0):
            value, least = getattr(self, name), 0 if name in _MAY_BE_0 else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise _bad(f"{name} = {value!r}", f"a whole number of {least} or more")

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs, or the name of the client."""
        return self.urls or (f"client {type(self.client).__name__}",)


def urls_of(value: str | Sequence[str]) -> tuple[str, ...]:
    """Parse URLs: a text, which may have several with commas between, or a sequence of texts."""
    texts = value.split(",") if isinstance(value, str) else [*value]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise _bad("no URL of a schema registry is given", "such as http://HOST:8081")
    return tuple(url_of(text) for text in texts)


def basic_auth_of(value: str | tuple[str, str] | None) -> Secret[str] | None:
    """Check user and password, ``"USER:PASSWORD"`` or a pair."""
    if value is None:
        return None
    if isinstance(value, str):
        user, sign, password = value.partition(":")
        value = (user, password) if sign else ("", "")
    is_pair = len(value) == 2 and all(isinstance(text, str) for text in value)
    if not is_pair or not value[0] or ":" in value[0]:
        raise _bad("basic_auth is not a user and a password", "give (USER, PASSWORD)")
    return Secret(":".join(value))


def secret_of(name: str, value: Any, hint: str, *, is_token: bool = False) -> Secret[str] | None:
    """Check a secret text; a token is not empty, or a callable that returns it."""
    if value is None:
        return None
    is_text = isinstance(value, str) and (value or not is_token)
    if is_text or (is_token and callable(value)):
        return Secret(value)
    raise _bad(f"{name} is no text", hint)


def headers_of(value: Mapping[str, str] | None) -> tuple[tuple[str, Secret[str]], ...]:
    """Check headers that are sent with every request."""
    for name, text in (value or {}).items():
        is_text = isinstance(name, str) and isinstance(text, str)
        if not is_text or not _HEADER_NAME.fullmatch(name) or not is_header_value(text):
            raise _bad("headers: not names and texts", "such as {'X-Tenant': 'a'}")
        if name.lower() in _RESERVED:
            raise _bad(f"headers: {name} is not for the caller", "use basic_auth or bearer_token")
    return tuple((name, Secret(text)) for name, text in (value or {}).items())


def is_header_value(text: str) -> bool:
    """Whether a text can be sent in a header."""
    return text.isascii() and text.isprintable()


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _bad(problem: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"SchemaRegistry: {problem}", hint=hint)


# --- requests -------------------------------------------------------------------------------------


def path_of(url: str, key: SchemaKey, *, is_serialized: bool) -> str:
    """Path and query of the request for a key."""
    path = urlsplit(url).path
    if key.kind is KeyKind.VERSION:
        version = "latest" if key.version is None else key.version
        path += f"/subjects/{quote(str(key.value), safe='')}/versions/{version}"
    elif key.kind is KeyKind.GUID:
        path += f"/schemas/guids/{key.value}"
    elif key.kind is KeyKind.GLOBAL_ID and (apicurio := _APICURIO.fullmatch(path)):
        return f"{apicurio[1]}/apis/registry/v3/search/versions?globalId={key.value}"
    else:
        path += f"/schemas/ids/{key.value}"
    return f"{path}?format=serialized" if is_serialized else path


def redirected(url: str, path: str, location: str) -> str | None:
    """Path and query that a redirect leads to, None if that is on another server."""
    here = urlsplit(url)
    try:
        there = urlsplit(urljoin(f"{here.scheme}://{here.netloc}{path}", location))
        port = there.port or _PORTS.get(there.scheme)
    except ValueError:
        return None
    is_same = (there.scheme, there.hostname, port) == (here.scheme, here.hostname, here.port)
    if not is_same or there.username is not None or not _is_plain(there.path):
        return None
    return (there.path or "/") + (f"?{there.query}" if there.query else "")


def origin_of(location: str) -> str:
    """Scheme and host of a redirect, as messages show it."""
    try:
        url = urlsplit(location)
        return printable(f"{url.scheme}://{url.hostname}", SHOWN_CHARACTERS)
    except ValueError:
        return "a URL that cannot be read"


# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RawSchema:
    """A schema without its references, which are names and keys to look up."""

    schema: RegisteredSchema
    references: tuple[tuple[str, SchemaKey], ...] = ()


class Absent(Enum):
    """What a registry does not have."""

    SCHEMA = "a schema of this key"
    FORM = "the serialized form of schemas: the plain one is to be asked for"


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer to use. The request is to be made again if the error is retriable."""

    error: SchemaRegistryError
    retry_after_ms: int = 0
    is_refused: bool = False
    """Whether nothing listens there, or there is no such name."""


Outcome = RawSchema | SchemaKey | Absent | Failure
"""Of one request. A key: the schema is that of this key."""


def failure(server: str, message: str, **details: Any) -> Failure:
    """Make a failure with a `SchemaRegistryError`; ``details`` are those of `KafkaError`."""
    return Failure(SchemaRegistryError(message, url=server, **details))


def unreachable(server: str, reason: str, lookup: str = "") -> SchemaRegistryError:
    """Make the error for a registry that gives no answer for the time being."""
    return SchemaRegistryError(
        f"no answer from the schema registry {server}{lookup and f' for {lookup}'}",
        cause=reason,
        hint="check that it runs there, and the URL",
        command_hint="check that it runs there, and --schema-registry",
        url=server,
        retriable=True,
    )


def status_failure(
    server: str, key: SchemaKey, status: int, text: str, reason: str, retry_after_ms: int = 0
) -> Failure | None:
    """The failure for a status that means the same for every key; ``text`` is the registry's."""
    if status in {408, 429} or status >= 500:
        return Failure(unreachable(server, reason), retry_after_ms)
    if status not in {401, 403}:
        return None
    problem = "did not accept the credentials" if status == 401 else f"does not permit {key}"
    error = SchemaRegistryAuthenticationError(
        f"the schema registry {server} {problem}",
        found=f"{status} {text or _PHRASES[status]}",
        hint="check basic_auth or bearer_token, and what the user may read",
        command_hint="check basic.auth.user.info or bearer.auth.token in a file (-F FILE), and "
        "what the user may read",
        url=server,
        status=status,
    )
    return Failure(error)


_PHRASES: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    408: "Request Timeout",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def read_reply(
    url: str, key: SchemaKey, reply: HttpReply, wall_ms: int, *, is_serialized: bool
) -> Outcome:
    """The outcome of a request for a key."""
    status, document = reply.status, _document_of(reply)
    if status == 200:
        if len(reply.body) > MAX_ANSWER_BYTES:
            return failure(
                url,
                f"the answer of the schema registry {url} for {key} has more than "
                f"{MAX_ANSWER_BYTES} bytes",
                hint="is the URL that of a schema registry?",
            )
        return read_schema(url, key, document or {}) or _another_server(url, reply)
    text = printable(_value(document, "message", str) or "", SHOWN_CHARACTERS)
    code = _value(document, "error_code", int) or 0
    if status == 404 and (code == 404 or 40400 <= code <= 40499):
        return Absent.SCHEMA
    if is_serialized and 400 <= status <= 500 and status not in {401, 403, 408, 429}:
        return Absent.FORM
    reason = f"it answers {status} {text or _PHRASES.get(status, '')}".rstrip()
    retry_after_ms = _retry_after_ms(reply.headers.get("retry-after"), wall_ms)
    refusal = status_failure(url, key, status, text, reason, retry_after_ms)
    if refusal is not None:
        return refusal
    if status == 404 and key.kind is KeyKind.GUID:
        return failure(
            url,
            f"the schema registry {url} has no schemas by GUID: {key} cannot be looked up",
            cause="it answers 404 without an error code to /schemas/guids",
            hint="use the registry that the producer has, or let it write schema ids",
            status=404,
        )
    if status == 422 or (status == 400 and document is not None):
        return failure(
            url,
            f"the schema registry {url} refuses {key}",
            found=f"{status} {text or _shown(reply.body)}",
            hint="check what the framing of the records is",
            status=status,
        )
    return _another_server(url, reply)


def read_schema(server: str, key: SchemaKey, document: dict[str, Any]) -> Outcome | None:
    """The outcome that the body of an answer is, None if it has no schema."""
    versions = document.get("versions")
    if key.kind is KeyKind.GLOBAL_ID and isinstance(versions, list):
        if not versions:
            return Absent.SCHEMA
        number = _value(versions[0], "contentId", int)
        return None if number is None else SchemaKey.of_id(number)
    text, kind = _value(document, "schema", str), document.get("schemaType", AVRO)
    references = _references_of(document.get("references") or [])
    if text is None or not isinstance(kind, str) or references is None:
        return None
    rule = _encryption_rule(document.get("ruleSet"))
    if rule is not None:
        return failure(
            server,
            f"{key} encrypts fields: its values cannot be read",
            cause=f"the rule {rule} of the schema's ruleSet",
            hint="read the raw bytes, or a topic whose fields are not encrypted",
        )
    schema = RegisteredSchema(
        kind.upper(),
        text,
        id=int(key.value) if key.kind is KeyKind.ID else _value(document, "id", int),
        guid=_value(document, "guid", str),
        subject=_value(document, "subject", str),
        version=_value(document, "version", int),
    )
    return RawSchema(schema, references)


def _references_of(items: object) -> tuple[tuple[str, SchemaKey], ...] | None:
    if not isinstance(items, list) or len(items) > MAX_REFERENCES:
        return None
    fields = (("name", str), ("subject", str), ("version", int))
    references = [[_value(item, name, kind) for name, kind in fields] for item in items]
    if any(None in reference for reference in references):
        return None
    return tuple((name, SchemaKey.of_version(*version)) for name, *version in references)


def _encryption_rule(rule_set: object) -> str | None:
    """Name and type of a rule that encrypts; the type of such a rule begins with ENCRYPT."""
    for rules in rule_set.values() if isinstance(rule_set, dict) else ():
        for rule in rules if isinstance(rules, list) else ():
            name, kind = _value(rule, "name", str), _value(rule, "type", str) or ""
            if kind.upper().startswith("ENCRYPT"):
                shown = "" if name is None else f'"{printable(name, SHOWN_CHARACTERS)}" '
                return f"{shown}({printable(kind, SHOWN_CHARACTERS)})"
    return None


def _value(document: object, name: str, kind: type) -> Any:
    """A member of a JSON object, None if it is of another type."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _document_of(reply: HttpReply) -> dict[str, Any] | None:
    media = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not media.endswith(("/json", "+json")) or len(reply.body) > MAX_ANSWER_BYTES:
        return None
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _retry_after_ms(text: str | None, wall_ms: int) -> int:
    """Milliseconds of a Retry-After header, seconds or a date; 0 for none."""
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


def _another_server(url: str, reply: HttpReply) -> Failure:
    media = reply.headers.get("content-type", "").partition(";")[0]
    kind = printable(media, _SHOWN_BYTES) or "no content type"
    return failure(
        url,
        f"{url} is not a schema registry: is the path right?",
        found=f"{reply.status}, {kind}: {_shown(reply.body)}",
        hint="give the URL whose /subjects lists the subjects, such as http://HOST:8081",
        status=reply.status,
    )


def _shown(body: bytes) -> str:
    text = printable(body[:_SHOWN_BYTES].decode("utf-8", "replace"), _SHOWN_BYTES)
    return f"{text} …" if len(body) > _SHOWN_BYTES else text or "an empty body"
