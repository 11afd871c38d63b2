"""TokenEndpoint: against HTTP servers that answer, refuse, redirect, hang and send too much."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from kfast._base.clock import SystemClock
from kfast.errors import AuthenticationError, ConfigurationError
from kfast.security.sasl.oidc import ClientCredentials, Endpoint
from kfast.security.token_endpoint import TokenEndpoint
from kfast.settings.secret import Secret
from kfast.types import OAuthToken
from tests.unit.configs import config

CREDENTIALS = ClientCredentials("app", Secret("S3cr3t"), "kafka")

Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int, body: object, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return send


class Server:
    """An HTTP server that gives these answers in turn, the last one again and again."""

    def __init__(self, answers: list[Answer], context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers), body))
                answers[min(len(outer.requests), len(answers)) - 1](self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = Endpoint(
            context is not None, "127.0.0.1", self._server.server_port, "/token?x=y"
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def served(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(list(answers), context)
    try:
        yield server
    finally:
        server.close()


def client(pauses: list[int] | None = None, **settings: Any) -> TokenEndpoint:
    def pause(wait_ms: int) -> bool:
        if pauses is not None:
            pauses.append(wait_ms)
        return True

    return TokenEndpoint(config(**settings), pause, SystemClock())


TOKEN = answer(200, {"access_token": "t", "expires_in": 60})


def test_a_token_is_requested() -> None:
    """S-04"""
    with served(TOKEN) as server:
        token = client().request(server.endpoint, CREDENTIALS)
    assert isinstance(token, OAuthToken)
    assert token.value == "t"
    [(path, headers, body)] = server.requests
    assert path == "/token?x=y"
    assert body == b"grant_type=client_credentials&scope=kafka"
    assert headers["Authorization"] == "Basic YXBwOlMzY3IzdA=="
    assert headers["Accept"] == "application/json"
    assert headers["User-Agent"].startswith("kfast/")


def test_what_may_pass_is_tried_again() -> None:
    """S-06: 5xx and 429, with back-off."""
    pauses: list[int] = []
    with served(answer(503, b""), answer(429, b""), TOKEN) as server:
        assert client(pauses).request(server.endpoint, CREDENTIALS).value == "t"
    assert len(server.requests) == 3
    assert len(pauses) == 2
    assert 80 <= pauses[0] <= 120
    assert 160 <= pauses[1] <= 240


@pytest.mark.parametrize("status", [400, 401, 403, 302])
def test_a_refusal_is_final(status: int) -> None:
    """S-06: and a redirect is not followed."""
    refuse = answer(status, {"error": "invalid_client"}, Location="http://127.0.0.1:1/")
    with (
        served(refuse) as server,
        pytest.raises(AuthenticationError, match=f"{status} invalid_client") as refused,
    ):
        client().request(server.endpoint, CREDENTIALS)
    assert len(server.requests) == 1
    assert "S3cr3t" not in str(refused.value)


def test_an_endpoint_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-06: in the time for setting a connection up, with the last reason."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with (
        served(answer(500, b"")) as server,
        pytest.raises(AuthenticationError, match='refused client "app": 500'),
    ):
        client([], socket_connection_setup_timeout_ms=300).request(server.endpoint, CREDENTIALS)
    assert server.requests
    with pytest.raises(AuthenticationError, match="no answer from the token endpoint") as refused:
        client([], socket_connection_setup_timeout_ms=200).request(server.endpoint, CREDENTIALS)
    assert refused.value.cause == "connection refused"


def _hang(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.recv(1)


def _dribble(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            threading.Event().wait(0.05)
    except OSError:
        pass


def _endlessly(begin: bytes, rest: bytes) -> Answer:
    """Return an answer that goes on, a little at a time, before its body or within."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.connection.sendall(begin)
            while True:
                handler.connection.sendall(rest)
                threading.Event().wait(0.02)
        except OSError:
            pass

    return send


def _flood(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(bytes(1 << 16))
    except OSError:
        pass


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-x\r\n\r\n")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (_hang, "timed out"),
        (_dribble, "timed out"),
        (_endlessly(b"HTTP/1.1 200 ", b"x"), "timed out"),
        (_endlessly(b"HTTP/1.1 200 OK\r\nA: ", b"x"), "timed out"),
        (_endlessly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out"),
        (_endlessly(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"), "timed out"),
        (_flood, "more than 1048576 bytes"),
        (_garbage, "it does not speak HTTP: BadStatusLine"),
        (answer(200, b"<html>"), "access_token is missing"),
    ],
)
def test_answers_that_are_wrong(wrong: Answer, text: str) -> None:
    """S-05, S-16: nothing of it is waited for after the time is up."""
    settings = {"sasl_login_read_timeout_ms": 200, "socket_connection_setup_timeout_ms": 300}
    began = time.monotonic()
    with served(wrong) as server:
        with pytest.raises(AuthenticationError, match=text):
            client([], **settings).request(server.endpoint, CREDENTIALS)
        assert time.monotonic() - began < 1


def test_a_host_that_is_no_name() -> None:
    """S-05"""
    endpoint = Endpoint(True, "a" * 70 + ".example", 443, "/")
    with pytest.raises(AuthenticationError, match="cause: not a host name"):
        client([], socket_connection_setup_timeout_ms=100).request(endpoint, CREDENTIALS)


def test_the_certificate_is_verified(tmp_path: Path) -> None:
    """S-02: against https_ca_location, else the truststore of the brokers."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    folder = tmp_path / "folder"
    folder.mkdir()
    path, other = folder / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(path)
    trustme.CA().cert_pem.write_to_path(other)
    short = {"socket_connection_setup_timeout_ms": 100}
    with served(TOKEN, context=context) as server:
        trusting: list[dict[str, Any]] = [
            {"https_ca_location": str(path)},
            {"ssl_cafile": str(path)},
            {"ssl_cafile": str(folder)},
            {"ssl.ca.pem": path.read_text()},
            {"https_ca_location": str(path), "ssl_cafile": str(other)},
        ]
        for settings in trusting:
            assert client(**settings).request(server.endpoint, CREDENTIALS).value == "t"
        distrusting: list[dict[str, Any]] = [short, {"https_ca_location": str(other), **short}]
        for settings in distrusting:
            with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
                client([], **settings).request(server.endpoint, CREDENTIALS)


def test_a_bad_ca_file_is_reported_when_the_consumer_is_made(tmp_path: Path) -> None:
    """E-11"""
    with pytest.raises(ConfigurationError, match="https_ca_location: no such file"):
        client(https_ca_location=str(tmp_path / "none.pem"))
