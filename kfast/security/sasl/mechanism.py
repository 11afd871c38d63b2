"""SaslMechanism: what one authentication exchanges with the broker, token by token.

Sans-IO: a mechanism has no socket, clock, thread or log; randomness and time are arguments of its
constructor. One object serves one authentication and is thrown away after it. Tokens, in either
direction, are `Secret`: they contain passwords, or let one be guessed.

A step that may block, or that runs code of the user's, is returned as `Work`, which the login
worker runs; until it is done nothing else touches the object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError
    from kfast.settings.secret import Secret


@dataclass(frozen=True, slots=True)
class Work:
    """A step of an authentication for the login worker."""

    run: Callable[[], Secret[bytes] | None]
    """Returns the next client token, None when nothing more is to be sent; raises `KafkaError`."""


class SaslMechanism(Protocol):
    """One authentication."""

    @property
    def name(self) -> str:
        """Name of the mechanism in SaslHandshake."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the server has proven what the mechanism lets it prove."""
        ...

    @property
    def user(self) -> str | None:
        """Who logs in, for messages; None if that is not known. Never a secret."""
        ...

    def first(self) -> Secret[bytes] | Work:
        """Return the first client token."""
        ...

    def answer(self, token: Secret[bytes]) -> Secret[bytes] | Work | None:
        """Take a server token and return the next client token, None when there is none.

        Raises `AuthenticationError` for a token that is not in order.
        """
        ...

    def refused(self, text: str | None) -> AuthenticationError:
        """Return the error for SASL_AUTHENTICATION_FAILED with the broker's text."""
        ...


MechanismFactory = Callable[["Node"], SaslMechanism]
"""Makes the mechanism of one authentication at a node."""
