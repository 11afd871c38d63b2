"""FakeRegistry: an HTTP server on a thread with one table of schemas.

It has the part of Confluent's API that reading needs, and registering; what it answers is compared
with a real registry in ``tests/integration/test_schema_registry.py``. Faults are answers that take
the place of the next ones (``answer_next``); what a real registry may lack is an attribute.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

JSON_TYPE = "application/vnd.schemaregistry.v1+json"

Reference = tuple[str, str, int]
"""Name, subject and version."""
Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """Their names in lower case."""


@dataclass(frozen=True)
class Stored:
    """A schema of the table."""

    id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    descriptor: bytes | None = None
    rule_set: Any = None

    @property
    def guid(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.schema_type} {self.text}"))


def answer(status: int, body: object = b"", kind: str = JSON_TYPE, **headers: str) -> Answer:
    """Return an answer with a body, JSON if it is not bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(data)

    return send


def cut(body: bytes, promised: int) -> Answer:
    """Return an answer whose connection ends before the promised bytes are there."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", JSON_TYPE)
        handler.send_header("Content-Length", str(promised))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return send


def silent(released: threading.Event) -> Answer:
    """Return an answer that does not come before the event is set."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        released.wait(30)
        handler.close_connection = True

    return send


def dropped(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


class FakeRegistry:
    """A registry at ``url``; a context manager."""

    def __init__(self, *, context: ssl.SSLContext | None = None, path: str = "") -> None:
        self.requests: list[Request] = []
        self.next: deque[Answer] = deque()
        self.has_guids = True
        self.has_serialized = True
        self.authorization: str | None = None
        """The Authorization header that requests must have."""
        self._path = path
        self._schemas: list[Stored] = []
        self._subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self) -> None:
                registry._serve(self, b"")

            def do_POST(self) -> None:
                registry._serve(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                """Leave clients that go away, or that TLS refuses, alone."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}{path}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> FakeRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str = "AVRO",
        references: Sequence[Reference] = (),
        *,
        descriptor: bytes | None = None,
        rule_set: Any = None,
    ) -> int:
        """Add a version of a subject and return the id of its schema."""
        content = schema_type, text, tuple(references)
        stored = next(
            (s for s in self._schemas if (s.schema_type, s.text, s.references) == content), None
        )
        if stored is None:
            stored = Stored(len(self._schemas) + 1, *content, descriptor, rule_set)
            self._schemas.append(stored)
        versions = self._subjects.setdefault(subject, [])
        if stored.id not in versions:
            versions.append(stored.id)
        return stored.id

    def guid(self, number: int) -> str:
        """Return the GUID of a schema."""
        return self._schemas[number - 1].guid

    def answer_next(self, *answers: Answer) -> None:
        """Give these answers to the next requests, whatever they are."""
        self.next.extend(answers)

    @property
    def paths(self) -> list[str]:
        """What was asked for, without the path of the registry."""
        return [request.path.removeprefix(self._path) for request in self.requests]

    # --- serving ----------------------------------------------------------------------------------

    def _serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(Request(handler.command, handler.path, headers))
        if self.next:
            self.next.popleft()(handler)
        elif self.authorization is not None and headers.get("authorization") != self.authorization:
            answer(401, {"error_code": 401, "message": "Unauthorized"})(handler)
        elif not handler.path.startswith(self._path + "/"):
            answer(404, b"<html>404</html>", "text/html")(handler)
        else:
            self._route(handler.path.removeprefix(self._path), body)(handler)

    def _route(self, target: str, body: bytes) -> Answer:
        parts = urlsplit(target)
        is_serialized = parse_qs(parts.query).get("format") == ["serialized"]
        match [unquote(name) for name in parts.path.split("/")[1:]]:
            case ["subjects"]:
                return answer(200, sorted(self._subjects))
            case ["schemas", "ids", number]:
                if not (number.isdigit() and 1 <= int(number) <= len(self._schemas)):
                    return _missing(40403, f"Schema {number} not found")
                return self._schema(self._schemas[int(number) - 1], is_serialized, {})
            case ["schemas", "guids", guid] if self.has_guids:
                stored = next((schema for schema in self._schemas if schema.guid == guid), None)
                if stored is None:
                    return _missing(40403, f"Schema {guid} not found")
                return self._schema(stored, is_serialized, {"guid": guid})
            case ["subjects", subject, "versions", number] if not body:
                return self._version(subject, number, is_serialized)
            case ["subjects", subject, "versions"]:
                schema = json.loads(body)
                references = [
                    (reference["name"], reference["subject"], reference["version"])
                    for reference in schema.get("references", ())
                ]
                kind = schema.get("schemaType", "AVRO")
                return answer(
                    200, {"id": self.register(subject, schema["schema"], kind, references)}
                )
        return answer(404, b"", "text/plain")

    def _version(self, subject: str, number: str, is_serialized: bool) -> Answer:
        versions = self._subjects.get(subject)
        if versions is None:
            return _missing(40401, f"Subject '{subject}' not found.")
        at = len(versions) if number == "latest" else int(number)
        if not 1 <= at <= len(versions):
            return _missing(40402, f"Version {number} not found.")
        stored = self._schemas[versions[at - 1] - 1]
        return self._schema(
            stored, is_serialized, {"subject": subject, "version": at, "id": stored.id}
        )

    def _schema(self, stored: Stored, is_serialized: bool, body: dict[str, object]) -> Answer:
        text = stored.text
        if is_serialized and stored.schema_type == "PROTOBUF":
            if not self.has_serialized or stored.descriptor is None:
                return answer(500, {"error_code": 50001, "message": "no such format"})
            text = base64.b64encode(stored.descriptor).decode()
        body = {**body, "schema": text}
        if stored.schema_type != "AVRO":
            body["schemaType"] = stored.schema_type
        if stored.references:
            keys = ("name", "subject", "version")
            body["references"] = [
                dict(zip(keys, reference, strict=True)) for reference in stored.references
            ]
        if stored.rule_set is not None:
            body["ruleSet"] = stored.rule_set
        return answer(200, body)


def _missing(code: int, message: str) -> Answer:
    return answer(404, {"error_code": code, "message": message})


@contextlib.contextmanager
def fake_registry(**options: Any) -> Iterator[FakeRegistry]:
    """Provide a registry for a while."""
    with FakeRegistry(**options) as registry:
        yield registry
