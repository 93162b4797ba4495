"""What a model's server says when something is wrong, in whatever words and form, as an error of ours.

Pure: statuses and bodies in, errors out.
"""

from __future__ import annotations

import re

from hermes_core.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from hermes_core.safety.redact import redact
from hermes_core.sessions.records import storable

_LONGEST = 500  # characters of a server's words
_PAGE = 20_000  # characters of a page that are looked at
_BUSY = frozenset({408, 429})
_NO_CREDIT = "the account of that key has no credit left"
_NO_KEY_SENT = "no key was sent: write it into .env, under the name that model.api_key_env has"
_TAGS = re.compile(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>")
_OVERFLOW = re.compile(
    r"(?i)context[ _](length|size|window|limit)|maximum (context|prompt length|model length)|too many tokens"
    r"|(prompt|input) is too long|exceeds? the maximum number of tokens|model token limit|range of input length"
    r"|prompt token count|reduce the length of the (messages|prompt|input)"
)
_TOO_LARGE = re.compile("(?i)request too large")
"""Of OpenAI's limit of tokens a minute, which a later try meets again."""
_NO_TOOLS = re.compile(
    r"(?i)support\w* (\w+ )?tool|tools? (param )?(require|not support)|tool choice requires"
)
_NO_KEY = re.compile("(?i)api key")
_NO_PATH = re.compile("(?i)unexpected endpoint")
"""LM Studio's, with status 200."""
_BADLY_WRITTEN = "tool_use_failed"
"""Groq's code for a call of the model's that it can't read."""

_PAUSE = re.compile(
    r"(?i)\b(?:retry|try again) (?:in|after) (?:(\d{1,4})h)?(?:(\d{1,4})m)?(\d{1,9}(?:\.\d+)?) ?(ms|s)"
)
"""Gemini names it in words alone, and Azure at times."""


def failure(
    server: str, status: int, body: object, secret: str = "", retry_after: float | None = None
) -> ModelError:
    """The error for a `body`, told without `secret`; `status` is 0 where it broke off an answer without giving one.

    `retry_after` is what its headers say.
    """
    said, code = words(body, secret), _inner(body).get("code")
    told = f"{server!r} {f'answered {status}' if status else 'broke off'}: {said}"
    overflow = status == 413 or (status not in _BUSY and _OVERFLOW.search(said))
    if overflow or (status == 429 and _TOO_LARGE.search(said)):
        return ContextOverflow(
            told,
            "say it shorter, compress the conversation, or set model.context_length to what the model has",
        )
    if code == _BADLY_WRITTEN:
        return ModelUnavailable(told, "ask again, or choose another model: this one writes calls badly")
    if code == "insufficient_quota":  # OpenAI's, with the status of a server that is busy
        return ModelRefused(told, _NO_CREDIT)
    if "PerDay" in str(_inner(body).get("details")):  # Gemini's, which names a pause of seconds all the same
        return ModelRefused(told, "the day's requests of that key are used up")
    if _NO_PATH.search(said):
        return ModelRefused(told, "check model.base_url: most servers want its /v1")
    if not status or status in _BUSY or status >= 500:
        return ModelUnavailable(told, "try again later", _pause(body) if retry_after is None else retry_after)
    return ModelRefused(told, _remedy(status, said, secret))


def _inner(body: object) -> dict[str, object]:
    """The error in a body: Gemini's stands in a list."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
        body = body.get("error", body) if isinstance(body, dict) else body
    return body if isinstance(body, dict) else {}


def _pause(body: object) -> float | None:
    """Seconds after which a server that says so wants to be asked again."""
    found = _PAUSE.search(str(_inner(body).get("message"))[:_PAGE])
    if found is None:
        return None
    hours, minutes, number, unit = found.groups()
    seconds = float(number) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds


def words(body: object, secret: str = "") -> str:
    """What the body of an error says, on one line: `{message}`, `{detail}`, a text or a page of HTML; without `secret`.

    >>> words("<html><head><title>502 Bad Gateway</title></head></html>")
    '502 Bad Gateway'
    """
    inner = _inner(body)
    if inner:
        metadata = inner.get("metadata")  # OpenRouter's: what the provider behind it said
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        found = inner.get("message") or inner.get("detail") or inner.get("error") or inner
        text = ": ".join(str(part) for part in (found, raw) if part)
    else:
        text = str(body or "no reason given")
    if text.lstrip().startswith("<"):
        text = _TAGS.sub(" ", text[:_PAGE])
    if secret:
        text = text.replace(secret, "[key]")
    return redact(storable(" ".join(text[:_PAGE].split())))[:_LONGEST]  # half a key does not look like one


def code_of(body: object) -> int:
    """The status that stands in the body of an error, as of one in the midst of a stream; 0 for none."""
    code = str(body.get("code")) if isinstance(body, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else 0


def _remedy(status: int, said: str, secret: str) -> str:
    if status in (401, 403) or (status == 400 and _NO_KEY.search(said)):
        return "check the key that model.api_key_env names" if secret else _NO_KEY_SENT
    if status == 402:
        return _NO_CREDIT
    if _NO_TOOLS.search(said):
        return "choose a model and a server that take tools, or switch tools off with enabled_toolsets"
    return "check model.name and model.base_url"
