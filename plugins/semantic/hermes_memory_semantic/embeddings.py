"""Vectors of texts by a server with OpenAI's `/embeddings`, for `recall.embeddings: http`.

The texts leave this machine. Secrets in them are redacted first, as in what providers get.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_core import HermesHome
from hermes_core.config import Credentials, RecallConfig
from hermes_core.errors import BackendUnavailable, ConfigError
from hermes_core.kit import clip, redact
from hermes_core.packages import install_remedy
from hermes_memory_semantic.dense import DISTRIBUTION, cut

if TYPE_CHECKING:
    from hermes_memory_semantic.dense import Encoding

# Texts of one request. Servers limit it to 32 (TEI) or more.
BATCH = 32

# Characters of a text that are sent: most models read no more than 8,192 tokens, and some refuse longer texts.
MAX_TEXT_CHARS = 8_000

# Seconds that a question waits for the server. Then it is searched by words.
QUESTION_TIMEOUT_S = 3.0

# Seconds for a batch of messages, which nobody waits for.
BATCH_TIMEOUT_S = 60.0

# Further tries for a batch of a server that is busy or down, and the longest pause before one, in seconds.
RETRIES = 2
MAX_PAUSE_S = 10.0

_MARK = re.compile(r"\[redacted:\w+\]")


@dataclass(frozen=True, slots=True)
class EmbeddingServer:
    """A server of embeddings: its address with /v1, the model, and the key ("" for none)."""

    url: str
    model: str
    key: str = ""


def embedding_server(recall: RecallConfig, home: HermesHome) -> EmbeddingServer:
    """Return the server that the settings name."""
    key = Credentials(home).get(recall.embeddings_key_env) if recall.embeddings_key_env else None
    return EmbeddingServer(recall.embeddings_url, recall.embeddings_model, key or "")


def redacted_pieces(text: str) -> list[tuple[int, int, str]]:
    """Return the pieces of a text without its secrets: of each its start and end in `text`, and what may be sent of it.

    The text is redacted before it is cut, because a part of a private key does not look like one.
    """
    clean = redact(text)
    spans = cut(clean)
    places = spans if clean == text else _places_in(text, clean, spans)
    return [(*place, clean[first:last]) for place, (first, last) in zip(places, spans, strict=True)]


def _places_in(text: str, clean: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where parts of a redacted text stand in `text`. What is between two marks of redaction is in both texts."""
    marks = [mark.span() for mark in _MARK.finditer(clean)]
    starts = [0, *(end for _, end in marks)]
    ends = [*(start for start, _ in marks), len(clean)]
    origins: list[int] = []
    at = 0
    for first, last in zip(starts, ends, strict=True):
        at = max(text.find(clean[first:last], at), at)
        origins.append(at)
        at = min(at + last - first, len(text))
    origins[-1] = max(len(text) - (ends[-1] - starts[-1]), 0)

    def place(offset: int) -> int:
        number = bisect_right(starts, offset) - 1
        return origins[number] + min(offset, ends[number]) - starts[number]

    return [(place(first), place(last)) for first, last in spans]


class HttpEncoder:
    """An encoder of texts as unit vectors by a server. It makes no vectors of words. Threads may share it.

    Attributes:
        model: Name of the model and its server, stored with each vector, because vectors of others can't be compared.

    Raises:
        ConfigError: The address or the name of the model is missing, or numpy is not installed.
    """

    def __init__(self, server: EmbeddingServer) -> None:
        for key, value in (("url", server.url), ("model", server.model)):
            if not value:
                raise ConfigError(
                    f"recall.embeddings_{key} is not set, and recall.embeddings is 'http'",
                    f"hermes-memory config set recall.embeddings_{key} VALUE",
                )
        from hermes_core.kit.http import Api  # only who uses a server needs an HTTP client

        try:
            import numpy  # noqa: F401 (without it no vector can be compared)
        except ImportError as exc:
            raise ConfigError(f"numpy can't be loaded: {exc}", install_remedy(DISTRIBUTION)) from exc
        headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
        setting = "recall.embeddings_url"
        self._api = Api(
            server.url, name=setting, setting=setting, headers=headers, timeout=BATCH_TIMEOUT_S, is_model=True
        )
        self._name = server.model
        self.model = f"http {server.model} {self._api.url}"

    def encode_question(self, text: str) -> Encoding:
        """Encode a question. It waits for the server no longer than `QUESTION_TIMEOUT_S`."""
        (encoding,) = self._encode([text], QUESTION_TIMEOUT_S)
        return encoding

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts in batches. A batch is tried again if the server is busy or down."""
        encodings: list[Encoding] = []
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            for attempt in range(RETRIES + 1):
                try:
                    encodings += self._encode(batch, BATCH_TIMEOUT_S)
                    break
                except BackendUnavailable as exc:
                    if attempt == RETRIES:
                        raise
                    # A server that names no pause gets a longer one each time.
                    time.sleep(min(exc.retry_after or 0.2 * 4**attempt, MAX_PAUSE_S))
        return encodings

    def close(self) -> None:
        """Close the connections to the server."""
        self._api.close()

    def _encode(self, texts: Sequence[str], timeout: float) -> list[Encoding]:
        import numpy

        from hermes_memory_semantic.dense import Encoding

        sent = [clip(redact(text), MAX_TEXT_CHARS) for text in texts]
        answer = self._api.post("/embeddings", {"model": self._name, "input": sent}, timeout=timeout)
        rows = _rows(answer, len(texts))
        if rows is None:
            raise BackendUnavailable(
                f"{self._api.url!r} answered {str(answer)[:100]!r}, not {len(texts)} embeddings",
                "see that recall.embeddings_url has OpenAI's /embeddings and knows the model",
            )
        vectors = numpy.array(rows, numpy.float64)
        largest = numpy.abs(vectors).max(axis=1, keepdims=True)
        vectors /= numpy.where(largest > 0, largest, 1)  # the square of a huge number would be infinite
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = (vectors / numpy.where(lengths > 0, lengths, 1)).astype(numpy.float32)
        no_words = numpy.empty((0, vectors.shape[1]), numpy.float32)
        return [Encoding(vector, no_words) for vector in vectors]


def _rows(answer: Any, count: int) -> list[list[float]] | None:
    """Return the vectors of an answer in the order of the texts; None if it does not hold one for each text."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != count:
        return None
    rows: dict[int, list[float]] = {}
    for place, item in enumerate(data):
        vector = item.get("embedding") if isinstance(item, dict) else None
        if not isinstance(vector, list) or not vector or not all(map(_is_number, vector)):
            return None
        index = item.get("index", place)
        if not isinstance(index, int):
            return None
        rows[index] = vector
    complete = set(rows) == set(range(count)) and len(set(map(len, rows.values()))) == 1
    return [rows[number] for number in range(count)] if complete else None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        return False
