"""What a connection asks of its log-in, whose one implementation is ``security.sasl.login``.

Sans-IO. The connection sends what ``next_request`` gives, decodes nothing itself, and hands every
answer to ``receive``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError, KafkaError
    from kfast.protocol.message import RequestMessage


class Login(Protocol):
    """One authentication of one connection, from the first to the last request."""

    is_complete: bool
    """Whether the connection is authenticated."""
    authenticate_version: int | None
    """The version of SaslAuthenticate, once the broker has said which ones it speaks."""

    session_lifetime_ms: int
    """How long the session lasts from the last answer on; 0 means without end."""

    @property
    def user(self) -> str | None:
        """Who logs in, for messages; None if that is not known."""
        ...

    @property
    def is_waiting_for_worker(self) -> bool:
        """Whether the next request depends on the login worker."""
        ...

    @property
    def awaited(self) -> RequestMessage | None:
        """The request that was sent last and is not answered."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the server has answered the first request, and so is a Kafka broker."""
        ...

    @property
    def has_header_tags(self) -> bool:
        """Whether the header of the next answer ends with a tag section."""
        ...

    def next_request(self) -> tuple[RequestMessage, int] | None:
        """Return the request to send next and its version; None if there is none now.

        Raises what the login worker's step raised.
        """
        ...

    def receive(self, frame: Buffer, offset: int) -> None:
        """Take the answer to the last request; its body starts at ``offset``.

        Raises `AuthenticationError` if one side refuses the other, and `ProtocolError`.
        """
        ...

    def unexpected_answer(self) -> KafkaError:
        """Return the error for an answer to a request that was not sent."""
        ...

    def untrusted(self, cause: str) -> AuthenticationError:
        """Return the error for a server whose answer this side refuses."""
        ...

    def closed_by_peer(self) -> KafkaError:
        """Return the error for an end of the stream at this point of a log-in."""
        ...

    def cancel(self) -> None:
        """End it: the connection is closed."""
        ...


class Logins(Protocol):
    """Makes the authentications of one consumer's connections."""

    def login(self, node: Node, authenticate_version: int | None = None) -> Login:
        """Begin an authentication at a node; with a version, of a connection that has one."""
        ...

    def completed(self, login: Login) -> int | None:
        """Note who has logged in; return when to authenticate again, in ms, None for never."""
        ...
