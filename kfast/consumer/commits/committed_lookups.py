"""CommittedLookups: questions about what a group has committed.

Owns the OffsetFetch requests and what is known so far. A look-up ends when every partition is
answered, at once with an error that waiting cannot mend, or at its deadline with one that names the
partitions missing. What an answer leaves out is asked again and never counts as "nothing
committed" (P-09). Sans-IO, network thread.

Requests travel on the coordinator's connection, but for the time of a JoinGroup: the broker parks
that for minutes and serves nothing behind it, and a look-up that ran into its timeout there would
take the JoinGroup with it. They then go over the data connection of the same broker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

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
from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kfast.client.request import ClientResponse
    from kfast.consumer.commits.offset_exchange import OffsetExchange
    from kfast.consumer.group.membership import MemberIdentity
    from kfast.protocol.messages.offset_fetch import OffsetFetchResponse
    from kfast.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

CommittedOffsets = dict["TopicPartition", "OffsetAndMetadata | None"]

LEFT_OUT = "the answer has nothing about it"


@dataclass(slots=True, eq=False)
class _Lookup:
    """One call and what is known so far."""

    partitions: tuple[TopicPartition, ...]
    started_ms: int
    deadline_ms: int
    on_found: Callable[[CommittedOffsets], None] | None
    found: CommittedOffsets = field(default_factory=dict)
    trouble: dict[TopicPartition, str] = field(default_factory=dict)
    result: PendingResult[CommittedOffsets] = field(default_factory=PendingResult)
    is_in_flight: bool = False
    attempts: int = 0
    retry_ms: int = 0
    old_member: MemberIdentity | None = None

    @property
    def missing(self) -> list[TopicPartition]:
        return [tp for tp in self.partitions if tp not in self.found]


class _Sent(NamedTuple):
    """One OffsetFetch request as it was made."""

    lookup: _Lookup
    partitions: tuple[TopicPartition, ...]
    member: MemberIdentity | None
    ids: Mapping[str, bytes] | None


class CommittedLookups:
    """Looks committed offsets up.

    Parameters
    ----------
    exchange : OffsetExchange
        The way to the coordinator, and who asks.
    """

    def __init__(self, exchange: OffsetExchange) -> None:
        self._exchange = exchange
        self._access = exchange.access
        self._identity = exchange.identity
        self._lookups: list[_Lookup] = []

    def look_up(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        deadline_ms: int,
        on_found: Callable[[CommittedOffsets], None] | None = None,
    ) -> PendingResult[CommittedOffsets]:
        """Begin a look-up.

        Parameters
        ----------
        partitions : Iterable of TopicPartition
            What to look up.
        now_ms, deadline_ms : int
            The time, and when to give up.
        on_found : callable or None
            Told every answer as soon as it is there, even if others are missing.

        Returns
        -------
        PendingResult of dict
            Per partition what is committed, None where nothing is.
        """
        lookup = _Lookup(tuple(dict.fromkeys(partitions)), now_ms, deadline_ms, on_found)
        if lookup.partitions:
            self._lookups.append(lookup)
        else:
            lookup.result.complete({})
        return lookup.result

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next look."""
        requests: list[UnsentRequest] = []
        next_ms = NEVER_MS
        for lookup in list(self._lookups):
            if now_ms >= lookup.deadline_ms:
                self._fail(lookup, self._timeout(lookup))
                continue
            next_ms = min(next_ms, lookup.deadline_ms - now_ms)
            if lookup.is_in_flight:
                continue
            if lookup.retry_ms > now_ms:
                next_ms = min(next_ms, lookup.retry_ms - now_ms)
                continue
            try:
                request = self._request(lookup, now_ms)
            except KafkaError as error:
                self._fail(lookup, error)
                continue
            if request is None:
                next_ms = min(next_ms, max(0, lookup.retry_ms - now_ms) or self._access.next_ms)
            else:
                requests.append(request)
        return requests, next_ms

    def _request(self, lookup: _Lookup, now_ms: int) -> UnsentRequest | None:
        member = self._identity.for_fetch()
        if member is not None and member == lookup.old_member:
            self._pause(lookup, now_ms)  # the next heartbeat brings another epoch
            return None
        channel = Channel.DATA if self._identity.is_rebalancing else Channel.COORDINATOR
        node_id = self._access.node(now_ms, channel)
        if node_id is None:
            return None
        missing = tuple(lookup.missing)
        ids, version = self._exchange.addressing(ApiKey.OFFSET_FETCH, missing, node_id, channel)
        lookup.is_in_flight = True
        return UnsentRequest(
            offset_fetch_request(missing, self._identity.group_id, member, ids, version),
            self,
            node_id=node_id,
            channel=channel,
            context=_Sent(lookup, missing, member, ids),
            max_version=version,
            min_version=version,
        )

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take what the coordinator knows."""
        sent = cast("_Sent", request.context)
        lookup = sent.lookup
        lookup.is_in_flight = False
        if lookup.result.is_done:
            return
        group_code, answers = fetched_offsets(
            cast("OffsetFetchResponse", response.message),
            self._identity.group_id,
            sent.ids,
            response.api_version,
        )
        codes: dict[TopicPartition, int] = {}
        found: CommittedOffsets = {}
        for tp in sent.partitions:
            answer = answers.get(tp)
            code = group_code or (0 if answer is None else answer.error_code)
            if code:
                codes[tp] = code
            elif answer is None or not answer.is_valid:
                lookup.trouble[tp] = LEFT_OUT
            else:
                found[tp] = answer.committed
        lookup.found.update(found)
        if found and lookup.on_found is not None:
            lookup.on_found(found)
        self._take_errors(sent, codes, request.node_id, now_ms)
        if not lookup.missing:
            self._complete(lookup)

    def _take_errors(
        self,
        sent: _Sent,
        codes: Mapping[TopicPartition, int],
        node_id: int | None,
        now_ms: int,
    ) -> None:
        lookup = sent.lookup
        actions = {code: FETCH_ACTIONS.of(code) for code in codes.values()}
        for code, action in actions.items():
            self._exchange.note(action, code, node_id, now_ms)
            if action in MEMBERSHIP and sent.member is not None:
                lookup.old_member = sent.member
                self._identity.failed(code, sent.member, now_ms)
        final = {
            tp: code
            for tp, code in codes.items()
            if actions[code] not in RETRIED
            and not (actions[code] in MEMBERSHIP and sent.member is not None)
        }
        if final:
            self._fail(lookup, fetch_error(final, self._identity.group_id, sent.partitions))
        elif lookup.missing:
            lookup.trouble.update((tp, described(code)) for tp, code in codes.items())
            self._pause(lookup, now_ms)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Ask again after a pause, unless that cannot help."""
        lookup = cast("_Sent", request.context).lookup
        lookup.is_in_flight = False
        self._access.failed(request.node_id, error, now_ms)
        if lookup.result.is_done:
            return
        if error.retriable:
            lookup.trouble.update(dict.fromkeys(lookup.missing, error.message))
            self._pause(lookup, now_ms)
        else:
            self._fail(lookup, error)

    def _pause(self, lookup: _Lookup, now_ms: int) -> None:
        lookup.retry_ms = now_ms + self._exchange.pause_ms(lookup.attempts)
        lookup.attempts += 1

    # --- ends -------------------------------------------------------------------------------------

    def fail_all(self, error: KafkaError) -> None:
        """End every look-up that is not in flight."""
        for lookup in list(self._lookups):
            if not lookup.is_in_flight:
                self._fail(lookup, error)

    def _complete(self, lookup: _Lookup) -> None:
        self._lookups.remove(lookup)
        lookup.result.complete({tp: lookup.found[tp] for tp in lookup.partitions})

    def _fail(self, lookup: _Lookup, error: KafkaError) -> None:
        self._lookups.remove(lookup)
        lookup.result.fail(error)

    def _timeout(self, lookup: _Lookup) -> KafkaTimeoutError:
        missing = lookup.missing
        causes = dict.fromkeys(lookup.trouble[tp] for tp in missing if tp in lookup.trouble)
        return KafkaTimeoutError(
            f"committed offsets of {names(missing)} of group "
            f'"{self._identity.group_id}" were not found within '
            f"{lookup.deadline_ms - lookup.started_ms} ms",
            cause=self._access.trouble or "; ".join(causes) or "the coordinator did not answer",
            hint="check the brokers, or allow more time (default_api_timeout_ms)",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )

    def __repr__(self) -> str:
        return f"<CommittedLookups {len(self._lookups)} under way>"
