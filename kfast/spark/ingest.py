"""``python -m kfast.spark.ingest``: brings Kafka topics into a table of files, exactly once.

The command line is ``ingest_cli``'s. The name ``kfast.spark.ingest`` is a function's too; once this
module has been imported under that name it stands for both, and can be called like the function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kfast.spark.ingest_cli import main
from kfast.spark.ingest_query import ingest as _ingest

__all__ = ["main"]


class _CallableModule(ModuleType):
    """A module that is called as ``kfast.spark.ingest`` is documented."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start an ingest; see ``kfast.spark.ingest_query.ingest``."""
        return _ingest(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    sys.exit(main())
