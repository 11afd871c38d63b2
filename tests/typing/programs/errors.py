"""A program that looks at what went wrong."""

# ruff: noqa: T201

from __future__ import annotations

from typing import assert_type

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import (
    ConfigurationError,
    CorruptRecordError,
    DeserializationError,
    KafkaError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
    exception_for,
)


def carry_on(consumer: KafkaConsumer) -> None:
    try:
        consumer.poll(timeout_ms=100)
    except CorruptRecordError as error:
        assert_type(error.next_offset, int)
        if error.topic is not None and error.partition is not None:
            consumer.seek(TopicPartition(error.topic, error.partition), error.next_offset)
    except DeserializationError as error:
        assert_type(error.value_bytes, bytes | None)
        assert_type(error.column, str)
    except OffsetOutOfRangeError as error:
        assert_type(error.log_start_offset, int | None)
    except UnsupportedVersionError as error:
        assert_type(error.broker_range, tuple[int, int] | None)
    except KafkaError as error:
        assert_type(error.retriable, bool)
        assert_type(error.hint, str | None)
        assert_type(error.code, int | None)


def configure() -> KafkaConsumer | None:
    try:
        return KafkaConsumer(bootstrap_servers="localhost:9092")
    except ConfigurationError as error:
        as_value_error: ValueError = error
        print(as_value_error)
        return None


assert_type(exception_for(3), KafkaError)
