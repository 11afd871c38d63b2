"""ListOffsets requests, and `OffsetLookups`: offsets for the application that move no position.

Owns the translation between partitions with timestamps and the message, the table of error codes,
and the requests behind ``beginning_offsets``, ``end_offsets`` and ``offsets_for_times``. Sans-IO,
network thread.

A look-up needs no assignment; it requests the metadata of its topics while it runs. It ends when
the offset of every partition is known, at its deadline with an error that names the partitions
missing, or at once with an error that is not retriable. A partition that does not exist is an error
when `UnknownTopicCheck` says so. Each partition is retried by itself.

Offset -1 in a response means that there is no such record. It is never a position, and neither is a
partition that the response leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kfast._base.logs import get_logger
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.positions.leader_requests import LeaderRequests
from kfast.consumer.unknown_topic_check import UnknownTopicCheck
from kfast.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    did_you_mean,
    error_info,
    exception_for,
    partition_range,
)
from kfast.protocol.messages.list_offsets import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kfast.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.client.cluster import Cluster
    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.list_offsets import ListOffsetsResponse

logger = get_logger(__name__)

Offsets = dict[TopicPartition, OffsetAndTimestamp | None]

_FIRST_WITH_MAX_TIMESTAMP: Final = 7

_ANY_VERSION: Final = 0
"""Look-ups do not depend on the state of the partition."""

LIST_OFFSETS_ACTIONS: Final = ErrorActions(
    {
        ErrorCode.NONE: ErrorAction.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.REFRESH_METADATA,
        ErrorCode.LEADER_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorAction.REFRESH_METADATA,
        ErrorCode.REPLICA_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.REPORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorAction.NO_OFFSET,  # no timestamps
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorAction.REFRESH_METADATA,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorAction.REFRESH_METADATA,
        ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorAction.RETRY,
        ErrorCode.OFFSET_NOT_AVAILABLE: ErrorAction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    },
    otherwise=ErrorAction.RETRY,
)
"""Codes without a row are logged."""


class ListedOffset(NamedTuple):
    """A leader's response about one partition; offset and timestamp -1: no such record."""

    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int | None  # of the record

    @property
    def action(self) -> ErrorAction:
        """What to do about the error code."""
        return LIST_OFFSETS_ACTIONS.of(self.error_code)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    cluster: Cluster,
    *,
    isolation_level: int,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Return the request for partitions of one leader.

    Timestamps are in ms since 1970, or -1 (latest) and -2 (earliest). The leader epochs of
    ``cluster`` fence a stale leader. With ``isolation_level`` 1, read_committed, "latest" is the
    last stable offset.
    """
    topics: dict[str, ListOffsetsTopic] = {}
    for tp, timestamp in timestamps.items():
        if tp.topic not in topics:
            topics[tp.topic] = ListOffsetsTopic(name=tp.topic, partitions=[])
        epoch = cluster.leader_epoch_for(tp)
        topics[tp.topic].partitions.append(
            ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=-1 if epoch is None else epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        isolation_level=isolation_level, topics=list(topics.values()), timeout_ms=timeout_ms
    )


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset]:
    """Return the offsets by partition; unexpected error codes are logged."""
    listed = {}
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code not in LIST_OFFSETS_ACTIONS.rows:
                name = error_info(partition.error_code).name
                logger.warning("ListOffsets of %s failed: %s; retrying", tp, name)
            listed[tp] = ListedOffset(
                partition.error_code,
                partition.offset,
                partition.timestamp,
                partition.leader_epoch if partition.leader_epoch >= 0 else None,
            )
    return listed


class _Lookup:
    """One call and the offsets found so far."""

    __slots__ = (
        "deadline_ms",
        "errors",
        "found",
        "isolation_level",
        "requests",
        "result",
        "started_ms",
        "timestamps",
        "unknown_topic_check",
    )

    def __init__(
        self,
        timestamps: dict[TopicPartition, int],
        requests: LeaderRequests,
        unknown_topic_check: UnknownTopicCheck,
        isolation_level: int,
        now_ms: int,
        deadline_ms: int,
    ) -> None:
        self.timestamps = timestamps
        self.requests = requests
        self.isolation_level = isolation_level
        self.started_ms = now_ms
        self.deadline_ms = deadline_ms
        self.unknown_topic_check = unknown_topic_check
        self.found: Offsets = {}
        self.errors: dict[TopicPartition, str] = {}
        self.result: PendingResult[Offsets] = PendingResult()

    def give_up(self, error: KafkaError) -> None:
        """End with an error, unless it has ended before."""
        self.result.fail(error)

    @property
    def missing(self) -> list[TopicPartition]:
        return [tp for tp in self.timestamps if tp not in self.found]

    @property
    def topics(self) -> set[str]:
        return {tp.topic for tp in self.timestamps}


class OffsetLookups:
    """Looks offsets up for the application."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._config = config = context.config
        self._isolation_level = int(config.isolation_level == "read_committed")
        self._metadata = context.metadata
        self._lookups: list[_Lookup] = []

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        now_ms: int,
        deadline_ms: int,
        isolation_level: int | None = None,
    ) -> PendingResult[Offsets]:
        """Begin a look-up: the first offset at or after each timestamp, None if no record is.

        Timestamps are in ms since 1970; -1 for the end of the log, -2 for its start, -3 for the
        record with the highest timestamp (brokers from 3.0 on). The isolation level is that of the
        configuration if None.
        """
        lookup = _Lookup(
            dict(timestamps),
            LeaderRequests(self._context, on_error=lambda _, error: lookup.give_up(error)),
            UnknownTopicCheck(self._metadata, now_ms),
            self._isolation_level if isolation_level is None else isolation_level,
            now_ms,
            deadline_ms,
        )
        if not lookup.timestamps:
            lookup.result.complete({})
        else:
            self._metadata.add_transient_topics(lookup.topics)
            self._lookups.append(lookup)
            lookup.result.add_callback(lambda _: self._ended(lookup))
        return lookup.result

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next poll."""
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        for lookup in list(self._lookups):
            self._check(lookup, now_ms)
            if lookup.result.is_done:
                continue
            versions = dict.fromkeys(lookup.missing, _ANY_VERSION)
            for node_id, partitions in lookup.requests.ready(versions, now_ms).items():
                requests.append(self._request(lookup, node_id, partitions))
            next_ms = min(next_ms, lookup.requests.next_ms, lookup.deadline_ms - now_ms)
            if lookup.unknown_topic_check.unknown is not None:
                next_ms = min(next_ms, self._config.retry_backoff_ms)
        return requests, next_ms

    def _check(self, lookup: _Lookup, now_ms: int) -> None:
        """End a look-up that cannot succeed."""
        for topic in lookup.topics:
            code = self._metadata.topic_errors.get(topic, 0)
            if code and not error_info(code).retriable:
                text = f'the offsets of topic "{topic}" could not be looked up'
                lookup.give_up(exception_for(code, text, topic=topic, operation="describe"))
        unknown = lookup.unknown_topic_check.check(lookup.missing)
        if unknown is not None:
            lookup.give_up(unknown)
        elif lookup.unknown_topic_check.unknown is not None:
            self._metadata.request_update()
        if now_ms >= lookup.deadline_ms:
            lookup.give_up(self._timeout(lookup))

    def _request(
        self, lookup: _Lookup, node_id: int, partitions: list[TopicPartition]
    ) -> UnsentRequest:
        for tp in partitions:
            lookup.requests.sent(tp, _ANY_VERSION)
        message = list_offsets_request(
            {tp: lookup.timestamps[tp] for tp in partitions},
            self._metadata.cluster,
            isolation_level=lookup.isolation_level,
            timeout_ms=self._config.request_timeout_ms,
        )
        has_max = any(lookup.timestamps[tp] == MAX_TIMESTAMP for tp in partitions)
        return UnsentRequest(
            message,
            self,
            node_id=node_id,
            context=(lookup, partitions),
            min_version=_FIRST_WITH_MAX_TIMESTAMP if has_max else None,
        )

    # --- responses --------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Store the offsets that a leader found."""
        lookup, partitions = cast("tuple[_Lookup, list[TopicPartition]]", request.context)
        if lookup.result.is_done:
            return
        listed = listed_offsets(cast("ListOffsetsResponse", response.message))
        for tp in partitions:
            self._take(lookup, tp, listed.get(tp), now_ms)
        if not lookup.missing:
            lookup.result.complete({tp: lookup.found[tp] for tp in lookup.timestamps})

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry after a back-off; an error that is not retriable ends the look-up."""
        lookup, partitions = cast("tuple[_Lookup, list[TopicPartition]]", request.context)
        if lookup.result.is_done:
            return
        if not error.retriable:
            lookup.give_up(error)
            return
        self._metadata.request_update()
        for tp in partitions:
            lookup.errors[tp] = error.message
            lookup.requests.failed(tp, _ANY_VERSION, now_ms)

    def _take(
        self, lookup: _Lookup, tp: TopicPartition, listed: ListedOffset | None, now_ms: int
    ) -> None:
        action = ErrorAction.RETRY if listed is None else listed.action
        if listed is not None:
            if action is ErrorAction.NONE and listed.offset >= 0:
                lookup.found[tp] = OffsetAndTimestamp(
                    listed.offset, listed.timestamp, listed.leader_epoch
                )
            elif action is ErrorAction.NO_OFFSET or (
                action is ErrorAction.NONE
                and (lookup.timestamps[tp] >= 0 or lookup.timestamps[tp] == MAX_TIMESTAMP)
            ):
                lookup.found[tp] = None
            elif action is ErrorAction.REPORT:
                text = f"not allowed to look up offsets of {tp}"
                error = exception_for(listed.error_code, text, topic=tp.topic, operation="describe")
                lookup.give_up(error)
        if tp in lookup.found:
            lookup.requests.completed(tp, _ANY_VERSION)
            return
        if action is ErrorAction.REFRESH_METADATA:
            self._metadata.request_update()
        code = listed.error_code if listed is not None else 0
        lookup.errors[tp] = error_info(code).name if code else "the response has no offset for it"
        lookup.requests.failed(tp, _ANY_VERSION, now_ms)

    # --- the end of a look-up ---------------------------------------------------------------------

    def _ended(self, lookup: _Lookup) -> None:
        self._lookups.remove(lookup)
        still_needed = {topic for other in self._lookups for topic in other.topics}
        self._metadata.clear_transient_topics(lookup.topics - still_needed)

    def _timeout(self, lookup: _Lookup) -> KafkaTimeoutError:
        missing = lookup.missing
        names = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
        causes = dict.fromkeys(self._why(lookup, tp) for tp in missing[:10])
        return KafkaTimeoutError(
            f"offsets of {names} were not found within {lookup.deadline_ms - lookup.started_ms} ms",
            cause="; ".join(causes),
            hint=self._hint(missing),
            topic=missing[0].topic,
            partition=missing[0].partition,
        )

    def _why(self, lookup: _Lookup, tp: TopicPartition) -> str:
        cluster = self._metadata.cluster
        partitions = cluster.partitions_for_topic(tp.topic)
        if not cluster.brokers:
            return "no broker could be reached"
        if partitions is None:
            return f'no topic "{tp.topic}" on this cluster'
        if tp.partition not in partitions:
            return f"{partition_range(tp.topic, partitions)}: there is no partition {tp.partition}"
        return lookup.errors.get(tp) or f"the leader of {tp} has not responded"

    def _hint(self, missing: list[TopicPartition]) -> str:
        topics = self._metadata.cluster.topics
        for topic in {tp.topic for tp in missing} - topics.keys():
            similar = did_you_mean(topic, topics)
            if similar is not None:
                return f'did you mean "{similar}"?'
        return "check the topics and the brokers, or allow more time (default_api_timeout_ms)"

    def __repr__(self) -> str:
        return f"<OffsetLookups {len(self._lookups)} in progress>"
