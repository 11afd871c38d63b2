"""Faults: how the answer to a request is made to go wrong, one small class each.

A fault writes itself into the ``ReplyPlan`` of a request; ``FaultTable`` decides of which. All of
them are frozen, so that one can be used in several rules::

    cluster.faults.add(PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER), api=ApiKey.FETCH)
    cluster.faults.add(Delay(500), api=ApiKey.METADATA, times=None)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kfast.testing.fault_table import MessageEdit, ReplyPlan


@dataclass(frozen=True, slots=True)
class PartitionError:
    """Answer an error code for some or all partitions (for Metadata: topics, if no partition)."""

    code: int
    topic: str | None = None
    partition: int | None = None

    def apply(self, plan: ReplyPlan) -> None:
        plan.errors.append((self.topic, self.partition, self.code))


@dataclass(frozen=True, slots=True)
class TopLevelError:
    """Answer an error code of the response itself, and nothing else in it."""

    code: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.top_level_error = self.code


@dataclass(frozen=True, slots=True)
class EditResponse:
    """Change the response object before it is encoded."""

    edit: MessageEdit

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self.edit)


@dataclass(frozen=True, slots=True)
class Throttle:
    """Throttle the client, and mute the connection for so long (KIP-219).

    With ``is_empty`` a Fetch is answered without partitions, as when the quota is used up.
    """

    throttle_time_ms: int
    is_empty: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.throttle_time_ms = self.throttle_time_ms
        plan.is_quota_exceeded = self.is_empty


@dataclass(frozen=True, slots=True)
class Drop:
    """Handle the request, then close the connection after ``after_bytes`` of the answer."""

    after_bytes: int = 0
    is_reset: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.keep_bytes = self.after_bytes
        plan.is_closing = True
        plan.is_reset = self.is_reset


@dataclass(frozen=True, slots=True)
class DropMidRequest:
    """Close the connection when ``after_bytes`` of the request (size prefix included) are in.

    The request is neither logged nor handled. Fewer than 12 bytes count as 12: the header up to
    the API key and the correlation id.
    """

    after_bytes: int = 12
    is_reset: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.request_bytes = self.after_bytes
        plan.is_closing = True
        plan.is_reset = self.is_reset


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold the answer back."""

    delay_ms: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.delay_ms += self.delay_ms


@dataclass(frozen=True, slots=True)
class NeverAnswer:
    """Blackhole: this request and all later ones on its connection stay unanswered."""

    def apply(self, plan: ReplyPlan) -> None:
        plan.is_answered = False


@dataclass(frozen=True, slots=True)
class Trickle:
    """Send the answer in small chunks, each after a wait; by default one byte per second."""

    chunk_bytes: int = 1
    interval_ms: int = 1000

    def apply(self, plan: ReplyPlan) -> None:
        plan.pacing = self._chunks

    def _chunks(self, size: int) -> Iterator[tuple[int, int]]:
        for start in range(0, size, self.chunk_bytes):
            yield min(self.chunk_bytes, size - start), self.interval_ms
