"""Archives of classes: made once, used only while whole, and by what they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kfast.local.java import Java
from kfast.local.node import ClassArchive


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kfast"


@pytest.fixture
def archive(cache: Path, tmp_path: Path) -> ClassArchive:
    for name in ("java", "a.jar"):
        (tmp_path / name).write_text(name)
    return ClassArchive(Java(tmp_path / "java", 17), (tmp_path / "a.jar",), "some.Main")


def record(flags: Sequence[str]) -> None:
    """Do what a JVM does at its end."""
    option, _, path = flags[0].partition("=")
    assert option == "-XX:ArchiveClassesAtExit"
    Path(path).write_text("classes")


def used(archive: ClassArchive) -> Path:
    option, _, path = archive.flags()[0].partition("=")
    assert option == "-XX:SharedArchiveFile"
    return Path(path)


def test_an_archive_is_made_once(archive: ClassArchive, cache: Path) -> None:
    assert archive.flags() == ()
    assert archive.make(record)
    assert used(archive).read_text() == "classes"
    assert archive.make(lambda _: pytest.fail("it is there"))
    assert [path.name for path in cache.iterdir()] == [used(archive).name]


def test_one_that_was_cut_is_not_used(archive: ClassArchive, cache: Path) -> None:
    """The JVM would not survive it."""
    archive.make(record)
    path = used(archive)
    path.write_text("cla")
    assert archive.flags() == ()
    assert archive.make(record)
    assert used(archive) == path


def test_other_jars_and_another_java_have_their_own(
    archive: ClassArchive, cache: Path, tmp_path: Path
) -> None:
    archive.make(record)
    other = ClassArchive(archive.java, archive.jars, "other.Main")
    other.make(record)
    (tmp_path / "a.jar").write_text("newer")
    assert archive.flags() == other.flags() == ()
    archive.make(record)
    (tmp_path / "java").write_text("another")
    assert archive.flags() == ()
    archive.make(record)
    names = sorted(path.name.partition("-")[0] for path in cache.iterdir())
    assert names == ["other.Main", "some.Main"], "those that are out of date go"


def test_a_java_that_cannot_make_one(archive: ClassArchive, cache: Path) -> None:
    assert not archive.make(lambda _: None)
    assert archive.flags() == ()
    assert list(cache.iterdir()) == []
