"""Measures the read rates of kfast and confluent-kafka on the same records.

Both read the same offsets of all partitions, alternately, in this process. A rate is measured as in
the benchmarks: connections and metadata come first, then the clock starts, then the partitions are
assigned, so that every record that is counted was fetched while the clock ran.
confluent-kafka has the best settings that were measured: a short back-off when its queue is full,
2000 messages per call, no garbage collection meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kfast.demo.contestants import Ends, consume_confluent, poll_kfast
from kfast.errors import KafkaError

_LIBRDKAFKA: Final = {
    "bootstrap_servers": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "ssl_truststore_location": "ssl.ca.location",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
_TIMEOUT_SECONDS: Final = 30
_REPORT_SECONDS: Final = 0.2


@dataclass(slots=True, frozen=True)
class Rate:
    """The rate at which a topic was read."""

    records_per_second: float

    def megabytes_per_second(self, bytes_per_record: float) -> float:
        """Return the rate in MB of keys and values, uncompressed."""
        return self.records_per_second * bytes_per_record / 1e6


def librdkafka(login: Mapping[str, str]) -> dict[str, str]:
    """Return ``LocalKafka.client_config()`` by librdkafka's names, which kfast takes as well."""
    return {_LIBRDKAFKA[key]: value for key, value in login.items()}


def time_kfast(config: Mapping[str, object], ends: Ends, report: Callable[[int], None]) -> Rate:
    """Read with ``poll``: every record as columns, checksums verified."""
    return _time(poll_kfast(config, ends), ends, report)


def time_confluent(
    config: Mapping[str, object], ends: Ends, report: Callable[[int], None]
) -> Rate | None:
    """Read with ``consume``; None when confluent-kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401, PLC0415 - optional
    except ImportError:
        return None
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _time(consume_confluent(config, ends), ends, report)
    finally:
        if was_enabled:
            gc.enable()


def _time(batches: Iterator[int], ends: Ends, report: Callable[[int], None]) -> Rate:
    """Measure ``batches``, whose first item says that the next one may send a Fetch."""
    total = sum(end - start for start, end in ends.values())
    done = 0
    last_report = 0.0
    try:
        next(batches)
        started = now = last_batch = time.perf_counter()
        for count in batches:
            now = time.perf_counter()
            done += count
            if count:
                last_batch = now
            if now - last_report > _REPORT_SECONDS or done >= total:
                last_report = now  # not for every batch: drawing is not to be measured
                report(min(done, total))
            if done >= total:
                break
            if now - last_batch > _TIMEOUT_SECONDS:
                raise KafkaError(
                    f"no record for {_TIMEOUT_SECONDS} s: {total - done:,} of {total:,} are missing"
                )
    finally:
        batches.close()  # type: ignore[attr-defined]  # a generator: closes the consumer
    return Rate(done / (now - started))
