"""Secrets that nothing but their names give away: what a text assigns to a password, says of it, or puts into a command.

A name alone is no secret ("password is required", `token: str`), so each way of writing one asks for more of the value
the less it says by itself: after `password=` nearly anything is one, in a sentence only what has digits and letters or
stands in quotes. Each pattern begins at a name, a program or a line and looks at a bounded piece behind it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

UNSEEN = r"(?!\[redacted:)"
# A value that is a reference, a placeholder or code is no secret.
NO_SECRET = (
    r"(?!(?:(?:null|none|nil|true|false|undefined|string|str|required|optional)(?![a-z0-9])|your|changeme|example|placeholder|x{3,}|\*{3,}|\.{3})"
    r"|[<${%(]|os\.|env[.\[]|process\.|getenv|self\.|config[.\[]|settings\.)"
)

_KEY_OF = ("access", "private", "account", "master", "encryption", "signing", "license", "api")
_NAME = (
    r"pass(?:wor[dt]|wd|phrase|code)|pwd|secret(?:[ _-]?(?:access[ _-]?)?key)?|client[ _-]?secret|"
    r"(?:access|auth|api|refresh|bearer|session|id|bot)[ _-]?token|token|api[ _-]?secret|"
    rf"(?:{'|'.join(_KEY_OF)})[ _-]?key|credentials?"
)
_OF = "|".join(f"(?<={word}.key)(?<=[ _-]key)|(?<={word}key)" for word in _KEY_OF)
# The same names from their last word on. It begins with a set of letters: that a search passes over all others by it takes
# a tenth of the time.
_NAME_FOUND = (
    r"[pstckPSTCK](?i:(?<=p)(?:ass(?:wor[dt]|wd|phrase|code)|wd)|(?<=s)ecret(?:[ _-]?(?:access[ _-]?)?key)?"
    rf"|(?<=t)oken|(?<=c)redentials?|(?<=k)ey(?:{_OF}))"
)
_ABROAD = {
    "password": (
        "kennwort, losungswort, mot de passe, motdepasse, mdp, contraseña, contrasena, senha, palavra-passe, palavra passe, "
        "parola d'ordine, parola d’ordine, wachtwoord, hasło, haslo, пароль, 密码, 密碼, 口令, パスワード, 暗証番号, 비밀번호, "
        "패스워드, 암호"
    ),
    "token": "jeton, токен, 令牌, トークン, 토큰",
    "secret": (
        "geheimnis, secreto, segredo, segreto, geheim, sekret, секрет, シークレット, 시크릿, 機密, 机密"
    ),
    "api_key": (
        "schlüssel, schluessel, clé, clé api, clé d'api, clave, clave api, clave de api, chave, chave api, chave de api, "
        "chave da api, chiave, chiave api, sleutel, klucz, klucz api, ключ, ключ api, 密钥, 密鑰, 金鑰, 秘钥, 秘密鍵, apiキー, "
        "api 키, api키, 비밀키"
    ),
}
"""The words for them in German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian, Chinese, Japanese, Korean."""

_KIND_ABROAD = {
    form: kind
    for kind, words in _ABROAD.items()
    for word in words.split(", ")
    for form in (word, unicodedata.normalize("NFD", word))
}
_ENDS_ABROAD = tuple(_KIND_ABROAD)
_UNSPACED = "\u2e80"  # from here on words stand without spaces between them
_NAME_ABROAD = "|".join(
    rf"(?<![^\W\d_]){re.escape(word)}" if len(word) < 7 and word < _UNSPACED else re.escape(word)
    for word in sorted(_KIND_ABROAD, key=len, reverse=True)  # "clave", not "enclave"
)
_SIGNS = ":=：＝"
_LONGEST_ABROAD = max(map(len, _KIND_ABROAD)) + 8

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
_SAID = rf"{_GAP}(?:\s{{1,3}}(?:is|was|will be|ist|est|es|to)(?:\s(?:now|still|just|currently|set to))?:?\s{{1,3}}|\s?:\s{{1,3}})"
_ATTRIBUTE = r"\s{1,4}[\w:-]{1,20}\s?=\s?[\"'][^\"'<>\n]{0,80}[\"']"
_PAIR = rf"(?:[\"'],?(?:{_ATTRIBUTE}){{0,4}}?\s{{1,40}}|[ \t]{{0,4}}\n[ \t]{{1,40}})[\"']?value[\"']?\s{{0,2}}[:=]\s{{0,4}}"
_NAMED = (
    rf"(?P<name>{_NAME_FOUND}(?P<many>[sS])?)"
    rf"(?i:(?:(?P<given>{_GIVEN})|(?P<pair>{_PAIR})|(?P<said>{_SAID})|(?P<next>[ \t]{{1,4}})){_VALUE})"
)
_NAMED_ABROAD = rf"(?i)(?P<name>{_NAME_ABROAD})(?P<many>s)?(?P<given>{_GIVEN}){_VALUE}"
_TAGGED = (
    rf"(?i)<(?:[\w.:-]{{0,60}}?(?P<name>{_NAME})(?:\s[^<>]{{0,200}})?"
    rf"|[^<>]{{0,120}}?\b(?:name|key|id)\s?=\s?[\"'][^\"'<>]{{0,80}}?(?P<named>{_NAME})[\"'][^<>]{{0,200}})"
    rf">\s{{0,4}}(?:<!\[CDATA\[)?{UNSEEN}{NO_SECRET}(?P<value>[^<\s][^<\n]{{2,398}}?[^<\s])\s{{0,4}}(?:\]\]>|</)"
)
_BLOCK = (
    rf"(?im)^(?:([ \t]*)(?:-[ \t]+)?[\"']?[\w.-]{{0,60}}?(?P<name>{_NAME})s?[\"']?[ \t]*:[ \t]*(?:[|>][+-]?[ \t]*)?\n"
    rf"(?P<deeper>(?:\1[ \t]+\S[^\n]*(?:\n|\Z))+)"
    rf"|\[[\w. :\"-]{{0,60}}?(?P<titled>{_NAME})s?\"?\][ \t]*\n(?P<section>(?:[^\[\n]+(?:\n|\Z))+))"
)
_LINE = (
    r"(?m)^[ \t]*(?:-[ \t]+)?(?:[\"']?(?P<key>[\w.-]{1,60})[\"']?[ \t]*[:=][ \t]*)?[\"']?"
    rf"{UNSEEN}{NO_SECRET}(?P<value>[^\s\"'#]{{6,}})[\"']?,?[ \t]*$"
)
_NO_SECRET_KEY = (
    r"(?i)(?:\$ref|pattern|format|type|kind|user\w*|login|e?-?mail|name|id|host\w*|url|uri|path|file|region|port|date|at"
    r"|(?:created|updated|expir\w+|issued|rotated)\w*)$"
)
_ITEM = r"[\"'](?P<value>[^\"'\s]{4,400})[\"']"

# Programs of which an option is a password, where it is no `--password`.
_LINE_OF = r"[^\n|;&]{0,300}?\s"
_TOLD = rf"(?(quote){UNSEEN}{NO_SECRET}[^\"'\n]{{1,400}}(?=[\"'])|{UNSEEN}{NO_SECRET}[^\s\"'`|;&]{{3,}})"
_COMMANDS = tuple(
    (programs, rf"(?P<kept>\b{before}){_TOLD}")
    for programs, before in (
        (("mysql", "mariadb"), rf"(?:mysql|mariadb)[\w-]{{0,12}}\b{_LINE_OF}-p(?P<quote>[\"'])?"),
        (("sshpass",), rf"sshpass\b{_LINE_OF}-p\s{{0,2}}(?P<quote>[\"'])?"),
        (("docker", "podman"), rf"(?:docker|podman)\s+login\b{_LINE_OF}-p\s{{0,2}}(?P<quote>[\"'])?"),
        (("redis-cli",), rf"redis-cli\b{_LINE_OF}-a\s{{1,2}}(?P<quote>[\"'])?"),
        (
            ("curl",),
            rf"curl\b{_LINE_OF}(?:-[uU]\s{{0,2}}|--(?:proxy-)?user[ =])(?P<quote>[\"'])?[^\s:\"']{{1,100}}:",
        ),
    )
)
_CHANGED = r"(?i)\b(?:set|chang|reset|updat|rotat)\w{0,5}\s+(?:[\w'’]{1,20}\s+){0,4}\Z"
_OPTION = r"(?:^|\s)--?[\w-]{0,30}\Z"
_NETRC = r"\bmachine\s+\S{1,253}\s+(?:(?:login|account)\s+\S{1,120}\s+){0,2}\Z"
_LONG = 500
_BEFORE = 320  # characters that are looked at before a name
_SHORTEST = {"password": 6}

Judge = Callable[[re.Match[str], str, str, bool], bool]
"""Whether the value of a match is a secret: the match, the kind, the value, whether it stands in quotes."""

# What has digits and letters and is a word all the same: sizes, algorithms, dates, addresses, paths, code.
_WORD = (
    r"(?i)\d+[-.]?(?:bits?|bytes?|char\w*|digits?|days?|hours?|min\w*|sec\w*|weeks?|months?|years?|letters?|words?|tokens?"
    r"|st|nd|rd|th|[kmg]b?|x|ms|s)\b|(?:sha|md|aes|rsa|hs|rs|es|base|utf|argon|pbkdf|oauth|scrypt|tls|ssl|ed|x|iso|rfc|fips|py|v)"
    r"-?\d[\w./-]*(?:-encoded|-hashed)?\Z|\d{4}-\d\d-\d\d|\d+/[a-z]+\Z|[\w.-]+/[\w.-]+#\d+\b|\d?password\w*\Z|[a-z][a-z0-9+.-]*://|[/~.]|[a-z]:\\"
    r"|[a-z_]\w*(?:\.[a-z_]\w*)*[(\[]|[a-z_]\w*(?:\.[a-z_]\w*)+\Z"
)

_WORDS = r"(?i)[a-z]+(?:[_-](?:[a-z]+|\d{1,3}))+\Z"  # no password that a person made up, but no key

_NAMES = ("pass", "pwd", "secret", "token", "key", "credential")
_HAS_NAME = f"(?i){'|'.join(_NAMES)}"
_ENDS = r"(?:pass(?:wor[dt]|wd|phrase|code)|pwd|secret|token|key|credential)s?(?![a-z])"  # no "tokenizer", no "passing"
_KEY = rf"(?i)(?:(?:^|[_\W]|(?<=[a-z0-9]))({_NAME}|authorization)|({_NAME_ABROAD}))(s)?$"


class Name(NamedTuple):
    """What a name says of its values: their kind, and whether it names several."""

    kind: str
    many: bool


def names_a_secret(text: str) -> bool:
    """Whether an English name of a secret stands in `text`, in any case."""
    if not text.isascii():
        return _compiled(_HAS_NAME).search(text) is not None
    lowered = text.lower()
    return any(name in lowered for name in _NAMES) and _compiled(_ENDS).search(lowered) is not None


def names_one_abroad(text: str) -> bool:
    """Whether something is given to a name in another language."""
    lowered = text.lower()
    for sign in _SIGNS:
        at = lowered.find(sign)
        while at >= 0:
            if lowered[max(0, at - _LONGEST_ABROAD) : at].rstrip(" *`\"'\\").endswith(_ENDS_ABROAD):
                return True
            at = lowered.find(sign, at + 1)
    return False


@lru_cache(maxsize=512)
def name_of(key: str) -> Name | None:
    """The name of a secret that a key of JSON data ends with, if any."""
    found = _compiled(_KEY).search(str(key))
    return Name(_kind(found[1] or found[2]), found[3] is not None) if found else None


def tells_no_secret(key: str) -> bool:
    """Whether what stands under this key beside a secret is none: a user, an address, a date, a part of a schema."""
    return _compiled(_NO_SECRET_KEY).match(key) is not None


def looks_secret(value: str, kind: str) -> bool:
    """Whether a word of a text is more than a word: digits and letters, and neither a size, a date nor code."""
    return (
        len(value) >= _SHORTEST.get(kind, 8)
        and " " not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and not _compiled(_WORD).match(value)
        and (kind == "password" or not _compiled(_WORDS).match(value))
    )


def without_named(text: str) -> str:
    """`text` without the values that stand behind an English name of a secret."""
    if "<" in text:
        text = _compiled(_TAGGED).sub(_without_content, text)
    if "\n" in text:
        text = _compiled(_BLOCK).sub(_without_lines, text)
    return _replaced(text, _compiled(_NAMED), _is_secret)


def without_named_abroad(text: str) -> str:
    """`text` without the values that are given to a name of a secret in another language."""
    return _replaced(text, _compiled(_NAMED_ABROAD), _is_secret_abroad)


def without_arguments(text: str) -> str:
    """`text` without the passwords that known programs are called with."""
    for programs, pattern in _COMMANDS:
        if any(program in text for program in programs):
            text = _compiled(pattern).sub(r"\g<kept>[redacted:password]", text)
    return text


def _without_content(match: re.Match[str]) -> str:
    """An element of XML or HTML without its text."""
    kind = _kind(match["name"] or match["named"])
    if kind != "password" and not looks_secret(match["value"], kind):
        return match[0]
    start, end = (at - match.start() for at in match.span("value"))
    return f"{match[0][:start]}[redacted:{kind}]{match[0][end:]}"


def _without_lines(match: re.Match[str]) -> str:
    """A block of YAML or a section of an INI file without what looks secret in its lines."""
    name = match["name"] or match["titled"]
    start, end = (at - match.start() for at in match.span("deeper" if match["name"] else "section"))

    def clean(line: re.Match[str]) -> str:
        if tells_no_secret(line["key"] or "") or not looks_secret(line["value"], kind):
            return line[0]
        begin, stop = (at - line.start() for at in line.span("value"))
        return f"{line[0][:begin]}[redacted:{kind}]{line[0][stop:]}"

    kind = _kind(name)
    return match[0][:start] + _compiled(_LINE).sub(clean, match[0][start:end]) + match[0][end:]


def _replaced(text: str, pattern: re.Pattern[str], is_secret: Judge) -> str:
    """`text` without the secrets of all matches; where a match holds none, the search goes on behind its name."""
    pieces: list[str] = []
    done = at = 0
    while match := pattern.search(text, at):
        bare = match["bare"]
        within = bare is not None and len(bare) < _LONG and any(sign in bare for sign in _SIGNS)
        at = match.end("name") if within or match["list"] is not None else match.end()
        kind = _kind(match["name"])
        for start, end in _secrets(match, kind, is_secret):
            pieces += (text[done:start], f"[redacted:{kind}]")
            done = at = end
    return "".join([*pieces, text[done:]])


def _secrets(match: re.Match[str], kind: str, is_secret: Judge) -> Iterator[tuple[int, int]]:
    """Where the secrets of a match stand: one value, or those of a list."""
    start, end = match.span(match.lastindex or 0)
    if match["list"] is not None:
        for item in _compiled(_ITEM).finditer(match.string, start, end):
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
        if said[-1] == "to" and "set" not in said and not _compiled(_CHANGED).search(before):
            return False  # "give the password to bob1990"
        return (quoted and kind == "password") or looks_secret(value, kind)
    if _compiled(_OPTION).search(before):
        return quoted or looks_secret(value, kind)
    return kind == "password" and (looks_secret(value, kind) or _compiled(_NETRC).search(before) is not None)


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


def _kind(name: str) -> str:
    lowered = name.lower()
    if lowered in _KIND_ABROAD:
        return _KIND_ABROAD[lowered]
    for word in ("pass", "pwd", "token", "secret", "key", "authorization"):
        if word in lowered:
            return {"pass": "password", "pwd": "password", "key": "api_key"}.get(word, word)
    return "credential"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
