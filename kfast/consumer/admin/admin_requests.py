"""AdminRequests: asks brokers questions about groups, for administrative commands.

Owns the questions under way and the coordinators found for them. A question is asked about keys: a
group id goes to the group's coordinator, which is found first, a node id to that broker. Keys of
one broker share a request. Each key ends by itself, with a value or an error: what can be retried
is retried after a back-off until the deadline. No membership is needed and none is made. Sans-IO,
network thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kfast._base.clock import ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import IDLE, NEVER_MS, PollResult
from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.consumer.group.coordinator_finder import (
    FIRST_BATCHED_VERSION,
    LOOK_AGAIN_MS,
    coordinator_error,
    find_coordinator_request,
    found_coordinator,
    has_address,
    impossible_coordinator,
)
from kfast.consumer.pending_result import PendingResult
from kfast.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
    exception_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfast.client.request import ClientResponse
    from kfast.consumer.admin.questions import Form, Key, Question
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.find_coordinator import FindCoordinatorResponse

Answers: TypeAlias = "dict[Key, Any]"
"""A value or a `KafkaError` for each key."""

_MOST_KEYS: Final = 200
"""Of one request: its response stays far below ``receive_message_max_bytes``."""
_ACTIONS: Final = ErrorActions({}, to_coordinator=True)
_RETRIED: Final = frozenset({ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR})


@dataclass(slots=True, eq=False)
class _OpenKey:
    """One key without an answer yet."""

    key: Key
    node_id: int | None
    """None: the group's coordinator is unknown."""
    form: int = 0
    is_in_flight: bool = False
    attempts: int = 0
    not_before_ms: int = 0
    last_error: KafkaError | None = None


@dataclass(slots=True, eq=False)
class _Asked:
    """One call."""

    question: Question
    started_ms: int
    deadline_ms: int
    open: dict[Key, _OpenKey] | None
    """None: all brokers, once they are known."""
    answers: Answers = field(default_factory=dict)
    result: PendingResult[Answers] = field(default_factory=PendingResult)


@dataclass(slots=True, frozen=True, eq=False)
class _Sent:
    """One request; ``form`` is None for FindCoordinator."""

    asked: _Asked
    keys: Sequence[_OpenKey]
    form: Form | None
    is_batched: bool


class AdminRequests:
    """Questions of one client."""

    def __init__(self, context: ManagerContext) -> None:
        config = context.config
        self._clock = context.clock
        self._metadata = context.metadata
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: list[_Asked] = []
        self._coordinators: dict[str, int] = {}
        self._finds_several = True

    def ask(
        self, question: Question, keys: Iterable[Key] | None, now_ms: int, deadline_ms: int
    ) -> PendingResult[Answers]:
        """Begin to ask about some keys, or all brokers if None.

        At the deadline the keys without an answer get a `KafkaTimeoutError`.
        """
        opened = None if keys is None else {key: self._opened(key) for key in keys}
        asked = _Asked(question, now_ms, deadline_ms, opened)
        if opened == {}:
            asked.result.complete({})
        else:
            self._asked.append(asked)
            asked.result.add_callback(lambda _: self._asked.remove(asked))
        return asked.result

    def _opened(self, key: Key) -> _OpenKey:
        return _OpenKey(key, key if isinstance(key, int) else self._coordinators.get(key))

    # --- requests ---------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now."""
        if not self._asked:
            return IDLE
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        for asked in list(self._asked):
            if now_ms >= asked.deadline_ms:
                self._time_out(asked)
                continue
            next_ms = min(next_ms, asked.deadline_ms - now_ms)
            brokers = self._metadata.cluster.brokers
            if not brokers:  # a coordinator alone must not become the whole cluster
                self._metadata.request_update()
                next_ms = min(next_ms, LOOK_AGAIN_MS)
                continue
            if asked.open is None:
                asked.open = {node_id: self._opened(node_id) for node_id in brokers}
            due = []
            for open_key in list(asked.open.values()):
                if open_key.is_in_flight:
                    continue
                if open_key.not_before_ms > now_ms:
                    next_ms = min(next_ms, open_key.not_before_ms - now_ms)
                elif self._has_place(asked, open_key):
                    due.append(open_key)
            requests += self._requests(asked, due)
        return PollResult(requests, next_ms)

    def _has_place(self, asked: _Asked, open_key: _OpenKey) -> bool:
        """Return whether a key is still to be asked for: a broker that has left has no groups."""
        if open_key.node_id is None or open_key.node_id in self._metadata.cluster.brokers:
            return True
        if isinstance(open_key.key, str):
            open_key.node_id = None
            return True
        self._answer(asked, open_key, ())
        return False

    def _requests(self, asked: _Asked, due: Sequence[_OpenKey]) -> list[UnsentRequest]:
        places: dict[tuple[int | None, int], list[_OpenKey]] = {}
        for open_key in due:
            places.setdefault(
                (open_key.node_id, -1 if open_key.node_id is None else open_key.form), []
            ).append(open_key)
        requests = []
        for (node_id, number), keys in places.items():
            form = None if node_id is None else asked.question.forms[number]
            is_batched = self._finds_several if form is None else form.is_batched
            size = _MOST_KEYS if is_batched else 1
            for start in range(0, len(keys), size):
                some = keys[start : start + size]
                for open_key in some:
                    open_key.is_in_flight = True
                sent = _Sent(asked, some, form, is_batched)
                requests.append(self._request(sent, node_id))
        return requests

    def _request(self, sent: _Sent, node_id: int | None) -> UnsentRequest:
        form = sent.form
        keys: list[Any] = [open_key.key for open_key in sent.keys]
        if form is None:
            least = FIRST_BATCHED_VERSION
            return UnsentRequest(
                find_coordinator_request(keys, least if sent.is_batched else least - 1),
                self,
                context=sent,
                min_version=least if sent.is_batched else None,
                max_version=None if sent.is_batched else least - 1,
            )
        return UnsentRequest(
            form.request(keys),
            self,
            node_id=node_id,
            context=sent,
            min_version=form.min_version,
            max_version=form.max_version,
        )

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take the answers about the keys of a request."""
        sent = cast("_Sent", request.context)
        for open_key in sent.keys:
            open_key.is_in_flight = False
        if sent.asked.result.is_done:
            return
        if sent.form is None:
            self._coordinators_found(sent, response, now_ms)
        else:
            self._replied(sent, sent.form, response, now_ms)

    def _coordinators_found(self, sent: _Sent, response: ClientResponse, now_ms: int) -> None:
        message = cast("FindCoordinatorResponse", response.message)
        for open_key in sent.keys:
            group_id = cast("str", open_key.key)
            coordinator = found_coordinator(message, response.api_version, group_id)
            if coordinator is None:
                error: KafkaError = _missing("FindCoordinator", open_key.key, response.node_id)
                self._retry(open_key, error, now_ms)
            elif coordinator.error_code:
                error = coordinator_error(
                    coordinator, group_id, len(self._metadata.cluster.brokers)
                )
                if _ACTIONS.of(coordinator.error_code) in _RETRIED:
                    self._retry(open_key, error, now_ms)
                else:
                    self._answer(sent.asked, open_key, error)
            elif not has_address(coordinator):
                error = impossible_coordinator(coordinator, group_id, response.node_id)
                self._retry(open_key, error, now_ms)
            else:
                if coordinator.node_id not in self._metadata.cluster.brokers:
                    self._metadata.add_broker(
                        Node(coordinator.node_id, coordinator.host, coordinator.port)
                    )
                open_key.node_id = self._coordinators[group_id] = coordinator.node_id

    def _replied(self, sent: _Sent, form: Form, response: ClientResponse, now_ms: int) -> None:
        keys = [open_key.key for open_key in sent.keys]
        replies = form.read(response, keys)
        name = sent.asked.question.name
        for open_key in sent.keys:
            reply = replies.get(open_key.key)
            if reply is None:
                self._retry(open_key, _missing(name, open_key.key, response.node_id), now_ms)
            elif reply.error_code == 0:
                self._answer(sent.asked, open_key, reply.value)
            elif reply.error_code in form.next_form_on:
                open_key.form += 1
            else:
                error = exception_for(
                    reply.error_code,
                    f"{_subject(open_key.key)}: {name} failed",
                    node=response.node_id,
                )
                if _ACTIONS.of(reply.error_code) in _RETRIED:
                    if _ACTIONS.of(reply.error_code) is ErrorAction.FIND_COORDINATOR:
                        self._forget_coordinator(open_key)
                    self._retry(open_key, error, now_ms)
                else:
                    self._answer(sent.asked, open_key, error)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Use the next form, or retry, or end with the error."""
        sent = cast("_Sent", request.context)
        is_version = isinstance(error, UnsupportedVersionError)
        if is_version and sent.form is None and sent.is_batched:
            self._finds_several = False
        elif error.retriable:
            self._metadata.request_update()
        for open_key in sent.keys:
            open_key.is_in_flight = False
            if sent.asked.result.is_done:
                continue
            if is_version and sent.form is None and sent.is_batched:
                continue
            if (
                is_version
                and sent.form is not None
                and open_key.form + 1 < len(sent.asked.question.forms)
            ):
                open_key.form += 1
            elif error.retriable:
                self._forget_coordinator(open_key)
                self._retry(open_key, error, now_ms)
            else:
                self._answer(sent.asked, open_key, error)

    def _forget_coordinator(self, open_key: _OpenKey) -> None:
        if isinstance(open_key.key, str):
            self._coordinators.pop(open_key.key, None)
            open_key.node_id = None

    def _retry(self, open_key: _OpenKey, error: KafkaError, now_ms: int) -> None:
        open_key.last_error = error
        open_key.not_before_ms = now_ms + self._backoff.backoff_ms(open_key.attempts, self._clock)
        open_key.attempts += 1

    # --- ends -------------------------------------------------------------------------------------

    @staticmethod
    def _answer(asked: _Asked, open_key: _OpenKey, answer: object) -> None:
        asked.answers[open_key.key] = answer
        if asked.open is not None:
            asked.open.pop(open_key.key, None)
            if not asked.open:
                asked.result.complete(asked.answers)

    @staticmethod
    def _time_out(asked: _Asked) -> None:
        waited_ms = asked.deadline_ms - asked.started_ms
        if asked.open is None:
            asked.result.fail(_timed_out("the cluster", asked.question, waited_ms, None))
            return
        for open_key in asked.open.values():
            asked.answers[open_key.key] = _timed_out(
                _subject(open_key.key), asked.question, waited_ms, open_key.last_error
            )
        asked.result.complete(asked.answers)

    def __repr__(self) -> str:
        return f"<AdminRequests {len(self._asked)} pending>"


def _subject(key: Key) -> str:
    return f'group "{key}"' if isinstance(key, str) else f"broker {key}"


def _missing(name: str, key: Key, node_id: int) -> ProtocolError:
    return ProtocolError(
        f"the response of broker {node_id} does not contain {_subject(key)} ({name})", node=node_id
    )


def _timed_out(
    subject: str, question: Question, waited_ms: int, last_error: KafkaError | None
) -> KafkaTimeoutError:
    cause = hint = None
    if last_error is not None:
        cause = f"{last_error.message}: {last_error.cause}" if last_error.cause else None
        cause, hint = cause or last_error.message, last_error.hint
    return KafkaTimeoutError(
        f"{subject}: {question.name} did not come within {waited_ms} ms",
        cause=cause,
        hint=hint or "check the brokers, or allow more time",
    )
