"""IngestPlan: the configuration of an ingest, passed to the workers and the sink as Spark options.

Owns its JSON form: Spark makes a new reader and a new writer from the options in every process that
needs one. Credentials for the filesystem are an option of their own, with a name that Spark redacts
in its logs and pages. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kfast.table.dead_letter_sink import letter_topic
from kfast.table.entries import TableShape, Writer
from kfast.table.fsspec_store import open_store
from kfast.table.log_formats import open_log
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.table.option_spelling import OptionSpelling
from kfast.table.projection import ColumnFormat, OutputColumn, Projection
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import TableLog
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.table.iceberg_partitions import IcebergField

PLAN_OPTION: Final = "ingestPlan"
SECRETS_OPTION: Final = "ingestSecretOptions"

PARTS: Final = "part string"
"""The column of the rows that tasks send to the sink, one per range: a part of a batch in JSON."""


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """One ingest; ``url`` is the table's, ``checkpoint`` the URL of the query's."""

    url: str
    checkpoint: str
    writer: Writer
    shape: TableShape
    projection: Projection
    compression: str = "zstd"
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Next offsets of the table before this writer, which begins there."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics that the table has, as far as its writers knew them."""
    dead_letters: str = ""
    """URL of the folder for malformed keys and values, or ``topic:NAME``."""
    field_ids: Mapping[str, int] = field(default_factory=dict)
    """Of the columns of the files, by path; for Iceberg tables."""
    partition_fields: tuple[IcebergField, ...] = ()
    """What the table is partitioned by; for Iceberg tables."""
    follows_schema: bool = False
    """Whether versions of schemas are taken that are registered while the query runs."""

    @property
    def letter_topic(self) -> str:
        """The topic for malformed keys and values, "" for a folder or none."""
        return letter_topic(self.dead_letters)

    def log(self) -> TableLog:
        """Open the table's log."""
        return open_log(self.open_folder(self.url), self.shape, self.open_folder)

    def publisher(self) -> Publisher:
        """Return the publisher of the batches."""
        return Publisher(self.log(), self.open_folder)

    def open_folder(self, url: str) -> TableStore:
        """Open a folder with the options of the table's."""
        return open_store(url, self.storage_options)

    def has_files(self) -> bool:
        """Whether the table has a file, or a catalog, which has the columns."""
        if self.shape.has_catalog:
            return True
        last = self.log().last()
        return last is not None and last.bytes > 0

    @property
    def text(self) -> str:
        """The plan in JSON, without secrets."""
        body = {
            "url": self.url,
            "checkpoint": self.checkpoint,
            "writer": asdict(self.writer),
            "shape": asdict(self.shape),
            "projection": asdict(self.projection),
            "compression": self.compression,
            "ends": to_json_dict(self.ends),
            "topic_ids": dict(self.topic_ids),
            "dead_letters": self.dead_letters,
            "field_ids": dict(self.field_ids),
            "partition_fields": [asdict(entry) for entry in self.partition_fields],
            "follows_schema": self.follows_schema,
        }
        return json.dumps(body)

    def options(self) -> dict[str, str]:
        """Return the plan as Spark options."""
        return {PLAN_OPTION: self.text, SECRETS_OPTION: json.dumps(dict(self.storage_options))}


def plan_of(options: Mapping[str, str]) -> IngestPlan:
    """Return the plan in Spark options."""
    return plan_of_text(options[PLAN_OPTION], json.loads(options[SECRETS_OPTION]))


def plan_of_text(text: str, storage_options: Mapping[str, str]) -> IngestPlan:
    """Return the plan that is a text in JSON."""
    body: dict[str, Any] = json.loads(text)
    projection = body["projection"]
    return IngestPlan(
        body["url"],
        body["checkpoint"],
        Writer(**body["writer"]),
        _shape(body["shape"]),
        Projection(
            tuple(OutputColumn(**column) for column in projection["columns"]),
            ColumnFormat(**projection["value"]),
            ColumnFormat(**projection["key"]),
            projection["mode"],
            OptionSpelling(projection["spelling"]),
        ),
        body["compression"],
        from_json_dict(body["ends"]),
        storage_options,
        body["topic_ids"],
        body["dead_letters"],
        body["field_ids"],
        _partition_fields(body["partition_fields"]),
        body["follows_schema"],
    )


def _shape(body: dict[str, Any]) -> TableShape:
    tuples = {name: tuple(body[name]) for name in ("partition_by", "keys")}
    return TableShape(**{**body, **tuples})


def _partition_fields(bodies: list[dict[str, Any]]) -> tuple[IcebergField, ...]:
    if not bodies:
        return ()
    from kfast.table.iceberg_partitions import IcebergField  # noqa: PLC0415 - Iceberg only

    return tuple(IcebergField(**body) for body in bodies)


def source_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the source, without those of the plan."""
    ours = {PLAN_OPTION.lower(), SECRETS_OPTION.lower()}
    return {name: value for name, value in options.items() if name.lower() not in ours}
