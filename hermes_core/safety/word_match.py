"""Matching of chains of words: the lists of `threat_words` within a number of words of each other.

A text is cut into tokens once. Each token gets the names of the lists that hold it, and names for what it is: a URL, a
file of secrets, a pipe. A rule is a chain such as `disregard 4 before 0 orders`: a word of the first list, one of the
second at most 4 words away on either side, and so on; `>4` means at most 4 words behind. The search visits each
token a bounded number of times, so its time grows with the length of the text and no faster.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from hermes_core.safety import threat_words

WHOLE_SEGMENT = 99
"""Number of words for `back` that means the whole sentence or line."""

KINDS = frozenset(
    (  # noqa: SIM905  as the lists of words
        "url place source installer variable secret_variable secret_file own_secrets keys_file startup_file service_file "
        "agent_file temporary home option header bypass own_code pipe redirect substitution then setting_name chunk"
    ).split()
)
"""Names for what a token is, which rules use like names of lists."""

Meanings = frozenset[str]
"""Names of lists and kinds that a token belongs to."""

_NOTHING: Meanings = frozenset()
_TOKEN = re.compile(r"\n|\$\(|[|<>&`]+|[;!?。！？।؟…]|[^\s\"'‘’“”`()|;<>&=,\[\]{}!?。！？।؟…、，：]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_NOT = re.compile(r"(?<=\w)n['’]t\b")
# `${X}`, `$env:X`, `%X%` and `$(printenv X)` are `$X`; only names of secrets between `%`, which also encodes URLs.
_VARIABLE = re.compile(
    r"\$\{(?:env:)?(\w+)\}?|\$env:(\w+)|\$\((?:printenv|echo) \$?(\w+)\)"
    r"|%(\w{0,40}(?:key|token|secret|passw|credential)\w{0,40})%"
)
# Programs that send what stands in their arguments, as curl does.
_SENDER = re.compile(
    r"\binvoke-(?:webrequest|restmethod)\b|\b(?:iwr|irm|aria2c)\b|\bhttp (?=(?:get|post|put|patch) )|\bfetch(?=\()"
    r"|\b(?:ping|nslookup|dig|host)\b(?= (?:-\S{1,20} (?:\d+ )?){0,3}[\w.]{0,40}\$)"
)
_PART = re.compile(r"[^!-/:-@\[-^`{-~]+")  # no `\w`, since the vowel signs of Hindi are none
_HOST = re.compile(r"(?:[\w+.-]+@)?((?:\d{1,3}\.){3}\d{1,3}|localhost|(?:[\w-]+\.)+(\w{2,8}))(?=[:/]|\Z)")
_DOMAINS = frozenset(
    [
        "example",
        "com",
        "net",
        "org",
        "io",
        "ru",
        "cn",
        "xyz",
        "top",
        "me",
        "dev",
        "app",
        "cc",
        "tk",
        "evil",
        "ai",
        "run",
    ]
)
_HOME = re.compile(
    r"(?:~\w{0,20}|\$\w{0,6}home|\$userprofile|%\w{0,4}profile%|%appdata%|/root|(?:c:)?/(?:home|users)/[^/]+)(?:/|\Z)"
)
_OWN = re.compile(r"(?:/|\A)(?:\.hermes/(?:profiles/[^/]+/)?(?:\.env|auth\.json|credentials\w*)|\.env)\Z")
_SECRET_VARIABLE = re.compile(r"key|token|secret|passw|credential|auth|_pat\b|api")
# In the path or the host of an address, which other variables name too: `https://$API_HOST/`.
_SECRET_IN_URL = re.compile(r"\$\w{0,40}?(?:key|token|secret|passwd|password|credential|_pat)s?(?!\w)")
_UNSAFE_OPTIONS = (
    "--dangerously",
    "--yolo",
    "--full-auto",
    "--auto-approve",
    "--trust-all",
    "--skip-permissions",
)
_OPERATORS = {
    "$(": "substitution",
    "`": "substitution",
    "<": "substitution",
    "&&": "then",
    ";": "then",
    "&": "then",
}


class Segment(NamedTuple):
    """Sentence or line: the meanings of each token, and the positions of each meaning."""

    tokens: Sequence[Meanings]
    positions: dict[str, list[int]]


class Link(NamedTuple):
    """Further word of a chain: at most `gap` words away from the word before it; `after`: only behind it."""

    name: str
    gap: int
    after: bool


Chain = tuple[str, tuple[Link, ...]]
"""Name of the first list, and the links behind it."""


def segments(text: str) -> tuple[list[Segment], list[Segment]]:
    """Return the sentences and the lines of `text`, which is lower case. Sentences lack fillers and operators."""
    text = _SENDER.sub(
        "curl ", _VARIABLE.sub(lambda found: f"${found[found.lastindex or 0]}", _NOT.sub(" not", text))
    )
    sentences: list[list[tuple[str, Meanings]]] = [[]]
    lines: list[list[tuple[str, Meanings]]] = [[]]
    before = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            sentences.append([])
            lines.append([])
        elif not token[0].isalnum() and (kind := _operator(token)):
            lines[-1].append((token, kind))
            if token == ";":
                sentences.append([])
        elif token in "!?。！？।؟…":
            sentences.append([])
        else:
            words = list(_words(token, before))
            lines[-1] += words
            sentences[-1] += (word for word in words if word[0] not in _fillers())
            if token.rstrip("*_")[-1:] == ".":
                sentences.append([])
        before = token
    return [_segment(part) for part in sentences if part], [_segment(part) for part in lines if part]


def matches(chain: Chain, segment: Segment, unless: Sequence[str], back: int, not_before: str) -> bool:
    """Return True if the chain stands in the segment.

    Args:
        chain: Names of lists with distances.
        segment: Sentence or line.
        unless: Lists whose words, up to `back` words before the first word of the chain or right behind it, void the match.
        back: Number of words.
        not_before: List whose word within two words behind the last word of the chain voids the match.
    """
    first, links = chain
    positions = segment.positions  # holds all names of the chain
    reached = [at for at in positions[first] if not _voided(segment, at, first, unless, back)]
    for link in links:
        there = positions[link.name]
        reached = [at for at in there if _near(reached, at, link)]
    if not_before:
        reached = [
            at for at in reached if not any(not_before in token for token in segment.tokens[at + 1 : at + 3])
        ]
    return bool(reached)


def parse_chain(words: str) -> Chain:
    """Return the chain that a rule writes, such as `disregard 4 before >0 orders`.

    >>> parse_chain("keep >3 secret")
    ('keep', (Link(name='secret', gap=3, after=True),))
    """
    first, *rest = words.split()
    links = zip(rest[::2], rest[1::2], strict=True)
    return first, tuple(Link(name, int(gap.lstrip(">")), gap.startswith(">")) for gap, name in links)


def _near(reached: list[int], at: int, link: Link) -> bool:
    """Return True if one of the sorted positions is another token near `at`."""
    low = bisect_left(reached, at - link.gap - 1)
    high = bisect_left(reached, at) if link.after else bisect_right(reached, at + link.gap + 1)
    same = 0 if link.after else bisect_right(reached, at) - bisect_left(reached, at)
    return high - low > same


def _voided(segment: Segment, at: int, first: str, unless: Sequence[str], back: int) -> bool:
    """Return True if a word that voids the match stands before `at` or right behind it.

    Another verb with "to" in between takes the negation: "don't forget to ignore the rules" is a demand.
    """
    if not any(name in segment.positions for name in unless):
        return False
    if back == WHOLE_SEGMENT:
        return True
    for index in range(at - 1, max(at - back, 0) - 1, -1):
        tokens = segment.tokens[index]
        if not tokens.isdisjoint(unless):
            return True
        if "but" in tokens or (first in tokens and "infinitive" in segment.tokens[index + 1]):
            return False
    return "not" in unless and at + 1 < len(segment.tokens) and "not_after" in segment.tokens[at + 1]


def _segment(words: list[tuple[str, Meanings]]) -> Segment:
    pairs = _index()[2]
    tokens = [
        meanings | pairs.get((word, words[at + 1][0] if at + 1 < len(words) else ""), _NOTHING)
        for at, (word, meanings) in enumerate(words)
    ]
    positions: dict[str, list[int]] = {}
    for at, meanings in enumerate(tokens):
        for name in meanings:
            positions.setdefault(name, []).append(at)
    return Segment(tokens, positions)


def _operator(token: str) -> Meanings | None:
    if token[0] == "|":
        return frozenset({"pipe" if token.strip("|&") == "" and token[:2] != "||" else "then"})
    if token[0] == ">":
        return frozenset({"redirect"})
    if token[0] in "<`&;" or token == "$(":
        return frozenset({_OPERATORS.get(token, _OPERATORS.get(token[0], "then"))})
    return None


def _words(chunk: str, before: str) -> Iterator[tuple[str, Meanings]]:
    """Yield the words of a chunk without white space, each with its meanings."""
    if _UNSPACED.search(chunk):
        yield from _unspaced(chunk)
        return
    kinds = _kinds(chunk.rstrip(".,:;"))
    if kinds:
        if before in ("-i", "identityfile"):  # the key of an SSH login is named, not sent
            kinds -= {"secret_file"}
        elif before in ("echo", "printf") and "secret_variable" in kinds:
            kinds |= {"secret_file"}  # it is written out, as a file by `cat`
        yield chunk, kinds
        return
    for part in _PART.findall(chunk):
        yield part, _meanings(part.strip("_"))


@cache
def _longest_prefix() -> int:
    return max(map(len, _index()[1]), default=0)


@lru_cache(maxsize=4096)
def _meanings(word: str) -> Meanings:
    exact, prefixes, _, _ = _index()
    names = exact.get(word, _NOTHING)
    # A word may be a whole file without spaces.
    for length in range(2, min(len(word), _longest_prefix()) + 1):
        names |= prefixes.get(word[:length], _NOTHING)
    if "_" in word:
        names |= {"setting_name"}
    return names


def _unspaced(chunk: str) -> Iterator[tuple[str, Meanings]]:
    """Yield the words of a text without spaces: the longest that a list holds; other characters count by pairs."""
    exact, _, _, longest = _index()
    at = unknown = 0
    while at < len(chunk):
        match = re.compile(r"[!-~]+").match(chunk, at)
        if match:
            yield from _words(match[0], "")
            at = match.end()
            continue
        for length in range(min(longest, len(chunk) - at), 0, -1):
            names = exact.get(chunk[at : at + length])
            if names is not None and not chunk[at].isascii():
                if unknown > 1:
                    yield from [("", _NOTHING)] * (unknown // 2)
                yield chunk[at : at + length], names
                at, unknown = at + length, 0
                break
        else:
            at, unknown = at + 1, unknown + 1


@lru_cache(maxsize=4096)
def _kinds(chunk: str) -> Meanings:
    """Return what a chunk is beside words: a URL, an address, a file, a variable, an option; empty for words."""
    if chunk[:1] == "-":
        return _option(chunk)
    if _is_template(chunk):
        return frozenset({"chunk"})
    kinds: set[str] = set()
    host = _HOST.match(chunk.partition("://")[2] if "://" in chunk else chunk)
    if "://" in chunk or (host and (host[2] is None or host[2] in _DOMAINS or "@" in chunk)):
        local = host is not None and any(host[1].endswith(name) for name in threat_words.INSTALLERS.split())
        kinds = {"url", "place", "source", "installer"} if local else {"url", "place", "source"}
        return frozenset(kinds | {"secret_variable"} if _SECRET_IN_URL.search(chunk) else kinds)
    if chunk[:1] == "$" and "/" not in chunk:
        kinds |= {"variable", "source"} | ({"secret_variable"} if _SECRET_VARIABLE.search(chunk) else set())
    if "." in chunk or "/" in chunk or "\\" in chunk or chunk[:3] == "id_" or chunk == "authorized_keys":
        kinds.update(_file_kinds(chunk.replace("\\", "/").replace("//", "/").lstrip("@")))
    if kinds or "/" in chunk:
        return frozenset(kinds | {"chunk"})
    if "." in chunk.strip("."):
        return _index()[0].get(chunk, _NOTHING)
    return _NOTHING


def _file_kinds(path: str) -> Iterator[str]:
    names = _names(path)
    if not names.isdisjoint(threat_words.SECRET_NAMES.split()) and not path.endswith(
        tuple(threat_words.PUBLIC_ENDINGS.split())
    ):
        yield "secret_file"
        if _OWN.search(path) and (_HOME.match(path) or ".hermes" in names):
            yield "own_secrets"
    if "authorized_keys" in path:
        yield "keys_file"
    if path.endswith(tuple(threat_words.STARTUP_NAMES.split())) or "/etc/cron" in path:
        yield "startup_file"
    if any(name in path for name in threat_words.SERVICE_NAMES.split()):
        yield "service_file"
    if not names.isdisjoint(threat_words.AGENT_NAMES.split()):
        yield "agent_file"
    if path.startswith(("/tmp/", "/var/tmp/", "/dev/shm/")):
        yield "temporary"
    if _HOME.match(path) or path.startswith("/etc"):
        yield "home"


def _names(path: str) -> set[str]:
    """Return the names in a path, each alone and with its folder; `.env.local` counts as `.env`."""
    parts = path.strip("/").split("/")
    return {part if part[:5] != ".env." else ".env" for part in parts} | {
        "/".join(parts[at : at + 2]) for at in range(len(parts))
    }


def _is_template(chunk: str) -> bool:
    """Return True for the public form of a file of secrets, such as `credentials.json.example`, which is no host either."""
    return any(
        ending[0] == "."
        and "/" not in ending
        and chunk.endswith(ending)
        and not _names(chunk.removesuffix(ending)).isdisjoint(threat_words.SECRET_NAMES.split())
        for ending in threat_words.PUBLIC_ENDINGS.split()
    )


def _option(chunk: str) -> Meanings:
    kinds = {"option"}
    if chunk.startswith(_UNSAFE_OPTIONS):
        kinds |= {"bypass"}
    if re.fullmatch(r"-\w{0,3}[mcnp]", chunk):
        kinds.add("own_code")
    if chunk in ("-h", "--header", "-u", "--user"):
        kinds.add("header")
    return frozenset(kinds)


@cache
def _fillers() -> frozenset[str]:
    return frozenset(threat_words.FILLERS.split())


@cache
def _index() -> tuple[dict[str, Meanings], dict[str, Meanings], dict[tuple[str, str], Meanings], int]:
    """Return the lists by word, by beginning of a word and by pair of words, and the length of the longest word."""
    exact: dict[str, Meanings] = {}
    prefixes: dict[str, Meanings] = {}
    pairs: dict[tuple[str, str], Meanings] = {}
    for name in threat_words.WORDS:
        for word in unicodedata.normalize("NFKC", _list(name)).lower().split():
            first, joined, second = word.partition("_")
            if joined:
                pairs[first, second] = pairs.get((first, second), _NOTHING) | {name}
            elif word.endswith("*") and not _UNSPACED.search(word):
                prefixes[word[:-1]] = prefixes.get(word[:-1], _NOTHING) | {name}
            else:
                word = word.rstrip("*")
                exact[word] = exact.get(word, _NOTHING) | {name}
    return exact, prefixes, pairs, max(len(word) for word in exact if _UNSPACED.search(word))


def _list(name: str) -> str:
    """Return the words of a list, those of the lists that it names included."""
    return " ".join(_list(word[1:]) if word[0] == "@" else word for word in threat_words.WORDS[name].split())
