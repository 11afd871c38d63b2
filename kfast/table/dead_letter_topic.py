"""DeadLetterTopic: a topic that gets malformed keys and values, produced by confluent-kafka.

Owns the record that a dead letter is, and its delivery: at least once, and before the batch of its
range is published. ``close`` of a range waits until the brokers have all of its letters
(``acks=all``, idempotent), so that none of a published batch is missing; a crash before the publish
repeats the range, and its letters come again. What cannot be delivered in time ends the ingest.

A letter has key and value as they came, the headers of its record, and behind them the headers
below. Its timestamp is that of its production: retention of the topic counts from there, and not
from a time that may be long ago or be what is malformed.

==============================  =================================================================
``kfast.topic``                 where the record is
``kfast.partition``
``kfast.offset``
``kfast.timestamp``             of the record, ms since 1970
``kfast.column``                what is malformed, such as ``value``
``kfast.code``, ``kfast.path``  why, and where in it
``kfast.message``               the same in a sentence
``__connect.errors.*``          five of Kafka Connect's dead letter queues, as in `RecordError`
==============================  =================================================================

A producer is made for the first letter and shared by the ranges of a run. The thread that writes
files makes all calls, and gets the reports of deliveries in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.logs import get_logger
from kfast._base.optional import check_package, optional_package
from kfast.columns.record_errors import RecordError
from kfast.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationError,
    UnknownTopicOrPartitionError,
    exception_for,
)
from kfast.internals import printable
from kfast.table.batches import DataFile
from kfast.table.dead_letters import record_error
from kfast.table.producer_settings import producer_settings

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.time_limits import BadTimes
    from kfast.table.value_decoder import DecodedValues

logger = get_logger(__name__)

"""Before the name of a topic, where the URL of a folder could be."""

_FUNCTION: Final = "dead letters to a topic"
_WAITING_BYTES: Final = 32 << 20
"""Most bytes, give or take a record, that wait in the producer."""
_POLL_S: Final = 0.1
_CLOSE_S: Final = 5.0
_TEXT_SHOWN: Final = 300
_ROW_BYTES: Final = 400
_HINTS: Final = {
    3: "create the topic; a dead letter topic is not made by an ingest",
    10: "raise max.message.bytes of the topic to what the topics that are read have, and more for "
    "headers",
    29: "allow this user to write to the topic",
    31: "allow this user to write to the topic",
}
"""By error codes of Kafka."""


def check_letter_topic(topic: str, *, is_read: bool) -> None:
    """Check that a topic can have the dead letters of an ingest, and that there is a producer.

    Raises ``ConfigurationError`` if the ingest reads the topic itself, ``MissingDependencyError``.
    """
    if is_read:
        raise ConfigurationError(
            f"dead letters cannot go to {topic}: this ingest reads the topic",
            cause="each letter would be read, and be a dead letter again",
            hint="name another topic, that no glob or pattern of the ingest matches",
        )
    check_package("confluent_kafka", _FUNCTION)


class DeadLetterTopic:
    """A topic for dead letters, on the cluster of ``config``.

    ``timeout_ms`` is how long the brokers may take for a letter.
    """

    def __init__(self, topic: str, config: ConsumerConfig, timeout_ms: int) -> None:
        self.topic = topic
        self._config = config
        self._timeout_ms = max(1_000, timeout_ms)
        self._producer: Any = None
        self._failure: Any = None
        self._last_error = ""

    def of_range(self, offset_range: OffsetRange, *, is_only: bool = False) -> _RangeLetters:
        """Return the letters of a range; ``is_only``: the producer ends with it."""
        return _RangeLetters(self, offset_range, is_only=is_only)

    def produce(self, record: tuple[Any, ...], headers: list[Any], on_delivery: Any) -> None:
        """Hand value and key to the producer, which reports the delivery to a function later."""
        if self._producer is None:
            self._producer = self._open()
        while True:
            try:
                self._producer.produce(
                    self.topic, *record, headers=headers, on_delivery=on_delivery
                )
            except BufferError:  # the producer's queue is full
                self.poll()
            except self._package.KafkaException as error:
                raise self._error(error.args[0]) from None
            else:
                return

    def poll(self, seconds: float = _POLL_S) -> None:
        """Take reports of deliveries; raises what makes them impossible."""
        if self._producer is not None:
            try:
                self._producer.poll(seconds)
            except self._package.KafkaException as error:  # no delivery is possible any more
                self.fail(error.args[0])
        self.check()

    @property
    def _package(self) -> Any:
        return optional_package("confluent_kafka", _FUNCTION)

    def fail(self, error: Any) -> None:
        """Note that a letter was not delivered."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise if a letter was not delivered."""
        if self._failure is not None:
            raise self._error(self._failure)

    def close(self) -> None:
        """Close the connections; what waits is not delivered."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(_CLOSE_S)

    def _open(self) -> Any:
        import logging  # noqa: PLC0415 - librdkafka's lines would be on standard error

        logger.debug("makes the producer of dead letters to the topic %s", self.topic)
        try:
            return self._package.Producer(
                {
                    **producer_settings(self._config),
                    "acks": "all",
                    "enable.idempotence": True,
                    "delivery.timeout.ms": self._timeout_ms,
                    "request.timeout.ms": max(
                        1_000, min(self._timeout_ms, self._config.request_timeout_ms)
                    ),
                    # The topic's own limit decides.
                    "message.max.bytes": 1_000_000_000,
                    "log_level": 3,
                    "error_cb": self._note,
                },
                logger=logging.getLogger("kfast.producer"),
            )
        except self._package.KafkaException as error:
            raise ConfigurationError(
                f"there is no producer for the dead letters of the topic {self.topic}",
                cause=printable(error.args[0].str(), _TEXT_SHOWN),
                hint="give a folder for dead letters",
            ) from None

    def _note(self, error: Any) -> None:
        """Keep the last error of a connection, which says why letters are not delivered."""
        self._last_error = printable(error.str(), _TEXT_SHOWN)
        logger.debug("producer of dead letters: %s", self._last_error)
        if error.code() == self._package.KafkaError._AUTHENTICATION:
            self.fail(error)

    def _error(self, error: Any) -> KafkaError:
        """Return the exception for an error of librdkafka."""
        codes = self._package.KafkaError
        message = f"dead letters cannot be delivered to the topic {self.topic}"
        code = error.code()
        if code >= 0:
            hint = _HINTS.get(code, "see to the topic; the next run reads these records again")
            return exception_for(code, message, topic=self.topic, hint=hint)
        text = printable(error.str(), _TEXT_SHOWN)
        if code == codes._MSG_TIMED_OUT:
            return KafkaTimeoutError(
                message,
                cause=f"not within {self._timeout_ms} ms"
                + (f": {self._last_error}" if self._last_error else ""),
                hint="check the brokers, and that the topic has enough replicas in sync; or raise "
                "default_api_timeout_ms",
                topic=self.topic,
            )
        kind = {
            codes._AUTHENTICATION: SaslAuthenticationError,
            codes._UNKNOWN_TOPIC: UnknownTopicOrPartitionError,
            codes._UNKNOWN_PARTITION: UnknownTopicOrPartitionError,
        }.get(code, KafkaError)
        return kind(message, cause=text, hint=_HINTS[3], topic=self.topic)

    def __repr__(self) -> str:
        return f"<DeadLetterTopic {self.topic}>"


class _RangeLetters:
    """The dead letters of a range: a `DeadLetterSink`."""

    def __init__(self, topic: DeadLetterTopic, offset_range: OffsetRange, *, is_only: bool) -> None:
        self._topic = topic
        self._offset_range = offset_range
        self._is_only = is_only
        self._count = 0
        self._waiting = 0
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes, about, that are not delivered yet."""
        return self._bytes

    @property
    def is_open(self) -> bool:
        """Never: there is no file."""
        return False

    def take(
        self, records: PartitionRecords, columns: Mapping[str, DecodedValues | BadTimes]
    ) -> None:
        """Produce what could not be read of some records: one letter for each column of each."""
        for column, values in sorted(columns.items()):
            if values.is_bad is None:
                continue
            rows = np.flatnonzero(values.is_bad)
            bad = records[rows]
            for number, row in enumerate(rows.tolist()):
                self._produce(bad, number, record_error(records, row, column, values))

    def _produce(self, records: PartitionRecords, number: int, error: RecordError) -> None:
        key, value = records.keys[number], records.values[number]
        headers = [*records.headers[number], *letter_headers(error)]
        size = _ROW_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(header_value or b"") for name, header_value in headers)
        while self._bytes and self._bytes + size > _WAITING_BYTES:
            self._topic.poll()

        def delivered(failure: Any, _message: Any) -> None:
            self._waiting -= 1
            self._bytes -= size
            if failure is not None:
                self._topic.fail(failure)

        self._topic.produce((value, key), headers, delivered)
        self._waiting += 1
        self._bytes += size
        self._count += 1
        self._topic.poll(0)

    def spill(self) -> None:
        """Wait until the brokers have all letters so far."""
        while self._waiting:
            self._topic.poll()
        self._topic.check()

    def close(self, offset_range: OffsetRange) -> list[DataFile]:  # noqa: ARG002
        """Deliver all; they are in no file."""
        self.spill()
        self._end()
        return []

    @property
    def produced(self) -> int:
        """Number of letters."""
        return self._count

    def discard(self) -> None:
        """Leave what was produced: the range is read again, and its letters come again."""
        self._end()

    def _end(self) -> None:
        if self._is_only:
            self._topic.close()

    def __repr__(self) -> str:
        return f"<letters of {self._offset_range} to {self._topic.topic}, {self._count}>"


def letter_headers(error: RecordError) -> list[tuple[str, bytes]]:
    """Return the headers that say what is malformed, and why."""
    values = {
        "topic": error.topic,
        "partition": str(error.partition),
        "offset": str(error.offset),
        "timestamp": str(error.timestamp),
        "column": error.column,
        "code": error.code,
        "path": error.path,
        "message": error.message,
    }
    ours = [(f"kfast.{name}", text.encode(errors="replace")) for name, text in values.items()]
    return [*ours, *error.headers()]
