"""Programs that stand in for Java."""

from __future__ import annotations

from pathlib import Path


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fake_java(path: Path, version: str) -> Path:
    return script(path, f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")
