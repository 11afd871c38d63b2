"""What a program imports: runs it in a process of its own, and picks modules out of a list."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

READ = """
import json, sys
from kfast import KafkaConsumer
settings = json.loads(sys.argv[1])
with KafkaConsumer("t", auto_offset_reset="earliest", **settings) as consumer:
    made = set(sys.modules)
    count = 0
    while count < 20:
        records = consumer.poll(timeout_ms=5_000)
        count += sum(map(len, records.values()))
    if settings.get("group_id"):
        consumer.commit(records.next_offsets())
    read = set(sys.modules)
print(json.dumps([sorted(made), sorted(read - made)]))
"""
"""Makes a consumer with the settings in its argument and reads 20 records."""


def last_line_of(program: str, *arguments: str) -> Any:
    """Return what a Python program prints last, which is JSON."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def among(modules: Iterable[str], *packages: str) -> list[str]:
    """Return the modules that are one of the packages or in one."""
    return [
        module
        for module in modules
        if any(module == package or module.startswith(package + ".") for package in packages)
    ]
