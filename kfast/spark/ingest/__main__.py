"""``python -m kfast.spark.ingest``: writes Kafka topics to a table of files, exactly once."""

from __future__ import annotations

import sys

from kfast.spark.ingest.command import main

if __name__ == "__main__":
    sys.exit(main())
