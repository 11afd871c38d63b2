"""MetricsServer: serves a text to Prometheus over HTTP, on a thread of its own.

Owns the listening socket, through Python's ``http.server``, and the thread. It answers GET of
``/metrics``, one request at a time; a client that is slow is dropped after `_REQUEST_SECONDS`. It
is on the loopback interface unless the address names a host: what it serves has names of topics,
and there is no log-in.

The function that makes the text runs on this thread, as does ``tick``, some times a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast._base.threads import OwnThread
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

logger = get_logger(__name__)

LOOPBACK: Final = "127.0.0.1"
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]/]*)):(\d{1,5})", re.ASCII)
_POLL_SECONDS: Final = 0.2
_REQUEST_SECONDS: Final = 5
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_address(text: str) -> tuple[str, int]:
    """Return host and port of ``:9400``, ``HOST:9400`` or ``[::1]:9400``.

    Raises ``ConfigurationError`` if it is none.
    """
    address = _ADDRESS.fullmatch(text)
    if address is None or int(address[3]) > 65_535:
        raise ConfigurationError(
            f"metrics = {text}: not an address to serve at",
            hint=":9400 for this machine alone, or HOST:9400 (0.0.0.0:9400 for all interfaces)",
        )
    return address[1] or address[2] or LOOPBACK, int(address[3])


class MetricsServer:
    """Serves what ``text`` returns at an address, until it is closed or ``tick`` returns False.

    Raises ``ConfigurationError`` if the address is malformed, or cannot be taken.
    """

    def __init__(
        self, address: str, text: Callable[[], str], tick: Callable[[], bool] | None = None
    ) -> None:
        host, port = metrics_address(address)
        self._tick = tick
        self._is_closing = False
        try:
            self._server = _Server((host, port), text)
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"metrics = {address}: cannot be served there",
                cause=str(error),
                hint="another port, or a host of this machine",
            ) from error
        shown, port = str(self._server.server_address[0]), self._server.server_port
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/metrics"
        self._thread = OwnThread(self._run, "kfast-metrics")
        self._thread.start()
        logger.info("metrics are at %s", self.url)

    def close(self) -> None:
        """End the thread and close the socket."""
        self._is_closing = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._server.handle_request()
                if not self._goes_on():
                    break
        finally:
            self._server.server_close()

    def _goes_on(self) -> bool:
        try:
            return self._tick is None or self._tick()
        except Exception as error:  # a store that does not answer, for a while
            logger.warning("cannot read what the metrics are made of: %s", error)
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url}>"


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in {"/", "/metrics"}:
            self.send_error(404)
            return
        try:
            body = self.server.text().encode()
        except Exception:
            logger.exception("cannot make the metrics")
            self.send_error(500)
            return
        self.send_response(200)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "kfast"

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class _Server(HTTPServer):
    timeout = _POLL_SECONDS

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        self.text = text
        if ":" in address[0]:
            self.address_family = type(self.address_family).AF_INET6  # type: ignore[attr-defined]
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without asking the name of this host, which may take long."""
        super(HTTPServer, self).server_bind()
        self.server_port = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's
        """Go on: a client went away."""
        logger.debug("a request for metrics failed", exc_info=True)
