"""OffsetLookups: one-time questions about offsets that move no position.

Owns the ListOffsets requests behind ``beginning_offsets``, ``end_offsets`` and
``offsets_for_times``. A look-up needs no assignment; metadata of topics nobody reads is asked for
as long as it runs. It ends when every partition is answered, at its deadline with an error that
names the partitions missing, or at once with an error that waiting cannot mend. A partition that
does not exist is an error when `Absence` is sure of it. Partitions are asked independently: one
that fails is tried again by itself. Sans-IO, network thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.positions.leader_requests import LeaderRequests
from kfast.consumer.positions.list_offsets import (
    OffsetAnswer,
    list_offsets_request,
    offset_answers,
)
from kfast.consumer.unknown_topic_check import Absence
from kfast.errors import (
    KafkaError,
    KafkaTimeoutError,
    did_you_mean,
    error_info,
    exception_for,
    partition_range,
)
from kfast.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.list_offsets import ListOffsetsResponse

Offsets = dict[TopicPartition, OffsetAndTimestamp | None]

_ANY_VERSION = 0
"""Look-ups do not depend on the state of the partition."""


class _Lookup:
    """One call and what is known so far."""

    __slots__ = (
        "absence",
        "deadline_ms",
        "errors",
        "found",
        "requests",
        "result",
        "started_ms",
        "timestamps",
    )

    def __init__(
        self,
        timestamps: dict[TopicPartition, int],
        requests: LeaderRequests,
        absence: Absence,
        now_ms: int,
        deadline_ms: int,
    ) -> None:
        self.timestamps = timestamps
        self.requests = requests
        self.started_ms = now_ms
        self.deadline_ms = deadline_ms
        self.absence = absence
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
        self, timestamps: Mapping[TopicPartition, int], now_ms: int, deadline_ms: int
    ) -> PendingResult[Offsets]:
        """Begin a look-up.

        Parameters
        ----------
        timestamps : Mapping of TopicPartition to int
            ms since 1970 for the first offset at or after it; -1 for the end, -2 for the start.
        now_ms, deadline_ms : int
            The time, and when to give up.

        Returns
        -------
        PendingResult of dict
            Per partition the offset found; None where no record is that new.
        """
        lookup = _Lookup(
            dict(timestamps),
            LeaderRequests(self._context, on_error=lambda _, error: lookup.give_up(error)),
            Absence(self._metadata, now_ms),
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
        """Return the requests to send now, and the ms until the next look."""
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        for lookup in list(self._lookups):
            self._check(lookup, now_ms)
            if lookup.result.is_done:
                continue
            questions = dict.fromkeys(lookup.missing, _ANY_VERSION)
            for node_id, partitions in lookup.requests.ready(questions, now_ms).items():
                requests.append(self._request(lookup, node_id, partitions))
            next_ms = min(next_ms, lookup.requests.next_ms, lookup.deadline_ms - now_ms)
            if lookup.absence.suspect is not None:
                next_ms = min(next_ms, self._config.retry_backoff_ms)
        return requests, next_ms

    def _check(self, lookup: _Lookup, now_ms: int) -> None:
        """End a look-up that cannot go on."""
        for topic in lookup.topics:
            code = self._metadata.topic_errors.get(topic, 0)
            if code and not error_info(code).retriable:
                what = f'the offsets of topic "{topic}" could not be looked up'
                lookup.give_up(exception_for(code, what, topic=topic))
        absent = lookup.absence.look(lookup.missing)
        if absent is not None:
            lookup.give_up(absent)
        elif lookup.absence.suspect is not None:
            self._metadata.request_update()
        if now_ms >= lookup.deadline_ms:
            lookup.give_up(self._timeout(lookup))

    def _request(
        self, lookup: _Lookup, node_id: int, partitions: list[TopicPartition]
    ) -> UnsentRequest:
        for tp in partitions:
            lookup.requests.asked(tp, _ANY_VERSION)
        message = list_offsets_request(
            {tp: lookup.timestamps[tp] for tp in partitions},
            self._metadata.cluster,
            isolation_level=self._isolation_level,
            timeout_ms=self._config.request_timeout_ms,
        )
        return UnsentRequest(message, self, node_id=node_id, context=(lookup, partitions))

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take the offsets a leader found."""
        lookup, partitions = cast("tuple[_Lookup, list[TopicPartition]]", request.context)
        if lookup.result.is_done:
            return
        answers = offset_answers(cast("ListOffsetsResponse", response.message))
        for tp in partitions:
            self._take(lookup, tp, answers.get(tp), now_ms)
        if not lookup.missing:
            lookup.result.complete({tp: lookup.found[tp] for tp in lookup.timestamps})

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Ask again after a pause, unless that cannot help."""
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
        self, lookup: _Lookup, tp: TopicPartition, answer: OffsetAnswer | None, now_ms: int
    ) -> None:
        action = ErrorAction.RETRY if answer is None else answer.action
        if answer is not None:
            if action is ErrorAction.NONE and answer.offset >= 0:
                lookup.found[tp] = OffsetAndTimestamp(
                    answer.offset, answer.timestamp, answer.leader_epoch
                )
            elif action is ErrorAction.NO_OFFSET or (
                action is ErrorAction.NONE and lookup.timestamps[tp] >= 0
            ):
                lookup.found[tp] = None
            elif action is ErrorAction.REPORT:
                what = f"not allowed to look up offsets of {tp}"
                error = exception_for(answer.error_code, what, topic=tp.topic)
                lookup.give_up(error)
        if tp in lookup.found:
            lookup.requests.answered(tp, _ANY_VERSION)
            return
        if action is ErrorAction.REFRESH_METADATA:
            self._metadata.request_update()
        code = answer.error_code if answer is not None else 0
        lookup.errors[tp] = error_info(code).name if code else "the answer has no offset for it"
        lookup.requests.failed(tp, _ANY_VERSION, now_ms)

    # --- ends -------------------------------------------------------------------------------------

    def _ended(self, lookup: _Lookup) -> None:
        self._lookups.remove(lookup)
        still_wanted = {topic for other in self._lookups for topic in other.topics}
        self._metadata.clear_transient_topics(lookup.topics - still_wanted)

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
        known = cluster.partitions_for_topic(tp.topic)
        if not cluster.brokers:
            return "no broker could be reached"
        if known is None:
            return f'no topic "{tp.topic}" on this cluster'
        if tp.partition not in known:
            return f"{partition_range(tp.topic, known)}: there is no partition {tp.partition}"
        return lookup.errors.get(tp) or f"the leader of {tp} did not answer"

    def _hint(self, missing: list[TopicPartition]) -> str:
        known = self._metadata.cluster.topics
        for topic in {tp.topic for tp in missing} - known.keys():
            similar = did_you_mean(topic, known)
            if similar is not None:
                return f'did you mean "{similar}"?'
        return "check the topics and the brokers, or allow more time (default_api_timeout_ms)"

    def __repr__(self) -> str:
        return f"<OffsetLookups {len(self._lookups)} under way>"
