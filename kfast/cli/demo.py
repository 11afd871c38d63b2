"""``kfast demo``: kfast shown offline, on a local Kafka, or on a topic of the user's cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kfast._base.program import pairs
from kfast.cli.admin import settings_of
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.rows import write_text
from kfast.columns.table_text import size_text
from kfast.config import ConsumerConfig
from kfast.demo.main import DemoOptions, run_demo
from kfast.errors import ConfigurationError
from kfast.local.security import PLAINTEXT, PROTOCOLS
from kfast.settings.sources import DEFAULT_ORIGIN, is_reference

_MEGABYTES: Final = 300
_ORDER: Final = {"product": "string", "quantity": "int32", "price": "float64"}
"""What is read of the documents of the offline demo."""


def _demo(
    common: Common,
    words: tuple[str, ...],
    topic: str | None,
    megabytes: int | None,
    parquet: str | None,
    security: str | None,
    kafka: bool,
    serve: bool,
) -> None:
    if len(words) + (topic is not None) > 1:
        raise ConfigurationError("the demo reads one topic", hint="kfast demo TOPIC -b HOST:PORT")
    topic = words[0] if words else topic
    if not (topic or common.servers or kafka or security or megabytes):
        _show_offline(common, serve=serve, parquet=parquet)
        return
    if serve:
        raise ConfigurationError(
            "--serve is for the broker in this process", hint="kfast demo --serve, or kfast local"
        )
    if common.servers and not topic:
        raise ConfigurationError(
            "--bootstrap-servers needs --topic", hint="kfast topics lists the topics"
        )
    if security and topic:
        raise ConfigurationError(
            "--security is for the Kafka that the demo starts",
            hint=f"-X security.protocol={security} for your own",
        )
    connection = _connection(common) if topic else {}
    # Those that stand for a variable or a file are in the connection, as what they stand for.
    literal_settings = {
        k: v for k, v in pairs(common.settings, "-X").items() if not is_reference(v)
    }
    run_demo(
        DemoOptions(
            bootstrap_servers=connection.get("bootstrap.servers"),
            topic=topic,
            megabytes=megabytes or _MEGABYTES,
            parquet=parquet,
            config=connection | literal_settings,
            security=security or PLAINTEXT,
        )
    )


def _connection(common: Common) -> dict[str, Any]:
    """Return servers and log-in of the user's cluster, by names that each client has."""
    from kfast.cli.bench import librdkafka  # noqa: PLC0415 - for a topic of the user's

    if common.loaded().entries["bootstrap_servers"].origin == DEFAULT_ORIGIN:
        raise ConfigurationError("--topic needs --bootstrap-servers", hint="-b HOST:PORT")
    config = librdkafka(ConsumerConfig(settings_of(common)), {})
    if config is None:
        raise ConfigurationError(
            "the other client of the demo cannot log in like this", hint="kfast bench TOPIC"
        )
    return config


# --- without Kafka --------------------------------------------------------------------------------


def _show_offline(common: Common, *, serve: bool, parquet: str | None) -> None:
    """Show commands and Python on a broker in this process, each before its output."""
    from kfast.demo.orders import GROUP, RECORDS, TOPIC, orders_kafka  # noqa: PLC0415 - not for help

    with (
        orders_kafka() as kafka,
        tempfile.TemporaryDirectory(prefix="kfast-demo-") as folder,
        _own_environment(Path(folder)),
    ):
        write_text(
            f"A broker in this process, with {RECORDS:,} records in the topic {TOPIC}.\n"
            "They are made of a few thousand different ones.\n"
            "kfast demo --kafka shows more, on a real Apache Kafka.\n"
        )
        where = ["-b", kafka.bootstrap_servers]
        _run("topics", *where)
        _run("read", TOPIC, *where, "-n", "5", "-f", "table", "-q")
        _read_in_python(TOPIC, kafka.bootstrap_servers)
        if importlib.util.find_spec("pyarrow") is not None:
            target = parquet or str(Path(folder) / "orders.parquet")
            seconds = _run("read", TOPIC, *where, "--output", target, "-q")
            size = size_text(Path(target).stat().st_size)
            write_text(f"{size} of Parquet in {seconds:.1f} s\n")
        _run("lag", GROUP, *where)
        if serve:
            common.ends_by_interrupt = True
            write_text(f"\nThe broker runs at {kafka.bootstrap_servers}; Ctrl-C stops it.\n")
            while True:
                time.sleep(3_600)


@contextlib.contextmanager
def _own_environment(folder: Path) -> Iterator[None]:
    """Leave out the user's settings, which are for other clusters, while the demo runs."""
    empty = folder / "empty.toml"
    empty.touch()
    before = dict(os.environ)
    for name in before:
        if name.startswith("KFAST_") or name in {"KAFKA_BOOTSTRAP_SERVERS", "KCAT_CONFIG"}:
            del os.environ[name]
    os.environ.update(KFAST_CONFIG=str(empty), KCAT_CONFIG=str(empty))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(*words: str) -> float:
    """Print a command and run it; return how long it took."""
    from kfast.cli.root import main  # noqa: PLC0415 - the whole command line

    write_text(f"\n$ kfast {' '.join(words)}\n")
    began = time.perf_counter()
    status = main(words)
    if status:
        click.get_current_context().exit(status)
    return time.perf_counter() - began


def _read_in_python(topic: str, address: str) -> None:
    import kfast  # noqa: PLC0415 - NumPy

    write_text(f'\n>>> records = kfast.read_topic("{topic}", bootstrap_servers="{address}")\n')
    began = time.perf_counter()
    records = kfast.read_topic(topic, bootstrap_servers=address)
    seconds = time.perf_counter() - began
    write_text(f">>> records\n{records!r}\n")
    count = records.count()
    write_text(f"{count:,} records as columns in {seconds:.2f} s\n")
    write_text(
        f'\n>>> order = kfast.Json({_ORDER})\n>>> records = kfast.read_topic("{topic}", '
        f'bootstrap_servers="{address}", value_deserializer=order)\n'
        '>>> [(batch.values["price"] * batch.values["quantity"]).sum() '
        "for batch in records.values()]\n"
    )
    began = time.perf_counter()
    records = kfast.read_topic(
        topic, bootstrap_servers=address, value_deserializer=kfast.Json(_ORDER)
    )
    columns: list[Any] = [batch.values for batch in records.values()]
    sums = [round(float((column["price"] * column["quantity"]).sum()), 2) for column in columns]
    seconds = time.perf_counter() - began
    write_text(f"{sums}\n{records.count():,} JSON documents as columns in {seconds:.2f} s\n")


command = Command(
    "demo",
    callback=click.pass_obj(_demo),
    help="Show commands and Python on a million records, offline, with a broker in this process. "
    "With --kafka, start a real Apache Kafka, write about 300 MB of events to it and read them "
    "with kfast and with confluent-kafka. With -b and TOPIC, read your topic instead, without "
    "creating or writing anything.",
    params=[
        click.Argument(["words"], nargs=-1, metavar="[TOPIC]"),
        click.Option(["--topic"], help="a topic of your own cluster"),
        click.Option(["--kafka"], is_flag=True, help="on a real Apache Kafka on this machine"),
        click.Option(["--serve"], is_flag=True, help="keep the broker of the demo running"),
        click.Option(
            ["--megabytes"],
            type=Count(),
            help=f"how much to write to Kafka, or to read at most (default {_MEGABYTES})",
        ),
        click.Option(["--parquet"], metavar="FILE", help="keep the Parquet file under this name"),
        click.Option(
            ["--security"],
            type=Words(PROTOCOLS),
            help="security protocol of the Kafka that is started, such as SASL_SSL",
        ),
    ],
    examples=(
        "kfast demo",
        "kfast demo --kafka --megabytes 50 --parquet events.parquet",
        "kfast demo --kafka --security SASL_SSL",
        "kfast demo orders -b localhost",
    ),
)
