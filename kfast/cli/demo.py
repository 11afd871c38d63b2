"""``kfast demo``: kfast shown on a local Kafka, or on a topic of the user's cluster."""

from __future__ import annotations

import click

from kfast._program import pairs
from kfast.cli.options import Command, Common, Count, Words
from kfast.demo.main import DemoOptions, run_demo
from kfast.errors import ConfigurationError
from kfast.local.security import PLAINTEXT, PROTOCOLS


def _demo(
    common: Common, topic: str | None, megabytes: int, parquet: str | None, security: str | None
) -> None:
    if topic and not common.servers:
        raise ConfigurationError("--topic needs --bootstrap-servers")
    if common.servers and not topic:
        raise ConfigurationError(
            "--bootstrap-servers needs --topic", hint="kfast topics lists the topics"
        )
    if security and topic:
        raise ConfigurationError(
            "--security is for the Kafka that the demo starts",
            hint=f"-X security.protocol={security} for your own",
        )
    run_demo(
        DemoOptions(
            bootstrap_servers=common.servers,
            topic=topic,
            megabytes=megabytes,
            parquet=parquet,
            config=pairs(common.settings, "-X"),
            security=security or PLAINTEXT,
        )
    )


command = Command(
    "demo",
    callback=click.pass_obj(_demo),
    help="Start a real Apache Kafka, write about 300 MB of events to it and read them with kfast "
    "and with confluent-kafka. With --bootstrap-servers and --topic, read your topic instead, "
    "without creating or writing anything.",
    params=[
        click.Option(["--topic"], help="a topic of your own cluster"),
        click.Option(
            ["--megabytes"],
            type=Count(),
            default=300,
            help="how much to write, or to read at most (default 300)",
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
        "kfast demo --megabytes 50 --parquet events.parquet",
        "kfast demo --security SASL_SSL",
        "kfast demo -b localhost --topic orders",
    ),
)
