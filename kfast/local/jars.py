"""Downloads the jars of Apache Kafka, and other sets of files, once per user and version.

Owns the cache folder, for Kafka's ``<cache>/kfast/kafka-<version>``, where ``<cache>`` is
``XDG_CACHE_HOME`` or ``~/.cache``. A folder is complete when its ``jars.json`` lists every file
with its size; it is filled under a temporary name and renamed, under a lock, so that neither a
killed process nor two concurrent ones leave a partial folder. Maven fills it if it is installed,
else ``jgo``, which resolves Maven coordinates in Python; either with the machine's own settings.

Kafka's own coordinates include no logger for slf4j: ``slf4j-simple`` is added, without which the
brokers log nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, LocalKafkaError

DEFAULT_VERSION: Final = "4.3.1"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_MANIFEST: Final = "jars.json"
_MAVEN_TIMEOUT_SECONDS: Final = 900
logger = get_logger(__name__)

Progress = Callable[[str], None]

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kfast</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = """
    <dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}
    </dependency>"""
_ALONE: Final = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""


@dataclass(slots=True, frozen=True)
class JarSet:
    """Jars in one folder of the cache, or what was in an archive."""

    name: str
    """Of the folder."""
    title: str
    """For messages, as is ``size``."""
    size: str
    coordinates: tuple[tuple[str, ...], ...]
    """Group, artifact, version and, if it has one, classifier of each jar; the first one must be
    among the downloaded jars."""
    with_dependencies: bool = True
    """Whether their dependencies belong to the set too."""
    classifier: str = ""
    """Of the one artifact, a ``tar.gz`` that is unpacked; empty: the artifacts are jars."""
    landmark: str = ""
    """A file that must be there; by default the jar of the first artifact."""

    @property
    def first_file(self) -> str:
        """What the first artifact gives at least."""
        _, artifact, version, *_ = self.coordinates[0]
        return self.landmark or f"{artifact}-{version}.jar"


def kafka_jars(version: str) -> JarSet:
    """Return the jars of an Apache Kafka."""
    return JarSet(
        f"kafka-{version}",
        f"Apache Kafka {version}",
        "55 MB",
        (
            ("org.apache.kafka", "kafka_2.13", version),
            ("org.apache.kafka", "kafka-tools", version),
            ("org.slf4j", "slf4j-simple", "1.7.36"),
        ),
    )


def resolve_jars(version: str = DEFAULT_VERSION, *, progress: Progress | None = None) -> list[Path]:
    """Return the jars of an Apache Kafka, downloading them at the first use.

    Parameters
    ----------
    version : str
        Release of Kafka, such as ``"4.3.1"``.
    progress : callable, optional
        Called with a short text when there is something to wait for: a download takes from seconds
        to minutes.

    Returns
    -------
    list of Path
        About 90 files.

    Raises
    ------
    LocalKafkaError
        They cannot be downloaded; the message lists what was tried.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ConfigurationError(
            f'version = "{version}": not a release of Kafka', hint=f'such as "{DEFAULT_VERSION}"'
        )
    return resolve_jar_set(kafka_jars(version), progress=progress)


def resolve_jar_set(jar_set: JarSet, *, progress: Progress | None = None) -> list[Path]:
    """Return the jars of a set, as `resolve_jars` does."""
    cache = cache_folder()
    home = cache / jar_set.name
    jars = _complete_jars(home)
    if jars is not None:
        return jars
    report = progress or _ignore
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{jar_set.name}.lock", jar_set, report):
            jars = _complete_jars(home)  # another process may have been first
            return _fill(jar_set, home, report) if jars is None else jars
    except OSError as error:
        raise LocalKafkaError(
            f"cannot keep the jars of {jar_set.title} in {cache}",
            cause=str(error),
            hint="set XDG_CACHE_HOME to a folder that can be written",
        ) from error


def _ignore(_: str) -> None:
    pass


def cache_folder() -> Path:
    """Return the folder of this user's jars and class archives."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kfast"


def _complete_jars(home: Path) -> list[Path] | None:
    try:
        sizes = json.loads((home / _MANIFEST).read_text(encoding="utf-8"))
        is_complete = all((home / name).stat().st_size == sizes[name] for name in sizes)
    except (OSError, ValueError):
        return None
    return [home / name for name in sizes] if is_complete and sizes else None


@contextlib.contextmanager
def _locked(path: Path, jar_set: JarSet, report: Progress) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that fetches {jar_set.title}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(jar_set: JarSet, home: Path, report: Progress) -> list[Path]:
    """Download into a folder beside ``home``, then rename it; the caller has the lock."""
    prefix = f".{home.name}-"
    for left_over in home.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=home.parent))
    try:
        _fetch(jar_set, folder, report)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        manifest = {str(path.relative_to(folder)): path.stat().st_size for path in files}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.rmtree(home, ignore_errors=True)
        folder.rename(home)
        return [home / name for name in manifest]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(jar_set: JarSet, folder: Path, report: Progress) -> None:
    failures = []
    for name, fetch in (("mvn", _fetch_with_maven), ("jgo", _fetch_with_jgo)):
        failure = fetch(jar_set, folder, report)
        if failure is None and jar_set.classifier:
            failure = _unpack(folder)
        if failure is None and not (folder / jar_set.first_file).exists():
            failure = f"it fetched no {jar_set.coordinates[0][1]}"
        if failure is None:
            return
        failures.append(f"{name}: {failure}")
        logger.info("%s failed: %s", name, failure)
        for left_over in folder.iterdir():
            shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    raise LocalKafkaError(
        f"cannot get the jars of {jar_set.title}",
        cause="; ".join(failures),
        hint='pip install "kfast[local]" or Maven, and check the connection to a Maven repository',
    )


def _unpack(folder: Path) -> str | None:
    """Unpack the archive that was fetched and remove it; return the failure, if any."""
    for archive in folder.glob("*.tar.gz"):
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            return _short(f"{archive.name} cannot be unpacked: {error}")
        archive.unlink()
    return None


def _announce(tool: str, jar_set: JarSet, report: Progress) -> None:
    logger.info("fetching the jars of %s with %s", jar_set.title, tool)
    report(f"fetching {jar_set.title} with {tool} (about {jar_set.size}, once)")


def _fetch_with_maven(jar_set: JarSet, folder: Path, report: Progress) -> str | None:
    """Copy the jars with Maven; return the failure, if any."""
    maven = shutil.which("mvn")
    if maven is None:
        return "not on the path"
    _announce("mvn", jar_set, report)
    command = [maven, "--quiet", "--batch-mode"]
    pom = folder / "pom.xml"
    if jar_set.classifier:
        artifact = ":".join((*jar_set.coordinates[0], "tar.gz", jar_set.classifier))
        command += [_COPY, f"-Dartifact={artifact}"]
    else:
        more = "" if jar_set.with_dependencies else _ALONE
        dependencies = "".join(_dependency(*names, more=more) for names in jar_set.coordinates)
        pom.write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
        command += ["--file", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_MAVEN_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        pom.unlink(missing_ok=True)
    if done.returncode == 0:
        return None
    lines = re.findall(r"^\[ERROR\] *(.+)$", done.stdout + done.stderr, re.MULTILINE)
    return _short(lines[0] if lines else f"exit status {done.returncode}")


def _dependency(group: str, artifact: str, version: str, classifier: str = "", *, more: str) -> str:
    """Return the text of a dependency in Maven's file."""
    if classifier:
        more = f"<classifier>{classifier}</classifier>{more}"
    return _DEPENDENCY.format(group, artifact, version, more)


def _fetch_with_jgo(jar_set: JarSet, folder: Path, report: Progress) -> str | None:
    """Copy the jars with jgo; return the failure, if any."""
    try:
        import jgo  # noqa: PLC0415 - optional
    except ImportError:
        return "not installed"
    _announce("jgo", jar_set, report)
    try:
        if jar_set.with_dependencies:
            artifacts = jgo.resolve("+".join(map(":".join, jar_set.coordinates)))
        else:
            artifacts = _artifacts_alone(jar_set)
        for artifact in artifacts:
            jar = Path(str(artifact.resolve()))
            if jar.suffix in {".jar", ".gz"}:
                shutil.copyfile(jar, folder / jar.name)
    except Exception as error:  # of the network, XML or the disk
        return _short(f"{type(error).__name__}: {error}")
    return None


def _artifacts_alone(jar_set: JarSet) -> list[Any]:
    """Return jgo's artifacts without their dependencies."""
    from jgo.config import GlobalSettings  # noqa: PLC0415 - optional
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415 - optional
    from jgo.maven import MavenContext  # noqa: PLC0415 - optional

    context = MavenContext(
        repo_cache=GlobalSettings.load().repo_cache, remote_repos={"central": MAVEN_CENTRAL_URL}
    )
    kind = {"classifier": jar_set.classifier, "packaging": "tar.gz"} if jar_set.classifier else {}
    return [
        context.project(group, artifact).at_version(version).artifact(**kind)
        for group, artifact, version, *_ in jar_set.coordinates
    ]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]} ..."
