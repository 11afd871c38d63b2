"""Small files of a table into large ones, and the files that have each record exactly once.

``manifests`` says what was made of what, ``merging`` writes, ``compacting`` has the order of steps,
``files`` is for readers. Neither needs an ingest, nor does an ingest need any of it.
"""

from __future__ import annotations

from kfast.table.compaction.compacting import CompactionSummary as CompactionSummary
from kfast.table.compaction.compacting import compact_table as compact_table
from kfast.table.compaction.files import table_files as table_files
