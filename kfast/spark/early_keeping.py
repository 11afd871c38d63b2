"""EarlyKeeping: a file goes to the disk while it is still being written.

Owns the thread that does so. A task that ends with flushing its file waits for the disk with
nothing else to do; flushed piece by piece meanwhile, little is left at the end. It promises nothing
about the file until `finish` has returned.

Used by the thread that writes the file. Nothing outlives `finish` or `give_up`.
"""

from __future__ import annotations

import threading

from kfast.spark.table_store import TableStore


class EarlyKeeping:
    """Keeps one file.

    Parameters
    ----------
    store : TableStore
        Where the file is.
    path : str
        Its name there.
    """

    def __init__(self, store: TableStore, path: str) -> None:
        self._store = store
        self._path = path
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Start to keep what was written so far, unless that is still being done.

        Raises
        ------
        OSError
            What was written before could not be kept.
        """
        if self._store.keeps_at_once or (self._thread is not None and self._thread.is_alive()):
            return
        self._end_thread()
        self._thread = threading.Thread(
            target=self._keep, name=f"kfast-keep-{self._path}", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Keep the whole file, which is closed now.

        Raises
        ------
        OSError
            It could not be kept, or some of it could not before. A system may tell that only once,
            so the earlier error counts.
        """
        self._end_thread()
        self._store.keep(self._path)

    def give_up(self) -> None:
        """Wait until nothing is done with the file; it will be removed."""
        if self._thread is not None:
            self._thread.join()

    def _end_thread(self) -> None:
        self.give_up()
        self._thread = None
        if self._error is not None:
            raise self._error

    def _keep(self) -> None:
        try:
            self._store.keep(self._path)
        except Exception as error:  # raised where it can be told
            self._error = error

    def __repr__(self) -> str:
        return f"<EarlyKeeping {self._path}>"
