"""``kfast.spark.ingest``: writes topics to a table of files, each record exactly once.

The package is called as the function ``kfast.spark.ingest.query.ingest``. Importing it imports
neither pyspark nor the pipeline.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A module that can be called as a function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Write Kafka topics to a table; see ``kfast.spark.ingest.query.ingest``."""
        from kfast.spark.ingest.query import ingest  # noqa: PLC0415 - imported by this module

        return ingest(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
