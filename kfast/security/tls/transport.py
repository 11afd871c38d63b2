"""TlsTransport: TLS over TCP as the network client uses it.

Network thread only. TCP connects first, then ``setup`` continues the handshake. An error that says
what is wrong with certificates or protocols is a ``KafkaError`` of ``client.tls_errors``; any other
is an ``OSError``, and the connection is lost.

With TLS 1.3 this side's handshake ends before the broker has looked at the client certificate: a
refusal arrives with the first read. So until something has been received, an alert counts as one of
the handshake.

One ``recv_into`` of OpenSSL gives one record, 16 KiB at most; the transport calls it until the view
is full, which is 1.3 to 1.6 times as fast as a turn of the channel for each record. After it
OpenSSL may have decrypted bytes left that no selector reports: ``has_pending``.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kfast.client import diagnosis
from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind
from kfast.client.node_addresses import Address
from kfast.errors import KafkaError
from kfast.network.transport import (
    EVENT_READ,
    EVENT_WRITE,
    PlaintextTransport,
    SocketSettings,
)
from kfast.security import tls_errors
from kfast.security.certificates import CertificateFacts, read_certificate
from kfast.security.tls.context import TlsContext, words

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.config import ConsumerConfig

MAX_READ_BYTES: Final = 8 << 20
"""Most bytes decrypted by one ``recv_into``."""

_GREETING_BYTES: Final = 256
_MAX_CHAIN: Final = 10
"""Most certificates of a peer that are read for messages."""

_RECORD_STARTS: Final = (b"\x15\x03", b"\x16\x03")
"""Alert and handshake."""

_FOREIGN: Final = (
    (b"HTTP/", re.compile(rb"\d(?:\.\d)? \d")),
    (b"SSH-2", re.compile(rb"\.0-")),
)
"""What servers of other protocols begin with: what OpenSSL takes for the head of a record, and how
it goes on."""

_VERSION_REASONS: Final = frozenset(
    {
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "BAD_PROTOCOL_VERSION_NUMBER",
        "WRONG_SSL_VERSION",
    }
)


class TlsTransportFactory:
    """Starts TLS connections, all with one `TlsContext`; raises for what is wrong with files."""

    def __init__(self, config: ConsumerConfig, settings: SocketSettings, clock: Clock) -> None:
        self._settings = settings
        self._context = TlsContext(config, clock)

    def __call__(self, node: Node, address: Address) -> TlsTransport:
        """Start a connection of a node to one of its addresses."""
        return TlsTransport(node, PlaintextTransport(address, self._settings), self._context)

    def client_name(self) -> str | None:
        """Return whom the client certificate is for, None if there is none."""
        identity = self._context.side.identity
        return None if identity is None else identity.title

    def credentials_version(self) -> int:
        """Return a number that is another one after the files have been renewed."""
        self._context.reload()
        return self._context.version

    def __repr__(self) -> str:
        return f"<TlsTransportFactory {self._context!r}>"


def server_name(host: str) -> str:
    """Return a host as certificates and SNI have it: no trailing dot, no zone, IDNA."""
    name = host.strip("[]").partition("%")[0].rstrip(".")
    return name if name.isascii() else name.encode("idna").decode("ascii")


class TlsTransport:
    """A TLS connection over a TCP connection that was started; owns both."""

    is_raw: Final = False

    def __init__(self, node: Node, tcp: PlaintextTransport, context: TlsContext) -> None:
        self.wants_write = False
        """Whether reading has to wait until something can be written (a key update)."""
        self._node = node
        self._tcp = tcp
        self._context = context
        self._sock: ssl.SSLSocket | None = None
        self._recv_into: Callable[[memoryview], int] | None = None
        self._is_up = False
        self._has_received = False
        self._is_ended = False
        self._error: OSError | None = None
        self._greeting = b""

    @property
    def is_handshaking(self) -> bool:
        """Whether TCP is connected and the TLS handshake is not complete."""
        return self._sock is not None and not self._is_up

    @property
    def has_pending(self) -> bool:
        """Whether ``recv_into`` has something that the selector does not report."""
        if self._sock is None or not self._is_up:
            return False
        return self._is_ended or self._error is not None or self._sock.pending() > 0

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._tcp.fileno() if self._sock is None else self._sock.fileno()

    # --- set-up -----------------------------------------------------------------------------------

    def setup(self) -> int:
        """Connect, then shake hands; return the events to wait for, 0 when bytes can flow."""
        if self._is_up:
            return 0
        if self._sock is None:
            events = self._tcp.setup()
            if events:
                return events
            self._sock = self._wrapped()
        self._look_at_greeting(self._sock)
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return EVENT_READ
        except ssl.SSLWantWriteError:
            return EVENT_WRITE
        except OSError as error:
            raise self._handshake_error(error) from error
        self._is_up = True
        self._recv_into = self._sock.recv_into
        return 0

    def _wrapped(self) -> ssl.SSLSocket:
        try:
            return self._context.current().wrap_socket(
                self._tcp.take_socket(),
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
                server_hostname=server_name(self._node.host),
            )
        except ValueError as error:  # UnicodeError is one
            raise OSError(errno.EINVAL, f"not a host name for TLS: {error}") from error

    def _look_at_greeting(self, sock: ssl.SSLSocket) -> None:
        """Note how the peer begins, as long as it has not begun with a TLS record."""
        if self._greeting.startswith(_RECORD_STARTS):
            return
        with contextlib.suppress(OSError):
            self._greeting = socket.socket.recv(sock, _GREETING_BYTES, socket.MSG_PEEK)

    def _greeting_behind_head(self) -> bytes:
        """Return how a foreign server began, if OpenSSL has read that before it was looked at."""
        rest = b""
        with contextlib.suppress(OSError):
            if self._sock is not None:
                rest = socket.socket.recv(self._sock, _GREETING_BYTES, socket.MSG_PEEK)
        return next((head + rest for head, pattern in _FOREIGN if pattern.match(rest)), b"")

    # --- bytes ------------------------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int | None:
        """Decrypt what is there into ``view``, until it is full; 0 at the end of the stream."""
        receive = self._recv_into
        if receive is None or self._error is not None:
            raise self._error or OSError(errno.ENOTCONN, "not connected")
        room = min(len(view), MAX_READ_BYTES)
        total = 0
        self.wants_write = False
        try:
            while total < room and not self._is_ended:
                count = receive(view[total:room])
                total += count
                self._is_ended = not count
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        except ssl.SSLWantWriteError:
            self.wants_write = True
        except OSError as error:
            stream_error = self._stream_error(error)
            if not total:
                raise stream_error from error
            self._error = stream_error if isinstance(stream_error, OSError) else error
        if total:
            self._has_received = True
            return total
        return 0 if self._is_ended else None

    def send(self, data: memoryview) -> int | None:
        """Encrypt and write what fits; the same bytes have to come again after None."""
        sock = self._sock
        if sock is None:
            raise OSError(errno.ENOTCONN, "not connected")
        try:
            return sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise self._stream_error(self._alert_before(error, sock)) from error

    def _alert_before(self, error: OSError, sock: ssl.SSLSocket) -> OSError:
        """Return the alert that a peer sent before it reset the connection, if there is one."""
        if not self._has_received:
            try:
                sock.recv(1)
            except ssl.SSLError as alert:
                if alert.reason and "ALERT" in alert.reason:
                    return alert
            except OSError:
                pass
        return error

    # --- the end ----------------------------------------------------------------------------------

    def end_output(self) -> None:
        """Send close_notify and a FIN; what still arrives is read as it is, to be discarded."""
        sock = self._sock
        if sock is None or not self._is_up:
            self._tcp.end_output()
            return
        self._send_close_notify(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)  # from here on it is a plain socket
        self._recv_into = sock.recv_into
        self._error, self._is_ended = None, False

    @staticmethod
    def _send_close_notify(sock: ssl.SSLSocket) -> None:
        # It does not wait for the peer's: without that it raises, as after any error before.
        with contextlib.suppress(OSError, ValueError):
            sock.unwrap()

    def close(self) -> None:
        """Send close_notify, if that is possible at once, and close the socket."""
        sock = self._sock
        if sock is None:
            self._tcp.close()
            return
        if self._is_up and not self._is_ended and self._error is None:
            self._send_close_notify(sock)
        self._recv_into = None
        sock.close()

    # --- errors -----------------------------------------------------------------------------------

    def _handshake_error(self, error: OSError) -> KafkaError:
        node, side = self._node, self._context.side
        if isinstance(error, ssl.SSLCertVerificationError):
            chain = self._peer_chain()
            now = self._context.now()
            return tls_errors.certificate_refused(
                node, error.verify_code, error.verify_message, chain, side, now
            )
        greeting = self._greeting or self._greeting_behind_head()
        if diagnosis.kind_of_first_bytes(greeting) not in {None, FailureKind.TLS}:
            return diagnosis.not_kafka(node, greeting)
        alert, chain = _alert(error), self._peer_chain()
        # A quick answer is read by OpenSSL before it was looked at.
        if not (self._greeting.startswith(_RECORD_STARTS) or alert or chain):
            return tls_errors.plaintext_listener(node, side)
        if getattr(error, "reason", None) in _VERSION_REASONS:
            return tls_errors.no_common_version(node, side)
        if alert is not None and chain and tls_errors.is_certificate_alert(alert):
            return tls_errors.client_certificate_refused(node, alert, side)
        if alert in {"handshake_failure", "insufficient_security"} and not chain:
            return tls_errors.no_common_cipher(node, alert, side)
        said = words(error) if isinstance(error, ssl.SSLError) else _said(error)
        return tls_errors.handshake_failed(node, said)

    def _stream_error(self, error: OSError) -> KafkaError | OSError:
        """Return the error for one of a read or a write after the handshake."""
        alert = _alert(error)
        if not self._has_received and alert is not None and tls_errors.is_certificate_alert(alert):
            return tls_errors.client_certificate_refused(self._node, alert, self._context.side)
        if isinstance(error, ssl.SSLEOFError):
            return OSError(errno.ECONNRESET, "the stream ended without close_notify")
        if isinstance(error, ssl.SSLError):
            return OSError(errno.EPROTO, f"TLS: {words(error)}")
        return error

    def _peer_chain(self) -> list[CertificateFacts]:
        """Return the facts of the certificates that the peer sent, as far as they are known."""
        sock = self._sock
        get: Callable[[], list[object]] | None = getattr(sock, "get_unverified_chain", None)
        if get is None:  # before Python 3.13
            get = getattr(getattr(sock, "_sslobj", None), "get_unverified_chain", None)
        try:
            chain = get() if get is not None else None
        except (ssl.SSLError, ValueError):
            chain = None
        return [read_certificate(_der(certificate)) for certificate in (chain or [])[:_MAX_CHAIN]]

    def __repr__(self) -> str:
        return f"<TlsTransport {self._node.address} fd={self.fileno()} up={self._is_up}>"


def _der(certificate: object) -> bytes:
    """Return the DER of a certificate of ``ssl``, or of ``_ssl`` before Python 3.13."""
    if isinstance(certificate, bytes):
        return certificate
    to_bytes = getattr(certificate, "public_bytes", None)
    der = to_bytes(_ENCODING_DER) if to_bytes is not None else b""
    return der if isinstance(der, bytes) else b""


_ENCODING_DER: Final = 2


def _alert(error: OSError) -> str | None:
    """Return the alert of the peer that an error stands for, by its name in RFC 8446."""
    reason = getattr(error, "reason", None) or ""
    _, is_alert, name = reason.partition("_ALERT_")
    return name.lower() if is_alert else None


def _said(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
