"""``kfast topics``: the topics of a cluster, their partitions and offsets."""

from __future__ import annotations

import click

from kfast import KafkaConsumer, TopicPartition
from kfast.cli.options import Command, Common


def _topics(common: Common) -> None:
    with KafkaConsumer(config=common.configs()) as consumer:
        topics = {
            topic: [TopicPartition(topic, number) for number in sorted(numbers)]
            for topic in sorted(consumer.topics())
            if (numbers := consumer.partitions_for_topic(topic))
        }
        everything = [tp for partitions in topics.values() for tp in partitions]
        starts = consumer.beginning_offsets(everything) if everything else {}
        ends = consumer.end_offsets(everything) if everything else {}
    width = max([5, *map(len, topics)])
    click.echo(f"{'TOPIC':<{width}}  PARTITIONS         OFFSETS")
    for topic, partitions in topics.items():
        count = sum(ends[tp] - starts[tp] for tp in partitions)
        click.echo(f"{topic:<{width}}  {len(partitions):>10}  {count:>14,}")


command = Command(
    "topics",
    callback=click.pass_obj(_topics),
    help="List topics, their partitions and offsets.",
    examples=("kfast topics", "kfast topics -b kafka1:9092,kafka2:9092", "kfast topics | sort"),
)
