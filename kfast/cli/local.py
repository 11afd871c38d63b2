"""``kfast local``: an Apache Kafka on this machine until Ctrl-C."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Final

import click

from kfast import LocalKafka
from kfast._base.program import pairs
from kfast.cli.options import Command, Common, Count, Words
from kfast.errors import ConfigurationError, KafkaError
from kfast.local.security import PLAINTEXT, PROTOCOLS

_CHECK_SECONDS: Final = 0.5


def _report(text: str) -> None:
    click.echo(text, err=True)


def _local(
    common: Common,
    nodes: int,
    port: int | None,
    heap: str,
    log_dir: str | None,
    topic: list[str],
    security: Sequence[str],
    user: Sequence[str],
) -> None:
    topics = [topic_of(text) for text in topic]
    if user and not security:
        raise ConfigurationError("--user needs --security", hint="such as --security SASL_SSL")
    with LocalKafka(
        nodes,
        config=pairs(common.settings, "-X"),
        heap=heap,
        log_dir=log_dir,
        port=port,
        progress=_report,
        security=security or PLAINTEXT,
        users=dict(map(user_of, user)) if user else None,
    ) as kafka:
        for name, partitions in topics:
            kafka.create_topic(name, partitions, min(nodes, 3))
        click.echo(kafka.bootstrap_servers)
        for protocol in security:
            _report(f"kfast topics {options_of(kafka, protocol)}")
        _report("Apache Kafka is running; Ctrl-C stops it")
        common.ends_by_interrupt = True
        while len(kafka.pids) == nodes:
            time.sleep(_CHECK_SECONDS)
        ended = sorted(set(kafka.node_ids) - set(kafka.pids))
        raise KafkaError(f"broker {ended[0]} has ended", cause=kafka.log_tail(ended[0], 20))


def topic_of(text: str) -> tuple[str, int]:
    """Return the name and the number of partitions of ``NAME[:PARTITIONS]``."""
    name, sign, count = text.partition(":")
    if not name or (sign and not (count.isdigit() and int(count) > 0)):
        raise ConfigurationError(f"--topic {text}: not NAME or NAME:PARTITIONS")
    return name, int(count or 1)


def user_of(text: str) -> tuple[str, str]:
    """Return the name and the password of ``NAME:PASSWORD``."""
    name, _, password = text.partition(":")
    if not name or not password:
        raise ConfigurationError("--user: not NAME:PASSWORD")
    return name, password


def options_of(kafka: LocalKafka, protocol: str) -> str:
    """Return the options with which a command of kfast logs in."""
    login = kafka.client_config(protocol)
    servers = login.pop("bootstrap_servers")
    settings = (f"{key.replace('_', '.')}={value}" for key, value in login.items())
    return f"-b {servers} " + " ".join(f"-X {shlex.quote(setting)}" for setting in settings)


command = Command(
    "local",
    callback=click.pass_obj(_local),
    help="Run a real Apache Kafka on this machine until Ctrl-C. -X are settings of its brokers.",
    params=[
        click.Option(["--nodes"], type=Count(), default=1, help="number of brokers (default 1)"),
        click.Option(
            ["--port"], type=Count(), help="port of the first broker (default: any free one)"
        ),
        click.Option(["--heap"], default="512m", help="Java heap of each broker (default 512m)"),
        click.Option(
            ["--log-dir"], metavar="FOLDER", help="keep the data in this folder (default: removed)"
        ),
        click.Option(
            ["--topic"],
            metavar="NAME[:PARTITIONS]",
            multiple=True,
            help="create a topic; may be repeated",
        ),
        click.Option(
            ["--security"],
            type=Words(PROTOCOLS),
            multiple=True,
            help="security protocol, with certificates and a user made for it; may be repeated",
        ),
        click.Option(
            ["--user"],
            metavar="NAME:PASSWORD",
            multiple=True,
            help="a user of SASL; may be repeated (default: app with a password made up)",
        ),
    ],
    examples=(
        "kfast local",
        "kfast local --topic orders:6 --port 9092",
        "kfast local --security SASL_SSL --user app:secret",
        "kfast local --nodes 3 --log-dir data -X log.retention.hours=1",
    ),
)
