"""W-03: a folder is a path of this machine or a supported URL, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfast.errors import ConfigurationError
from kfast.table.fsspec_store import FsspecStore, open_store
from kfast.table.store import LocalStore

PATHS = {
    "/data/x": "/data/x",
    "/data/a b:c/x": "/data/a b:c/x",
    "data/x": "CURRENT/data/x",
    "./C:/x": "CURRENT/C:/x",
    "~/x": "HOME/x",
    "file:/data/x": "/data/x",
    "file:///data/x": "/data/x",
    "file://localhost/data/x": "/data/x",
    "FILE:///data/x": "/data/x",
}


@pytest.mark.parametrize(("text", "path"), PATHS.items(), ids=PATHS)
def test_paths_and_file_urls_are_folders_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of-user")
    store = open_store(text)
    assert isinstance(store, LocalStore)
    assert store.url == path.replace("CURRENT", str(tmp_path)).replace("HOME", "/home/of-user")
    assert open_store(store.url).url == store.url, "as the workers open it"


REFUSED = {
    "file://host/data/x": "write file:///host/data/x",
    "file://data": "write file:///data/",
    "file:x": "write file:///folder",
    "dbfs:/x": "write /dbfs/x",
    "dbfs:///x": "write /dbfs/x",
    "s3:/bucket/x": "write s3://bucket/x",
    "S3:bucket/x": "write S3://bucket/x",
    "s3n://bucket/x": "write s3://bucket/x",
    "gs:/bucket/x": "write gs://bucket/x",
    "s3:///x": "write s3://bucket/x",
    "s3://": "write s3://bucket/",
    "C:\\data\\x": "such as /mnt/c/data/x",
    "d:/data/x": "such as /mnt/d/data/x",
    "\\\\server\\share": "mount the folder, and give its path here",
    "2026:/x://y": "write s3://bucket/folder",
    " s3://bucket/x": "write s3://bucket/x",
    " /data/x": "write /data/x",
    "~no-such-user/x": "write ./~no-such-user/x for a folder of that name",
    "data:b": "use a local or mounted folder (./data:b if that is its name)",
    "hdfs:/x": "use a local or mounted folder (./hdfs:/x if that is its name)",
    "hdfs://host/x": "use a local or mounted folder, or one of s3, s3a, gs, gcs, abfs",
    "webhdfs://host/x": "use a local or mounted folder, or one of s3",
    "ftp://host/x": "use a local or mounted folder, or one of s3",
    "http://h/x": "use a local or mounted folder, or one of s3",
    "": "give a path or a URL",
    "  ": "give a path or a URL",
    "file:": "write file:///folder",
}


@pytest.mark.parametrize(("text", "hint"), REFUSED.items(), ids=REFUSED)
def test_what_is_neither_is_refused_with_the_right_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        open_store(text)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert text.strip() in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_url_keeps_all_but_the_case_of_its_scheme() -> None:
    pytest.importorskip("fsspec")
    store = open_store("MEMORY://Bucket/a b/C/")
    assert isinstance(store, FsspecStore)
    assert store.url == "memory://Bucket/a b/C"
