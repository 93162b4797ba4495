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
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from hermes_core.safety.assignments import (
    NO_SECRET,
    UNSEEN,
    Name,
    assigns_abroad,
    compiled,
    looks_secret,
    names_a_secret,
    secret_name,
    tells_no_secret,
    without_arguments,
    without_blocks,
    without_named,
    without_named_abroad,
)

JSON = None | bool | int | float | str | list[Any] | dict[str, Any]


class _Format(NamedTuple):
    """Format of a service's keys. `pattern` is tried only on text that holds one of `marks`."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


_WORD = "[A-Za-z0-9_-]"
_DIGIT_SOON = f"(?={_WORD}{{0,120}}?[0-9])"  # skips names such as sk-learn-contrib-projects

_FORMATS = (
    _Format(
        "private_key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]{0,20000}(?:-(?!----END)[^-]{0,200}){0,200}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\]*)",
    ),
    _Format("age", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _Format("anthropic", ("sk-ant-",), rf"\bsk-ant-{_WORD}{{16,}}"),
    _Format("openrouter", ("sk-or-",), rf"\bsk-or-{_WORD}{{16,}}"),
    _Format("openai", ("sk-", "sess-"), rf"\b(?:sk|sess)-(?!ant-|or-){_DIGIT_SOON}{_WORD}{{20,}}"),
    _Format(
        "google",
        ("AIza", "ya29.", "GOCSPX-"),
        rf"\b(?:AIza{_WORD}{{35,}}|ya29\.{_WORD}{{20,}}|GOCSPX-{_WORD}{{20,}})",
    ),
    _Format("aws", ("AKIA", "ASIA", "ABIA", "ACCA"), r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    _Format(
        "github",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})",
    ),
    _Format(
        "gitlab",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"),
        rf"\bgl(?:pat|dt|rt|ptt|cbt)-{_WORD}{{18,}}",
    ),
    _Format("slack", ("xox", "xapp-"), r"\b(?:xox[abeoprs](?:\.xox[bp])?|xapp)-[A-Za-z0-9-]{10,}"),
    _Format(
        "slack", ("hooks.slack.com",), r"(?<=hooks\.slack\.com/)(?:services|workflows)/[A-Za-z0-9/]{20,}"
    ),
    _Format("discord", ("/api/webhooks/",), rf"(?<=/api/webhooks/)\d{{10,}}/{_WORD}{{30,}}"),
    _Format("discord", (".",), rf"\b[MNO]{_WORD}{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),
    _Format(
        "stripe",
        ("k_live_", "k_test_", "whsec_"),
        r"\b(?:[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})",
    ),
    _Format("huggingface", ("hf_", "api_org_"), r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    _Format("telegram", (":AA",), rf"\b\d{{8,10}}:AA{_WORD}{{32,}}"),
    _Format("twilio", ("SK",), r"\bSK[0-9a-f]{32}\b"),
    _Format("sendgrid", ("SG.",), rf"\bSG\.{_WORD}{{16,}}\.{_WORD}{{16,}}"),
    _Format("npm", ("npm_",), r"\bnpm_[A-Za-z0-9]{36,}"),
    _Format("pypi", ("pypi-",), rf"\bpypi-{_WORD}{{50,}}"),
    _Format("honcho", ("hch-",), rf"\bhch-{_WORD}{{16,}}"),
    _Format("mem0", ("m0-",), rf"\bm0-{_DIGIT_SOON}{_WORD}{{16,}}"),
    _Format("supermemory", ("sm_",), r"\bsm_(?=\w{0,60}?[0-9])\w{20,}"),
    _Format("hindsight", ("hsk_", "hs_live_"), r"\b(?:hsk|hs_live)_\w{16,}"),
    _Format("retaindb", ("rdb_", "rtdb_"), r"\b(?:rdb|rtdb)_(?=\w{0,60}?[0-9])\w{16,}"),
    _Format("groq", ("gsk_",), r"\bgsk_[A-Za-z0-9]{20,}"),
    _Format("xai", ("xai-",), rf"\bxai-{_WORD}{{40,}}"),
    _Format("perplexity", ("pplx-",), rf"\bpplx-{_WORD}{{30,}}"),
    _Format("replicate", ("r8_",), r"\br8_[A-Za-z0-9]{30,}"),
    _Format("tavily", ("tvly-",), rf"\btvly-{_WORD}{{16,}}"),
    _Format("firecrawl", ("fc-",), r"\bfc-[0-9a-f]{32}\b"),
    _Format("pinecone", ("pcsk_",), r"\bpcsk_\w{20,}"),
    _Format("digitalocean", ("doo_v1_", "dop_v1_", "dor_v1_"), r"\bdo[opr]_v1_[0-9a-f]{32,}"),
    _Format("databricks", ("dapi",), r"\bdapi[0-9a-f]{32}"),
    _Format("docker", ("dckr_pat_",), rf"\bdckr_pat_{_WORD}{{20,}}"),
    _Format("linear", ("lin_api_",), r"\blin_api_[A-Za-z0-9]{30,}"),
    _Format("notion", ("ntn_",), r"\bntn_[A-Za-z0-9]{30,}"),
    _Format("shopify", ("shp",), r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _Format("vault", ("hvs.", "hvb."), rf"\bhv[sb]\.{_WORD}{{20,}}"),
    _Format("tailscale", ("tskey-",), rf"\btskey-{_WORD}{{16,}}"),
    _Format("grafana", ("glsa_", "glc_"), r"\bgl(?:sa|c)_\w{20,}"),
    _Format("sentry", ("sntry",), rf"\bsntry[su]_{_WORD}{{20,}}"),
    _Format("supabase", ("sbp_",), r"\bsbp_[0-9a-f]{30,}"),
    _Format("mailgun", ("key-",), r"\bkey-[0-9a-f]{32}\b"),
    _Format("brevo", ("xkeysib-",), rf"\bxkeysib-{_WORD}{{40,}}"),
    _Format("postman", ("PMAK-",), rf"\bPMAK-{_WORD}{{30,}}"),
    _Format("newrelic", ("NRAK-",), r"\bNRAK-[A-Z0-9]{20,}"),
    _Format("azure", ("AccountKey=",), r"(?<=AccountKey=)[A-Za-z0-9+/=]{40,}"),
    _Format("atlassian", ("ATATT3", "ATCTT3"), rf"\bAT[AC]TT3{_WORD}{{40,}}"),
    _Format("terraform", (".atlasv1.",), rf"\b\w{{14}}\.atlasv1\.{_WORD}{{40,}}"),
    _Format("pulumi", ("pul-",), r"\bpul-[0-9a-f]{40}\b"),
    _Format("figma", ("figd_",), rf"\bfigd_{_WORD}{{30,}}"),
    _Format(
        "doppler", ("dp.pt.", "dp.st.", "dp.sa."), rf"\bdp\.(?:pt|st|sa)\.(?:\w{{1,40}}\.)?{_WORD}{{40,}}"
    ),
    _Format("langsmith", ("lsv2_",), r"\blsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _Format("nvidia", ("nvapi-",), rf"\bnvapi-{_WORD}{{40,}}"),
    _Format("cerebras", ("csk-",), r"\bcsk-[a-z0-9]{40,}"),
    _Format("jina", ("jina_",), rf"\bjina_[0-9a-f]{{32}}{_WORD}{{10,}}"),
    _Format("elevenlabs", ("sk_",), r"\bsk_[0-9a-f]{48}\b"),
    _Format("notion", ("secret_",), r"\bsecret_[A-Za-z0-9]{43}\b"),
    _Format("jwt", ("eyJ",), rf"\beyJ{_WORD}{{10,}}\.eyJ{_WORD}{{10,}}(?:\.{_WORD}+)?"),
)

_AUTHORIZATION = (
    r"(?i)((?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?:bearer|basic|token|apikey|digest|negotiate|aws4-hmac-sha256)\s+)?+"
    rf"|\bx-(?:api-key|auth-token|access-token|goog-api-key)[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?){UNSEEN}{NO_SECRET}([^\s\"',;]{{6,}})"
)
_COOKIES = r"(?i)\bcookie[\"']?\s{0,4}:[^\n\"'\\]{1,4000}"
_COOKIE = rf"((?:^|[;:])\s{{0,4}}[\w.-]{{1,60}}=){UNSEEN}{NO_SECRET}(?=[^;]{{0,200}}?[0-9])([^\s;]{{16,}})"
_BEARER = rf"(?i)(\bbearer\s{{1,4}}){UNSEEN}(?=[\w.~+/=-]{{0,200}}?[0-9])([\w.~+/=-]{{16,}})"
_URL_PASSWORD = (
    rf"(?<=://)((?:\[redacted:\w+\]|{UNSEEN}[^\s/:@]{{0,100}}):){UNSEEN}(?![$<{{])([^\s/]{{1,300}})(?=@)"
)
_URL_USER = rf"(?<=://){UNSEEN}(?=[\w-]{{0,200}}?[0-9])[\w-]{{20,200}}(?=@)"  # a token in place of a user
_URL_TOKEN = rf"(?i)([?&#;](?:[a-z]{{1,12}}[_-])?(?:token|api[_-]?key|apikey|secret|password|passwd|auth|sig|signature)=){UNSEEN}{NO_SECRET}([^\s&#\"'<>]{{6,}})"
_URL_KEY = rf"(?i)([?&]key=){UNSEEN}{NO_SECRET}([^\s&#\"'<>]{{16,}})"
_PASSES = 8
"""Largest number of passes: one more pass finds a secret directly behind another; the bound keeps the time linear."""

_SHORT_WORDS = r"(?s:(?:.{0,14} )*+.{0,14}\Z)"
"""Matches text whose words are all shorter than the shortest secret of `_FORMATS`, private keys aside.

It jumps from a space to the last space of the next fifteen characters, in a third of the time of a match for each word.
"""

_LONG_WORD = r"\S{15,}"
# Only private keys hold white space, so all other marks are searched in the long words alone. Grouping the marks by
# their first letters halves the time.

_MARKED = "|".join(
    f"{re.escape(first)}(?:{'|'.join(re.escape(mark[1:]) for mark in marks)})"
    for first, marks in groupby(
        sorted(mark for form in _FORMATS for mark in form.marks if mark != "."), itemgetter(0)
    )
)
_MARKED = rf"{_MARKED}|[MNO]{_WORD}{{23}}"  # Discord

_HALF = "[\\ud800-\\udfff]"  # a surrogate: it can't be encoded as UTF-8
_REMEMBERED_LENGTH = 4096

_MARK = re.compile(r"\[redacted:(\w+)\]")

_ERROR_FIELDS = frozenset(
    [
        "error",
        "errors",
        "reason",
        "remedy",
        "remediation",
        "problem",
        "problems",
        "warning",
        "warnings",
        "detail",
        "details",
        "fault",
        "faults",
        "failure",
        "failures",
        "last_error",
        "notice",
    ]
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


def _redact(text: str) -> str:
    for _ in range(_PASSES):
        text, before = _redact_once(text), text
        if text == before:
            break
    return text


_remembered = lru_cache(maxsize=256)(_redact)
"""Cached: a turn sends each of its texts several times (turn start, recall, messages, warming of the next turn)."""


def _redact_once(text: str) -> str:
    if "PRIVATE KEY" in text or (
        not compiled(_SHORT_WORDS).match(text.replace("\n", " "))
        and compiled(_MARKED).search(" ".join(compiled(_LONG_WORD).findall(text)))
    ):
        text = _without_formats(text)
    assigned = "=" in text or ":" in text or "：" in text or "＝" in text
    if assigned:
        text = _without_urls_and_headers(text)
    digits = _has_digit(text)
    if digits and ("earer" in text or "EARER" in text):
        text = compiled(_BEARER).sub(r"\1[redacted:token]", text)
    if "-" in text and " -" in text:
        text = without_arguments(text)
    if (assigned or digits or _has_quote(text) or "machine" in text) and names_a_secret(text):
        text = without_named(without_blocks(text))
    return without_named_abroad(text) if assigned and assigns_abroad(text) else text


# Without a sign of assignment, a secret has digits, or stands in quotes, tags or a line of .netrc. A chain of "in" takes a
# fifth of the time of a pattern or a loop, and every text of a turn comes here.
def _has_digit(text: str) -> bool:
    return (
        "1" in text or "2" in text or "0" in text or "3" in text or "5" in text
        or "4" in text or "8" in text or "9" in text or "6" in text or "7" in text
    )  # fmt: skip


def _has_quote(text: str) -> bool:
    return (
        '"' in text or "'" in text or "`" in text or "<" in text
        or "“" in text or "„" in text or "«" in text or "「" in text or "‘" in text
    )  # fmt: skip


def _without_urls_and_headers(text: str) -> str:
    if "@" in text and "://" in text:
        text = compiled(_URL_PASSWORD).sub(r"\1[redacted:password]", text)
        text = compiled(_URL_USER).sub("[redacted:token]", text)
    if "=" in text:
        text = compiled(_URL_TOKEN).sub(r"\1[redacted:token]", text)
        text = compiled(_URL_KEY).sub(r"\1[redacted:key]", text)
    if ("uth" in text or "UTH" in text or "x-" in text or "X-" in text) and _names_a_header(text):
        text = compiled(_AUTHORIZATION).sub(r"\1[redacted:authorization]", text)
    if "ookie" in text or "OOKIE" in text:
        text = compiled(_COOKIES).sub(
            lambda found: compiled(_COOKIE).sub(r"\1[redacted:cookie]", found[0]), text
        )
    return text


def _names_a_header(text: str) -> bool:
    """Return True if `text` may hold a header. Many texts hold "authors" or "truth", and the pattern is slow."""
    lowered = text.lower()
    return "authorization" in lowered or "x-" in lowered or not text.isascii()


def _without_formats(text: str) -> str:
    for kind, marks, pattern in _FORMATS:
        for mark in marks:
            if mark in text:
                text = compiled(pattern).sub(f"[redacted:{kind}]", text)
                break
    return text


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
        if key in _ERROR_FIELDS and isinstance(item, str | list)
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
        return len(value) >= 4 and " " not in value.strip() and not value.startswith("[redacted:")
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
