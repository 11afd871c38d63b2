"""``kfast bench``: the same records through kfast and every other client that is installed.

Each client runs in a process of its own, in turns, three rounds; what is shown is the median. kfast
reads the topic once before, to count the records and so that all find it in the page cache. kcat
cannot be connected before its clock starts: its start is part of its time.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from kfast.cli.admin import note, settings_of
from kfast.cli.options import Command, Common, Count
from kfast.cli.rows import Row, format_option, write_rows
from kfast.config import ConsumerConfig
from kfast.demo.contestants import CONFLUENT_TUNING, Ends
from kfast.errors import KafkaError, UnknownTopicOrPartitionError
from kfast.internals import internals_of
from kfast.settings.secret import Secret
from kfast.types import TopicPartition

BENCH_COLUMNS: Final = (
    *("client", "version", "records", "records_per_second", "megabytes_per_second"),
    *("cpu_seconds_per_million", "peak_rss_mb", "ratio", "settings"),
)
ROUNDS: Final = 3
_RECORDS: Final = 1_000_000
_PARTITIONS: Final = 6
_TIMEOUT_SECONDS: Final = 120
_ERROR: Final = re.compile(r"[\w.]*(?:Error|Exception)\b")
_SHOWN_MAX: Final = "50 000 records, 4 MiB per partition, CRC off"


@dataclass(slots=True, frozen=True)
class Client:
    """One contestant: its package, and the names that its settings have."""

    package: str
    settings: str
    config: Callable[[ConsumerConfig, Mapping[str, object]], dict[str, object] | None]
    """Returns the settings of a connection; None if the client cannot have this one."""


@dataclass(slots=True, frozen=True)
class Run:
    """One client, once."""

    records: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0


# --- settings of other clients --------------------------------------------------------------------


def _own(_config: ConsumerConfig, settings: Mapping[str, object]) -> dict[str, object]:
    return {key: _plain(value) for key, value in settings.items()}


def _plain(value: object) -> object:
    """Reveal a secret, for JSON that only the process that needs it reads."""
    return value.reveal() if isinstance(value, Secret) else value


def librdkafka(config: ConsumerConfig, _settings: Mapping[str, object]) -> dict[str, object] | None:
    """Return the settings of a connection by librdkafka's names; None for a log-in without them."""
    names = {
        "security.protocol": config.security_protocol,
        "ssl.ca.location": config.ssl_truststore_location,
        "sasl.mechanism": config.sasl_mechanism,
        "sasl.username": config.sasl_plain_username,
        "sasl.password": config.sasl_plain_password,
    }
    return _connection(config, "bootstrap.servers", names)


def _kafka_python(
    config: ConsumerConfig, _settings: Mapping[str, object]
) -> dict[str, object] | None:
    names = {
        "security_protocol": config.security_protocol,
        "ssl_cafile": config.ssl_truststore_location,
        "sasl_mechanism": config.sasl_mechanism,
        "sasl_plain_username": config.sasl_plain_username,
        "sasl_plain_password": config.sasl_plain_password,
    }
    return _connection(config, "bootstrap_servers", names)


def _aiokafka(config: ConsumerConfig, settings: Mapping[str, object]) -> dict[str, object] | None:
    # Certificates are objects of Python's there.
    return None if config.security_protocol.endswith("SSL") else _kafka_python(config, settings)


def _connection(
    config: ConsumerConfig, servers: str, names: Mapping[str, object]
) -> dict[str, object] | None:
    has_sasl = config.security_protocol.startswith("SASL_")
    if has_sasl and config.sasl_plain_username is None:
        return None
    settings: dict[str, object] = {
        servers: ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    }
    for name, value in names.items():
        if value is not None and (has_sasl or not name.startswith("sasl")):
            settings[name] = _plain(value)
    return settings


CLIENTS: Final = {
    "kfast": Client("kfast", "poll()", _own),
    "confluent-kafka": Client(
        "confluent-kafka",
        "consume(2000), " + ", ".join(f"{key} {value}" for key, value in CONFLUENT_TUNING.items()),
        librdkafka,
    ),
    "kafka-python": Client("kafka-python", f"poll(), {_SHOWN_MAX}", _kafka_python),
    "aiokafka": Client("aiokafka", f"getmany(), {_SHOWN_MAX}", _aiokafka),
}
KCAT: Final = "kcat"


# --- the command ----------------------------------------------------------------------------------


def _bench(common: Common, topic: str | None, rounds: int, format: str) -> None:
    with contextlib.ExitStack() as stack:
        if topic is None:
            topic, settings = "bench", stack.enter_context(_own_topic(common))
        else:
            settings = settings_of(common)
        rows = _measured(common, settings, topic, rounds)
    write_rows(BENCH_COLUMNS, rows, format)


@contextlib.contextmanager
def _own_topic(common: Common) -> Iterator[dict[str, object]]:
    """Run a broker with a topic of events; give the settings for it."""
    import kfast  # noqa: PLC0415 - not needed for a topic of the user's
    from kfast.demo import data  # noqa: PLC0415

    note(
        common, "starting Apache Kafka and writing 1 000 000 records; a TOPIC of yours is read only"
    )
    with kfast.LocalKafka() as kafka:
        kafka.create_topic("bench", _PARTITIONS)
        blocks = data.shop_events(_RECORDS, _PARTITIONS)
        data.produce(kafka.bootstrap_servers, "bench", blocks, codec="lz4")
        yield {"bootstrap.servers": kafka.bootstrap_servers}


def _measured(common: Common, settings: dict[str, object], topic: str, rounds: int) -> list[Row]:
    config = ConsumerConfig(settings)
    ends, total, nbytes = _counted(settings, topic)
    clients = _installed()
    runs: dict[str, list[Run]] = {}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name in clients:
            client_config = CLIENTS["confluent-kafka" if name == KCAT else name].config(
                config, settings
            )
            if client_config is None:
                continue
            note(common, f"{name} reads {total:,} records of {topic}")
            try:
                run = (
                    _run_kcat(client_config, topic, total)
                    if name == KCAT
                    else _run(name, client_config, ends, total)
                )
            except KafkaError as error:
                if name == "kfast":
                    raise
                failed[name] = error.cause or error.message
            else:
                runs.setdefault(name, []).append(run)
    medians = {
        name: sorted(client_runs, key=lambda run: run.rate)[len(client_runs) // 2]
        for name, client_runs in runs.items()
    }
    best = medians["kfast"].rate
    rows: list[Row] = [
        (
            name,
            clients[name],
            run.records,
            round(run.rate),
            round(run.rate * nbytes / total / 1e6, 1),
            round(run.cpu_seconds / run.records * 1e6, 3) if run.records else None,
            round(run.peak_rss_mb),
            round(run.rate / best, 3) if best else None,
            "-C -e -q, with its start" if name == KCAT else CLIENTS[name].settings,
        )
        for name, run in medians.items()
    ]
    nothing = [None] * (len(BENCH_COLUMNS) - 3)
    return rows + [
        (name, clients[name], *nothing, f"failed: {cause}")
        for name, cause in failed.items()
        if name not in medians
    ]


def _counted(settings: Mapping[str, object], topic: str) -> tuple[Ends, int, int]:
    """Return offsets, number of records and bytes of keys and values of a topic."""
    import kfast  # noqa: PLC0415 - NumPy

    with kfast.KafkaConsumer(config=settings) as consumer:
        numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            raise internals_of(consumer).unknown_topic_error(topic)
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        starts, limits = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    ends = {tp: (starts[tp], limits[tp]) for tp in partitions if limits[tp] > starts[tp]}
    total = nbytes = 0
    if ends:
        for batch in kfast.scan_topic(
            [*ends],
            start={tp: start for tp, (start, _) in ends.items()},
            end={tp: end for tp, (_, end) in ends.items()},
            config=settings,
        ):
            columns: Any = batch.keys, batch.values
            total += len(batch)
            nbytes += sum(int(column.lengths.clip(0).sum()) for column in columns)
    if not total:
        raise UnknownTopicOrPartitionError(
            f"{topic} has no records", hint="choose a topic with some", topic=topic
        )
    return ends, total, nbytes


def _installed() -> dict[str, str]:
    """Return the clients that are installed, with their versions."""
    versions = {}
    for name, client in CLIENTS.items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(client.package)
    if shutil.which(KCAT):
        done = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=False)
        _, _, behind = done.stdout.partition("Version ")
        versions[KCAT] = next(iter(behind.split()), "")
    return versions


def _run(name: str, config: Mapping[str, object], ends: Ends, total: int) -> Run:
    job = {
        "client": name,
        "config": config,
        "partitions": [[*tp, start, end] for tp, (start, end) in ends.items()],
        "records": total,
    }
    done = subprocess.run(
        [sys.executable, "-m", "kfast.demo.bench_worker"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )
    if done.returncode or not done.stdout:
        lines = done.stderr.strip().splitlines() or ["it ended without a result"]
        errors = [line for line in lines if _ERROR.match(line)]
        raise KafkaError(f"{name} could not read the topic", cause=(errors or lines)[-1])
    return Run(**json.loads(done.stdout))


def _run_kcat(config: Mapping[str, object], topic: str, total: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="kfast-bench-") as folder:
        file = Path(folder) / "kcat.conf"  # passwords are not for the list of processes
        file.touch(mode=0o600)
        file.write_text(
            "".join(f"{key}={value}\n" for key, value in config.items()), encoding="utf-8"
        )
        command = [KCAT, "-F", str(file), "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        with open(os.devnull, "wb") as nothing:
            done = subprocess.run(
                command,
                stdout=nothing,
                stderr=subprocess.PIPE,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        seconds = time.perf_counter() - began
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise KafkaError("kcat could not read the topic", cause=last[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(total, seconds, cpu, after.ru_maxrss / 1024)


command = Command(
    "bench",
    callback=click.pass_obj(_bench),
    help="Read the same records with kfast and with confluent-kafka, kafka-python, aiokafka and "
    "kcat, whichever are installed, in turns. Nothing is committed. Without TOPIC: 1 000 000 "
    "records of a Kafka on this machine. The ratio is to kfast's rate.",
    params=[
        click.Argument(["topic"], required=False, metavar="[TOPIC]"),
        click.Option(
            ["--rounds"],
            type=Count(),
            default=ROUNDS,
            help=f"medians of so many (default {ROUNDS})",
        ),
        format_option(),
    ],
    examples=(
        "kfast bench orders -b kafka1:9092",
        "kfast bench",
        "kfast bench orders -f json",
    ),
)
