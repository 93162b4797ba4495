"""Words of a text as FTS5 makes them; checked against the vocabulary of an index of this SQLite."""

from __future__ import annotations

import itertools
import random
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hermes_core.recall.porter import MAX_TOKEN_BYTES, index_word_spans, index_words

PROJECT = Path(__file__).parents[2]

# Every ending that a step of the algorithm compares, so that random words meet all of its branches.
ENDINGS = [
    "s",
    "es",
    "sses",
    "ies",
    "ss",
    "ed",
    "eed",
    "ing",
    "at",
    "bl",
    "iz",
    "ated",
    "bled",
    "ized",
    "y",
    "ational",
    "tional",
    "enci",
    "anci",
    "izer",
    "logi",
    "bli",
    "alli",
    "entli",
    "eli",
    "ousli",
    "ization",
    "ation",
    "ator",
    "alism",
    "iveness",
    "fulness",
    "ousness",
    "aliti",
    "iviti",
    "biliti",
    "icate",
    "ative",
    "alize",
    "iciti",
    "ical",
    "ful",
    "ness",
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "sion",
    "tion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "e",
    "l",
    "ll",
]

SCRIPTS = (
    "El año pasado visitamos Málaga; São Paulo, Łódź, Đà Nẵng, Ærøskøbing, naïve façades, ǡ Ǯ Ǿ ſtraße",
    "cafe\u0301s and co\u0308operating n\u0303andu\u0301es, z\u0334algo, a\u0305b",
    "Документы сервера, Ёлка и ёлки, її ґанок, ЙОД",
    "Η Αθήνα και οι ΔΡΌΜΟΙ της, ϐιβλίο, ὁ ἄνθρωπος",
    "السيرفر يعمل، والمدرسةُ كَبيرة ۱۲۳ می\u200cروم",
    "עִבְרִית בירושלים צה״ל",
    "हिन्दी में दस्तावेज़, தமிழ் சொற்கள், বাংলা ভাষা",
    "ქართული ენა, Հայերեն լեզու, አማርኛ ቋንቋ, ᎣᏏᏲ",
    "日本語のテキスト 部署失败 한국어 ไทย ພາສາລາວ",
    "x² ½ ⅷ ①st 3.14e-10 0x1F a_b __init__ don't o’clock rock'n'roll",
    "path/to/file.py --verbose user@example.com https://example.com/a?b=c#d C++ C# $HOME",
    "soft\u00adhyphen zero\u200bwidth joiner\u200dword \ue000private\uf8ff a\ufeffb",
    "ÆØÅ İstanbul ıssız DŽ ǆ ŉ ǰ ﬁne ﬀ ẞ K Å Ω µm",
)


def vocabulary(texts: Sequence[str]) -> list[list[str]]:
    """Return the tokens of each text in an index of SQLite, in order."""
    connection = sqlite3.connect(":memory:")
    # FTS5's stemmer cuts between the bytes of a letter that ends with two equal ones.
    connection.text_factory = lambda data: data.decode(errors="ignore")
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize='porter unicode61 remove_diacritics 2')"
        )
        connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'instance')")
        connection.executemany("INSERT INTO t (rowid, x) VALUES (?, ?)", enumerate(texts, 1))
        tokens: list[list[str]] = [[] for _ in texts]
        for document, term in connection.execute("SELECT doc, term FROM v ORDER BY doc, offset"):
            tokens[document - 1].append(term)
        return tokens
    finally:
        connection.close()


def clipped(tokens: Sequence[str]) -> list[str]:
    return [token.encode()[:MAX_TOKEN_BYTES].decode(errors="ignore") for token in tokens]


def project_texts() -> Iterator[str]:
    for pattern in ("docs/**/*.md", "hermes_core/**/*.py", "tests/recall/*.py", "plugins/**/*.py"):
        for path in sorted(PROJECT.glob(pattern)):
            yield path.read_text(encoding="utf-8")


def test_words_of_docs_and_code_are_those_of_fts5() -> None:
    texts = list(project_texts())
    assert len(texts) > 100
    for text, tokens in zip(texts, vocabulary(texts), strict=True):
        assert index_words(text) == clipped(tokens)


@pytest.mark.parametrize("text", SCRIPTS)
def test_words_of_a_script_are_those_of_fts5(text: str) -> None:
    assert index_words(text) == clipped(vocabulary([text])[0])


def test_every_character_is_cut_and_folded_as_fts5_does() -> None:
    # Numbers around the character show whether it separates words, and the second one whether it is a word.
    # Left out are long ranges of ideographs and of private characters.
    codes = (*range(1, 0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x10000), *range(0x1F000, 0x1FB00))
    characters = [chr(code) for code in codes]
    texts = [f"9{character}9 {character}" for character in characters]
    differing = [
        character
        for character, text, expected in zip(characters, texts, vocabulary(texts), strict=True)
        if index_words(text) != expected
    ]
    old = unicodedata.ucd_3_2_0
    assert all(character.casefold() != character for character in differing)
    assert all(old.category(character) == "Cn" for character in differing)


def test_stems_are_those_of_fts5_for_all_endings() -> None:
    random.seed(1)
    words = {"".join(letters) for letters in itertools.product("aebsy", repeat=4)}
    for _ in range(40_000):
        word = "".join(random.choices("aeioubcdlstyzwxrnmf", k=random.randint(0, 5)))
        word += "".join(random.choices(ENDINGS, k=random.randint(0, 3)))
        words.add(word[:1] + random.choice("éßøжतñ") + word[1:] if random.random() < 0.05 else word)
    asked = sorted(filter(None, words))
    differing = [
        (word, tokens)
        for word, tokens in zip(asked, vocabulary(asked), strict=True)
        if index_words(word) != tokens
    ]
    assert differing == []


def test_a_long_token_is_clipped_at_a_letter() -> None:
    assert index_words("a" * 5_000 + " end") == ["a" * MAX_TOKEN_BYTES, "end"]
    assert index_words("жы" * 40) == ["жы" * (MAX_TOKEN_BYTES // 4)]


def test_spans_are_those_of_the_words_in_the_text() -> None:
    text = "Two CAFÉS, e\u0301clairs"
    spans = list(index_word_spans(text))
    assert [word for word, _, _ in spans] == index_words(text)
    assert [text[start:end] for _, start, end in spans] == re.findall(r"[^\s,]+", text)
