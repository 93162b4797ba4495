"""Redaction of text that leaves the process for a provider, a log, a terminal, a model or another program.

A secret is replaced by `[redacted:KIND]`, so that a reader still sees that a value stood there: keys of known services,
private keys, passwords and tokens by their names. Random text that names no secret stays: hashes, UUIDs, commit ids.
Redacting a text twice gives the same text as once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import Any

from hermes_core.safety.assignments import (
    NO_SECRET,
    UNSEEN,
    Name,
    compiled,
    is_code,
    is_name,
    kind_of,
    looks_secret,
    names_a_secret,
    names_a_secret_abroad,
    secret_name,
    tells_no_secret,
    without_arguments,
    without_blocks,
    without_named,
    without_named_abroad,
)
from hermes_core.safety.key_formats import without_keys

JSON = None | bool | int | float | str | list[Any] | dict[str, Any]


_AUTHORIZATION = (
    r"(?i)((?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"'`]?+(?:(?:bearer|basic|token|apikey|digest|negotiate|aws4-hmac-sha256)\s+)?+"
    rf"|\bx-(?:api-key|auth-token|access-token|goog-api-key)[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?){UNSEEN}{NO_SECRET}([^\s\"',;]{{6,}})"
)
_COOKIES = r"(?i)\bcookie[\"']?\s{0,4}:[^\n\"'\\]{1,4000}"
_COOKIE = rf"((?:^|[;:])\s{{0,4}}[\w.-]{{1,60}}=){UNSEEN}{NO_SECRET}(?=[^;]{{0,200}}?[0-9])([^\s;]{{16,}})"
_BEARER = rf"(?i)(\bbearer\s{{1,4}}){UNSEEN}(?=[\w.~+/=-]{{0,200}}?[0-9])([\w.~+/=-]{{16,}})"
_URL_PASSWORD = (
    rf"(?<=://)((?:\[redacted:\w+\]|{UNSEEN}[^\s/:@]{{0,100}}):){UNSEEN}(?![$<{{])([^\s/]{{1,300}})(?=@)"
)
_URL_USER = rf"(?<=://){UNSEEN}(?=[\w-]{{0,200}}?[0-9])[\w-]{{20,200}}(?=@)"  # a token in place of a user
_URL_TOKEN = rf"(?i)([?&#;](?:[a-z]{{1,12}}[_-]){{0,2}}(?:token|api[_-]?key|apikey|secret|password|passwd|auth|sig|signature)=){UNSEEN}{NO_SECRET}([^\s&#\"'`<>]{{6,}})"
_URL_KEY = rf"(?i)([?&#](?:key|code|jwt|session)=){UNSEEN}{NO_SECRET}([^\s&#\"'<>]{{16,}})"
_PASSES = 8
"""Largest number of passes: one more pass finds a secret directly behind another; the bound keeps the time linear."""

_LONG_WORD = r"\S{15,}"
_HALF = "[\\ud800-\\udfff]"  # a surrogate: it can't be encoded as UTF-8
_REMEMBERED_LENGTH = 4096

_MARK = re.compile(r"\[redacted:(\w+)\]")

_ERROR_FIELD = (
    r"(?:(?:last_)?error|fault|failure|problem|warning|detail|reason|remedy|remediation|notice)s?\Z"
)


def redact(text: str) -> str:
    """Replace every secret in `text` by `[redacted:KIND]`.

    >>> redact("postgres://app:hunter22@db/x uses key ghp_0123456789abcdefghijABCDEFGHIJ012345")
    'postgres://app:[redacted:password]@db/x uses key [redacted:github]'
    """
    return _remembered(text) if len(text) <= _REMEMBERED_LENGTH else _redact(text)


def secrets_in(text: str) -> tuple[str, ...]:
    """Return the kinds of the secrets that `redact` finds, each once.

    >>> secrets_in("ssh with pwd='hunter22', not with [redacted:openai]")
    ('password',)
    """
    return tuple(Counter(_MARK.findall(redact(text))) - Counter(_MARK.findall(text)))


def looks_like_key(word: str) -> bool:
    """Return True if a word that a person gave as a name is a key: of a known format, or long, unbroken and random.

    >>> looks_like_key("OPENAI_API_KEY"), looks_like_key("0123456789abcdef0123456789abcdef")
    (False, True)
    """
    unbroken = len(word) >= 20 and word.isascii() and word.isalnum()
    random = sum(map(str.isdigit, word)) > 3 and any(map(str.isalpha, word))
    return (unbroken and random) or bool(secrets_in(word))


def _redact(text: str) -> str:
    for _ in range(_PASSES):
        text, before = _redact_once(text), text
        if text == before:
            break
    return text


_remembered = lru_cache(maxsize=256)(_redact)
"""Cached: a turn sends each of its texts several times (turn start, recall, messages, warming of the next turn)."""


def _redact_once(text: str) -> str:
    text = without_keys(text)
    assigned = "=" in text or ":" in text or "：" in text or "＝" in text
    if assigned:
        text = _without_urls_and_headers(text)
    digits = compiled(r"[0-9]").search(text) is not None
    if digits and ("earer" in text or "EARER" in text):
        text = compiled(_BEARER).sub(r"\1[redacted:token]", text)
    if "-" in text and " -" in text:
        text = without_arguments(text)
    if names_a_secret(text):
        text = without_named(without_blocks(text))
    return without_named_abroad(text) if (assigned or digits) and names_a_secret_abroad(text) else text


def _without_urls_and_headers(text: str) -> str:
    if "@" in text and "://" in text:
        text = compiled(_URL_PASSWORD).sub(r"\1[redacted:password]", text)
        text = compiled(_URL_USER).sub("[redacted:token]", text)
    if "=" in text:
        text = compiled(_URL_TOKEN).sub(_without_url_token, text)
        text = compiled(_URL_KEY).sub(r"\1[redacted:key]", text)
    lowered = text.lower()
    if "authorization" in lowered or "x-" in lowered:  # the pattern is slow
        text = compiled(_AUTHORIZATION).sub(_without_header, text)
    if "cookie" in lowered:
        text = compiled(_COOKIES).sub(
            lambda found: compiled(_COOKIE).sub(r"\1[redacted:cookie]", found[0]), text
        )
    return text


def _without_url_token(match: re.Match[str]) -> str:
    return match[0] if is_code(match[2], kind_of(match[1])) else f"{match[1]}[redacted:token]"


def _without_header(match: re.Match[str]) -> str:
    """Return a header with its value redacted, unless that is code, an address, a name, or a word of a sentence."""
    value = match[2].rstrip(")]}.:")
    scheme = match[1][-1].isspace() and match[1].rstrip()[-1].isalnum()
    word = not scheme and "uth" in match[1].lower() and value.replace("_", "").isalpha()
    code = is_name(value, "token") or is_code(value, "token" if "(" in value else "password")
    return match[0] if word or code or "://" in value else f"{match[1]}[redacted:authorization]"


def redact_value(value: JSON) -> JSON:
    """Return a copy of a JSON value with the secrets in its texts replaced, and the values under a secret's name.

    >>> redact_value({"password": 12345678, "tokens": ["abc123def456"], "max_tokens": 4096})
    {'password': '[redacted:password]', 'tokens': ['[redacted:token]'], 'max_tokens': 4096}
    """
    if isinstance(value, str):
        return _redact_json(value) if "\\" in value and value.lstrip()[:1] in ("{", "[") else redact(value)
    if isinstance(value, dict):
        return {key: _under(key, item, value) for key, item in value.items()}
    return [redact_value(item) for item in value] if isinstance(value, list) else value


def redact_errors(value: JSON) -> JSON:
    """Return a copy of a JSON answer with the texts of its errors redacted, such as `error`, `reason` and `problems`.

    An error may quote an address with a password or a server's answer. Other texts stay, such as a person's notes.

    >>> redact_errors({"error": "no answer from http://ann:hunter22@db", "entries": ["my password is hunter22"]})
    {'error': 'no answer from http://ann:[redacted:password]@db', 'entries': ['my password is hunter22']}
    """
    if isinstance(value, list):
        return [redact_errors(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: redact_value(item)
        if compiled(_ERROR_FIELD).match(key) and isinstance(item, str | list)
        else redact_errors(item)
        for key, item in value.items()
    }


def _redact_json(text: str) -> str:
    """Redact a text that is itself JSON, such as a model's tool arguments, whose values are hidden behind escapes."""
    try:
        data = json.loads(text, strict=False)
        clean = redact_value(data)
        if clean != data:
            dumped = json.dumps(clean, ensure_ascii=False)
            text = json.dumps(clean) if compiled(_HALF).search(dumped) else dumped
    except (ValueError, RecursionError):  # it begins like JSON and is none
        pass
    return redact(text)


def _under(key: str, value: JSON, beside: dict[str, Any]) -> JSON:
    """Redact a value under `key`, or under the name in the same object: {"name": "PASSWORD", "value": ...}."""
    named = beside.get("name") if key == "value" else None
    name = secret_name(key) or (secret_name(named) if isinstance(named, str) else None)
    if name is None:
        return redact_value(value)
    if isinstance(value, dict | list):
        return _within(name, value)
    return f"[redacted:{name.kind}]" if _is_secret(name, value) else redact_value(value)


def _is_secret(name: Name, value: JSON) -> bool:
    """Return True if a value directly under a secret's name is a secret: nearly any word, or a long number."""
    if isinstance(value, str):
        if name.many:
            return looks_secret(value, name.kind)
        word = len(value) >= 4 and " " not in value.strip() and not value.startswith("[redacted:")
        return word and not is_name(value, name.kind)
    if isinstance(value, bool) or not isinstance(value, int) or name.many:
        return False
    return value >= (1000 if name.kind == "password" else 10_000_000)


def _within(name: Name, value: JSON) -> JSON:
    """Redact a list or object under a secret's name. Values that look secret go; a user or a date beside them stays."""
    if isinstance(value, list):
        return [_within(name, item) for item in value]
    if isinstance(value, dict):
        return {
            key: redact_value(item) if tells_no_secret(key) else _within(secret_name(key) or name, item)
            for key, item in value.items()
        }
    if isinstance(value, str) and looks_secret(value, name.kind):
        return f"[redacted:{name.kind}]"
    return redact_value(value)
