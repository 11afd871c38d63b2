"""SaslLogin: one authentication of one connection, from the first to the last request.

Sans-IO. The connection sends what ``next_request`` gives, decodes nothing itself, and hands every
answer to ``receive``; a mechanism's step that may block is given to the login worker, and
``next_request`` returns None until it is done::

    log-in              ApiVersions 0 -> SaslHandshake 1 -> SaslAuthenticate, as often as needed
    re-authentication   the same without ApiVersions (KIP-368)

ApiVersions has version 0, because brokers from before Kafka 1.0 take a frame that they do not know
for a token of GSSAPI; of its answer the range of SaslAuthenticate is used and nothing else.
SaslAuthenticate 0 has no session lifetime. The mechanism decides when it is complete; an answer
without an error is not enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kfast.client import diagnosis
from kfast.client.api_versions import NodeApiVersions
from kfast.errors import AuthenticationError, ErrorCode, KafkaError, exception_for
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.headers import has_response_tags
from kfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kfast.security import authentication_errors as errors
from kfast.security.sasl.mechanism import SaslMechanism, Work
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfast.client.cluster import Node
    from kfast.client.login import Login
    from kfast.protocol.message import RequestMessage
    from kfast.security.sasl.token_cache import TokenCache

MIN_SESSION_MS: Final = 1_000
MAX_SESSION_MS: Final = 24 * 3_600_000
"""Bounds of the session lifetime. A broker refuses to authenticate again within a second."""

EARLIEST_PART: Final = 0.85
LATEST_PART: Final = 0.95
"""Between which parts of the session's lifetime the connection authenticates again."""


class PendingStep(Protocol):
    """A step of a log-in at the login worker."""

    @property
    def is_done(self) -> bool:
        """Whether there is an outcome."""
        ...

    def result(self) -> Secret[bytes] | None:
        """Return the outcome or raise it; it is done."""
        ...

    def cancel(self) -> None:
        """Drop it: the connection is closed."""
        ...


class StepRunner(Protocol):
    """The login worker, as a log-in uses it."""

    def submit(self, work: Work) -> PendingStep:
        """Run a step on another thread, and have the network thread woken when it is done."""
        ...


@dataclass(frozen=True, slots=True)
class LoginFacts:
    """What errors say about the log-ins of a consumer."""

    mechanism: str
    """As the caller knows it: AWS_MSK_IAM is OAUTHBEARER on the wire."""
    is_named: bool
    """Whether the caller chose it, rather than leaving Kafka's default."""
    is_encrypted: bool
    """Whether TLS is below."""


class SaslLogin:
    """One authentication; with ``authenticate_version``, that of a connection that has one."""

    def __init__(
        self,
        node: Node,
        mechanism: SaslMechanism,
        facts: LoginFacts,
        runner: StepRunner,
        authenticate_version: int | None = None,
    ) -> None:
        self.is_complete = False
        """Whether the connection is authenticated."""
        self.authenticate_version = authenticate_version
        self.session_lifetime_ms = 0
        """How long the session lasts from the last answer on; 0 means without end."""
        self._node = node
        self._mechanism = mechanism
        self._facts = facts
        self._runner = runner
        self._request: RequestMessage | None = (
            ApiVersionsRequest()
            if authenticate_version is None
            else SaslHandshakeRequest(mechanism.name)
        )
        self._awaited: RequestMessage | None = None
        self._step: PendingStep | None = None

    @property
    def user(self) -> str | None:
        """Who logs in, for messages; None if that is not known."""
        return self._mechanism.user

    @property
    def is_waiting_for_worker(self) -> bool:
        """Whether the next request depends on the login worker."""
        return self._step is not None

    @property
    def awaited(self) -> RequestMessage | None:
        """The request that was sent last and is not answered."""
        return self._awaited

    @property
    def has_begun(self) -> bool:
        """Whether the server has answered the first request, and so is a Kafka broker."""
        return self.authenticate_version is not None

    @property
    def has_header_tags(self) -> bool:
        """Whether the header of the next answer ends with a tag section."""
        request = self._awaited
        return request is not None and has_response_tags(request.API_KEY, self._version_of(request))

    # --- requests ---------------------------------------------------------------------------------

    def next_request(self) -> tuple[RequestMessage, int] | None:
        """Return the request to send next and its version; None if there is none now.

        Raises what the login worker's step raised.
        """
        if self._step is not None and self._step.is_done:
            step, self._step = self._step, None
            self._take(step.result())
        if self._request is None:
            return None
        request, self._request = self._request, None
        self._awaited = request
        return request, self._version_of(request)

    def _version_of(self, request: RequestMessage) -> int:
        if request.API_KEY == ApiKey.API_VERSIONS:
            return 0
        if request.API_KEY == ApiKey.SASL_HANDSHAKE:
            return SaslHandshakeRequest.MAX_VERSION
        return self.authenticate_version or 0

    def _take(self, step: Secret[bytes] | Work | None) -> None:
        """Continue with what the mechanism gave."""
        if isinstance(step, Work):
            self._step = self._runner.submit(step)
        elif step is not None:
            self._request = SaslAuthenticateRequest(step.reveal())
        elif self._mechanism.is_complete:
            self.is_complete = True
        else:
            raise errors.out_of_order(self._node, self._facts.mechanism, self.user)

    def cancel(self) -> None:
        """End it: the connection is closed."""
        step, self._step = self._step, None
        if step is not None:
            step.cancel()

    # --- answers ----------------------------------------------------------------------------------

    def receive(self, frame: Buffer, offset: int) -> None:
        """Take the answer to the last request; its body starts at ``offset``.

        Raises `AuthenticationError` if one side refuses the other, and `ProtocolError`.
        """
        request, self._awaited = self._awaited, None
        if isinstance(request, ApiVersionsRequest):
            self._receive_versions(ApiVersionsResponse.decode(frame, 0, offset))
        elif isinstance(request, SaslHandshakeRequest):
            version = self._version_of(request)
            self._receive_handshake(SaslHandshakeResponse.decode(frame, version, offset))
        elif isinstance(request, SaslAuthenticateRequest):
            version = self._version_of(request)
            self._receive_token(SaslAuthenticateResponse.decode(frame, version, offset))
        else:
            raise errors.unexpected_answer(self._node, "nothing")

    def unexpected_answer(self) -> KafkaError:
        """Return the error for an answer to a request that was not sent."""
        return errors.unexpected_answer(self._node, "the log-in")

    def _receive_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code:
            raise self._other(response.error_code)
        offered = NodeApiVersions.from_response(response)
        for request in (SaslHandshakeRequest, SaslAuthenticateRequest):
            if request.API_KEY not in offered.ranges:
                raise errors.no_sasl(
                    self._node, self._facts.mechanism, is_encrypted=self._facts.is_encrypted
                )
            version = offered.usable_version(
                request.API_KEY, request.NAME, request.MIN_VERSION, request.MAX_VERSION, self._node
            )
        self.authenticate_version = version
        self._request = SaslHandshakeRequest(self._mechanism.name)

    def _receive_handshake(self, response: SaslHandshakeResponse) -> None:
        code, offered = response.error_code, response.mechanisms or []
        facts = self._facts
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            raise errors.no_sasl(self._node, facts.mechanism, is_encrypted=facts.is_encrypted)
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM or (
            code == ErrorCode.NONE and offered and self._mechanism.name not in offered
        ):
            raise errors.mechanism_not_offered(
                self._node, facts.mechanism, offered, is_named=facts.is_named
            )
        if code:
            raise self._other(code)
        self._take(self._mechanism.first())

    def _receive_token(self, response: SaslAuthenticateResponse) -> None:
        code = response.error_code
        if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise self._mechanism.refused(response.error_message)
        if code:
            raise self._other(code)
        self.session_lifetime_ms = response.session_lifetime_ms
        self._take(self._mechanism.answer(Secret(bytes(response.auth_bytes or b""))))

    def untrusted(self, cause: str) -> AuthenticationError:
        """Return the error for a server whose answer this side refuses."""
        return errors.untrusted_server(self._node, self._facts.mechanism, self.user, cause)

    def closed_by_peer(self) -> KafkaError:
        """Return the error for an end of the stream at this point of a log-in."""
        if isinstance(self._awaited, SaslHandshakeRequest):
            return errors.no_sasl(
                self._node, self._facts.mechanism, is_encrypted=self._facts.is_encrypted
            )
        if not self.has_begun:
            return diagnosis.closed_early(self._node)
        return diagnosis.closed_in_login(self._node)

    def _other(self, code: int) -> KafkaError:
        error = exception_for(code, f"{self._node.address} did not complete the log-in")
        error.node = self._node.node_id
        if isinstance(error, AuthenticationError):
            error.mechanism, error.user = self._facts.mechanism, self.user
        return error

    def __repr__(self) -> str:
        awaited = "" if self._awaited is None else self._awaited.NAME
        return f"<SaslLogin {self._facts.mechanism} awaits={awaited} complete={self.is_complete}>"


@dataclass(slots=True)
class LoginUser:
    """Who logged in last, for messages about permissions; None before the first log-in."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class SaslLogins:
    """Makes the authentications of one consumer's connections."""

    facts: LoginFacts
    runner: StepRunner
    make_mechanism: Callable[[Node], SaslMechanism]
    random: Callable[[], float]
    """A number in [0, 1)."""
    tokens: TokenCache | None = None
    """The token of a mechanism with one, for the login worker to renew."""
    user: LoginUser = field(default_factory=LoginUser)
    look_for_change: Work | None = None
    """Returns something if the credentials are others now than at the last log-in."""

    def login(self, node: Node, authenticate_version: int | None = None) -> SaslLogin:
        """Return an authentication at a node; see `SaslLogin`."""
        mechanism = self.make_mechanism(node)
        return SaslLogin(node, mechanism, self.facts, self.runner, authenticate_version)

    def completed(self, login: Login) -> int | None:
        """Note who has logged in; return when to authenticate again, in ms, None for never."""
        self.user.name = login.user
        if login.session_lifetime_ms <= 0:
            return None
        lifetime_ms = min(max(login.session_lifetime_ms, MIN_SESSION_MS), MAX_SESSION_MS)
        share = EARLIEST_PART + (LATEST_PART - EARLIEST_PART) * self.random()
        return max(MIN_SESSION_MS, round(lifetime_ms * share))
