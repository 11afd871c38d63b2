"""Topics into files of a table, each record exactly once, by one process and without Spark.

``ingest`` is `kfast.ingest`, ``options`` what it takes; ``planning`` says where each partition goes
on, ``ingesting`` reads and publishes, ``partition_files`` cuts the records of a partition into
files.
"""

from __future__ import annotations

from kfast.table.ingest.function import ingest as ingest
from kfast.table.ingest.ingesting import Ingest as Ingest
from kfast.table.ingest.summary import IngestSummary as IngestSummary
