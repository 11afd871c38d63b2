"""``kfast demo``: a demonstration of kfast on a real Kafka in less than a minute.

Owns the order of its parts; ``show`` prints them. Without a cluster it starts one, fills two topics
(``data``), and removes everything at the end; with one it only reads. It uses kfast's public API
only, in the form in which a user would write it.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import kfast
from kfast.demo import data
from kfast.demo.contestants import Ends, Rate, librdkafka, time_confluent, time_kfast
from kfast.demo.group import show_group
from kfast.demo.show import Show
from kfast.demo.typed import show_typed
from kfast.errors import KafkaError, MissingDependencyError

PARTITIONS: Final = 6
SENSOR_SHARE: Final = 0.2
_SENSOR_BYTES: Final = 36
_EVENT_BYTES: Final = 305
_SHOWN: Final = 6
_ROUNDS: Final = 3


@dataclass(slots=True, frozen=True)
class DemoOptions:
    """The arguments of the demo."""

    bootstrap_servers: str | None = None
    topic: str | None = None
    """Of the user's own cluster; both or neither."""
    megabytes: int = 300
    """To write, or to read at most."""
    parquet: str | None = None
    """Path of the Parquet file; by default it is removed at the end."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Further consumer settings."""
    security: str = "PLAINTEXT"
    """Security protocol of the demo's own Kafka."""


def run_demo(options: DemoOptions) -> None:
    """Run the demo on standard output."""
    try:
        from rich.console import Console  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependencyError(
            "the demo needs rich", hint='pip install "kfast[demo]"'
        ) from None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfast-demo-")))
        show = Show(Console(highlight=False), folder)
        if options.topic is None or options.bootstrap_servers is None:
            kafka = stack.enter_context(show.local_kafka(options.security))
            config = {**librdkafka(kafka.client_config()), **options.config}
            _own_topics(show, kafka, config, options)
        else:
            config = {"bootstrap.servers": options.bootstrap_servers, **options.config}
            _users_topic(show, config, options.topic, options)


def _own_topics(
    show: Show, kafka: kfast.LocalKafka, config: Mapping[str, str], options: DemoOptions
) -> None:
    total = options.megabytes * 1_000_000
    sensors = max(1000, int(total * SENSOR_SHARE / _SENSOR_BYTES))
    events = max(1000, int(total * (1 - SENSOR_SHARE) / _EVENT_BYTES))
    write_topics(show, kafka, sensors, events, PARTITIONS)
    show.heading("sensors: 32-byte structs, decoded into a NumPy structured array")
    show.code(
        'kfast.scan_topic("sensors", key_deserializer=kfast.Int32(),',
        "                 value_deserializer=kfast.Struct(SENSOR_DTYPE))",
    )
    _compute_on_sensors(show, config, sensors)
    show.heading("events: JSON text with keys and headers, into Parquet")
    show.code('kfast.scan_topic("events", value_deserializer=kfast.Utf8())')
    event_bytes = _to_parquet(show, config, _whole("events", config), options, value=kfast.Utf8())
    show.heading("Records per second, side by side")
    _race(
        show,
        config,
        {
            "sensors, lz4": (_whole("sensors", config), float(_SENSOR_BYTES)),
            "events, zstd": (_whole("events", config), event_bytes),
        },
    )
    show.heading("A consumer group reads events; when a member leaves, the other takes over")
    show_group(show, config, "events", _whole("events", config))
    show.heading("trades: JSON and Avro into typed columns, and a bad record is named")
    show_typed(show, kafka, config, options.megabytes)


def _users_topic(show: Show, config: Mapping[str, str], topic: str, options: DemoOptions) -> None:
    ends = _whole(topic, config)
    total = sum(end - start for start, end in ends.values())
    if not total:
        raise KafkaError(f"{topic} is empty", hint="choose a topic with records in it")
    show.heading(f"{topic}: {len(ends)} partitions, {total:,} offsets")
    show.code(f'kfast.scan_topic("{topic}")')
    ends = _sample(show, config, ends, options.megabytes * 1_000_000)
    show.heading("Into Parquet")
    per_record = _to_parquet(show, config, ends, options, value=None)
    show.heading("Records per second, side by side")
    _race(show, config, {topic: (ends, per_record)})
    show.heading("A consumer group")
    show.text(
        "skipped: a group commits offsets to the cluster, and the demo only reads from yours; "
        "kfast demo without --bootstrap-servers shows it"
    )


# --- the parts ------------------------------------------------------------------------------------


def write_topics(
    show: Show, kafka: kfast.LocalKafka, sensors: int, events: int, partitions: int
) -> None:
    """Create and fill the topics ``sensors`` and ``events``."""
    show.heading("Writing, with confluent-kafka")
    for name, count, codec, blocks in (
        ("sensors", sensors, "lz4", data.sensor_readings(sensors, partitions)),
        ("events", events, "zstd", data.shop_events(events, partitions)),
    ):
        kafka.create_topic(name, partitions)
        with show.progress(f"{name}, {partitions} partitions, {codec}", count) as report:
            data.produce(kafka.bootstrap("PLAINTEXT"), name, blocks, codec=codec, report=report)


def _whole(topic: str, config: Mapping[str, str]) -> dict[kfast.TopicPartition, tuple[int, int]]:
    with kfast.KafkaConsumer(config=config) as consumer:
        numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            next(kfast.scan_topic(topic, config=config))  # raises with a hint for this topic
        partitions = [kfast.TopicPartition(topic, number) for number in sorted(numbers or ())]
        starts = consumer.beginning_offsets(partitions)
        ends = consumer.end_offsets(partitions)
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


def _keys_values(batch: kfast.PartitionRecords) -> tuple[Any, Any]:
    """Return keys and values without their static type, which depends on the deserializers."""
    return batch.keys, batch.values


def _show_first(show: Show, first: kfast.PartitionRecords, fields: tuple[str, ...]) -> None:
    """Show records as a table, the fields of structured values as columns."""
    keys, values = _keys_values(first)
    rows = []
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        moment = str(np.datetime_as_string(first.datetimes[number], unit="ms"))
        cells = [value[name].item() for name in fields] if fields else [value]
        rows.append([int(first.offsets[number]), moment[11:], key, *cells])
    day = np.datetime_as_string(first.datetimes[0], unit="D")
    header = ["offset", "time", "key", *(fields or ["value"])]
    show.table(f"The first records of {first.topic}-{first.partition}, {day} UTC", header, rows)


def _compute_on_sensors(show: Show, config: Mapping[str, str], count: int) -> None:
    readings = np.zeros(data.SENSORS, np.int64)
    warmth = np.zeros(data.SENSORS)
    warnings = 0
    seconds = 0.0
    first: kfast.PartitionRecords | None = None
    with show.progress("reading sensors with kfast", count) as report:
        batches = kfast.scan_topic(
            "sensors",
            config=config,
            key_deserializer=kfast.Int32(),
            value_deserializer=kfast.Struct(data.SENSOR_DTYPE),
            progress=lambda done, _: report(done),
        )
        for batch in batches:
            if first is None:
                first = batch.select(slice(0, _SHOWN))
                columns = Show.columns_of(batch)
            began = time.perf_counter()
            keys, values = _keys_values(batch)
            readings += np.bincount(keys, minlength=data.SENSORS)
            warmth += np.bincount(keys, values["temperature"], minlength=data.SENSORS)
            warnings += int(np.count_nonzero(values["status"]))
            seconds += time.perf_counter() - began
    assert first is not None
    _show_first(show, first, ("status", "temperature", "humidity", "pressure"))
    show.table("The columns of a batch", ["column", "type", "of one batch"], columns)
    mean = np.divide(warmth, readings, out=np.full(data.SENSORS, np.nan), where=readings > 0)
    hottest = np.argsort(-np.nan_to_num(mean, nan=-np.inf))[:3]
    show.code(
        "readings += np.bincount(batch.keys)",
        'warmth   += np.bincount(batch.keys, batch.values["temperature"])',
    )
    show.text(
        f"{readings.sum():,} readings of {data.SENSORS} sensors, {warnings:,} with a warning; "
        f"computed in {seconds * 1000:.0f} ms. Hottest: "
        + ", ".join(f"sensor {number} with {mean[number]:.1f} °C" for number in hottest)
    )


def _sample(
    show: Show, config: Mapping[str, str], ends: Ends, most_bytes: int
) -> dict[kfast.TopicPartition, tuple[int, int]]:
    """Show records of a user's topic; return the offset ranges that have ``most_bytes``."""
    reached = {tp: start for tp, (start, _) in ends.items()}
    count = nbytes = longest = nulls = 0
    first: kfast.PartitionRecords | None = None
    total = sum(end - start for start, end in ends.values())
    with show.progress(f"reading up to {most_bytes / 1e6:.0f} MB with kfast", total) as report:
        for batch in kfast.scan_topic(
            list(ends),
            config=config,
            start={tp: start for tp, (start, _) in ends.items()},
            end={tp: end for tp, (_, end) in ends.items()},
            progress=lambda done, _: report(done),
        ):
            if first is None:
                first = batch.select(slice(0, _SHOWN))
                columns = Show.columns_of(batch)
            keys, values = _keys_values(batch)
            lengths = values.lengths
            count += len(batch)
            nulls += int(np.count_nonzero(values.is_null))
            longest = max(longest, int(lengths.max()))
            nbytes += int(lengths.clip(0).sum() + keys.lengths.clip(0).sum())
            reached[batch.topic_partition] = batch.next_offset
            if nbytes >= most_bytes:
                break
    if first is None:
        raise KafkaError("there are offsets but no records", hint="a transaction may be open")
    _show_first(show, first, ())
    show.table("The columns of a batch", ["column", "type", "of one batch"], columns)
    show.code("batch.values.lengths.max(), batch.values.is_null.sum()")
    show.text(
        f"{count:,} records, {nbytes / 1e6:,.1f} MB of keys and values; the longest value has "
        f"{longest:,} bytes, {nulls:,} are null"
    )
    return {tp: (ends[tp][0], min(end, ends[tp][1])) for tp, end in reached.items()}


def _to_parquet(
    show: Show,
    config: Mapping[str, str],
    ends: Ends,
    options: DemoOptions,
    *,
    value: Any,
) -> float:
    """Write a topic to Parquet through Arrow; return the average bytes of a key and value."""
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - optional
    except ImportError:
        show.text('skipped: pip install "kfast[arrow]"')
        return 0.0
    path = Path(options.parquet) if options.parquet else show.folder / "events.parquet"
    rows = nbytes = 0
    began = time.perf_counter()
    total = sum(end - start for start, end in ends.values())
    with ExitStack() as stack:
        report = stack.enter_context(show.progress(f"writing {path.name}", total))
        writer: Any = None
        for batch in kfast.scan_topic(
            list(ends),
            config=config,
            start={tp: start for tp, (start, _) in ends.items()},
            end={tp: end for tp, (_, end) in ends.items()},
            value_deserializer=value,
            progress=lambda done, _: report(done),
        ):
            arrow = batch.to_arrow()
            if writer is None:
                writer = pq.ParquetWriter(path, arrow.schema, compression="lz4")
                stack.callback(writer.close)
            writer.write_batch(arrow)
            rows += len(batch)
            keys, values = _keys_values(batch)
            nbytes += int(keys.lengths.clip(0).sum() + values.lengths.clip(0).sum())
    seconds = time.perf_counter() - began
    if not rows:
        return 0.0
    show.code("writer.write_batch(batch.to_arrow())")
    schema = ", ".join(f"{field.name}: {field.type}" for field in pq.read_schema(path))
    show.text(
        f"{rows:,} rows and {nbytes / 1e6:,.0f} MB of keys and values in {seconds:.1f} s: "
        f"{path.stat().st_size / 1e6:,.0f} MB of Parquet with the columns {schema}"
        + (f", kept as {path}" if options.parquet else "")
    )
    return nbytes / rows


def _race(show: Show, config: Mapping[str, str], topics: Mapping[str, tuple[Ends, float]]) -> None:
    runners: dict[str, Callable[..., Rate | None]] = {
        "kfast": time_kfast,
        "confluent-kafka, tuned": time_confluent,
    }
    rates: dict[tuple[str, str], list[Rate]] = {}
    for (title, (ends, _)), _, (name, run) in itertools.product(
        topics.items(), range(_ROUNDS), runners.items()
    ):
        total = sum(end - start for start, end in ends.values())
        with show.progress(f"{title} with {name}", total) as report:
            rate = run(config, ends, report)
        if rate is not None:
            rates.setdefault((title, name), []).append(rate)
    rows = []
    for title, (_, per_record) in topics.items():
        medians = {
            name: sorted(measured, key=lambda rate: rate.records_per_second)[len(measured) // 2]
            for name in runners
            if (measured := rates.get((title, name)))
        }
        peer = medians.get("confluent-kafka, tuned")
        for name, rate in medians.items():
            times = (
                f"{rate.records_per_second / peer.records_per_second:.1f}x"
                if peer is not None and peer.records_per_second
                else ""
            )
            rows.append(
                [
                    title,
                    name,
                    f"{rate.records_per_second:,.0f}",
                    f"{rate.megabytes_per_second(per_record):,.0f}" if per_record else "",
                    times,
                ]
            )
    show.table(
        f"Median of {_ROUNDS} runs in turns, on this machine, broker included",
        ["topic", "client", "records/s", "MB/s", ""],
        rows,
    )
    if len(runners) > len({name for _, name in rates}):
        show.text('confluent-kafka is not installed: pip install "kfast[demo]"')
    else:
        show.text(
            "kfast: poll(), checksums verified. confluent-kafka: consume(2000), queue back-off of "
            "5 ms, gc off, checksums not verified (its default)."
        )
