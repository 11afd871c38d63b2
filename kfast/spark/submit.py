"""What ``spark-submit`` runs for an ingest: ``kfast ingest --spark`` with the words behind it.

Its path is printed by ``python -c "import kfast.spark.submit as submit; print(submit.__file__)"``.
"""

from __future__ import annotations

import sys

from kfast.cli import main

if __name__ == "__main__":
    sys.exit(main(["ingest", "--spark", *sys.argv[1:]]))
