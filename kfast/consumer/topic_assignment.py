"""TopicAssignmentManager: topics of the subscription, and the assignment without a group.

Owns the topics whose metadata is requested, those that a pattern matches, the errors of topics that
cannot be read, and, for a consumer without a group, the assignment. Sans-IO, network thread; it
sends nothing and works only when the subscription or the cluster has changed.

| subscription | metadata of | partitions |
|---|---|---|
| topics | those topics | all of them, as they are known; new ones are added |
| pattern | all topics | those of all matching topics; internal ones only if configured |
| assigned by hand | their topics | exactly those, known or not |

With a ``group_id`` the group assigns the partitions, and the group leader has the metadata of the
topics of all members.

A topic that is missing from metadata responses is dropped once ``Metadata`` drops it; its positions
are kept in case it comes back with the same topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.client.cluster import Cluster
from kfast.client.request_manager import IDLE, PollResult
from kfast.consumer.retried_errors import Stage
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import ErrorCode, error_info, exception_for

if TYPE_CHECKING:
    from kfast.consumer.manager_context import ManagerContext

logger = get_logger(__name__)

_FOLLOWS_TOPICS = (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)
_MESSAGES: Final[dict[int, str]] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: 'no topic can have the name "{}"',
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 'not allowed to read topic "{}"',
}


class TopicAssignmentManager:
    """Keeps topics and, without a group, the assignment in step with the cluster."""

    def __init__(self, context: ManagerContext) -> None:
        config = context.config
        self._excludes_internal = config.exclude_internal_topics
        self._has_group = config.group_id is not None
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._errors = context.errors
        self._wakeup = context.wakeup
        self._retries = context.retries
        self._seen_version = -1
        self._cluster: Cluster | None = None
        self._reported: dict[str, int] = {}
        self._missing: set[str] = set()

    def poll(self, now_ms: int) -> PollResult:
        """Update the assignment and the topics of metadata requests."""
        subscriptions = self._subscriptions
        cluster = self._metadata.cluster
        is_new = subscriptions.subscription_version != self._seen_version
        if not is_new and cluster is self._cluster:
            return IDLE
        subscriptions.update_leaders(cluster)  # new partitions start with its topic ids
        change = None
        with subscriptions.lock:
            self._seen_version = subscriptions.subscription_version
            self._cluster = cluster
            kind = subscriptions.subscription_type
            if kind is SubscriptionType.AUTO_PATTERN:
                subscriptions.set_pattern_topics(self._matching(cluster))
            topics = (
                {tp.topic for tp in subscriptions.assigned_partitions()}
                if kind is SubscriptionType.USER_ASSIGNED
                else subscriptions.subscription()
            )
            metadata_topics = subscriptions.metadata_topics()
            if kind in _FOLLOWS_TOPICS and not self._has_group:
                change = self._assign(topics, cluster)
        if change is not None:
            logger.info("Reading %d partitions of %d topics (%d added, %d removed)", *change)
            self._wakeup.signal()
        is_pattern = kind is SubscriptionType.AUTO_PATTERN
        self._metadata.read_topics = (
            metadata_topics | self._matching_errors() if is_pattern else None
        )
        if is_new:
            self._metadata.set_topics(None if is_pattern else metadata_topics)
        self._report_topic_errors(topics)
        self._note_retried_errors(topics, now_ms)
        if kind is SubscriptionType.USER_ASSIGNED:
            self._log_missing(topics)
        return IDLE

    def _matching(self, cluster: Cluster) -> set[str]:
        pattern = self._subscriptions.pattern
        return {
            name
            for name, topic in cluster.topics.items()
            if pattern is not None
            and pattern.match(name)
            and not (topic.is_internal and self._excludes_internal)
        }

    def _matching_errors(self) -> set[str]:
        """Return the topics that the pattern matches and that may be there in a moment."""
        pattern = self._subscriptions.pattern
        errors = self._metadata.topic_errors
        return {name for name in errors if pattern is not None and pattern.match(name)}

    def _assign(
        self, topics: set[str] | frozenset[str], cluster: Cluster
    ) -> tuple[int, int, int, int] | None:
        """Assign all partitions of these topics; return the numbers of a change, for the log."""
        partitions = {tp for topic in topics for tp in cluster.topic_partitions(topic)}
        current = self._subscriptions.assigned_partitions()
        if partitions == current:
            return None
        self._subscriptions.assign_from_subscribed(sorted(partitions), keeps_positions=True)
        count = len({tp.topic for tp in partitions})
        return len(partitions), count, len(partitions - current), len(current - partitions)

    def _report_topic_errors(self, topics: set[str] | frozenset[str]) -> None:
        """Have errors of topics that cannot be read raised, for as long as they last."""
        errors = {
            topic: code
            for topic, code in self._metadata.topic_errors.items()
            if topic in topics and not error_info(code).retriable
        }
        for topic in self._reported.keys() - errors.keys():
            self._errors.clear(("topic", topic))
        for topic, code in errors.items():
            if self._reported.get(topic) != code:
                error = exception_for(
                    code,
                    _MESSAGES.get(code, "{}").format(topic),
                    topic=topic,
                    operation="describe",
                )
                self._errors.put(error, key=("topic", topic), is_sticky=True)
        self._reported = errors

    def _note_retried_errors(self, topics: set[str] | frozenset[str], now_ms: int) -> None:
        """Note errors of topics that may pass, but those of topics that do not exist."""
        errors = self._metadata.topic_errors
        for topic in sorted(errors.keys() & topics):
            code = errors[topic]
            if error_info(code).retriable and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                error = exception_for(code, f'topic "{topic}" cannot be read yet', topic=topic)
                self._retries.failed(Stage.TOPICS, error, now_ms)
                return
        if self._metadata.version:
            self._retries.succeeded(Stage.TOPICS, now_ms)

    def _log_missing(self, topics: set[str] | frozenset[str]) -> None:
        """Log assigned topics that do not exist: polls wait for them without an error."""
        errors = self._metadata.topic_errors
        missing = {t for t in topics if errors.get(t) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for topic in sorted(missing - self._missing):
            logger.warning(
                'no topic "%s" on this cluster: it is waited for, and read once it exists', topic
            )
        self._missing = missing

    def __repr__(self) -> str:
        return f"<TopicAssignmentManager {self._subscriptions!r} errors={self._reported}>"
