"""CL-270: metrics over HTTP, on a thread of its own."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from kfast.errors import ConfigurationError
from kfast.threads import metrics_server
from kfast.threads.metrics_server import MetricsServer, metrics_address


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer(":0", lambda: "a 1\n") as made:
        yield made


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", error.read().decode()


def test_the_text_is_served(server: MetricsServer) -> None:
    """CL-270: on the loopback interface, unless a host is given."""
    assert server.url.startswith("http://127.0.0.1:")
    expected = 200, "text/plain; version=0.0.4; charset=utf-8", "a 1\n"
    assert get(server.url) == get(server.url.removesuffix("metrics")) == expected
    assert get(server.url + "?x=1") == expected
    assert get(server.url + "/x")[0] == 404
    request = urllib.request.Request(server.url, b"x")
    with pytest.raises(urllib.error.HTTPError, match="501") as caught:
        urllib.request.urlopen(request, timeout=10)
    caught.value.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9400", ("127.0.0.1", 9400)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("metrics.local:9400", ("metrics.local", 9400)),
        ("[::1]:9400", ("::1", 9400)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """CL-270"""
    assert metrics_address(text) == address


@pytest.mark.parametrize(
    "text", ["9400", "", ":", ":x", ":99999", "http://a:9400", "a b:1", "::1:9400", "a:1/"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """CL-270"""
    with pytest.raises(ConfigurationError, match="not an address to serve at"):
        metrics_address(text)


def test_a_port_that_is_taken_is_an_error(server: MetricsServer) -> None:
    """CL-270"""
    port = server.url.rpartition(":")[2].removesuffix("/metrics")
    with pytest.raises(ConfigurationError, match="cannot be served there"):
        MetricsServer(f":{port}", str)
    with pytest.raises(ConfigurationError, match="cannot be served there"):
        MetricsServer("192.0.2.1:0", str)


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with MetricsServer("[::1]:0", lambda: "a 1\n") as server:
        assert server.url.startswith("http://[::1]:")
        assert get(server.url)[0] == 200


def test_a_text_that_fails_is_status_500() -> None:
    def text() -> str:
        raise OSError("disk")

    with MetricsServer(":0", text) as server:
        status, _, body = get(server.url)
        assert status == 500
        assert "disk" not in body


def test_a_client_that_sends_nothing_is_dropped(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-270: others are served after a moment, and the server ends."""
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.1)
    host, port = server.url.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.send(b"GET /me")
        assert get(server.url)[0] == 200
    with socket.create_connection((host, int(port))) as gone:
        gone.send(b"\0" * 10)
    assert get(server.url)[0] == 200


def test_it_ends_with_what_it_serves() -> None:
    """CL-270: the port is free again, and an error of a tick is not its end."""
    answers = iter([True, None, True, False])
    ticked = threading.Event()

    def tick() -> bool:
        goes_on = next(answers)
        if goes_on is None:
            raise OSError("for a while")
        if not goes_on:
            ticked.set()
        return goes_on

    server = MetricsServer(":0", str, tick)
    assert ticked.wait(10)
    server.close()
    assert not [each for each in threading.enumerate() if each.name == "kfast-metrics"]
    port = int(server.url.rpartition(":")[2].removesuffix("/metrics"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
