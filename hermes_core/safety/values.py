"""What of a text may be the value of a secret: no placeholder, no code, and where nothing else says so, no plain word."""

from __future__ import annotations

import re
from functools import cache

UNSEEN = r"(?!\[redacted:)"
# A value that is a reference, a placeholder or code is no secret.
NO_SECRET = (
    r"(?!(?:(?:null|none|nil|true|false|undefined|string|str|required|optional)(?![a-z0-9])|your|changeme|example|placeholder|x{3,}|\*{3,}|\.{3})"
    r"|[<${%(]|os\.|env[.\[]|process\.|getenv|self\.|config[.\[]|settings\.)"
)

_SHORTEST = {"password": 6}

# What has digits and letters and is a word all the same: sizes, algorithms, dates, addresses, paths, code.
_WORD = (
    r"(?i)\d+[-.]?(?:bits?|bytes?|char\w*|digits?|days?|hours?|min\w*|sec\w*|weeks?|months?|years?|letters?|words?|tokens?"
    r"|st|nd|rd|th|[kmg]b?|x|ms|s)\b|(?:sha|md|aes|rsa|hs|rs|es|base|utf|argon|pbkdf|oauth|scrypt|tls|ssl|ed|x|iso|rfc|fips|py|v)"
    r"-?\d[\w./-]*(?:-encoded|-hashed)?\Z|\d{4}-\d\d-\d\d|\d+/[a-z]+\Z|[\w.-]+/[\w.-]+#\d+\b|\d?password\w*\Z|[a-z][a-z0-9+.-]*://|[/~.]|[a-z]:\\"
    r"|[a-z_]\w*(?:\.[a-z_]\w*)*[(\[]|[a-z_]\w*(?:\.[a-z_]\w*)+\Z"
)

_WORDS = r"(?i)[a-z]+(?:[_-](?:[a-z]+|\d{1,3}))+\Z"  # no password that a person made up, but no key


def looks_secret(value: str, kind: str) -> bool:
    """Whether a word of a text is more than a word: digits and letters, and neither a size, a date nor code."""
    return (
        len(value) >= _SHORTEST.get(kind, 8)
        and " " not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and not compiled(_WORD).match(value)
        and (kind == "password" or not compiled(_WORDS).match(value))
    )


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed: most texts need none of them."""
    return re.compile(pattern)
