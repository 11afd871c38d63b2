"""``kfast.spark.ingest``: the pipeline from topics to a table of files, each record exactly once.

The package is called as the function ``kfast.spark.ingest.query.ingest``; ``python -m
kfast.spark.ingest`` is its command line. Importing it imports neither pyspark nor the pipeline.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A module that is called as the function of its name is."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Bring Kafka topics into a table; see ``kfast.spark.ingest.query.ingest``."""
        from kfast.spark.ingest.query import ingest  # noqa: PLC0415 - imported by this module

        return ingest(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
