"""KafkaConsumer: the synchronous, columnar facade of kfast.

Owns the public calls: it checks arguments and delegates to ``kfast.application``, one module per
noun; threads, sockets and request managers belong to ``ConsumerRuntime``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kfast._runtime.access_guard import AccessGuard
from kfast.application.arguments import (
    as_iterable,
    check_max_records,
    check_partition,
    check_seek,
    check_timeout,
    refuse_copy,
    sealed_arguments,
    split_config,
)
from kfast.application.health import health_of, line_of
from kfast.application.internals import ConsumerInternals
from kfast.application.parts import ConsumerParts
from kfast.config import ConsumerConfig
from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import ConfigurationError
from kfast.settings.offset_reset import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    RESET_EARLIEST,
    RESET_LATEST,
)
from kfast.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
)

if TYPE_CHECKING:
    from datetime import datetime

    from kfast.application.commits import CommitCallback
    from kfast.application.health import ConsumerHealth
    from kfast.application.rebalance_listener import RebalanceCallbacks
    from kfast.consumer.group.membership import CloseOperation
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.settings.offset_reset import OffsetResetStrategy
    from kfast.settings.types import ConsumerSettings


class KafkaConsumer:
    """Reads Kafka topics into columns.

    Parameters
    ----------
    *topics : str
        Topics to subscribe to; the same as calling `subscribe` afterwards.
    config : Mapping, optional
        Settings by Kafka's dotted names; also as the first argument: ``KafkaConsumer({...})``.
    **configs
        Settings by keyword (``bootstrap_servers="host:9092"``); both forms may be mixed.
        ``kfast.ConsumerConfig.describe()`` lists them all.

    Raises
    ------
    ConfigurationError
        A setting is unknown or its value is not allowed.

    Notes
    -----
    Construction does no I/O: the first call that needs a broker connects. With a ``group_id`` the
    subscribed topics are shared with the other members of the group; without one all their
    partitions are read, new ones as they appear.

    As a context manager it is closed at the end of the block. When the block is left by an
    exception, auto-commit leaves out what the last ``poll`` returned: it may not have been
    processed.

    Examples
    --------
    >>> with kfast.KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
    ...     for batch in consumer.batches(timeout_ms=100):
    ...         print(len(batch), batch.values)
    """

    def __init__(
        self,
        *topics: str | Mapping[str, object],
        config: Mapping[str, object] | None = None,
        **configs: Unpack[ConsumerSettings],
    ) -> None:
        topics, config, configs = sealed_arguments(topics, config, configs)
        names, config = split_config(topics, config)
        self._config = ConsumerConfig(config, **configs)
        self._guard = AccessGuard()
        self._parts = parts = ConsumerParts.of(self._config, self._guard, self._converter)
        self._runtime, self._iteration = parts.shared.runtime, parts.shared.iteration
        self._shared, self._subscriptions = parts.shared, parts.shared.runtime.subscriptions
        self._collector = parts.shared.runtime.collector
        self._polling, self._closing = parts.polling, parts.closing
        self._closing.watch(self)
        if names:
            self.subscribe(names)

    def _converter(self, wake: Callable[[], object]) -> Any:  # the command line has another
        from kfast.application.record_converter import RecordConverter  # noqa: PLC0415 - with NumPy

        return RecordConverter(self._config, wake)

    # --- subscription -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceCallbacks | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern, replacing the previous subscription.

        Parameters
        ----------
        topics : iterable of str
            Topic names. Empty, without a pattern, is the same as `unsubscribe`.
        pattern : str, re.Pattern or SubscriptionPattern, optional
            A regular expression; a topic is read if its name matches from its start. Internal
            topics are left out unless ``exclude_internal_topics=False``. A `SubscriptionPattern`
            is matched by the brokers (``group_protocol="consumer"``).
        listener : ConsumerRebalanceListener, optional
            Called inside ``poll`` when partitions are assigned, revoked or lost. Without a
            ``group_id`` there is no group to revoke any, and it is never called.

        Raises
        ------
        InvalidTopicError
            A name is empty or cannot be a topic's.
        IllegalStateError
            Partitions are assigned with `assign`, or pattern and topics are mixed.

        Examples
        --------
        >>> consumer.subscribe(pattern="orders-.*")
        """
        with self._guard:
            self._parts.subscribing.subscribe(topics, pattern, listener)

    def unsubscribe(self) -> None:
        """Auto-commit, call the listener, leave the group; drop subscription, positions, data."""
        with self._guard:
            self._parts.subscribing.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position.

        No group is joined; with a ``group_id`` offsets can be committed. A topic that does not
        exist yet is waited for.

        Raises
        ------
        IllegalStateError
            There is a subscription.
        InvalidTopicError
            A topic name is not legal.
        """
        with self._guard:
            self._parts.subscribing.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions being read. Any thread."""
        self._guard.check_usable()
        return set(self._subscriptions.assigned_partitions())

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, or those a pattern matches; None without. Any thread."""
        self._guard.check_usable()
        return set(self._subscriptions.subscription()) or None

    # --- reading ----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> ConsumerRecords:
        """Return the available records, waiting for the first ones if need be.

        Parameters
        ----------
        timeout_ms : int
            How long to wait when no record is available; 0 returns at once. A poll returns as
            soon as any is, and may return empty before its time when only positions moved
            (aborted transactions, control records).
        max_records : int, optional
            Most rows to return; default ``max_poll_records``, which is unbounded unless set.
        update_offsets : bool
            Must be True; kafka-python's parameter.

        Returns
        -------
        ConsumerRecords
            Per partition one batch of columns. Positions are the offsets after these records.

        Raises
        ------
        IllegalStateError
            Nothing is subscribed to or assigned.
        KafkaError
            A rebalance listener raised; the group cannot be joined; ...
        CorruptRecordError, DeserializationError, OffsetOutOfRangeError, ...
            Data at a position cannot be delivered. Records before it came first; the position
            stays until `seek`. Other partitions continue with the next poll.
        KafkaConnectionError, UnknownTopicOrPartitionError
            As soon as it is certain: no broker can be reached and none ever was; a subscribed topic
            or an assigned partition does not exist (raised once).
        WakeupError
            `wakeup` was called.

        Examples
        --------
        >>> table = consumer.poll(timeout_ms=1_000).to_arrow()
        """
        with self._guard:
            if not update_offsets:
                raise ConfigurationError(
                    "update_offsets=False is not supported",
                    hint="seek() back to the offsets that are to be read again",
                )
            most = self._config.max_poll_records
            most = most if max_records is None else check_max_records(max_records)
            records = self._polling.poll(check_timeout(timeout_ms), most)
        self._collector.undelivered = None  # last: no check for signals comes behind it
        return records

    def batches(self, timeout_ms: int | None = None) -> Iterator[PartitionRecords]:
        """Iterate over batches of columns: ``for batch in consumer.batches(): ...``.

        Parameters
        ----------
        timeout_ms : int, optional
            End after so long without records; default ``consumer_timeout_ms`` (never).

        Yields
        ------
        PartitionRecords
            One partition's records, never empty. A batch counts as handed out when it is yielded.
        """
        timeout_ms = None if timeout_ms is None else check_timeout(timeout_ms)
        return self._polling.batches(timeout_ms, self)

    def __iter__(self) -> KafkaConsumer:
        return self

    def __next__(self) -> ConsumerRecord:
        row = self._iteration.next_row()
        return self._polling.next_row() if row is None else row

    # --- positions --------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record, looking it up if there is none yet.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        UnknownTopicOrPartitionError
            The brokers have answered for a second that there is no such topic or partition.
        KafkaTimeoutError
            It was not found in time.
        """
        with self._guard:
            return self._parts.positions.wait(check_partition(partition), self._timeout(timeout_ms))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position to an offset; buffered records of the partition are dropped.

        Raises
        ------
        IllegalStateError
            The partition is not assigned, or the offset is negative.
        """
        with self._guard:
            tp = check_partition(partition)
            self._subscriptions.seek(tp, FetchPosition(*check_seek(tp, offset)))
            self._runtime.changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Reset these or all assigned partitions to their first offset, at the next poll."""
        self._reset(partitions, RESET_EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Reset these or all assigned partitions to the end of the log, at the next poll.

        The end is the last stable offset under ``isolation_level="read_committed"``.
        """
        self._reset(partitions, RESET_LATEST)

    def _reset(self, partitions: Collection[TopicPartition], strategy: OffsetResetStrategy) -> None:
        with self._guard:
            topic_partitions = [check_partition(tp) for tp in partitions] or self.assignment()
            self._subscriptions.request_offset_reset(topic_partitions, strategy)
            self._runtime.changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop delivering and fetching these partitions; buffered records stay. Idempotent."""
        with self._guard:
            self._subscriptions.pause([check_partition(tp) for tp in partitions])
            self._runtime.changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Idempotent."""
        with self._guard:
            self._subscriptions.resume([check_partition(tp) for tp in partitions])
            self._runtime.changed()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._guard:
            return set(self._subscriptions.paused_partitions())

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch, None before the first. No network."""
        with self._guard:
            return self._subscriptions.high_watermark(check_partition(partition))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the offsets left to read, None when not known yet (KIP-695). No network."""
        with self._guard:
            return self._parts.positions.lag(check_partition(partition))

    # --- the group --------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets and wait until they are stored.

        Parameters
        ----------
        offsets : Mapping of TopicPartition to OffsetAndMetadata or int, optional
            The next offset to read of each partition, such as ``records.next_offsets()``. By
            default the positions of all assigned partitions: the offsets after what was handed
            out so far. What was read of a topic that was deleted, or created again, since is left
            out with a warning.
        timeout_ms : int, optional
            Default ``default_api_timeout_ms``. Until then retriable errors are retried.

        Raises
        ------
        InvalidGroupIdError
            There is no ``group_id``.
        RebalanceInProgressError
            The group is rebalancing: ``poll`` and commit again.
        CommitFailedError
            The consumer is no longer a member; the partitions may be assigned to others.
        KafkaTimeoutError
            No response arrived in time.

        Examples
        --------
        >>> records = consumer.poll(timeout_ms=1_000)
        >>> consumer.commit(records.next_offsets())
        """
        with self._guard:
            self._shared.commits.commit(offsets, self._timeout(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets without waiting and without retries.

        Parameters
        ----------
        offsets : Mapping, optional
            As for `commit`.
        callback : Callable, optional
            ``callback(offsets, error)``, called once, with ``error=None`` after success, by a
            later ``poll``, ``commit`` or ``close``, in the order of the commits. Default
            ``default_offset_commit_callback``.
        """
        with self._guard:
            self._shared.commits.commit_async(offsets, callback)

    @overload
    def committed(
        self, partitions: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None: ...
    @overload
    def committed(
        self,
        partitions: Iterable[TopicPartition],
        metadata: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...
    def committed(
        self, partitions: Any, metadata: bool = False, timeout_ms: int | None = None
    ) -> Any:
        """Return the committed offsets of the group, None where there is none.

        Parameters
        ----------
        partitions : TopicPartition or iterable of them
            One partition gives its offset, several a dict of `OffsetAndMetadata`.
        metadata : bool
            Give an `OffsetAndMetadata` for one partition, too.
        timeout_ms : int, optional
            Default ``default_api_timeout_ms``.
        """
        with self._guard:
            is_one = isinstance(partitions, TopicPartition)
            topic_partitions = [partitions] if is_one else as_iterable(partitions)
            offsets = self._shared.commits.committed(topic_partitions, self._timeout(timeout_ms))
            if not is_one:
                return offsets
            offset = offsets[partitions]
            return offset if metadata or offset is None else offset.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the live membership, for a transactional producer (KIP-447). Any thread.

        After the membership is lost this returns the lost one until `poll` has rejoined: brokers
        fence transactions under it, as they must. ``kfast.transactions`` converts it to what
        confluent-kafka's producer takes.
        """
        self._guard.check_usable()
        return self._shared.commits.group_metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance at the next ``poll`` (KIP-568); an error without a group."""
        with self._guard:
            self._parts.subscribing.enforce_rebalance(reason)

    # --- look-ups ---------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition; no assignment needed, no position moves.

        Raises
        ------
        UnknownTopicOrPartitionError
            The brokers have answered for a second that there is no such topic or partition.
        KafkaTimeoutError
            Not all offsets were found in time; names the missing partitions.
        """
        with self._guard:
            return self._shared.lookups.log_ends(
                partitions, EARLIEST_TIMESTAMP, self._timeout(timeout_ms)
            )

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition a reader can see.

        The last stable offset under ``isolation_level="read_committed"``, else the high
        watermark. Raises as `beginning_offsets`.
        """
        with self._guard:
            return self._shared.lookups.log_ends(
                partitions, LATEST_TIMESTAMP, self._timeout(timeout_ms)
            )

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int | datetime], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time for each partition, None without one.

        Parameters
        ----------
        timestamps : Mapping of TopicPartition to int or datetime
            Milliseconds since 1970, or datetimes (naive ones are UTC). An int that reads as
            seconds or as a day such as 20260131 is refused.
        timeout_ms : int, optional
            Default ``default_api_timeout_ms``. Raises as `beginning_offsets`.

        Examples
        --------
        >>> tp = kfast.TopicPartition("orders", 0)
        >>> consumer.offsets_for_times({tp: datetime(2026, 1, 31, 12)})[tp].offset
        0
        """
        with self._guard:
            return self._shared.lookups.by_time(timestamps, self._timeout(timeout_ms))

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none; it is never created."""
        with self._guard:
            return self._shared.lookups.partitions_of(topic, self._timeout(timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Return the names of all topics the user may see, internal ones left out by default."""
        with self._guard:
            return self._shared.lookups.topics(self._timeout(timeout_ms))

    def bootstrap_connected(self) -> bool:
        """Return whether a broker of the cluster has answered. Any thread."""
        self._guard.check_usable()
        return self._runtime.metadata.last_success_ms is not None

    # --- life -------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the blocked or the next blocking call raise ``WakeupError`` once.

        Any thread may call it, and so may a signal handler: ``signal.signal(signal.SIGTERM, lambda
        *_: consumer.wakeup())`` ends a loop of polls between two of them. That is better than
        `close` in the handler, which commits records whose processing the signal has interrupted.
        """
        self._runtime.wakeup()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics, ``{group: {name: value}}``, under Kafka's names. Any thread.

        Groups are ``consumer-metrics``, ``consumer-fetch-manager-metrics`` (and one more with
        ``.<topic>-<partition>`` for each assigned partition) and ``consumer-coordinator-metrics``;
        with ``metrics_recording_level="DEBUG"`` also ``consumer-request-metrics.<api>``. Rates are
        per second over the last ``metrics_num_samples`` windows. NaN means not measured yet.
        """
        return self._shared.metrics.metrics()

    def health(self) -> ConsumerHealth:
        """Return the state of the consumer, for a probe. Any thread."""
        return health_of(self._runtime, self._shared.commits)

    def close(
        self,
        timeout_ms: int | None = None,
        autocommit: bool = True,
        operation: CloseOperation = "default",
    ) -> None:
        """Commit, leave the group, end connections and threads; a second call does nothing.

        Called inside another call, by a listener or a signal handler, it makes that call raise
        `IllegalStateError` and completes when that call has ended. Auto-commit then leaves out what
        the call was about to return.

        Parameters
        ----------
        timeout_ms : int, optional
            Default 30 s, for all of it. Records handed out stay valid.
        autocommit : bool
            False leaves the auto-commit out. kafka-python's order of the two is accepted.
        operation : {"default", "leave_group", "remain_in_group"}
            Whether to leave the group at once; by default static members stay (KIP-1092).

        Raises
        ------
        KafkaError
            A rebalance listener raised; everything is closed nevertheless.
        """
        self._closing.close(timeout_ms, is_committing=autocommit, operation=operation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self._closing.close(is_last_included=exc_type is None)

    def __del__(self) -> None:
        closing = getattr(self, "_closing", None)  # there is none if __init__ raised
        if closing is not None:
            closing.warn_if_open(self)

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return line_of(getattr(self, "_config", None), getattr(self, "_runtime", None))

    @property
    def _internals(self) -> ConsumerInternals:
        """Further calls, for kfast's own programs (`kfast.internals`)."""
        return ConsumerInternals(self._shared)

    def _timeout(self, timeout_ms: int | None) -> int:
        return (
            self._config.default_api_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        )
