"""Requests to a server with a reranking model, in the forms of Cohere, Jina, text-embeddings-inference and llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hermes_core import HermesHome
from hermes_core.config import Credentials, RecallConfig
from hermes_core.errors import ConfigError
from hermes_core.kit.http import Api


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an API.

    Attributes:
        base: Path of the API if the address has none.
        texts: Key of the texts in a request.
        score: Key of a score in an answer.
        needs_model: True if a request names the model.
        options: Further parameters of a request.
    """

    base: str
    texts: str = "documents"
    score: str = "relevance_score"
    needs_model: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


# Without `top_n`, each of them scores all texts. Jina sends the texts back unless told not to, and TEI refuses a text that is
# too long for its model unless it may cut it.
FORMS = {
    "cohere": Form("/v2", needs_model=True),
    "jina": Form("/v1", needs_model=True, options={"return_documents": False}),
    "tei": Form("", texts="texts", score="score", options={"truncate": True}),
    "llama.cpp": Form("/v1"),
}


class RerankServer:
    """A client of a server. Threads may share it.

    Raises:
        ConfigError: The address is missing or is none, or the name of the model is missing.
    """

    def __init__(self, recall: RecallConfig, home: HermesHome) -> None:
        self._form = FORMS[recall.rerank_form]
        self._model = recall.rerank_model
        for name, is_missing in (
            ("url", not recall.rerank_url),
            ("model", self._form.needs_model and not self._model),
        ):
            if is_missing:
                raise ConfigError(
                    f"recall.rerank_{name} is not set, and recall.rerank is 'http' in the form {recall.rerank_form!r}",
                    f"hermes-memory config set recall.rerank_{name} VALUE",
                )
        key_name = recall.rerank_key_env
        key = Credentials(home).get(key_name) if key_name else None
        # People copy the whole address of an API from its page.
        url = recall.rerank_url.rstrip("/").removesuffix("/rerank")
        self._api = Api(
            url if urlsplit(url).path else url + self._form.base,
            name="recall.rerank_url",
            setting="recall.rerank_url",
            key=key_name,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            is_model=True,
        )

    @property
    def label(self) -> str:
        """The model and the address, for people."""
        return " at ".join(filter(None, (self._model, self._api.url)))

    def scores(self, question: str, texts: Sequence[str], timeout: float) -> list[float]:
        """Return for each text how well it answers the question; only the order of the scores has a meaning.

        Raises:
            ProviderError: The server did not answer within `timeout` seconds, refused, or answered something else.
        """
        form = self._form
        request = {"query": question, form.texts: list(texts), **form.options}
        if self._model:
            request["model"] = self._model
        answer = self._api.post("/rerank", request, timeout=timeout)
        rows = answer.get("results") if isinstance(answer, dict) else answer
        scores = _scores(rows, form.score)
        if sorted(scores) != list(range(len(texts))):
            raise self._api.backend.unexpected(answer)
        return [scores[number] for number in range(len(texts))]

    def close(self) -> None:
        """Close the connections to the server."""
        self._api.close()


def _scores(rows: Any, key: str) -> dict[int, float]:
    """Return the scores of an answer by the number of the text; none if a row has another form."""
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else ():
        index, score = (row.get("index"), row.get(key)) if isinstance(row, dict) else (None, None)
        if not isinstance(index, int) or isinstance(index, bool) or index in scores:
            return {}
        if not isinstance(score, int | float) or isinstance(score, bool):
            return {}
        try:
            scores[index] = float(score)
        except OverflowError:
            return {}
    return scores if all(map(math.isfinite, scores.values())) else {}
