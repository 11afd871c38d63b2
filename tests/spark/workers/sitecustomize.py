"""For the daemon that forks Spark's Python workers: they validate what kfast gives Spark."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    from kfast.table.arrow_batches import ArrowBatches
    from tests.arrow_validation import validate_batches

    validate_batches(ArrowBatches)
