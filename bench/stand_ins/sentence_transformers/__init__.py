"""Stand-in for the package sentence-transformers: bags of words instead of a model, which no package index has."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np


class SentenceTransformer:
    """An embedder: texts with common words are near each other."""

    def __init__(self, name: str = "", **_: Any) -> None:
        self._dimension = 768 if "nomic" in name or "mpnet" in name else 384

    def get_sentence_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return self._dimension

    get_embedding_dimension = get_sentence_embedding_dimension

    def encode(self, sentences: str | Sequence[str], **_: Any) -> Any:
        """Return the vector of a text, or an array of the vectors of several."""
        if isinstance(sentences, str):
            return self._vector(sentences)
        return np.array([self._vector(text) for text in sentences])

    def _vector(self, text: str) -> Any:
        vector = np.zeros(self._dimension, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % self._dimension] += 1.0
        length = float(np.linalg.norm(vector))
        return vector / length if length else vector
