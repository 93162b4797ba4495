"""Order of what a search found, by a server. If the server can't order it, the search keeps its own order and says so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from hermes_core import HermesHome
from hermes_core.config import RecallConfig
from hermes_core.errors import ConfigError, HermesError
from hermes_core.kit import clip, redact
from hermes_core.recall.query import analyse
from hermes_core.sessions.records import SearchHit
from hermes_memory_rerank.server import RerankServer

log = logging.getLogger(__name__)

# Messages of one request. TEI takes no more than 32 if it is not told otherwise.
MAX_TEXTS = 32

# Characters of a message that are sent: a search shows no longer parts. Models of this kind read about 512 tokens.
MAX_TEXT_CHARS = 800

# Seconds after which a server that failed is asked again. Otherwise each turn would wait for one that is down.
RETRY_AFTER_S = 30.0


class Reranker:
    """The order of a server, as `hermes_core.sessions.search.protocol.Reranker`.

    Args:
        server: The server; the error if its settings are incomplete.
        deadline: Seconds that a search and its order may take together, as `recall.deadline`.
        clock: Function that returns seconds.
    """

    depth = MAX_TEXTS

    def __init__(
        self,
        server: RerankServer | ConfigError,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._deadline, self._clock = server, deadline, clock
        self._retry_at = -float("inf")
        self.fault = ""
        if isinstance(server, ConfigError):
            self._failed(server)

    def order(
        self, query: str, question: str, hits: Sequence[SearchHit], elapsed: float
    ) -> Sequence[SearchHit]:
        """Return the messages in the order of the server; as they are if it does not answer. Then `fault` says why.

        Args:
            query: The message of the person.
            question: What asks in it.
            hits: What the search found, best first.
            elapsed: Seconds that the search took.
        """
        server, now = self._server, self._clock()
        if len(hits) < 2 or isinstance(server, ConfigError) or now < self._retry_at:
            return hits
        first, rest = hits[:MAX_TEXTS], hits[MAX_TEXTS:]
        clean = redact(query)
        # A part of a private key does not look like one, so the whole message is redacted first.
        asked = question if clean == query else analyse(clean).text
        left = self._deadline - elapsed
        try:
            if left <= 0:
                raise HermesError(
                    f"the search took {elapsed:.1f} s, and recall.deadline is {self._deadline:g}"
                )
            scores = server.scores(clip(asked, MAX_TEXT_CHARS), [*map(sendable_text, first)], left)
        except HermesError as exc:
            self._retry_at = self._clock() + (getattr(exc, "retry_after", None) or RETRY_AFTER_S)
            self._failed(exc)
            return hits
        if self.fault:
            log.info("recall.rerank works again")
        self.fault = ""
        return [*_ordered(first, scores), *rest]

    def close(self) -> None:
        """Close the connections to the server."""
        if isinstance(self._server, RerankServer):
            self._server.close()

    def _failed(self, exc: HermesError) -> None:
        """Set `fault`, and log it if it is new."""
        fault = f"recall.rerank does not work: {exc}; what is recalled keeps the order of the search"
        if fault != self.fault:
            log.warning("%s", fault)
        self.fault = fault


def make_reranker(recall: RecallConfig, home: HermesHome) -> Reranker:
    """Return the reranker of the settings; with a fault if they are incomplete."""
    try:
        return Reranker(RerankServer(recall, home), recall.deadline)
    except ConfigError as exc:
        return Reranker(exc, recall.deadline)


def sendable_text(hit: SearchHit) -> str:
    """Return what may be sent of a message: the part that answers best, without secrets.

    Of a message with a secret, it is the beginning: a part of a private key does not look like one, so that the whole
    message is redacted before it is cut.
    """
    clean = redact(hit.text)
    text = hit.excerpt if clean == hit.text else clean
    return redact(
        f"{hit.speaker}: {clip(text, MAX_TEXT_CHARS)}" if hit.speaker else clip(text, MAX_TEXT_CHARS)
    )


def _ordered(hits: Sequence[SearchHit], scores: Sequence[float]) -> list[SearchHit]:
    """Return the messages, the best score first.

    Statements of one matter have the best score of them, so that they stay in the order of the search: it knows which of
    them is the newest.
    """
    ids = {hit.message_id for hit in hits}
    matters = [hit.newer if hit.newer in ids else hit.message_id for hit in hits]
    best: dict[int | None, float] = {}
    for matter, score in zip(matters, scores, strict=True):
        best[matter] = max(score, best.get(matter, score))
    return [hits[at] for at in sorted(range(len(hits)), key=lambda at: -best[matters[at]])]
