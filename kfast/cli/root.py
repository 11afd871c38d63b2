"""The command line, ``kfast`` or ``python -m kfast``: ``demo``, ``read``, ``topics``, ``local``.

Owns the arguments and the exit status: a ``KafkaError`` is printed on standard error and gives 1,
Ctrl-C gives 130 and SIGTERM 143 after all started processes have ended; a closed pipe
(``kfast read ... | head``) ends the command without a message. Only results go to standard output.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kfast import KafkaConsumer, LocalKafka, TopicPartition, __version__
from kfast._program import pairs, run_program
from kfast.cli.read import FORMATS, KINDS, ReadOptions, read_to_file
from kfast.errors import ConfigurationError, KafkaError

_DEFAULT_SERVERS: Final = "localhost:9092"
_BOOTSTRAP_TIMEOUT_MS: Final = 3_000
_CHECK_SECONDS: Final = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with the process's arguments, or with `argv`; return the exit status."""
    options = _parser().parse_args(argv)
    if options.verbose:
        logging.basicConfig(
            level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
    command: Callable[[argparse.Namespace], None] = options.command

    def body() -> None:
        command(options)
        sys.stdout.flush()

    try:
        return run_program(body)
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"{error.filename or 'cannot write'}: {error.strerror}", file=sys.stderr)
        return 1


# --- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kfast", description="A columnar Apache Kafka consumer: tools and demonstration."
    )
    parser.add_argument("--version", action="version", version=f"kfast {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log to standard error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_read(commands)
    _add_topics(commands)
    _add_local(commands)
    return parser


def _add_cluster(parser: argparse.ArgumentParser, default: str | None = _DEFAULT_SERVERS) -> None:
    parser.add_argument(
        "--bootstrap-servers",
        default=default,
        metavar="HOST:PORT,...",
        help="addresses of brokers" + (f" (default {default})" if default else ""),
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any consumer setting, such as fetch.max.bytes=8388608; may be repeated",
    )


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="demonstrate kfast on a local Kafka, or on a topic of your cluster",
        description="Start a real Apache Kafka, write about 300 MB of events to it and read them "
        "with kfast and with confluent-kafka. With --bootstrap-servers and --topic, read your "
        "topic instead, without creating or writing anything.",
    )
    _add_cluster(demo, default=None)
    demo.add_argument("--topic", help="a topic of your own cluster")
    demo.add_argument(
        "--megabytes",
        type=_positive,
        default=300,
        help="how much to write, or to read at most (default 300)",
    )
    demo.add_argument("--parquet", metavar="FILE", help="keep the Parquet file under this name")
    demo.set_defaults(command=_demo)


def _add_read(commands: Any) -> None:
    read = commands.add_parser(
        "read",
        help="write the records of a topic to a file or to standard output",
        description="Write the records that a topic has now as Parquet, CSV or JSON lines.",
    )
    read.add_argument("topic")
    _add_cluster(read)
    read.add_argument(
        "--start",
        default="earliest",
        help="earliest, latest, a time (2025-01-31T12:00 or ms since 1970), or "
        "PARTITION:OFFSET,...  (default earliest)",
    )
    read.add_argument("--end", default="latest", help="the same, exclusive (default latest)")
    read.add_argument(
        "--columns",
        default=None,
        metavar="A,B,...",
        help="some of topic, partition, offset, timestamp, key, value, headers (default all)",
    )
    for name in ("key", "value"):
        read.add_argument(
            f"--{name}", choices=KINDS, default="auto", help=f"format of {name}s (default auto)"
        )
    read.add_argument(
        "--output",
        metavar="FILE",
        help="file to write; its suffix selects the format (default standard output)",
    )
    read.add_argument("--format", choices=FORMATS, help="format, if the suffix of FILE is another")
    read.add_argument("--limit", type=_positive, metavar="N", help="most records to read")
    read.set_defaults(command=_read)


def _add_topics(commands: Any) -> None:
    topics = commands.add_parser(
        "topics", help="list topics", description="List topics, their partitions and offsets."
    )
    _add_cluster(topics)
    topics.set_defaults(command=_topics)


def _add_local(commands: Any) -> None:
    local = commands.add_parser(
        "local",
        help="run an Apache Kafka on this machine until Ctrl-C",
        description="Run a real Apache Kafka on this machine until Ctrl-C.",
    )
    local.add_argument("--nodes", type=_positive, default=1, help="number of brokers (default 1)")
    local.add_argument(
        "--port", type=_positive, help="port of the first broker (default: any free one)"
    )
    local.add_argument("--heap", default="512m", help="Java heap of each broker (default 512m)")
    local.add_argument(
        "--log-dir", metavar="FOLDER", help="keep the data in this folder (default: removed)"
    )
    local.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create a topic; may be repeated",
    )
    local.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="broker setting"
    )
    local.set_defaults(command=_local)


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of 1 or more')
    return int(text)


def _bound(text: str, option: str) -> Any:
    """Return a start or end for ``scan_topic``."""
    if text in {"earliest", "latest"}:
        return text
    try:
        if ":" in text and "-" not in text:
            bounds = (pair.split(":") for pair in text.split(","))
            return {int(partition): int(offset) for partition, offset in bounds}
        if text.isdigit() and len(text) > 4:
            return int(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} {text}: not understood",
            hint="earliest, latest, 2025-01-31T12:00, ms since 1970, or 0:1500,1:1500",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _cluster_configs(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a command, with a short time-out for the first connection."""
    given = pairs(options.config, "--config")
    configs: dict[str, Any] = {"bootstrap.servers": options.bootstrap_servers}
    if "bootstrap_timeout_ms" not in {key.replace(".", "_") for key in given}:
        configs["bootstrap.timeout.ms"] = _BOOTSTRAP_TIMEOUT_MS
    return configs | given


# --- commands -------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> None:
    from kfast.demo.main import DemoOptions, run_demo  # noqa: PLC0415 - needs optional packages

    if options.topic and not options.bootstrap_servers:
        raise ConfigurationError("--topic needs --bootstrap-servers")
    if options.bootstrap_servers and not options.topic:
        raise ConfigurationError(
            "--bootstrap-servers needs --topic", hint="kfast topics lists the topics"
        )
    run_demo(
        DemoOptions(
            bootstrap_servers=options.bootstrap_servers,
            topic=options.topic,
            megabytes=options.megabytes,
            parquet=options.parquet,
            config=pairs(options.config, "--config"),
        )
    )


def _read(options: argparse.Namespace) -> None:
    configs = _cluster_configs(options)
    read_to_file(
        ReadOptions(
            topic=options.topic,
            start=_bound(options.start, "--start"),
            end=_bound(options.end, "--end"),
            columns=None if options.columns is None else tuple(options.columns.split(",")),
            key=options.key,
            value=options.value,
            output=options.output,
            format=options.format,
            limit=options.limit,
            configs=configs,
        )
    )


def _topics(options: argparse.Namespace) -> None:
    configs = _cluster_configs(options)
    with KafkaConsumer(config=configs) as consumer:
        topics = {
            topic: [TopicPartition(topic, number) for number in sorted(numbers)]
            for topic in sorted(consumer.topics())
            if (numbers := consumer.partitions_for_topic(topic))
        }
        everything = [tp for partitions in topics.values() for tp in partitions]
        starts = consumer.beginning_offsets(everything) if everything else {}
        ends = consumer.end_offsets(everything) if everything else {}
    width = max([5, *map(len, topics)])
    print(f"{'TOPIC':<{width}}  PARTITIONS         OFFSETS")
    for topic, partitions in topics.items():
        count = sum(ends[tp] - starts[tp] for tp in partitions)
        print(f"{topic:<{width}}  {len(partitions):>10}  {count:>14,}")


def _local(options: argparse.Namespace) -> None:
    def report(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    wanted = [_topic(text) for text in options.topic]
    with LocalKafka(
        options.nodes,
        config=pairs(options.config, "--config"),
        heap=options.heap,
        log_dir=options.log_dir,
        port=options.port,
        progress=report,
    ) as kafka:
        for name, partitions in wanted:
            kafka.create_topic(name, partitions, min(options.nodes, 3))
        print(kafka.bootstrap_servers, flush=True)
        report("Apache Kafka is running; Ctrl-C stops it")
        while len(kafka.pids) == options.nodes:
            time.sleep(_CHECK_SECONDS)
        ended = sorted(set(kafka.node_ids) - set(kafka.pids))
        raise KafkaError(f"broker {ended[0]} has ended", cause=kafka.log_tail(ended[0], 20))


def _topic(text: str) -> tuple[str, int]:
    name, sign, count = text.partition(":")
    if not name or (sign and not (count.isdigit() and int(count) > 0)):
        raise ConfigurationError(f"--topic {text}: not NAME or NAME:PARTITIONS")
    return name, int(count or 1)
