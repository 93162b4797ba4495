"""The indexes of a session store: of words, which each engine has, and of meaning, which an extension adds.

An engine may store the vectors of the messages; the index of meaning makes and compares them.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from hermes_core.errors import ConfigError
from hermes_core.sessions.records import MEMORY_TOOLS, Order
from hermes_core.storage.engine import Connection, Engine

if TYPE_CHECKING:
    import numpy

    from hermes_core.recall.query import Analysis
    from hermes_core.recall.rank import Place
    from hermes_core.sessions.records import SearchHit
    from hermes_core.sessions.search.filters import Condition, Filters
    from hermes_core.sessions.search.reader import ClosestMessages, IndexReader, IndexRow, ScopeFacts

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


# The sentence about an index that does not find what is stored.
INDEX_LOST = "the search index was damaged and is being built again"

# Key in `state_meta` during a rebuild in steps: the last message id that is indexed again, and on SQLite the last id to
# index.
PROGRESS_KEY = "search_index_rebuilt_to"

# Seconds between the steps of a rebuild, so that other processes get the write lock.
PAUSE_S = 0.002

# Key in `state_meta` of the last message that has a vector, completed by the name of the model: vectors of another
# model can't be compared, so each model begins with the first message.
LAST_ID_KEY = "meaning:"

# Key in `state_meta` of the number of numbers in a vector, completed by the name of the model.
DIMENSION_KEY = "meaning-dimension:"

# Key in `state_meta` of the number of times that vectors were removed, or got another owner: what a process has in
# memory is read again then.
CHANGES_KEY = "meaning-changes"

# Share of the messages that must have a vector before vectors count, because a message without a vector can't win
# against a message with one. recall@10 is 83.2 if the newest 5 % have no vector, 74.6 if half have none, and 80.4
# by words alone.
MIN_COVERAGE = 0.9

# Number of messages closest in meaning that are ranked as well, if they pass the filters; with 150, recall@10 is half a
# point lower.
MAX_NEAREST = 250

# 8-bit value of 1 in a stored unit vector.
INT8_SCALE = 400

# Condition on the messages that get vectors. The results of the tools of memory are no answers.
HAS_TEXT = f"""
    state < 2 AND role IN ('user', 'assistant', 'tool') AND trim(content) <> ''
    AND NOT (role = 'tool' AND tool_name IN {MEMORY_TOOLS})
"""


class MessageIndex(ABC):
    """The index over the terms of stored messages. It changes in the transaction that changes the messages.

    Attributes:
        resets: Number of times that the index was too damaged to be dropped and was made anew.
    """

    resets = 0

    def __init__(self, database: Engine) -> None:
        self._database = database

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  an engine may need none
        """Return further columns for the row of a new message, made from its columns. No text raises an error."""
        return {}

    def add(  # noqa: B027  an engine may have all in the rows
        self, connection: Connection, message_ids: Sequence[int], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Add new messages to the index, after their rows are stored. `rows` are their columns."""

    @abstractmethod
    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition and their vectors, before their rows are deleted or hidden."""

    def change_owner(self, connection: Connection) -> None:  # noqa: B027  an engine may have triggers
        """Regard that stored messages have another owner now."""

    @abstractmethod
    def scope_facts(self, query: str, filters: Filters, sources: Collection[str]) -> ScopeFacts:
        """Return whom a question names, which of these sources are stored, and the newest message."""

    @abstractmethod
    def reader(self, filters: Filters, order: Order | None, limit: int, newest: int) -> IndexReader:
        """Return a reader for one search that ranks at most `limit` messages; `newest` is that of `scope_facts`."""

    @abstractmethod
    def ask_proof(self) -> Callable[[], bool]:
        """Return a function that returns True if the index finds messages by their own words, and knows the newest one.

        A server is asked with the next read of this thread. Damage raises `DatabaseCorrupt` or an error of SQLite.
        """

    def misses(self, hits: Sequence[SearchHit], analysis: Analysis) -> bool:  # noqa: ARG002  a server is asked enough
        """Return True if the index does not find these messages by the words of the question that they have."""
        return False

    @abstractmethod
    def problem(self) -> str:
        """Return a sentence if a search does not find all messages by the index; "" if it does."""

    @abstractmethod
    def check(self) -> list[str]:
        """Compare the index with the messages; return a line for each damage and each difference."""

    def rebuild(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Make the index anew while other processes write; return the number of indexed messages.

        A rebuild that was interrupted goes on where it stopped. `progress` gets the number of messages so far.
        """
        done = 0
        while count := self.rebuild_next():
            done += count
            progress(done)
            time.sleep(PAUSE_S)
        return done

    def rebuild_next(self) -> int:
        """Index the next messages of a rebuild; return their number. Without any, the rebuild has ended."""
        with self._database.transaction() as connection:
            return self._rebuild_next(connection)

    @abstractmethod
    def _rebuild_next(self, connection: Connection) -> int:
        """Do the work of `rebuild_next` in a transaction."""

    @abstractmethod
    def renew(self) -> None:
        """Begin to make the index anew because it is damaged; `rebuild_next` goes on with it."""

    def reset(self, exc: Exception) -> None:
        """Make the index anew, a part with each further message, if it is damaged; else raise `exc`.

        Within a transaction, which has failed, raise `exc`.
        """
        raise exc

    def free_lost_pages(self) -> None:  # noqa: B027  a server reuses them
        """Free the space of an index that was too damaged to be dropped."""


class VectorIndex(Protocol):
    """The index of a store for search by meaning, which an extension registers. Threads may share it.

    Vectors are deleted in the transaction that deletes their messages, by the index of words. No method but `build`,
    `forget` and `works` raises an error because the model can't be used: the search is by words then, and `fault` says
    why.

    Attributes:
        fault: The reason why search by meaning does not work; "" if it works.
        mismatch: The reason why the vectors of the store can't be used: another model made them; "" if they can.
    """

    @property
    def fault(self) -> str: ...

    @property
    def mismatch(self) -> str: ...

    def wake(self) -> None:
        """Make missing vectors in the background. Called after the commit of new messages; it must not wait."""

    def build(self, progress: Callable[[int], None] | None = None) -> int:
        """Make all missing vectors now; return the number of messages that got one. Raises `ConfigError`.

        `progress` gets the number of messages so far.
        """

    def forget(self) -> None:
        """Delete all vectors. Raises `ConfigError` or `BackendUnavailable` before it, if no new ones can be made."""

    def missing(self) -> int:
        """Return how many messages have no vector yet."""

    def ask_lack(self) -> Callable[[float], str]:
        """Return a function that returns a sentence if vectors are lost, or not made yet for messages before a time.

        The function gets the time in epoch seconds, and returns "" if all vectors are there. A server is asked with the
        next read of this thread. Lost vectors are made again in the background.
        """

    def works(self) -> bool:
        """Return True if questions can be compared; otherwise set `fault` to the reason. It tries the model."""

    def description(self) -> str:
        """Return how the vectors are stored, or why there are none, for people; "" if there is only one way."""

    def remedy(self) -> str:
        """Return what a person can do so that the store has vectors; "" if there is nothing to do."""

    def question(self, query: str, part: str) -> str:
        """Return the question as the model reads it: `part`, which is what asks in `query`."""

    def ask_coverage(self, question: str, user: str | None) -> Callable[[], Coverage] | None:
        """Return what `ask` needs to know, to be read with what is read before it; None if it will not ask."""

    def ask(
        self,
        question: str,
        names: Collection[str] = (),
        user: str | None = None,
        *,
        covered: Callable[[], Coverage] | None = None,
        passing: Condition | None = None,
    ) -> ClosestMessages | None:
        """Return the messages closest to `question` in meaning; None if nothing can be compared.

        Args:
            question: The question.
            names: Words of the question that don't count.
            user: Owner of the messages; None for all owners.
            covered: Result of `ask_coverage`.
            passing: Condition on messages `m` and sessions `s` that the closest messages have to fulfil.
        """

    def ask_around(self, likeness: Any, places: Sequence[Place]) -> Callable[[], Surroundings] | None:
        """Return what `closeness` needs of messages at these places, to be read with what is read next.

        Return None if that saves nothing. `likeness` is that of a result of `ask`.
        """

    def closeness(
        self,
        likeness: Any,
        ids: Sequence[int],
        around: Callable[[], Surroundings] | None = None,
        word_trust: float = 1.0,
    ) -> dict[int, float]:
        """Return for each message how close its words are to those of the question. Messages without vectors are left out.

        Args:
            likeness: That of a result of `ask`; it knows these messages afterwards.
            ids: Ids of the messages.
            around: Result of `ask_around`.
            word_trust: How much the words of the question tell, as for `Likeness.of`.
        """

    def close(self) -> None:
        """End the work in the background."""


class Reranker(Protocol):
    """An order of what a search found, which an extension sets as `PastSessions.reranker`. Threads may share it.

    Attributes:
        depth: Number of messages that it orders. A search finds as many, and returns the first of them.
        fault: The reason why it does not order messages; "" if it does.
    """

    @property
    def depth(self) -> int: ...

    @property
    def fault(self) -> str: ...

    def order(
        self, query: str, question: str, hits: Sequence[SearchHit], elapsed: float
    ) -> Sequence[SearchHit]:
        """Return the messages, the best one first. If it can't order them, return them as they are, and set `fault`.

        Args:
            query: The message of the person.
            question: What asks in it.
            hits: At least one message, in the order of the search.
            elapsed: Seconds that the search took, which are part of `recall.deadline`.
        """


class SearchEngine(Engine, Protocol):
    """An engine of an extension, with its own index of words, and vectors if it stores them."""

    def search_index(self) -> MessageIndex:
        """Return the search index of this database."""

    def vector_store(self, model: str, dimension: int, is_unit: bool) -> VectorStore:
        """Return the stored vectors of this database.

        Args:
            model: Name of the model, stored with the vectors.
            dimension: Number of numbers in a vector; 0 if it is known after the first one only.
            is_unit: True if vectors are stored as unit vectors in steps of 1 / `INT8_SCALE`, False if each has a length
                of its own.
        """


class OtherModel(ConfigError):
    """A store of several machines whose vectors are made by another model than that of this program."""


class Vector(Struct, frozen=True):
    """The vectors of a piece of a message, as they are stored.

    Attributes:
        message_id: Id of the message.
        piece: Number of the piece in the message.
        first: Start of the piece in the text of the message.
        last: End of the piece.
        own: The vector of the piece, in 8-bit numbers.
        words: The signs of the vectors of its words.
    """

    message_id: int
    piece: int
    first: int
    last: int
    own: bytes
    words: bytes


class Coverage(Struct, frozen=True):
    """The share of messages with a vector.

    Attributes:
        is_enough: True if vectors count in a search.
        has_gaps: True if messages have no vector yet.
    """

    is_enough: bool
    has_gaps: bool


class VectorSamples(Struct, frozen=True):
    """Messages of all ages whose vectors were made.

    Attributes:
        texts: The beginning of each text, with True if the message has a vector.
        gap: Time in epoch seconds of the first message whose vectors are yet to be made; None if there is none.
    """

    texts: Sequence[tuple[str, bool]]
    gap: float | None = None


class Nearness(Struct, frozen=True):
    """Cosines between messages and a question. Of each message, the nearest piece counts.

    Attributes:
        ids: Message ids, ascending. These may be some of the messages only.
        near: The cosine between the question and each message of `ids`, times `INT8_SCALE`.
        pieces: Number of the nearest piece of each message of `ids`.
        spans: Start and end of that piece in the text of each message of `ids`.
        mean: Mean of `near` over all messages.
        deviation: Standard deviation of `near` over all messages.
        highest: Largest `near` of all messages.
        rows: The nearest messages that fulfil the condition of `VectorStore.ask_nearest`, as rows of the index; None if
            they were not looked up.
    """

    ids: Array
    near: Array
    pieces: Array
    spans: Array
    mean: float
    deviation: float
    highest: float
    rows: Sequence[IndexRow] | None = None


class Surroundings(Struct, frozen=True):
    """Messages, the messages around them, and the words of both.

    Attributes:
        places: A message, its session, the distance of another message from it, and the id of the other message.
        words: Signs of the vectors of the words in the nearest piece of each message, by its id.
        nearness: Nearness of these messages at least.
    """

    places: Sequence[tuple[int, int, int, int]]
    words: dict[int, bytes]
    nearness: Nearness

    def among(self, ids: Sequence[int]) -> Surroundings | None:
        """Return the part that these messages have; None if not all of them are here."""
        own_ids = set(ids)
        places = [place for place in self.places if place[0] in own_ids]
        if own_ids - {place[0] for place in places}:
            return None
        others = {place[3] for place in places}
        words = {message_id: signs for message_id, signs in self.words.items() if message_id in others}
        return Surroundings(places, words, self.nearness)


class VectorStore(Protocol):
    """The vectors of one store, made by one model. Threads may share it."""

    def alone(self, timeout: float) -> contextlib.AbstractContextManager[object]:
        """Return a context in which this process makes vectors. Raises `Timeout` if another one has to end first."""

    def check_model(self, dimension: int = 0) -> None:
        """Raise `OtherModel` if a store of several machines has vectors by another model.

        Args:
            dimension: Number of numbers in a vector by this model; 0 if it is not known.
        """

    def take(self, count: int, dimension: int = 0) -> list[Any]:
        """Return the next messages without a vector: id, speaker, role and content of each.

        On an engine for several machines, no other process gets them for a while. Raises `OtherModel` as `check_model`.
        """

    def give_back(self, message_ids: Sequence[int]) -> None:
        """Let others take messages whose vectors were not made."""

    def save(self, message_ids: Sequence[int], vectors: Sequence[Vector], dimension: int) -> None:
        """Store the vectors of messages that `take` returned. Do nothing if all vectors are to be made again meanwhile.

        Args:
            message_ids: Ids of the messages. Some may have no vectors, because nothing in them can be read.
            vectors: Their vectors.
            dimension: Number of numbers in a vector.
        """

    def is_busy(self) -> bool:
        """Return True if other processes are making vectors."""

    def missing(self) -> int:
        """Return how many messages have no vector yet."""

    def ask_samples(self) -> Callable[[], VectorSamples]:
        """Return a function that returns beginnings of messages of all ages, and the first message without vectors."""

    def forget(self) -> None:
        """Delete all vectors, so that they are made again."""

    def dimension(self) -> int:
        """Return the number of numbers in a stored vector; 0 before the first one."""

    def change_dimension(self, dimension: int) -> bool:
        """Store the number of numbers in a vector. If it was another one, delete all vectors and return True.

        Raises `OtherModel` instead if several machines share the vectors.
        """

    def ask_coverage(self, user: str | None) -> Callable[[], Coverage]:
        """Return a function that returns how many messages of an owner, or of all owners, have a vector.

        The function raises `OtherModel` as `check_model`.
        """

    def ask_nearest(
        self, asked: Array, user: str | None, passing: Condition | None = None
    ) -> tuple[Callable[[], Nearness | None], bool]:
        """Return a function that returns the nearness of the nearest messages, and True if it asks no server.

        The function returns None if there is no vector.

        Args:
            asked: The vector of the question.
            user: Owner of the messages; None for all owners.
            passing: Condition on messages `m` and sessions `s` for `Nearness.rows`.
        """

    def ask_around(
        self, places: Sequence[Place], nearness: Nearness, asked: Array, distances: tuple[int, int]
    ) -> Callable[[], Surroundings] | None:
        """Return a function that returns `surroundings` of the messages at these places, which is one round trip less.

        Return None if nothing would be saved.
        """

    def surroundings(
        self, ids: Sequence[int], nearness: Nearness, asked: Array, distances: tuple[int, int]
    ) -> Surroundings:
        """Return the words of messages and of the messages around them.

        Args:
            ids: Ids of the messages.
            nearness: What `nearest` returned for the question.
            asked: The vector of the question.
            distances: Distances of the first and the last message around a message.
        """

    def description(self) -> str:
        """Return how the vectors are stored, or why there are none, for people; "" if there is only one way."""

    def remedy(self) -> str:
        """Return what a person can do so that the store has vectors; "" if there is nothing to do."""
