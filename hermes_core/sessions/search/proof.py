"""The proof that the search index finds what is stored, without which no search says that nothing was found.

An index can be damaged so that a look-up ends without an error and without messages: SQLite reads zeroed pages as an
index of no words. So messages are looked up by their own words, and the index's record of its last message is compared
with the newest message. Nothing is counted. An index that fails is made anew in the background.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable

from hermes_core.errors import DatabaseCorrupt, StorageError
from hermes_core.sessions.search.protocol import INDEX_LOST, PAUSE_S, MessageIndex
from hermes_core.storage.engine import Engine

# A turn, and a search that found something, rely on a proof of at most so many seconds or so many messages ago.
MAX_AGE_S = 60.0
MAX_NEWER = 50

# Newest messages that are read one by one for the words of a question for which the index found nothing, and how many of
# those with such words are looked up. More would make a question about nothing cost what the store holds.
MAX_READ = 32
MAX_COMPARED = 20

# Seconds before the thread begins: until then, each message that is stored makes a part of the index, and a short command
# makes it when it ends.
DELAY_S = 5.0

# Seconds for which closing a store waits for the index that is made anew, so that short commands finish it as well.
CLOSE_TIMEOUT_S = 2.0

DAMAGE = (DatabaseCorrupt, sqlite3.OperationalError)

log = logging.getLogger(__name__)


class IndexProof:
    """The last proof of a search index, and the thread that makes a damaged index anew. Threads may share it.

    Attributes:
        made_at: Time of the last proof, on the clock of `time.monotonic`.
    """

    def __init__(self, database: Engine, index: MessageIndex) -> None:
        self._database, self._index = database, index
        self.made_at, self._newest = -MAX_AGE_S, -MAX_NEWER
        self._lock = threading.Lock()
        self._closing, self._stopping = threading.Event(), threading.Event()
        self._builder: threading.Thread | None = None

    def is_recent(self, newest: int = 0) -> bool:
        """Return True if the last proof still counts.

        Args:
            newest: Id of the newest message; 0 if it is not known.
        """
        is_near = self._newest <= newest <= self._newest + MAX_NEWER
        return time.monotonic() < self.made_at + MAX_AGE_S or (newest > 0 and is_near)

    def expire(self) -> None:
        """Let the next search make a new proof."""
        self.made_at, self._newest = -MAX_AGE_S, -MAX_NEWER

    def holds(self, asked: Callable[[], bool] | None = None, newest: int = 0) -> bool:
        """Return True if the index finds what is stored.

        Args:
            asked: Result of `MessageIndex.ask_proof`; None to ask now.
            newest: Id of the newest message; 0 if it is not known.
        """
        # A message may be deleted between two reads, so that only a second proof counts.
        for number in range(2):
            prove = asked if asked is not None and not number else self._index.ask_proof()
            with contextlib.suppress(*DAMAGE):
                if prove():
                    self.made_at, self._newest = time.monotonic(), newest
                    return True
        self.expire()
        return False

    # ------------------------------------------------------------------ making the index anew

    def renew(self) -> str:
        """Make the index anew in the background; return the sentence about it for people."""
        self.expire()
        log.warning("the search index of %s does not find what is stored", self._database.label)
        try:
            self._index.renew()
        except StorageError as exc:
            # A store that is opened for reading only, or that another program writes.
            log.warning("the search index of %s was not made anew: %s", self._database.label, exc)
            return "the search index does not find all that is stored: run `hermes-memory sessions rebuild`"
        self.resume()
        return INDEX_LOST

    def resume(self) -> None:
        """Let the thread go on with an index that is being made anew."""
        with self._lock:
            if not self._closing.is_set() and (self._builder is None or not self._builder.is_alive()):
                self._builder = threading.Thread(target=self._build, name="hermes-index", daemon=True)
                self._builder.start()

    def _build(self) -> None:
        self._closing.wait(DELAY_S)
        try:
            while not self._stopping.is_set() and self._index.rebuild_next():
                self._stopping.wait(PAUSE_S)
        except (StorageError, sqlite3.Error) as exc:
            # Each further message, and the next search, go on with it.
            log.warning("the search index of %s was not made anew: %s", self._database.label, exc)

    def close(self) -> None:
        """Let the thread make the index now, for some seconds, and end it."""
        self._closing.set()
        if (builder := self._builder) is not None:
            builder.join(CLOSE_TIMEOUT_S)
            self._stopping.set()
            builder.join()
