"""HttpConnection: HTTP requests to one server, one at a time, bounded in size and time.

For what a consumer asks besides brokers: token endpoints and schema registries. HTTP/1.1 of the
standard library: no redirects, no proxies from the environment, no cookies. A connection is kept
alive and made anew when the server has closed it meanwhile. Any failure is an `HttpError`; what is
secret in a request is revealed only where it is sent. One thread, which may block; the look-up of a
name alone has no limit in time.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kfast._base.version import installed_version
from kfast.errors import ConfigurationError
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast._base.clock import Clock

USER_AGENT: Final = f"kfast/{installed_version() or 'unknown'}"

HttpsContext: TypeAlias = ssl.SSLContext

_MS: Final = 1000
_READ_BYTES: Final = 64 << 10
_REFUSED: Final = (ConnectionRefusedError, socket.gaierror)
_STALE: Final = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
"""What a kept connection fails with that the server has closed."""


class HttpError(Exception):
    """No answer; the text says why, in lower case."""

    def __init__(
        self, reason: str, *, is_untrusted: bool = False, is_refused: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_untrusted = is_untrusted
        """Whether the certificate of the server is refused."""
        self.is_refused = is_refused
        """Whether nothing listens there, or there is no such name."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer; of a body that is too long a little more than the limit."""

    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes = field(repr=False)


class HttpConnection:
    """A connection to a server, made at the first request; TLS with a ``context``."""

    def __init__(
        self,
        host: str,
        port: int | None,
        context: HttpsContext | None,
        *,
        connect_ms: int,
        read_ms: int,
        clock: Clock,
    ) -> None:
        self._connect_ms = connect_ms
        self._read_ms = read_ms
        self._clock = clock
        self._deadline_ms = 0
        self._connection = (
            http.client.HTTPConnection(host, port)
            if context is None
            else http.client.HTTPSConnection(host, port, context=context)
        )
        self._connection.response_class = partial(_Response, lambda: self._left_s(self._read_ms))  # type: ignore[assignment]

    def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | Secret[str]],
        body: Secret[bytes] | None = None,
        *,
        most_bytes: int,
        deadline_ms: int,
    ) -> HttpReply:
        """Make a request and return its answer; raises `HttpError`."""
        self._deadline_ms = deadline_ms
        is_kept = self._connection.sock is not None
        try:
            try:
                return self._exchange(method, path, headers, body, most_bytes)
            except _STALE:
                self.close()
                if not is_kept:
                    raise
                return self._exchange(method, path, headers, body, most_bytes)
        except ssl.SSLCertVerificationError as error:
            failure = HttpError(error.verify_message, is_untrusted=True)
        except http.client.HTTPException as error:
            failure = HttpError(f"it does not speak HTTP: {type(error).__name__}")
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
            failure = HttpError(reason, is_refused=isinstance(error, _REFUSED))
        except UnicodeError:
            failure = HttpError("not a host name", is_refused=True)
        self.close()
        raise failure

    def _left_s(self, limit_ms: int) -> float:
        """Return for how long to wait now; raises `TimeoutError` after the deadline."""
        left_ms = self._deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise TimeoutError("timed out")
        return min(limit_ms, left_ms) / _MS

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | Secret[str]],
        body: Secret[bytes] | None,
        most_bytes: int,
    ) -> HttpReply:
        connection = self._connection
        if connection.sock is None:
            connection.timeout = self._left_s(self._connect_ms)
            connection.connect()
        connection.sock.settimeout(self._left_s(self._read_ms))
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("User-Agent", USER_AGENT)
        for name, value in headers.items():
            connection.putheader(name, value.reveal() if isinstance(value, Secret) else value)
        if body is None:
            connection.endheaders()
        else:
            connection.putheader("Content-Length", str(len(body.reveal())))
            connection.endheaders(body.reveal())
        with connection.getresponse() as response:
            received = bytearray()
            while len(received) <= most_bytes:
                chunk = response.read1(_READ_BYTES)
                if not chunk:
                    break
                received += chunk
            else:
                connection.close()  # what is left of it would be the beginning of the next answer
            if response.length and len(received) <= most_bytes:
                raise http.client.IncompleteRead(b"", response.length)
            fields = {name.lower(): value for name, value in response.getheaders()}
            return HttpReply(response.status, fields, bytes(received))

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        with contextlib.suppress(OSError):
            self._connection.close()


class _Response(http.client.HTTPResponse):
    """A response of which each read has a time limit, whatever part of it is read."""

    def __init__(self, left_s: Callable[[], float], sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_TimedReads(self.fp.detach(), sock, left_s))


class _TimedReads(io.RawIOBase):
    """What a socket receives; ``left_s`` says for how long to wait before each read."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, left_s: Callable[[], float]) -> None:
        self._raw = raw
        self._sock = sock
        self._left_s = left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        self._sock.settimeout(self._left_s())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def https_context(name: str, trusted: str | None) -> HttpsContext:
    """Return a context that trusts these certificates (PEM), by default those of the system.

    ``name`` is the setting they come from; `ConfigurationError` if they cannot be read.
    """
    try:
        return ssl.create_default_context(cadata=trusted)
    except ssl.SSLError as error:
        reason = str(error).lower()
    raise ConfigurationError(
        f"{name}: a certificate cannot be read",
        cause=reason,
        hint="check the file with: openssl x509 -in FILE -text",
    )
