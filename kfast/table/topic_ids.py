"""TopicIds: which topics a query reads, by Kafka's ids, so that one created anew is known.

A topic that was deleted and created again has another id (KIP-516, Kafka 2.8), and offsets of the
earlier one mean nothing in it, whether its log is shorter by now or longer. The ids are known from
one run of a query to the next if they are kept beside its checkpoint: Spark's own files there have
the offsets only, in the form of ``format("kafka")``. A source does not get the path from Spark.

They are kept in files ``kfast-topics/NUMBER.json``, each with all topics; the one with the greatest
number counts. A file is written when the first batch read of a topic has its offsets in the
checkpoint: until then the query, started again, must find the topic changed. Driver only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.table.store import TableStore

FOLDER: Final = "kfast-topics"


def id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_bytes(text: str | None) -> bytes | None:
    """Return the topic id that `id_text` has written."""
    return None if text is None else base64.urlsafe_b64decode(text + "==")


class TopicIds:
    """The ids of the topics that one query reads; without a store only as long as it runs.

    ``earlier`` are those under which other queries have read, whose work this one continues.
    """

    def __init__(
        self, store: TableStore | None = None, earlier: Mapping[str, str] | None = None
    ) -> None:
        self._store = store
        self._others = dict(earlier or {})
        self._by_topic: dict[str, str] | None = None
        self._number = -1
        self._saved: dict[str, str] = {}
        self._earlier: set[str] = set()

    @property
    def by_topic(self) -> Mapping[str, str]:
        """The ids under which topics were read so far."""
        if self._by_topic is None:
            self._number, self._saved = self._load()
            self._by_topic = {**self._others, **self._saved}
        return self._by_topic

    def changed(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Return the topics that have another id than they were read under, with the former id.

        An id that another one has followed is that of a broker whose metadata is out of date.
        """
        return {
            topic: former
            for topic, topic_id in ids.items()
            if (former := self.by_topic.get(topic, topic_id)) != topic_id
            and topic_id not in self._earlier
        }

    def adopt(self, ids: Mapping[str, str]) -> None:
        """Take the ids of topics that were not read before."""
        self._by_topic = {**ids, **self.by_topic}

    def accept(self, ids: Mapping[str, str]) -> None:
        """Read all topics under these ids from now on."""
        former = self.changed(ids)
        self._earlier.update(former.values())
        self._by_topic = {**ids, **self.by_topic, **{topic: ids[topic] for topic in former}}

    def save(self, topics: Collection[str]) -> None:
        """Keep the ids of these topics for the next run."""
        while self._store is not None:
            ids = {topic: at for topic, at in self.by_topic.items() if topic in topics}
            if ids.items() <= self._saved.items():
                return
            body = json.dumps({**self._saved, **ids}, indent=1, sort_keys=True).encode()
            if self._store.create(_path(self._number + 1), body):
                self._number, self._saved = self._number + 1, {**self._saved, **ids}
                if self._number > 0:
                    self._store.remove(_path(self._number - 1))
                return
            # Another source of the same query has been first.
            self._number, self._saved = self._load()

    def _load(self) -> tuple[int, dict[str, str]]:
        """Return the newest file's number, -1 for none, and the ids in it."""
        if self._store is None:
            return -1, {}
        names = [file.path.rpartition("/")[2] for file in self._store.files(FOLDER)]
        numbers = [int(name[:-5]) for name in names if name[:-5].isdigit()]
        number = max(numbers, default=-1)
        data = self._store.read(_path(number)) if number >= 0 else None
        # The listing of an object store may be stale.
        while (following := self._store.read(_path(number + 1))) is not None:
            number, data = number + 1, following
        if data is None:
            return number, {}
        try:
            return number, {str(topic): str(at) for topic, at in json.loads(data).items()}
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._store.url}/{_path(number)} does not have the ids of topics",
                cause=str(error),
                hint="restore the file, or remove it if no topic was created anew",
            ) from error

    def __repr__(self) -> str:
        return f"<TopicIds of {len(self._by_topic or {})} topics>"


def _path(number: int) -> str:
    return f"{FOLDER}/{number}.json"
