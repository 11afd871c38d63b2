"""OffsetFetchRequests: pending OffsetFetch requests.

Owns the requests and the committed offsets fetched so far. A fetch ends when every partition is
there, at once with an error that is not retriable, or at its deadline with one that names the
partitions missing. A partition that a response leaves out is requested again and never taken for
one without a committed offset (P-09). Sans-IO, network thread.

Requests use the coordinator's connection, except during a JoinGroup: the broker keeps that for
minutes and serves nothing behind it, and a request timeout would close the connection and with it
the JoinGroup. They then use the data connection of the same broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from kfast._base.logs import get_logger
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.commits.errors import (
    FETCH_ACTIONS,
    MEMBERSHIP,
    RETRIED,
    described,
    fetch_error,
    names,
)
from kfast.consumer.commits.offset_fetch import fetched_offsets, offset_fetch_request
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kfast.client.request import ClientResponse
    from kfast.consumer.commits.offset_exchange import OffsetExchange
    from kfast.consumer.group.membership import MemberIdentity
    from kfast.protocol.messages.offset_fetch import OffsetFetchResponse
    from kfast.types import OffsetAndMetadata, TopicPartition

logger = get_logger(__name__)

CommittedOffsets = dict["TopicPartition", "OffsetAndMetadata | None"]

MISSING = "the answer does not contain it"


@dataclass(slots=True, eq=False)
class _PendingFetch:
    """One call and the offsets fetched so far."""

    partitions: tuple[TopicPartition, ...]
    started_ms: int
    deadline_ms: int
    on_found: Callable[[CommittedOffsets], None] | None
    on_retry: Callable[[KafkaError, int], None] | None
    offsets: CommittedOffsets = field(default_factory=dict)
    failures: dict[TopicPartition, str] = field(default_factory=dict)
    result: PendingResult[CommittedOffsets] = field(default_factory=PendingResult)
    is_in_flight: bool = False
    attempts: int = 0
    retry_ms: int = 0
    old_member: MemberIdentity | None = None

    @property
    def missing(self) -> list[TopicPartition]:
        return [tp for tp in self.partitions if tp not in self.offsets]


class _Sent(NamedTuple):
    """One OffsetFetch request as it was made."""

    fetch: _PendingFetch
    partitions: tuple[TopicPartition, ...]
    member: MemberIdentity | None
    ids: Mapping[str, bytes] | None


class OffsetFetchRequests:
    """Fetches committed offsets."""

    def __init__(self, exchange: OffsetExchange) -> None:
        self._exchange = exchange
        self._access = exchange.access
        self._identity = exchange.identity
        self._fetches: list[_PendingFetch] = []

    def fetch(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        deadline_ms: int,
        on_found: Callable[[CommittedOffsets], None] | None = None,
        on_retry: Callable[[KafkaError, int], None] | None = None,
    ) -> PendingResult[CommittedOffsets]:
        """Begin to fetch; the result has None for a partition without a committed offset.

        ``on_found`` is called with the offsets of each response, while others may be missing, and
        ``on_retry(error, now_ms)`` with each error after which the request is sent again. A fetch
        whose result is cancelled is not requested again.
        """
        fetch = _PendingFetch(
            tuple(dict.fromkeys(partitions)), now_ms, deadline_ms, on_found, on_retry
        )
        if fetch.partitions:
            self._fetches.append(fetch)
            fetch.result.add_callback(lambda _: self._fetches.remove(fetch))
        else:
            fetch.result.complete({})
        return fetch.result

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next poll."""
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        for fetch in list(self._fetches):
            if now_ms >= fetch.deadline_ms:
                fetch.result.fail(self._timeout(fetch))
                continue
            next_ms = min(next_ms, fetch.deadline_ms - now_ms)
            if fetch.is_in_flight:
                continue
            if fetch.retry_ms > now_ms:
                next_ms = min(next_ms, fetch.retry_ms - now_ms)
                continue
            try:
                request = self._request(fetch, now_ms)
            except KafkaError as error:
                fetch.result.fail(error)
                continue
            if request is None:
                next_ms = min(next_ms, max(0, fetch.retry_ms - now_ms) or self._access.next_ms)
            else:
                requests.append(request)
        return requests, next_ms

    def _request(self, fetch: _PendingFetch, now_ms: int) -> UnsentRequest | None:
        member = self._identity.member_for_fetch()
        if member is not None and member == fetch.old_member:
            self._back_off(fetch, now_ms)  # the next heartbeat brings another epoch
            return None
        channel = Channel.DATA if self._identity.is_rebalancing else Channel.COORDINATOR
        node_id = self._access.node(now_ms, channel)
        if node_id is None:
            return None
        missing = tuple(fetch.missing)
        ids, version = self._exchange.addressing(missing, node_id, channel)
        fetch.is_in_flight = True
        return UnsentRequest(
            offset_fetch_request(missing, self._identity.group_id, member, ids, version),
            self,
            node_id=node_id,
            channel=channel,
            context=_Sent(fetch, missing, member, ids),
            max_version=version,
            min_version=version,
        )

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle the committed offsets and errors of a response."""
        sent = cast("_Sent", request.context)
        fetch = sent.fetch
        fetch.is_in_flight = False
        if fetch.result.is_done:
            return
        group_code, answers = fetched_offsets(
            cast("OffsetFetchResponse", response.message),
            self._identity.group_id,
            sent.ids,
            response.api_version,
        )
        codes: dict[TopicPartition, int] = {}
        offsets: CommittedOffsets = {}
        for tp in sent.partitions:
            answer = answers.get(tp)
            code = group_code or (0 if answer is None else answer.error_code)
            if code:
                codes[tp] = code
            elif answer is None or not answer.is_valid:
                fetch.failures[tp] = MISSING
            else:
                offsets[tp] = answer.committed
        fetch.offsets.update(offsets)
        if offsets and fetch.on_found is not None:
            fetch.on_found(offsets)
        self._handle_errors(sent, codes, request.node_id, now_ms)
        if not fetch.missing:
            fetch.result.complete({tp: fetch.offsets[tp] for tp in fetch.partitions})

    def _handle_errors(
        self,
        sent: _Sent,
        codes: Mapping[TopicPartition, int],
        node_id: int | None,
        now_ms: int,
    ) -> None:
        fetch = sent.fetch
        actions = {code: FETCH_ACTIONS.of(code) for code in codes.values()}
        for code, action in actions.items():
            self._exchange.apply(action, code, node_id, now_ms)
            if action in MEMBERSHIP and sent.member is not None:
                fetch.old_member = sent.member
                self._identity.commit_failed(code, sent.member, now_ms)
        final = {
            tp: code
            for tp, code in codes.items()
            if actions[code] not in RETRIED
            and not (actions[code] in MEMBERSHIP and sent.member is not None)
        }
        if final:
            fetch.result.fail(fetch_error(final, self._identity.group_id, sent.partitions))
        elif fetch.missing:
            fetch.failures.update((tp, described(code)) for tp, code in codes.items())
            self._back_off(fetch, now_ms)
            if fetch.on_retry is not None:
                fetch.on_retry(self._retried(fetch, codes), now_ms)

    def _retried(self, fetch: _PendingFetch, codes: Mapping[TopicPartition, int]) -> KafkaError:
        if codes:
            return fetch_error(codes, self._identity.group_id, fetch.partitions)
        text = f'committed offsets of {names(fetch.missing)} of group "{self._identity.group_id}"'
        return KafkaError(f"{text} could not be read", cause=MISSING)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry after a back-off if the error is retriable."""
        fetch = cast("_Sent", request.context).fetch
        fetch.is_in_flight = False
        self._access.failed(request.node_id, error, now_ms)
        if fetch.result.is_done:
            return
        if error.retriable:
            fetch.failures.update(dict.fromkeys(fetch.missing, error.message))
            self._back_off(fetch, now_ms)
            if fetch.on_retry is not None:
                fetch.on_retry(error, now_ms)
        else:
            fetch.result.fail(error)

    def _back_off(self, fetch: _PendingFetch, now_ms: int) -> None:
        fetch.retry_ms = now_ms + self._exchange.backoff_ms(fetch.attempts)
        fetch.attempts += 1

    # --- ends -------------------------------------------------------------------------------------

    def fail_all(self, error: KafkaError) -> None:
        """Fail every fetch that is not in flight."""
        for fetch in list(self._fetches):
            if not fetch.is_in_flight:
                fetch.result.fail(error)

    def _timeout(self, fetch: _PendingFetch) -> KafkaTimeoutError:
        missing = fetch.missing
        causes = dict.fromkeys(fetch.failures[tp] for tp in missing if tp in fetch.failures)
        return KafkaTimeoutError(
            f"committed offsets of {names(missing)} of group "
            f'"{self._identity.group_id}" were not found within '
            f"{fetch.deadline_ms - fetch.started_ms} ms",
            cause=self._access.unknown_reason
            or "; ".join(causes)
            or "the coordinator did not answer",
            hint=self._access.unknown_hint
            or "check the brokers, or allow more time (default_api_timeout_ms)",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )

    def __repr__(self) -> str:
        return f"<OffsetFetchRequests {len(self._fetches)} pending>"
