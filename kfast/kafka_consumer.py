"""KafkaConsumer: the synchronous, columnar face of kfast.

Owns the public calls: it checks arguments, runs on the caller's thread whatever is the caller's
(deserializers that are Python callables, interceptors), and hands everything that talks to a
broker to ``ConsumerBackground``. It never touches a socket or a request manager. One thread at a
time may be inside; ``wakeup`` alone is exempt.

One ``poll``: raise what is due, take the decoded chunks of all ready partitions (decoding what no
decode thread has begun), move the positions, return. The next Fetch of those partitions has gone
out before that, when their bytes arrived.
"""

from __future__ import annotations

import math
import os
import re
import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kfast._arguments import (
    FOREVER_MS,
    as_iterable,
    check_partition,
    check_timeout,
    check_topic,
    compile_pattern,
    unknown_partition,
)
from kfast._clock import SystemClock
from kfast.config import ConsumerConfig
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.offset_reset import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetResetStrategy,
)
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    did_you_mean,
)
from kfast.record_converter import RecordConverter
from kfast.records import ConsumerRecords, PartitionRecords
from kfast.threads.access_guard import AccessGuard
from kfast.threads.consumer_background import ConsumerBackground
from kfast.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

    from kfast.records import ConsumerRecord

_CLOSE_TIMEOUT_MS: Final = 30_000
_COLUMNS: Final = frozenset({"key", "value", "headers"})


class KafkaConsumer:
    """Reads Kafka topics into columns.

    Parameters
    ----------
    *topics : str
        Topics to subscribe to; the same as calling `subscribe` afterwards.
    config : Mapping, optional
        Settings by Kafka's dotted names (``{"bootstrap.servers": "host:9092"}``).
    **configs
        Settings by keyword (``bootstrap_servers="host:9092"``); both forms may be mixed.
        ``kfast.ConsumerConfig.describe()`` lists them all.

    Raises
    ------
    ConfigurationError
        A setting is unknown or its value is not allowed.

    Notes
    -----
    Construction does no I/O: the first call that needs a broker connects. Without a ``group_id``
    all partitions of the subscribed topics are read, new ones as they appear.
    """

    def __init__(
        self, *topics: str, config: Mapping[str, object] | None = None, **configs: Any
    ) -> None:
        self._config = ConsumerConfig(config, **configs)
        self._guard = AccessGuard()
        self._clock = SystemClock()
        self._converter = RecordConverter(self._config)
        self._background = ConsumerBackground(self._config, self._clock, self._converter)
        self._subscriptions = self._background.subscriptions
        self._iterator: Iterator[ConsumerRecord] | None = None
        self._reported: set[str | TopicPartition] = set()
        self._finalizer = weakref.finalize(
            self, ConsumerBackground.finalize, self._background, os.getpid()
        )
        if topics:
            self.subscribe(topics)

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | re.Pattern[str] | None = None
    ) -> None:
        """Subscribe to topics or to a pattern, replacing the topics or the pattern before.

        Parameters
        ----------
        topics : iterable of str
            Topic names. Empty, without a pattern, is the same as `unsubscribe`.
        pattern : str or re.Pattern, optional
            A regular expression; a topic is read if its name matches from its start. Internal
            topics are left out unless ``exclude_internal_topics=False``.

        Raises
        ------
        InvalidTopicError
            A name is empty or cannot be a topic's.
        IllegalStateError
            Partitions are assigned by hand, or pattern and topics are mixed.
        """
        with self._guard:
            if isinstance(topics, str):
                raise ConfigurationError(
                    f'topics = "{topics}": a str where a list of topic names belongs',
                    hint=f'subscribe(["{topics}"])',
                )
            names = list(topics)
            if names and pattern is not None:
                raise IllegalStateError(
                    "subscribe() was given both topics and a pattern", hint="choose one"
                )
            for name in names:
                check_topic(name)
            if pattern is not None:
                self._subscriptions.subscribe_pattern(compile_pattern(pattern))
            elif names:
                self._subscriptions.subscribe(names)
            else:
                self._subscriptions.unsubscribe()
            self._reported.clear()
            self._background.changed()

    def unsubscribe(self) -> None:
        """Drop subscription, assignment, positions and everything buffered."""
        with self._guard:
            self._subscriptions.unsubscribe()
            self._background.changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position.

        A topic that does not exist yet is waited for. So is a partition that its topic does not
        have, but the first empty poll says so with `UnknownTopicOrPartitionError`.

        Raises
        ------
        IllegalStateError
            There is a subscription.
        InvalidTopicError
            A topic name is not legal.
        """
        with self._guard:
            wanted = [check_partition(tp) for tp in as_iterable(partitions)]
            if wanted:
                self._subscriptions.assign_from_user(wanted)
            else:
                self._subscriptions.unsubscribe()
            self._reported.clear()
            self._background.changed()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions being read."""
        with self._guard:
            return set(self._subscriptions.assigned_partitions())

    def subscription(self) -> set[str] | None:
        """Return the topics subscribed to, for a pattern those it matches; None without."""
        with self._guard:
            return set(self._subscriptions.subscription()) or None

    # --- reading ----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> ConsumerRecords:
        """Return the records that are there, waiting for the first ones if need be.

        Parameters
        ----------
        timeout_ms : int
            How long to wait when nothing is there; 0 returns at once. A poll returns as soon as
            anything is ready, and may return empty before its time when only positions moved
            (aborted transactions, control records).
        max_records : int, optional
            Most rows to return; default ``max_poll_records``, which is unbounded unless set.
        update_offsets : bool
            Must be True; kafka-python's parameter.

        Returns
        -------
        ConsumerRecords
            Per partition one batch of columns. Positions stand behind these records.

        Raises
        ------
        IllegalStateError
            Nothing is subscribed to or assigned.
        CorruptRecordError, DeserializationError, OffsetOutOfRangeError, ...
            Data at a position cannot be delivered. Records before it came first; the position
            stays until `seek`. Other partitions go on with the next poll.
        KafkaConnectionError
            No broker could be reached since the first call.
        WakeupError
            `wakeup` was called.
        """
        with self._guard:
            if not update_offsets:
                raise ConfigurationError(
                    "update_offsets=False is not supported",
                    hint="seek() back to the offsets that are to be read again",
                )
            timeout_ms = check_timeout(timeout_ms)
            if max_records is None:
                max_records = self._config.max_poll_records
            elif isinstance(max_records, bool) or not max_records > 0:
                raise ConfigurationError(
                    f"max_records = {max_records!r}: must be an int > 0",
                    hint="leave it out for no bound",
                )
            return self._poll(timeout_ms, max_records)

    def _poll(self, timeout_ms: int, max_records: int | None) -> ConsumerRecords:
        if not self._subscriptions.has_subscription():
            raise IllegalStateError(
                "poll() without anything to read", hint="subscribe() or assign() first"
            )
        background = self._background
        background.start()
        collect = background.collector.collect
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            background.raise_wakeup()
            collected = collect(max_records)
            if collected.has_progress:
                return ConsumerRecords(collected.records, template=self._converter.template)
            remaining_ms = deadline_ms - self._clock.now_ms()
            if remaining_ms <= 0:
                self._raise_why_empty()
                return ConsumerRecords({}, template=self._converter.template)
            background.fetch_buffer.wait(min(remaining_ms, 1_000) / 1000)

    def _raise_why_empty(self) -> None:
        """Raise what explains an empty poll better than an empty result would."""
        error = self._background.bootstrap_error()
        if error is not None:
            raise error
        for topic in self._background.unknown_topics():
            if topic not in self._reported:
                self._reported.add(topic)
                raise self._unknown_topic(topic)
        for tp in self._background.unknown_partitions():
            if tp not in self._reported:
                self._reported.add(tp)
                known = self._background.metadata.cluster.partitions_for_topic(tp.topic)
                raise unknown_partition(tp, known or ())

    def batches(self, timeout_ms: int | None = None) -> Iterator[PartitionRecords]:
        """Iterate over batches of columns: ``for batch in consumer.batches(): ...``.

        Parameters
        ----------
        timeout_ms : int, optional
            End after so long without records; default ``consumer_timeout_ms`` (never).

        Yields
        ------
        PartitionRecords
            One partition's records, never empty.
        """
        patience_ms = self._patience_ms() if timeout_ms is None else check_timeout(timeout_ms)
        last_ms = self._clock.now_ms()
        while True:
            left_ms = patience_ms - (self._clock.now_ms() - last_ms)
            if left_ms <= 0:
                return
            for batch in self.poll(timeout_ms=min(left_ms, 1_000)).values():
                yield batch
                last_ms = self._clock.now_ms()

    def __iter__(self) -> KafkaConsumer:
        return self

    def __next__(self) -> ConsumerRecord:
        if self._iterator is None:
            self._iterator = (record for batch in self.batches() for record in batch)
        try:
            return next(self._iterator)
        except BaseException:
            self._iterator = None
            raise

    def _patience_ms(self) -> int:
        patience = self._config.consumer_timeout_ms
        return FOREVER_MS if math.isinf(patience) else int(patience)

    # --- positions --------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record, looking it up if there is none yet.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        KafkaTimeoutError
            It could not be found out in time.
        """
        with self._guard:
            tp = check_partition(partition)
            self._background.raise_wakeup()
            found = self._subscriptions.position(tp)
            if found is not None:
                return found.offset
            timeout_ms = self._timeout(timeout_ms)
            deadline_ms = self._clock.now_ms() + timeout_ms
            self._background.start()
            while True:
                self._background.raise_wakeup()
                self._background.raise_errors()
                found = self._subscriptions.position(tp)
                if found is not None:
                    return found.offset
                remaining_ms = deadline_ms - self._clock.now_ms()
                if remaining_ms <= 0:
                    raise self._background.why_unreachable() or KafkaTimeoutError(
                        f"the position of {tp} could not be found out within {timeout_ms} ms",
                        cause=self._why_no_position(tp),
                        hint="check that the topic exists and that its leader can be reached",
                        topic=tp.topic,
                        partition=tp.partition,
                    )
                self._background.wait_for_position(remaining_ms)

    def _why_no_position(self, tp: TopicPartition) -> str | None:
        cluster = self._background.metadata.cluster
        known = cluster.partitions_for_topic(tp.topic)
        if known is None:
            return f'no topic "{tp.topic}" on this cluster' if cluster.brokers else None
        return None if tp.partition in known else unknown_partition(tp, known).message

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at an offset; what is buffered of the partition is dropped.

        Raises
        ------
        IllegalStateError
            The partition is not assigned, or the offset is negative.
        """
        with self._guard:
            tp = check_partition(partition)
            epoch: int | None = None
            if isinstance(offset, OffsetAndMetadata):
                epoch = offset.leader_epoch if offset.leader_epoch >= 0 else None
                offset = offset.offset
            if isinstance(offset, bool) or not hasattr(offset, "__index__"):
                raise ConfigurationError(f"seek({tp}, {offset!r}): the offset is not an int")
            self._subscriptions.seek(tp, FetchPosition(offset.__index__(), epoch))
            self._background.changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first offset of these or of all assigned partitions, at the next poll."""
        self._reset(partitions, "earliest")

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end of these or of all assigned partitions, at the next poll.

        The end is the last stable offset under ``isolation_level="read_committed"``.
        """
        self._reset(partitions, "latest")

    def _reset(self, partitions: Collection[TopicPartition], policy: str) -> None:
        with self._guard:
            wanted = [check_partition(tp) for tp in partitions]
            self._subscriptions.request_offset_reset(
                wanted or self._subscriptions.assigned_partitions(),
                OffsetResetStrategy.parse(policy),
            )
            self._background.changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop delivering and fetching these partitions; what is buffered stays. Idempotent."""
        with self._guard:
            self._subscriptions.pause([check_partition(tp) for tp in partitions])
            self._background.changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Idempotent."""
        with self._guard:
            self._subscriptions.resume([check_partition(tp) for tp in partitions])
            self._background.changed()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._guard:
            return set(self._subscriptions.paused_partitions())

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end of the log at the last fetch, None before the first. No network."""
        with self._guard:
            return self._subscriptions.high_watermark(check_partition(partition))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the offsets left to read, None when not known yet (KIP-695). No network."""
        with self._guard:
            return self._subscriptions.current_lag(check_partition(partition))

    # --- looking things up ------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition; no assignment needed, no position moves.

        Raises
        ------
        KafkaTimeoutError
            Not all partitions were answered in time; names the missing ones.
        """
        return self._log_ends(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition a reader can see.

        The last stable offset under ``isolation_level="read_committed"``, else the high
        watermark. Raises as `beginning_offsets`.
        """
        return self._log_ends(partitions, LATEST_TIMESTAMP, timeout_ms)

    def _log_ends(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(map(check_partition, as_iterable(partitions)), timestamp)
        found = self._list_offsets(wanted, timeout_ms)
        return {tp: hit.offset for tp, hit in found.items() if hit is not None}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time for each partition.

        Parameters
        ----------
        timestamps : Mapping of TopicPartition to int
            Milliseconds since 1970.
        timeout_ms : int, optional
            Default ``default_api_timeout_ms``.

        Returns
        -------
        dict
            None where no record is that new.
        """
        wanted: dict[TopicPartition, int] = {}
        for tp, timestamp in timestamps.items():
            if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
                raise ConfigurationError(
                    f"offsets_for_times: {timestamp!r} for {tp} is not a time",
                    hint="pass milliseconds since 1970 as an int >= 0",
                )
            wanted[check_partition(tp)] = timestamp
        return self._list_offsets(wanted, timeout_ms)

    def _list_offsets(
        self, wanted: dict[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._guard:
            if not wanted:
                return {}
            timeout_ms = self._timeout(timeout_ms)
            return self._background.list_offsets(wanted, timeout_ms)

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is no such topic.

        The topic is never created by asking.
        """
        with self._guard:
            check_topic(topic)
            found = self._background.look_up_topics(frozenset({topic}), self._timeout(timeout_ms))
            return set(found[topic].partitions) if topic in found else None

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Return the names of all topics the user may see, internal ones left out by default."""
        with self._guard:
            found = self._background.look_up_topics(None, self._timeout(timeout_ms))
            return {
                name
                for name, topic in found.items()
                if not (topic.is_internal and self._config.exclude_internal_topics)
            }

    def bootstrap_connected(self) -> bool:
        """Return whether a broker of the cluster has answered."""
        with self._guard:
            return self._background.metadata.last_success_ms is not None

    # --- end --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the blocked or the next blocking call raise ``WakeupError`` once. Any thread."""
        self._background.wakeup()

    def close(self, timeout_ms: int | None = None) -> None:
        """End connections and threads, within the time; a second call does nothing.

        Parameters
        ----------
        timeout_ms : int, optional
            Default 30 s. Records handed out stay valid.
        """
        if self._guard.is_closed:
            return
        with self._guard:
            timeout_ms = _CLOSE_TIMEOUT_MS if timeout_ms is None else check_timeout(timeout_ms)
            self._guard.close()
            self._finalizer.detach()
            self._background.close(timeout_ms)

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is None or guard.is_closed or guard.is_forked:
            return
        background = getattr(self, "_background", None)
        if background is not None and background.is_started:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1, source=self)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<KafkaConsumer {self._config.client_id} {servers}>"

    # --- for the bulk functions -------------------------------------------------------------------

    def _want_columns(self, columns: Collection[str] | None) -> None:
        if columns is None:
            return
        if isinstance(columns, str) or not set(columns) <= _COLUMNS:
            raise ConfigurationError(
                f"columns = {columns!r}: not understood",
                hint='a collection of "key", "value" and "headers"; offsets and timestamps '
                "always come",
            )
        self._converter.want(frozenset(columns))

    def _unknown_topic(self, topic: str) -> UnknownTopicOrPartitionError:
        try:
            names = self._background.look_up_topics(None, self._config.request_timeout_ms)
        except KafkaError:
            names = self._background.metadata.cluster.topics
        near = did_you_mean(topic, [name for name in names if name != topic])
        return UnknownTopicOrPartitionError(
            f'no topic "{topic}" on this cluster ({len(names)} topics)',
            hint=f'did you mean "{near}"?'
            if near
            else "create it first, or check that this user may describe it; reading creates none",
            topic=topic,
        )

    def _timeout(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return int(self._config.default_api_timeout_ms)
        return check_timeout(timeout_ms)
