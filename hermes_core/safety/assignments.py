"""Secrets that a text assigns to a name: `password=...`, "the password is ...", `"tokens": [...]`, `--token ...`.

A name alone is no secret ("password is required", `token: str`). The weaker the sign between name and value, the more
the value must look like a secret: after `password=` nearly any value is one; in a sentence only a value with digits and
letters, or in quotes. Each pattern begins at a name and covers a bounded piece of text after it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

# ------------------------------------------------------------------ values

UNSEEN = r"(?!\[redacted:)"
# Matches before a value that is no reference, no placeholder and no code.
NO_SECRET = (
    r"(?!(?:(?:null|none|nil|true|false|undefined|string|str|required|optional)(?![a-z0-9])|your|changeme|example|placeholder|x{3,}|\*{3,}|(?:[a-z]{2,4}-)?\.{3})"
    r"|[<${%(]|#\{|/[\^\\]|[a-z]+://[\"'`]|--[a-z]|bearer\s?[\"'`]|os\.|env[.\[]|process\.|getenv|self\.|config[.\[]|settings\.)"
)

_SHORTEST = {"password": 6}

# Words with digits and letters that are no secrets: sizes, algorithms, dates, addresses, paths, code.
_WORD = (
    r"(?i)\d+[-.]?(?:bits?|bytes?|char\w*|digits?|days?|hours?|min\w*|sec\w*|weeks?|months?|years?|letters?|words?|tokens?"
    r"|st|nd|rd|th|[kmg]b?|x|ms|s)\b|(?:sha|md|aes|rsa|hs|rs|es|base|utf|argon|pbkdf|oauth|scrypt|tls|ssl|ed|x|iso|rfc|fips|py|v)"
    r"-?\d[\w./-]*(?:-encoded|-hashed)?\Z|\d{4}-\d\d-\d\d|\d+/[a-z]+\Z|[\w.-]+/[\w.-]+#\d+\b|[\w.-]+:\d+\.\d|(?:ghsa|cve)-|\d?password\w*\Z|[a-z][a-z0-9+.-]*://|[/~.]|[a-z]:\\"
    r"|[a-z_]\w*(?:\.[a-z_]\w*)*[(\[]|[a-z_]\w*(?:\.[a-z_]\w*)+\Z"
)

_WORDS = r"(?i)[a-z]+(?:[_-](?:[a-z]+|\d{1,3}))+\Z"  # may be a password that a person made up, but is no key


def looks_secret(value: str, kind: str) -> bool:
    """Return True if a word has digits and letters and is no size, date, address or code."""
    return (
        len(value) >= _SHORTEST.get(kind, 8)
        and " " not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and not compiled(_WORD).match(value)
        and (kind == "password" or not compiled(_WORDS).match(value))
    )


def is_name(value: str, kind: str) -> bool:
    """Return True if a value is itself the name of a secret, as in `"input_token": "NextToken"`.

    People make up passwords such as "mypassword", so a password is never a name.
    """
    return kind != "password" and compiled(_NAME_LIKE).match(value) is not None


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use. Most texts need none of these patterns, and compiling all takes long."""
    return re.compile(pattern)


# ------------------------------------------------------------------ names

_KEY_OF = ("access", "auth", "private", "account", "master", "encryption", "signing", "license", "api")
_PASS = (  # DB_PASS and smtp_pass, but no first_pass
    r"(?-i:(?<=[A-Z0-9]_PASS))|(?<=db[._-]pass)|(?<=(?:sql|ftp|ssh|vpn)[._-]pass)"
    r"|(?<=(?:admin|redis|login|proxy)[._-]pass)|(?<=(?:user|smtp|mail|imap|http|wifi|root|auth)[._-]pass)"
    r"|(?<=[\"']pass)(?=\\{0,3}[\"']\s{0,4}[:=])"  # a key of JSON
)
NAME = (
    rf"pass(?:wor[dt]|wd|phrase|code|{_PASS})|pwd|secret(?:[ _-]?(?:access[ _-]?)?key(?:_base)?)?|client[ _-]?secret|"
    r"(?:access|auth|api|refresh|bearer|session|id|bot)[ _-]?token|token|api[ _-]?secret|"
    rf"(?:{'|'.join(_KEY_OF)})[ _-]?key|credentials?"
)
_OF = "|".join(f"(?<={word}.key)(?<=[ _-]key)|(?<={word}key)" for word in _KEY_OF)
# The same names from their last word on. A pattern that begins with a set of letters is searched ten times as fast.
NAME_FOUND = (
    rf"[pstckPSTCK](?i:(?<=p)(?:ass(?:wor[dt]|wd|phrase|code|{_PASS})|wd)|(?<=s)ecret(?:[ _-]?(?:access[ _-]?)?key(?:_base)?)?"
    rf"|(?<=t)oken|(?<=c)redentials?|(?<=k)ey(?:{_OF}))"
)
_ABROAD = {
    "password": (
        "kennwort, losungswort, mot de passe, motdepasse, mdp, contraseña, contrasena, senha, palavra-passe, palavra passe, "
        "parola d'ordine, parola d’ordine, wachtwoord, hasło, haslo, пароль, 密码, 密碼, 口令, パスワード, 暗証番号, 비밀번호, "
        "패스워드, 암호, lösenord, passord, adgangskode, kodeord, salasana, heslo, парола, lozinka, zaporka, jelszó, parolă, "
        "κωδικός πρόσβασης, συνθηματικό, şifre, parola, كلمة المرور, كلمة السر, رمز عبور, گذرواژه, סיסמה, סיסמא, पासवर्ड, "
        "kata sandi, mật khẩu, รหัสผ่าน"
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
"""Words for each kind in languages other than English; those for a password in all of `data/speakers.txt`."""

_KIND_ABROAD = {
    form: kind
    for kind, words in _ABROAD.items()
    for word in words.split(", ")
    for form in (word, unicodedata.normalize("NFD", word))
}
_UNSPACED = "\u2e80"  # languages above this code point write words without spaces
NAME_ABROAD = "|".join(
    rf"(?<![^\W\d_]){re.escape(word)}" if len(word) < 7 and word < _UNSPACED else re.escape(word)
    for word in sorted(_KIND_ABROAD, key=len, reverse=True)  # "clave", not "enclave"
)
SIGNS = ":=：＝"

_NO_SECRET_KEY = (
    r"(?i)(?:\$ref|pattern|format|type|kind|user\w*|login|e?-?mail|name|id|host\w*|url|uri|path|file|region|port|date|at"
    r"|(?:created|updated|expir\w+|issued|rotated)\w*)$"
)
# Not "tokenizer" or "passing". Searching the first word before its pattern takes a tenth of the time of one pattern for all.
_WHOLE = {
    "key": r"keys?(?![a-z])",
    "pass": r"(?:pass(?:wor[dt]|wd|phrase|code)|(?<=[._\"'-])pass)s?(?![a-z])",
    "token": r"tokens?(?![a-z])",
    "secret": r"secrets?(?![a-z])",
    "pwd": r"pwds?(?![a-z])",
    "credential": r"credentials?(?![a-z])",
}
_KEY = rf"(?i)(?:(?:^|[_\W]|(?<=[a-z0-9]))({NAME}|authorization)|({NAME_ABROAD}))(s)?$"


class Name(NamedTuple):
    """Kind of secret that a name stands for; `many` is True for a plural such as `tokens`."""

    kind: str
    many: bool


def names_a_secret(text: str) -> bool:
    """Return True if `text` holds an English name of a secret, in upper or lower case."""
    lowered = text.lower()
    return any(name in lowered and compiled(whole).search(lowered) for name, whole in _WHOLE.items())


def names_a_secret_abroad(text: str) -> bool:
    """Return True if `text` holds a name of a secret in another language."""
    return any(map(text.lower().__contains__, _KIND_ABROAD))


@lru_cache(maxsize=512)
def secret_name(key: str) -> Name | None:
    """Return the name of a secret that a key of JSON data ends with, or None."""
    if str(key).lower() == "pass":
        return Name("password", False)
    match = compiled(_KEY).search(str(key))
    return Name(kind_of(match[1] or match[2]), match[3] is not None) if match else None


def tells_no_secret(key: str) -> bool:
    """Return True for keys whose values beside a secret are none: a user, an address, a date, part of a schema."""
    return compiled(_NO_SECRET_KEY).match(key) is not None


def kind_of(name: str) -> str:
    """Return the kind of secret that a name stands for, as in `[redacted:KIND]`."""
    lowered = name.lower()
    if lowered in _KIND_ABROAD:
        return _KIND_ABROAD[lowered]
    for word in ("pass", "pwd", "token", "secret", "key", "authorization"):
        if word in lowered:
            return {"pass": "password", "pwd": "password", "key": "api_key"}.get(word, word)
    return "credential"


# ------------------------------------------------------------------ assignments

_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "«": "»", "「": "」", "‘": "’"}
_QUOTED = "|".join(
    rf"{begin}{UNSEEN}{NO_SECRET}([^{end}\n]{{3,399}}[^{end}\n\\])(?=\\{{0,3}}{end})"
    for begin, end in _QUOTES.items()
)
_TICKED = rf"`{UNSEEN}{NO_SECRET}(?![,.;:+])([^`\s]{{4,400}})(?=`)"
_VALUE = (
    rf"(?:{_QUOTED}|{_TICKED}|\[(?P<list>[^\[\]{{}}]{{4,4000}})"
    rf"|{UNSEEN}{NO_SECRET}(?P<bare>[^\s\"'`,;&)\]}}]{{6,}}))"
)
# a backslash: JSON in a text of JSON; **: Markdown
_SIGN = r"\\{0,3}[\"'*`]{0,3}\s{0,4}(?:=>|:=|==?|:(?!:)|[：＝])\*{0,2}\s{0,4}(?:[bu](?=[\"']))?\\{0,3}"
_GAP = r"(?:\s{1,3}(?:for|of|on|in|at|to|there|here|I|we|you|del?|d[aio]|für|vom|zum|pour|voor)(?:\s{1,3}(?:[\w@'’()/-]|\.(?=\w)){1,40}){0,5}?)?"
_SENTENCE = rf"{_GAP}(?:\s{{1,3}}(?:is|was|has been|will be|ist|lautet|est|es|è|é|er|to)(?:\s(?:now|still|just|currently|(?:set|changed|reset|updated|rotated) to))?:?\s{{1,3}}|\s?:\s{{1,3}})"
_ATTRIBUTE = r"\s{1,4}[\w:-]{1,20}\s?=\s?[\"'][^\"'<>\n]{0,80}[\"']"
_PAIR = rf"(?:[\"'],?(?:{_ATTRIBUTE}){{0,4}}?\s{{1,40}}|[ \t]{{0,4}}\r?\n[ \t]{{1,40}})[\"']?value[\"']?\s{{0,2}}[:=]\s{{0,4}}"
_NAMED = (
    rf"(?P<name>{NAME_FOUND}(?P<many>[sS])?)"
    rf"(?i:(?:(?P<sign>{_SIGN})|(?P<pair>{_PAIR})|(?P<sentence>{_SENTENCE})|(?P<next>[ \t]{{1,4}})){_VALUE})"
)
# "la contraseña es ...", "パスワードは...", "şifre ...": an ending, some words and a verb, or neither
_SENTENCE_ABROAD = (
    r"[^\W\d]{0,3}(?:(?:\s[^\W\d]{1,20}){0,5}?\s(?:est|es|è|é|ist|lautet|is|är|er|on|to|je|este|jest|είναι|هي|هو|है|adalah|là|คือ)|(?:\s[^\W\d]{1,20}){1,5}?\s?[:：])?"
    r"\s{0,3}(?<![!-~])(?=[!-~]{6})"
)
_NAMED_ABROAD = rf"(?i)(?P<name>{NAME_ABROAD})(?:(?P<many>s)?(?P<sign>{_SIGN})|{_SENTENCE_ABROAD}){_VALUE}"
_ITEM = r"[\"'](?P<value>[^\"'\s]{4,400})[\"']"

_EXPRESSION = (
    r"[&*!@:+]*(?P<names>[^\W\d]\w*(?:(?:\.|::|->)\$?[^\W\d]\w*)*)(?:::|[.!])?(?P<more>[(\[{<])?(?(more)|\Z)"
)
_TEMPLATE = r"[$#]\{|\{[a-z_.]*\}|[~^]?\d+(?:\.\d+)+\Z"
_NAME_ALONE = rf"(?i)(?:\A|_)(?:{NAME})s?\Z"
_CHANGED = r"(?i)\b(?:set|chang|reset|updat|rotat)\w{0,5}\s+(?:[\w'’]{1,20}\s+){0,4}\Z"
_NAME_LIKE = (
    rf"(?i)[a-z_.-]*(?:\d{{1,3}}_?)?(?:{NAME})(?:s|v?\d)?\Z"  # also r2_token, ES256PrivateKey, CredentialV3
)
_OPTION = r"(?:^|\s)--?[\w-]{0,30}\Z"
_NETRC = r"\bmachine\s+\S{1,253}\s+(?:(?:login|account)\s+\S{1,120}\s+){0,2}\Z"
_LONG_KEY = r"(?=\D{0,30}\d\D{0,30}\d)[\w=-]{20,}"  # "the API key abc...", where no sign gives it
_MAX_BARE_CHARS = 500
_BEFORE = 320  # characters before a name that may change the verdict

Judge = Callable[[re.Match[str], str, str, bool], bool]
"""Function of match, kind, value and `quoted` that returns True if the value is a secret."""


def without_named(text: str) -> str:
    """Redact the values that `text` gives to an English name of a secret."""
    return _replaced(text, compiled(_NAMED), _is_secret)


def without_named_abroad(text: str) -> str:
    """Redact the values that `text` gives to a name of a secret in another language."""
    return _replaced(text, compiled(_NAMED_ABROAD), _is_secret_abroad)


def _replaced(text: str, pattern: re.Pattern[str], is_secret: Judge) -> str:
    """Redact the secrets of all matches. After a match without a secret, the search continues right after its name."""
    pieces: list[str] = []
    done = at = 0
    while match := pattern.search(text, at):
        bare = match["bare"]
        within = bare is None or (len(bare) < _MAX_BARE_CHARS and any(sign in bare for sign in SIGNS))
        at = match.end("name") if within else match.end()
        kind = kind_of(match["name"])
        for start, end in _secrets(match, kind, is_secret):
            pieces += (text[done:start], f"[redacted:{kind}]")
            done = at = end
    return "".join([*pieces, text[done:]])


def _secrets(match: re.Match[str], kind: str, is_secret: Judge) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret of a match: of one value, or of the items of a list."""
    start, end = match.span(match.lastindex or 0)
    if match["list"] is not None:
        for item in compiled(_ITEM).finditer(match.string, start, end):
            if looks_secret(item["value"], kind):
                yield item.span("value")
        return
    value = match.string[start:end]
    if match["bare"] is not None and match["sign"] is None:
        value = compiled(r"[\u2e80-\uffff]+\Z|</.*").sub("", value).rstrip(".?:!*")  # of the sentence
    if is_secret(match, kind, value, match["bare"] is None):
        yield start, start + len(value)


def _is_secret(match: re.Match[str], kind: str, value: str, quoted: bool) -> bool:
    sign = match["sign"] or match["pair"]
    if match["many"]:
        return looks_secret(value, kind)
    if sign is not None:
        return _is_literal(sign, kind, value) if quoted else _is_assigned(sign, kind, value)
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    if match["sentence"] is not None:
        words = match["sentence"].lower().split()
        if words == ["to"] and not compiled(_CHANGED).search(before):
            return False  # "give the password to bob1990"
        return (quoted and kind == "password") or looks_secret(value, kind)
    if compiled(_OPTION).search(before):
        return quoted or looks_secret(value, kind)
    if kind == "password":
        return looks_secret(value, kind) or compiled(_NETRC).search(before) is not None
    return looks_secret(value, kind) and compiled(_LONG_KEY).fullmatch(value) is not None


def _is_secret_abroad(match: re.Match[str], kind: str, value: str, quoted: bool) -> bool:
    if match["sign"] and kind == "password" and not match["many"]:
        return quoted or _is_assigned(match["sign"], kind, value)
    named = match["sign"] or kind == "password" or compiled(_LONG_KEY).fullmatch(value)
    return bool(named) and looks_secret(value, kind)


def _is_literal(sign: str, kind: str, value: str) -> bool:
    """Return True if a quoted value is no name, label, template or version, and is not what a program compares to."""
    if sign.rstrip().endswith("=="):
        return looks_secret(value, kind)
    words = compiled(_WORDS).match(value.lstrip(".")) and kind not in ("password", "secret")
    label = words or (" " in value.strip() and names_a_secret(value))
    return not (label or is_name(value, kind) or compiled(_TEMPLATE).search(value))


def _is_assigned(sign: str, kind: str, value: str) -> bool:
    """Return True if an unquoted value is more than a word of the sentence: "password: required" is no secret."""
    sign = sign.rstrip(" \t\n*\\")
    if sign.endswith("=="):
        return looks_secret(value, kind)
    if is_code(value.rstrip(",;:)]}\\"), kind):
        return False
    if sign.endswith(("=", "＝")):
        return True
    if kind == "password" and (value.isdigit() or looks_secret(value, kind)):
        return True
    return (
        len(value) >= 8
        and "://" not in value
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and (kind == "password" or not compiled(_WORD).match(value))
    )


def is_code(value: str, kind: str) -> bool:
    """Return True if an unquoted value is a name, an attribute or a call of a program.

    A word may be a password that a person made up, so that there only a name of a secret is one: `password=password`.
    """
    if kind != "password" and (compiled(_WORDS).match(value) or compiled(_NAME_LIKE).match(value)):
        return True
    match = compiled(_EXPRESSION).match(value)
    if match is None or "::" in value or "->" in value:
        return match is not None
    if any(map(str.isdigit, match["names"])) and (kind == "password" or not match["more"]):
        return False
    named = compiled(_NAME_ALONE).search(match["names"]) is not None
    return bool(match["more"]) or "." in match["names"] or kind != "password" or named


# ------------------------------------------------------------------ elements, blocks and sections

_TAGGED = (
    rf"(?i)<(?:[\w.:-]{{0,60}}?(?P<name>{NAME})(?:\s[^<>]{{0,200}})?"
    rf"|[^<>]{{0,120}}?\b(?:name|key|id)\s?=\s?[\"'][^\"'<>]{{0,80}}?(?P<named>{NAME})[\"'][^<>]{{0,200}})"
    rf">\s{{0,4}}(?:<!\[CDATA\[)?{UNSEEN}{NO_SECRET}(?P<value>[^<\s][^<\n]{{2,398}}?[^<\s])\s{{0,4}}(?:\]\]>|</)"
)
_BLOCK = (
    rf"(?im)^\ufeff?(?:([ \t]*)(?:-[ \t]+)?[\"']?[\w.-]{{0,60}}?(?P<name>{NAME})s?[\"']?[ \t]*:[ \t]*(?:[|>][+-]?[ \t]*)?\r?\n"
    rf"(?P<deeper>(?:\1[ \t]+\S[^\n]*(?:\n|\Z))+)"
    rf"|[ \t]*{UNSEEN}\[[\w. :\"-]{{0,60}}?(?P<titled>{NAME})s?\"?\][ \t]*\r?\n(?P<section>(?:[^\[\n]+(?:\n|\Z))+))"
)
_LINE = (
    r"(?m)^[ \t]*(?:-[ \t]+)?(?:[\"']?(?P<key>[\w.-]{1,60})[\"']?[ \t]*[:=][ \t]*)?[\"']?"
    rf"{UNSEEN}{NO_SECRET}(?P<value>[^\s\"'#]{{6,}})[\"']?,?[ \t\r]*$"
)


def without_blocks(text: str) -> str:
    """Redact secrets in elements of XML, blocks of YAML and sections of INI files that have a secret's name."""
    if "<" in text:
        text = compiled(_TAGGED).sub(_without_content, text)
    return compiled(_BLOCK).sub(_without_lines, text) if "\n" in text else text


def _without_content(match: re.Match[str]) -> str:
    """Return an element of XML or HTML with its text redacted, if that is a secret."""
    kind = kind_of(match["name"] or match["named"])
    if kind != "password" and not looks_secret(match["value"], kind):
        return match[0]
    start, end = (at - match.start() for at in match.span("value"))
    return f"{match[0][:start]}[redacted:{kind}]{match[0][end:]}"


def _without_lines(match: re.Match[str]) -> str:
    """Return a block of YAML or a section of an INI file with the secrets of its lines redacted."""
    name = match["name"] or match["titled"]
    start, end = (at - match.start() for at in match.span("deeper" if match["name"] else "section"))

    def clean(line: re.Match[str]) -> str:
        if tells_no_secret(line["key"] or "") or not looks_secret(line["value"], kind):
            return line[0]
        begin, stop = (at - line.start() for at in line.span("value"))
        return f"{line[0][:begin]}[redacted:{kind}]{line[0][stop:]}"

    kind = kind_of(name)
    return match[0][:start] + compiled(_LINE).sub(clean, match[0][start:end]) + match[0][end:]


# ------------------------------------------------------------------ command lines

_LINE_OF = r"[^\n|;&]{0,300}?\s"
_ARGUMENT = rf"(?(quote){UNSEEN}{NO_SECRET}[^\"'\n]{{1,400}}(?=[\"'])|{UNSEEN}{NO_SECRET}[^\s\"'`|;&]{{3,}})"
_COMMANDS = tuple(
    (programs, rf"(?P<kept>\b{before}){_ARGUMENT}")
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


def without_arguments(text: str) -> str:
    """Redact passwords in calls of known programs whose option does not name them: `mysql -phunter2`."""
    for programs, pattern in _COMMANDS:
        if any(program in text for program in programs):
            text = compiled(pattern).sub(r"\g<kept>[redacted:password]", text)
    return text
