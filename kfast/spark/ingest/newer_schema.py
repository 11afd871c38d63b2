"""NewerSchema: columns of versions of schemas that are registered while a query runs.

Owns when the latest version is asked for: when a micro-batch is planned, after its end is known. So
the schema of every value of the batch was registered before, and the batch is read by a version
that has its columns. A version that only adds nullable columns or widens numbers is taken: the
table gets its columns before the batch is read, and the plan of the batch, which goes with its
tasks and comes back with their rows, has them. Another one is logged once, and records are read by
the version before. A batch that is repeated after a crash may be read by a newer version than the
first time: what its first attempt has written is no part of the table.

Driver only, in the process that plans the batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, KafkaError
from kfast.schemas.ddl import field_of_ddl
from kfast.spark.source.schema import project
from kfast.spark.source.value_schemas import default_type, followed_columns, latest_version
from kfast.table.schema_changes import as_table, schema_change
from kfast.table.store import storage_errors
from kfast.table.value_types import json_of

if TYPE_CHECKING:
    from kfast.spark.ingest.plan import IngestPlan
    from kfast.spark.source.options import SourceOptions
    from kfast.table.projection import Projection

logger = get_logger(__name__)


class NewerSchema:
    """The versions that one query takes; ``plan`` is that of its start."""

    def __init__(self, options: SourceOptions, plan: IngestPlan) -> None:
        self._options = options
        self._plan = plan
        self._columns = followed_columns(options)
        self._versions = {
            column: plan.projection.format_of(column).arguments["options"]["reader"]
            for column in self._columns
        }
        """The latest versions, whether they are read by or not."""
        self._warned: set[str] = set()

    def plan(self) -> IngestPlan:
        """Return the plan of a batch whose end is known."""
        try:
            versions = {column: latest_version(column, self._options) for column in self._columns}
        except KafkaError as error:
            self._warn(f"cannot look for newer schemas: {error}")
            return self._plan
        if versions != self._versions:
            try:
                self._take()
            except ConfigurationError as error:
                self._warn(f"a newer schema is not used, and records are read as before: {error}")
            self._versions = versions
        return self._plan

    def _warn(self, text: str) -> None:
        """Log a text once, not for every batch."""
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s: %s", self._plan.url, text)

    def _take(self) -> None:
        """Read by the latest versions from here on, if the table gets columns by them."""
        plan = self._plan
        projection = self._projection()
        change = schema_change(plan.shape.schema, projection.ddl, plan.url, plan.shape.format)
        if not change.is_of_table:
            return
        projection = as_table(projection, change)
        shape = replace(plan.shape, schema=projection.ddl)
        with storage_errors(f"cannot add columns to {plan.url}"):
            log = plan.log()
            last = log.last()
            if last is None or last.writer != plan.writer:
                return  # the batch cannot be published, with a better message
            table = log.begin(plan.writer, shape, shape.in_files(projection), last)
        if table is None:  # another commit was first
            raise KafkaError(
                f"columns cannot be added to {plan.url}",
                cause="the table was changed at the same moment",
                hint="start the ingest again",
            )
        self._plan = replace(
            plan,
            shape=shape,
            projection=projection,
            field_ids=table.field_ids,
            partition_fields=table.partition_fields,
        )
        logger.info("%s: a newer schema is registered: %s", plan.url, change)

    def _projection(self) -> Projection:
        """Return the columns of the latest versions."""
        fields: list[dict[str, Any]] = []
        for column in self._plan.projection.columns:
            json_type, is_nullable = column.json_type, column.is_nullable
            if column.source in self._columns:
                ddl = f"{column.name} {default_type(column.source, self._options)}"
                json_type = json_of(field_of_ddl(ddl).type.fields[0].type)
            fields.append({"name": column.name, "type": json_type, "nullable": is_nullable})
        projection = project({"fields": fields}, self._options)
        return replace(projection, spelling=self._plan.projection.spelling)

    def __repr__(self) -> str:
        return f"<NewerSchema after {', '.join(self._versions.values())}>"
