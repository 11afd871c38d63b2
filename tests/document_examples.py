"""The Python in the documents, for the tests that run it.

Owns ``RUN_BY``: every section with Python, and the test module that executes it. A test compares
the table with the documents, so that no example stands there unexecuted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

RUN_BY: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "In Python"): "tests/end_to_end/test_readme.py",
    ("README.md", "Typed columns"): "tests/end_to_end/test_readme.py",
    ("README.md", "Consumer groups"): "tests/end_to_end/test_readme.py",
    ("docs/columns.md", "A batch"): "tests/end_to_end/test_readme.py",
    ("docs/columns.md", "Bounded reads"): "tests/end_to_end/test_readme.py",
    ("README.md", "Spark"): "tests/spark/test_documents.py",
    ("docs/errors-and-logs.md", "What an error says"): "tests/end_to_end/test_readme.py",
    ("docs/errors-and-logs.md", "Signals"): "tests/end_to_end/test_documented.py",
    ("docs/cdc.md", "From Python"): "tests/end_to_end/test_ingest_upserts.py",
    ("docs/cdc.md", "Events as columns"): "tests/end_to_end/test_ingest_upserts.py",
    ("docs/ingest.md", "Reading the table"): "tests/end_to_end/test_table_readers.py",
    ("docs/ingest.md", "From Python"): "tests/end_to_end/test_ingest_command.py",
    ("docs/groups.md", "A loop with a listener"): "tests/end_to_end/test_readme.py",
    ("docs/porting.md", "From kafka-python"): "tests/end_to_end/test_readme.py",
    ("docs/porting.md", "From confluent-kafka"): "tests/end_to_end/test_readme.py",
    **{
        ("docs/security.md", heading): "tests/unit/settings/test_security_document.py"
        for heading in (
            "TLS",
            "Confluent Cloud",
            "Amazon MSK",
            "Azure Event Hubs",
            "Strimzi",
            "Kerberos",
        )
    },
    (
        "docs/security.md",
        "A secured Kafka for tests",
    ): "tests/integration/test_local_kafka_security.py",
    ("docs/tutorial.md", "As columns"): "tests/end_to_end/test_readme.py",
    ("docs/tutorial.md", "In a consumer group"): "tests/end_to_end/test_readme.py",
    ("docs/how-to/files.md", "In Python"): "tests/end_to_end/test_readme.py",
    (
        "docs/how-to/asyncio.md",
        "One call at a time",
    ): "tests/end_to_end/test_asyncio_document.py",
    ("docs/how-to/exactly-once.md", "Into Kafka"): "tests/end_to_end/test_readme.py",
    **{
        ("docs/how-to/testing.md", heading): "tests/unit/testing/test_fake_kafka.py"
        for heading in ("A Kafka in a test", "When something goes wrong")
    },
    **{
        ("docs/typed-columns.md", heading): "tests/unit/deserializers/test_document.py"
        for heading in ("JSON", "Avro", "Protobuf", "Schema registry", "Bad values")
    },
    ("docs/spark.md", "Typed columns"): "tests/spark/test_documents.py",
    ("docs/spark.md", "The source"): "tests/spark/test_documents.py",
    ("docs/spark.md", "The ingest"): "tests/spark/test_documents.py",
    ("docs/cluster.md", "The job"): "tests/spark/test_cluster.py",
}


def documents() -> list[Path]:
    """Return all documents of the project, without those that are made of the code."""
    return [*sorted(ROOT.glob("*.md")), *user_documents()[1:]]


def user_documents() -> list[Path]:
    """Return the documents for users: the README and docs."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("how-to/*.md"))]


def sections(document: str) -> dict[str, str]:
    """Return ``{heading: text}`` of a document's sections of the second level."""
    parts = re.split(r"^## (.+)\n", (ROOT / document).read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str) -> list[tuple[str, str]]:
    """Return ``(language, content)`` of every code block; the language may be empty."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples(document: str, heading: str, language: str = "python") -> list[str]:
    """Return the code of one section."""
    found = blocks(sections(document)[heading])
    return [content for name, content in found if name == language]
