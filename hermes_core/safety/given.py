"""Secrets that a text gives to a name: `password=...`, "the password is ...", `"tokens": [...]`, `--token ...`.

A name alone is no secret ("password is required", `token: str`), so each way of writing one asks for more of the value
the less it says by itself: after `password=` nearly anything is one, in a sentence only what has digits and letters or
stands in quotes. Each pattern begins at a name and looks at a bounded piece behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes_core.safety.names import NAME_ABROAD, NAME_FOUND, SIGNS, kind_of
from hermes_core.safety.values import NO_SECRET, UNSEEN, compiled, looks_secret

_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "«": "»", "「": "」", "‘": "’"}
_QUOTED = "|".join(
    rf"{begin}{UNSEEN}{NO_SECRET}([^{end}\n]{{3,399}}[^{end}\n\\])(?=\\{{0,3}}{end})"
    for begin, end in _QUOTES.items()
)
_TICKED = rf"`{UNSEEN}{NO_SECRET}(?![,.;:])([^`\s]{{4,400}})(?=`)"
_VALUE = (
    rf"(?:{_QUOTED}|{_TICKED}|\[(?P<list>[^\[\]{{}}]{{4,4000}})"
    rf"|{UNSEEN}{NO_SECRET}(?P<bare>[^\s\"'`,;&)\]}}]{{6,}}))"
)
# \: JSON in a text of JSON; **: Markdown
_GIVEN = r"\\{0,3}[\"'*`]{0,3}\s{0,4}(?:=>|:=|==?|[:：＝])\*{0,2}\s{0,4}\\{0,3}"
_GAP = (
    r"(?:\s{1,3}(?:for|of|on|in|at|to|there|here|I|we|you)(?:\s{1,3}(?:[\w@'’()/-]|\.(?=\w)){1,40}){0,5}?)?"
)
_SAID = rf"{_GAP}(?:\s{{1,3}}(?:is|was|has been|will be|ist|est|es|to)(?:\s(?:now|still|just|currently|(?:set|changed|reset|updated|rotated) to))?:?\s{{1,3}}|\s?:\s{{1,3}})"
_ATTRIBUTE = r"\s{1,4}[\w:-]{1,20}\s?=\s?[\"'][^\"'<>\n]{0,80}[\"']"
_PAIR = rf"(?:[\"'],?(?:{_ATTRIBUTE}){{0,4}}?\s{{1,40}}|[ \t]{{0,4}}\r?\n[ \t]{{1,40}})[\"']?value[\"']?\s{{0,2}}[:=]\s{{0,4}}"
_NAMED = (
    rf"(?P<name>{NAME_FOUND}(?P<many>[sS])?)"
    rf"(?i:(?:(?P<given>{_GIVEN})|(?P<pair>{_PAIR})|(?P<said>{_SAID})|(?P<next>[ \t]{{1,4}})){_VALUE})"
)
_NAMED_ABROAD = rf"(?i)(?P<name>{NAME_ABROAD})(?P<many>s)?(?P<given>{_GIVEN}){_VALUE}"
_ITEM = r"[\"'](?P<value>[^\"'\s]{4,400})[\"']"

_CHANGED = r"(?i)\b(?:set|chang|reset|updat|rotat)\w{0,5}\s+(?:[\w'’]{1,20}\s+){0,4}\Z"
_OPTION = r"(?:^|\s)--?[\w-]{0,30}\Z"
_NETRC = r"\bmachine\s+\S{1,253}\s+(?:(?:login|account)\s+\S{1,120}\s+){0,2}\Z"
_LONG_KEY = r"(?=\D{0,30}\d\D{0,30}\d)[\w=-]{20,}"  # "the API key abc...", where no sign gives it
_LONG = 500
_BEFORE = 320  # characters that are looked at before a name

Judge = Callable[[re.Match[str], str, str, bool], bool]
"""Whether the value of a match is a secret: the match, the kind, the value, whether it stands in quotes."""


def without_named(text: str) -> str:
    """`text` without the values that stand behind an English name of a secret."""
    return _replaced(text, compiled(_NAMED), _is_secret)


def without_named_abroad(text: str) -> str:
    """`text` without the values that are given to a name of a secret in another language."""
    return _replaced(text, compiled(_NAMED_ABROAD), _is_secret_abroad)


def _replaced(text: str, pattern: re.Pattern[str], is_secret: Judge) -> str:
    """`text` without the secrets of all matches; where a match holds none, the search goes on behind its name."""
    pieces: list[str] = []
    done = at = 0
    while match := pattern.search(text, at):
        bare = match["bare"]
        within = bare is not None and len(bare) < _LONG and any(sign in bare for sign in SIGNS)
        at = match.end("name") if within or match["list"] is not None else match.end()
        kind = kind_of(match["name"])
        for start, end in _secrets(match, kind, is_secret):
            pieces += (text[done:start], f"[redacted:{kind}]")
            done = at = end
    return "".join([*pieces, text[done:]])


def _secrets(match: re.Match[str], kind: str, is_secret: Judge) -> Iterator[tuple[int, int]]:
    """Where the secrets of a match stand: one value, or those of a list."""
    start, end = match.span(match.lastindex or 0)
    if match["list"] is not None:
        for item in compiled(_ITEM).finditer(match.string, start, end):
            if looks_secret(item["value"], kind):
                yield item.span("value")
        return
    value = match.string[start:end]
    if match["bare"] is not None and match["given"] is None:
        value = value.rstrip(".?:!*")  # of the sentence
    if is_secret(match, kind, value, match["bare"] is None):
        yield start, start + len(value)


def _is_secret(match: re.Match[str], kind: str, value: str, quoted: bool) -> bool:
    given = match["given"] or match["pair"]
    if match["many"]:
        return looks_secret(value, kind)
    if given is not None:
        return quoted or _is_given(given, kind, value)
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    if match["said"] is not None:
        said = match["said"].lower().split()
        if said[-1] == "to" and len(said) == 1 and not compiled(_CHANGED).search(before):
            return False  # "give the password to bob1990"
        return (quoted and kind == "password") or looks_secret(value, kind)
    if compiled(_OPTION).search(before):
        return quoted or looks_secret(value, kind)
    if kind == "password":
        return looks_secret(value, kind) or compiled(_NETRC).search(before) is not None
    return looks_secret(value, kind) and compiled(_LONG_KEY).fullmatch(value) is not None


def _is_secret_abroad(match: re.Match[str], kind: str, value: str, quoted: bool) -> bool:
    if kind == "password" and not match["many"]:
        return quoted or _is_given(match["given"], kind, value)
    return looks_secret(value, kind)


def _is_given(sign: str, kind: str, value: str) -> bool:
    """Whether an unquoted value is more than a word of the sentence: "password: required" is not a secret."""
    if sign.rstrip(" \t\n*\\").endswith(("=", "＝")):
        return not value.endswith("(")
    if kind == "password" and (value.isdigit() or looks_secret(value, kind)):
        return True
    return (
        len(value) >= 8
        and "://" not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
    )
