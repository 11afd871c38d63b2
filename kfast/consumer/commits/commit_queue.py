"""CommitQueue: pending OffsetCommit requests, first in, first out.

Owns the commits that have not ended. Sans-IO, network thread.

A commit that is retried holds back all that come after it, so that it can never rewind a newer one
(C-05), and results come in the order in which the commits were made. Commits that are not retried
may follow each other without waiting, on one connection, where the broker answers in order.

| state of a commit | leaves on |
|---|---|
| waiting | coordinator known, connection ready, no commit before it that may be retried |
| in flight | response: committed, failed, or waiting again after a back-off |
| ended, in flight | its time is up, or its caller has stopped waiting; the response removes it |
| failed | all commits before it have ended |

A commit is sent under the identity of the time its offsets were taken (`GroupIdentity`, C-08), and
each offset under the topic id it was read under: it is left out once that topic is gone, also when
it is sent again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kfast._base.logs import get_logger
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.commits.errors import (
    COMMIT_ACTIONS,
    MEMBERSHIP,
    UNKNOWN_TOPIC,
    commit_error,
    described,
    most_severe,
    names,
)
from kfast.consumer.commits.offset_commit import (
    FIRST_VERSION_FOR_KIP848,
    commit_codes,
    offset_commit_request,
)
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.unknown_topic_check import UNKNOWN_MS, UNKNOWN_RESPONSES
from kfast.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import API_VERSIONS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.client.request import ClientResponse
    from kfast.config import ConsumerConfig
    from kfast.consumer.commits.group_identity import Snapshot
    from kfast.consumer.commits.offset_exchange import OffsetExchange
    from kfast.consumer.group.membership import MemberIdentity
    from kfast.protocol.messages.offset_commit import OffsetCommitResponse
    from kfast.types import OffsetAndMetadata, TopicPartition

logger = get_logger(__name__)

MAX_IN_FLIGHT: Final = 2
"""Commits in flight. A broker serves one request of a connection at a time; the second one only
saves a round trip, and heartbeats use the same connection."""


@dataclass(slots=True)
class CommitMetrics:
    """Counters of commits; latencies from the call to the outcome, of those that were stored."""

    commits: int = 0
    failures: int = 0
    latency_total_ms: int = 0
    latency_max_ms: int = 0


@dataclass(slots=True, eq=False)
class PendingCommit:
    """One commit that has not ended. Compared by identity."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    """Without those left out because their topic is gone."""
    snapshot: Snapshot
    started_ms: int
    deadline_ms: int
    """When it fails at the latest, unless it is in flight and not retried."""
    is_retried: bool
    """Whether it is sent again after a retriable error."""
    follows_epoch: bool
    """Whether it is sent again under the next epoch after STALE_MEMBER_EPOCH (K-07)."""
    remaining: dict[TopicPartition, OffsetAndMetadata] = field(init=False)
    """The part of ``offsets`` that is not stored yet."""
    result: PendingResult[Mapping[TopicPartition, OffsetAndMetadata]] = field(
        default_factory=PendingResult
    )
    node_id: int | None = None
    """The coordinator it is in flight to."""
    attempts: int = 0
    retry_ms: int = 0
    """The time before which it is not sent again."""
    old_epoch: int | None = None
    """The epoch that the coordinator refused as stale."""
    last_failure: str | None = None
    unknown_since_ms: int | None = None
    """Since when the coordinator has not known the topics of ``remaining``, and nothing else was
    wrong; ``unknown_responses`` counts the responses."""
    unknown_responses: int = 0
    ending: KafkaError | None = None
    """What it fails with as soon as the commits before it have ended."""
    removed: PendingResult[None] = field(default_factory=PendingResult)
    """Done when it has left the queue: it is stored by then, or never will be."""

    def __post_init__(self) -> None:
        self.remaining = dict(self.offsets)

    @property
    def is_in_flight(self) -> bool:
        """Whether a request is in flight."""
        return self.node_id is not None

    @property
    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The part of ``offsets`` that is stored."""
        return {tp: o for tp, o in self.offsets.items() if tp not in self.remaining}


class _Sent(NamedTuple):
    """One OffsetCommit request as it was made."""

    commit: PendingCommit
    identity: MemberIdentity
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class CommitQueue:
    """Sends commits. Any thread may read ``metrics``."""

    def __init__(self, config: ConsumerConfig, exchange: OffsetExchange) -> None:
        self._exchange = exchange
        self._access = exchange.access
        self._identity = exchange.identity
        self._max_poll_interval_ms = config.max_poll_interval_ms
        self._commits: deque[PendingCommit] = deque()
        self.metrics = CommitMetrics()

    def put(self, commit: PendingCommit) -> None:
        """Add a commit at the end; one whose result is cancelled is not sent again."""
        self._commits.append(commit)

    def removals(self) -> list[PendingResult[None]]:
        """Return `PendingCommit.removed` of every commit."""
        return [commit.removed for commit in self._commits]

    def last_result(self) -> PendingResult[Mapping[TopicPartition, OffsetAndMetadata]] | None:
        """Return the outcome of the newest commit; all others will be done before it."""
        return self._commits[-1].result if self._commits else None

    def __len__(self) -> int:
        return len(self._commits)

    # --- sending ----------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next poll."""
        self._expire(now_ms)
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        in_flight: list[PendingCommit] = []
        for commit in list(self._commits):
            if commit.ending is not None:
                continue
            if not commit.is_in_flight:
                if len(in_flight) >= MAX_IN_FLIGHT:
                    break
                request, wait_ms = self._send(commit, now_ms)
                if request is not None:
                    requests.append(request)
                elif wait_ms is None:
                    continue  # the commit has ended
                else:
                    next_ms = wait_ms
                    break
            in_flight.append(commit)
            if commit.is_retried:
                break  # it may have to be retried, before all that follow
        deadlines = (
            c.deadline_ms
            for c in self._commits
            # One that is in flight for the last time ends with its answer, however late.
            if not c.result.is_done and (c.is_retried or not c.is_in_flight)
        )
        return requests, min(next_ms, max(0, min(deadlines, default=NEVER_MS) - now_ms))

    def _send(self, commit: PendingCommit, now_ms: int) -> tuple[UnsentRequest | None, int | None]:
        """Return the request, or how long to wait; neither when the commit has ended."""
        if commit.retry_ms > now_ms:
            return None, commit.retry_ms - now_ms
        if not self._is_anything_left(commit):
            if self._commits[0] is not commit:
                commit.deadline_ms = NEVER_MS  # it ends behind those before it
                return None, NEVER_MS
            self._complete(commit, now_ms)
            return None, None
        try:
            identity = self._identity.to_send(commit.snapshot, commit.remaining)
            if commit.old_epoch == identity.generation_id:
                self._back_off(commit, now_ms)
                return None, commit.retry_ms - now_ms
            node_id = self._access.node(now_ms)
            if node_id is None:
                return None, self._access.next_ms
            if any(c.node_id not in {None, node_id} for c in self._commits):
                return None, NEVER_MS  # first the response of the old coordinator
            return self._request(commit, identity, node_id), None
        except KafkaError as error:
            self._fail(commit, error)
            return None, None

    def _is_anything_left(self, commit: PendingCommit) -> bool:
        """Leave out what was read of a topic that is gone; return whether there is more."""
        commit.remaining = self._exchange.with_topic_ids(commit.remaining)
        commit.offsets.update(commit.remaining)
        for tp in self._exchange.outdated(commit.remaining):
            del commit.remaining[tp], commit.offsets[tp]
        return bool(commit.remaining)

    def _request(
        self, commit: PendingCommit, identity: MemberIdentity, node_id: int
    ) -> UnsentRequest:
        version = self._exchange.commit_version(commit.remaining, node_id)
        if self._identity.is_kip848 and version < FIRST_VERSION_FOR_KIP848:
            raise UnsupportedVersionError.for_api(
                "OffsetCommit",
                (FIRST_VERSION_FOR_KIP848, API_VERSIONS[ApiKey.OFFSET_COMMIT][1]),
                (0, version),
                node_id,
                hint="upgrade the broker, or use group_protocol=classic",
            )
        commit.node_id = node_id
        return UnsentRequest(
            offset_commit_request(commit.remaining, identity, version),
            self,
            node_id=node_id,
            channel=Channel.COORDINATOR,
            context=_Sent(commit, identity, dict(commit.remaining)),
            max_version=version,
            min_version=version,
        )

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Handle what the coordinator stored and what it refused."""
        sent = cast("_Sent", request.context)
        commit = sent.commit
        commit.node_id = None
        answers = commit_codes(
            cast("OffsetCommitResponse", response.message), sent.offsets, response.api_version
        )
        codes: dict[TopicPartition, int] = {}
        for tp in sent.offsets:
            code = answers.get(tp)
            if code == 0:
                del commit.remaining[tp]
            elif code is not None:
                codes[tp] = code
        for code in dict.fromkeys(codes.values()):
            self._exchange.apply(COMMIT_ACTIONS.of(code), code, request.node_id, now_ms)
        final = most_severe(codes)
        if not commit.remaining:
            self._complete(commit, now_ms)
        elif final is not None:
            self._refused(commit, codes, final, sent.identity, now_ms)
        else:
            code = next(iter(codes.values()), None)
            if code is None:
                error: KafkaError = self._missing_error(commit)
            else:
                error = self._error(commit, code, codes, sent.identity)
            failure = error.message if code is None else described(code)
            if self._are_topics_unknown(commit, codes, now_ms):
                self._fail(commit, error)
            else:
                self._retry(commit, error, failure, now_ms)

    @staticmethod
    def _are_topics_unknown(
        commit: PendingCommit, codes: Mapping[TopicPartition, int], now_ms: int
    ) -> bool:
        """Return whether it is certain that what is left cannot be committed.

        The coordinator may learn of a new topic a moment after the others, as in
        `UnknownTopicCheck`.
        """
        if len(codes) < len(commit.remaining) or not UNKNOWN_TOPIC.issuperset(codes.values()):
            commit.unknown_since_ms, commit.unknown_responses = None, 0
            return False
        if commit.unknown_since_ms is None:
            commit.unknown_since_ms = now_ms
        commit.unknown_responses += 1
        is_long = now_ms - commit.unknown_since_ms >= UNKNOWN_MS
        return is_long and commit.unknown_responses >= UNKNOWN_RESPONSES

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry if possible: a commit whose response was lost may be stored twice without harm."""
        commit = cast("_Sent", request.context).commit
        commit.node_id = None
        self._access.failed(request.node_id, error, now_ms)
        if error.retriable:
            self._retry(commit, error, error.message, now_ms)
        else:
            self._fail(commit, error)

    def _refused(
        self,
        commit: PendingCommit,
        codes: Mapping[TopicPartition, int],
        final: int,
        identity: MemberIdentity,
        now_ms: int,
    ) -> None:
        """Fail a commit that the coordinator refused, or wait for the next epoch."""
        action = COMMIT_ACTIONS.of(final)
        has_moved_on = identity.generation_id >= 0 and self._identity.has_changed_from(identity)
        if action in MEMBERSHIP:
            self._identity.commit_failed(final, identity, now_ms)
        if action is ErrorAction.STALE_EPOCH and commit.follows_epoch and commit.is_retried:
            commit.old_epoch = identity.generation_id
            error = self._error(commit, final, codes, identity)
            self._retry(commit, error, described(final), now_ms)
            return
        # The member has another identity by now: the failure does not concern it.
        if has_moved_on and final in {
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
        }:
            self._fail(commit, self._identity.outdated_error(commit.remaining))
            return
        self._fail(commit, self._error(commit, final, codes, identity))

    def _error(
        self,
        commit: PendingCommit,
        code: int,
        codes: Mapping[TopicPartition, int],
        identity: MemberIdentity,
    ) -> KafkaError:
        return commit_error(
            code,
            {tp: commit.offsets[tp] for tp, other in codes.items() if other == code},
            self._identity.group_id,
            is_member=identity.generation_id >= 0,
            max_poll_interval_ms=self._max_poll_interval_ms,
            committed=commit.committed,
        )

    def _missing_error(self, commit: PendingCommit) -> ProtocolError:
        tp = next(iter(commit.remaining))
        return ProtocolError(
            f"the answer to a commit does not contain {names(commit.remaining)}",
            topic=tp.topic,
            partition=tp.partition,
            offset=commit.remaining[tp].offset,
        )

    def _retry(self, commit: PendingCommit, error: KafkaError, failure: str, now_ms: int) -> None:
        if not commit.is_retried:
            self._fail(commit, error)
            return
        commit.last_failure = failure
        self._back_off(commit, now_ms)
        logger.debug("Retrying a commit to group %s: %s", self._identity.group_id, error.message)

    def _back_off(self, commit: PendingCommit, now_ms: int) -> None:
        commit.retry_ms = now_ms + self._exchange.backoff_ms(commit.attempts)
        commit.attempts += 1

    # --- ends -------------------------------------------------------------------------------------

    def fail_all(self, error: KafkaError) -> None:
        """Fail every commit that is not in flight."""
        for commit in list(self._commits):
            if not commit.is_in_flight and commit.ending is None:
                self._fail(commit, error)

    def _expire(self, now_ms: int) -> None:
        """Fail commits whose deadline has passed, at once, whatever is in flight before them.

        One that has its result is not sent again: only a response may still be awaited.
        """
        for commit in list(self._commits):
            is_last_try = commit.is_in_flight and not commit.is_retried
            if commit.deadline_ms <= now_ms and not is_last_try:
                self._end(commit, commit.ending or self._timeout(commit))
            if commit.result.is_done:
                commit.is_retried = False
                if not commit.is_in_flight:
                    self._commits.remove(commit)
                    commit.removed.complete(None)
        self._release()

    def _fail(self, commit: PendingCommit, error: KafkaError) -> None:
        """Fail a commit as soon as all before it have ended."""
        commit.ending = error
        self._release()

    def _release(self) -> None:
        while self._commits:
            commit = self._commits[0]
            if commit.ending is None:
                break
            self._commits.popleft()
            self._end(commit, commit.ending)
            commit.removed.complete(None)

    def _complete(self, commit: PendingCommit, now_ms: int) -> None:
        self._commits.remove(commit)
        if commit.result.complete(commit.offsets) and commit.offsets:
            latency_ms = now_ms - commit.started_ms
            self.metrics.commits += 1
            self.metrics.latency_total_ms += latency_ms
            self.metrics.latency_max_ms = max(self.metrics.latency_max_ms, latency_ms)
        commit.removed.complete(None)
        self._release()

    def _end(self, commit: PendingCommit, error: KafkaError) -> None:
        if commit.result.fail(error):
            self.metrics.failures += 1

    def _timeout(self, commit: PendingCommit) -> KafkaTimeoutError:
        tp = next(iter(commit.remaining))
        return KafkaTimeoutError(
            f"offsets of {names(commit.remaining)} were not committed for group "
            f'"{self._identity.group_id}" within {commit.deadline_ms - commit.started_ms} ms',
            cause=self._access.unknown_reason
            or commit.last_failure
            or "the coordinator did not answer",
            hint=self._access.unknown_hint
            or "check the brokers, or allow more time (default_api_timeout_ms)",
            topic=tp.topic,
            partition=tp.partition,
            offset=commit.remaining[tp].offset,
            committed=commit.committed,
        )

    def __repr__(self) -> str:
        in_flight = sum(commit.is_in_flight for commit in self._commits)
        return f"<CommitQueue {len(self._commits)} commits, {in_flight} in flight>"
