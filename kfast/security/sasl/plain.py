"""PLAIN (RFC 4616): user name and password in one client token.

Client token: ``NUL user NUL password`` in UTF-8, without an authorization id. The server proves
nothing, so the exchange is complete with its answer, whatever token that has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.security import authentication_errors as errors
from kfast.security.sasl.mechanism import Work
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError

NAME: Final = "PLAIN"


class PlainMechanism:
    """One log-in with user name and password."""

    name = NAME

    def __init__(self, node: Node, user: str, password: Secret[str]) -> None:
        self.user = user
        self.is_complete = False
        self._node = node
        self._password = password

    def first(self) -> Secret[bytes] | Work:
        """Return the only client token; a password that the user's code returns is work."""
        return Work(self._token) if self._password.is_callable else self._token()

    def _token(self) -> Secret[bytes]:
        password = ask_password(self._password, self._node, NAME, self.user)
        if "\0" in password.reveal():
            raise errors.bad_password(self._node, NAME, self.user, "it contains a NUL character")
        return Secret(b"\0" + self.user.encode() + b"\0" + password.reveal().encode())

    def answer(self, token: Secret[bytes]) -> None:  # noqa: ARG002 - it means nothing
        """Take the server's answer: the broker has accepted the password."""
        self.is_complete = True

    def refused(self, text: str | None) -> AuthenticationError:
        """Return the error for a password that the broker refused."""
        return errors.credentials_refused(self._node, NAME, self.user, text)


class PasswordSource:
    """The password callable of a consumer, and what it returned for the last log-in.

    Login worker only.
    """

    def __init__(self, source: Secret[str]) -> None:
        self._source = source
        self._last: Secret[str] | None = None

    def __call__(self) -> str:
        """Return the password for a log-in."""
        self._last = Secret(self._source.reveal())
        return self._last.reveal()

    def look_for_change(self) -> Secret[bytes] | None:
        """Return something if the password is another one now, None if it is the same."""
        try:
            is_new = Secret(self._source.reveal()) != self._last
        except BaseException:  # the next log-in reports it
            return None
        return Secret(b"") if is_new else None


def ask_password(source: Secret[str], node: Node, mechanism: str, user: str) -> Secret[str]:
    """Return the password of this authentication; `AuthenticationError` if there is none.

    A callable is user code: what it raises may quote the password, so only the class is shown.
    """
    if not source.is_callable:
        return source
    problem: str | None = None
    answer: Secret[str] | None = None
    try:
        answer = Secret(source.reveal())
    except BaseException as error:
        problem = f"the password callable raised {type(error).__name__}"
    if answer is not None:
        problem = _problem_of(answer.source)
    if answer is None or problem is not None:
        raise errors.bad_password(node, mechanism, user, problem or "there is none")
    return answer


def _problem_of(password: object) -> str | None:
    if not isinstance(password, str):
        return f"the password callable returned {type(password).__name__}, not str"
    if not password:
        return "the password callable returned an empty text"
    return None if _is_utf8(password) else "it has characters that cannot be encoded"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
