"""EmptyPolls: the errors that explain why a poll finds no records.

What cannot get better by waiting is raised as soon as it is certain, in the middle of a wait; what
is known by then, once the time of a call is up:

| | certain | known |
|---|---|---|
| no broker was ever reached | `ConsumerRuntime.unreachable_since` | an attempt has failed |
| a subscribed topic does not exist | `UnknownTopicCheck` | the last metadata is without it |
| a topic is without an assigned partition | `UnknownTopicCheck` | the last metadata is without it |
| an error is retried | `RetriedErrors`, no position is there | `RetriedErrors`, one is missing |

What is known of errors that are retried is raised by an iteration, the end of which would look like
the end of the data, and by no poll: a coordinator that moves is back soon.

An unknown topic or partition is reported once per subscription and waited for from then on. An
assigned topic that does not exist is waited for without an error. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.retried_errors import Stage
from kfast.consumer.subscription import SubscriptionType
from kfast.consumer.unknown_topic_check import UnknownTopicCheck, is_unknown, unknown_error
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.application.lookups import Lookups
    from kfast.errors import KafkaError, UnknownTopicOrPartitionError
    from kfast.threads.consumer_runtime import ConsumerRuntime


class EmptyPolls:
    """Raises why there are no records."""

    def __init__(self, runtime: ConsumerRuntime, lookups: Lookups) -> None:
        self._runtime = runtime
        self._lookups = lookups
        self._subscription_version = -1
        self._metadata_version = -1
        self._check = UnknownTopicCheck(runtime.metadata, 0)
        self._unknown: list[TopicPartition] = []
        self._reported: set[TopicPartition] = set()

    def raise_certain(self, begun_ms: int) -> None:
        """Raise what waiting on would not change, for a call that has waited since ``begun_ms``."""
        error = self._runtime.unreachable_since(begun_ms) or self._retried_error(is_certain=True)
        if error is not None:
            raise error
        missing = self._find_unknown()
        unknown = self._check.check(missing)
        if unknown is not None:
            self._report(unknown, is_urgent=True)

    def raise_known(self, *, is_end: bool) -> None:
        """Raise what the time of a call was too short to be certain of.

        With ``is_end`` an iteration would end now, which must not look like the end of the data.
        Else the caller polls again, and connecting takes its time.
        """
        runtime = self._runtime
        error = runtime.why_unreachable() if is_end else runtime.bootstrap_error()
        error = error or self._retried_error(is_certain=not is_end)
        if error is not None:
            raise error
        unknown = self._find_unknown()
        if unknown and not runtime.metadata.allow_auto_topic_creation:
            self._report(unknown_error(runtime.metadata, unknown[0]), is_urgent=is_end)

    def _retried_error(self, *, is_certain: bool) -> KafkaError | None:
        """Return what is retried and gives nothing to read, if that is certain or known."""
        runtime = self._runtime
        if not runtime.retries.failing:
            return None
        now_ms = runtime.clock.now_ms()
        positions = [state.position for state in runtime.subscriptions.snapshot()]
        if is_certain:
            reason = None if any(positions) else runtime.retries.certain(now_ms)
        else:
            reason = runtime.retries.known(now_ms)
            if reason is not None and reason.stage is not Stage.TOPICS and all(positions):
                is_waiting = not positions and runtime.subscriptions.is_automatic
                reason = reason if is_waiting else None
        return None if reason is None else runtime.retries.raised(reason, now_ms)

    def _find_unknown(self) -> list[TopicPartition]:
        """Return what does not exist and was not reported, a topic as its first partition."""
        subscriptions, metadata = self._runtime.subscriptions, self._runtime.metadata
        metadata_version = metadata.version  # before its content
        if subscriptions.subscription_version != self._subscription_version:
            self._subscription_version = subscriptions.subscription_version
            self._check = UnknownTopicCheck(metadata, self._runtime.clock.now_ms())
            self._reported.clear()
        elif metadata_version == self._metadata_version:
            return self._unknown
        self._metadata_version = metadata_version
        wanted: set[TopicPartition] = set()
        if subscriptions.subscription_type is SubscriptionType.AUTO_TOPICS:
            wanted = {TopicPartition(topic, 0) for topic in subscriptions.subscription()}
        elif subscriptions.subscription_type is SubscriptionType.USER_ASSIGNED:
            topics = metadata.cluster.topics
            wanted = {tp for tp in subscriptions.assigned_partitions() if tp.topic in topics}
        self._unknown = sorted(tp for tp in wanted - self._reported if is_unknown(metadata, tp))
        return self._unknown

    def _report(self, error: UnknownTopicOrPartitionError, *, is_urgent: bool) -> None:
        """Raise the error with the nearest name; if that is not known yet only if it is urgent."""
        named = self._lookups.missing_topic_error(error, is_urgent=is_urgent)
        if named is None:
            return
        reported = TopicPartition(error.topic or "", error.partition or 0)
        self._unknown = [tp for tp in self._unknown if tp != reported]
        self._reported.add(reported)
        raise named

    def __repr__(self) -> str:
        return f"<EmptyPolls unknown={self._unknown} reported={len(self._reported)}>"
