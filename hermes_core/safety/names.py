"""The names of secrets, in English and ten other languages, and the kind of secret that each of them stands for."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from hermes_core.safety.values import compiled

_KEY_OF = ("access", "private", "account", "master", "encryption", "signing", "license", "api")
_PASS = (  # DB_PASS and smtp_pass, but no first_pass
    r"(?-i:(?<=[A-Z0-9]_PASS))|(?<=db_pass)|(?<=(?:sql|ftp|ssh|vpn)_pass)|(?<=(?:admin|redis|login|proxy)_pass)"
    r"|(?<=(?:user|smtp|mail|imap|http|wifi|root|auth)_pass)"
)
NAME = (
    rf"pass(?:wor[dt]|wd|phrase|code|{_PASS})|pwd|secret(?:[ _-]?(?:access[ _-]?)?key(?:_base)?)?|client[ _-]?secret|"
    r"(?:access|auth|api|refresh|bearer|session|id|bot)[ _-]?token|token|api[ _-]?secret|"
    rf"(?:{'|'.join(_KEY_OF)})[ _-]?key|credentials?"
)
_OF = "|".join(f"(?<={word}.key)(?<=[ _-]key)|(?<={word}key)" for word in _KEY_OF)
# The same names from their last word on. It begins with a set of letters: that a search passes over all others by it takes
# a tenth of the time.
NAME_FOUND = (
    rf"[pstckPSTCK](?i:(?<=p)(?:ass(?:wor[dt]|wd|phrase|code|{_PASS})|wd)|(?<=s)ecret(?:[ _-]?(?:access[ _-]?)?key(?:_base)?)?"
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
_LAST_ABROAD = frozenset(word[-2:] for word in _KIND_ABROAD)
_UNSPACED = "\u2e80"  # from here on words stand without spaces between them
NAME_ABROAD = "|".join(
    rf"(?<![^\W\d_]){re.escape(word)}" if len(word) < 7 and word < _UNSPACED else re.escape(word)
    for word in sorted(_KIND_ABROAD, key=len, reverse=True)  # "clave", not "enclave"
)
SIGNS = ":=：＝"
_LONGEST_ABROAD = max(map(len, _KIND_ABROAD)) + 8

_NO_SECRET_KEY = (
    r"(?i)(?:\$ref|pattern|format|type|kind|user\w*|login|e?-?mail|name|id|host\w*|url|uri|path|file|region|port|date|at"
    r"|(?:created|updated|expir\w+|issued|rotated)\w*)$"
)
# No "tokenizer", no "passing". By its first word each name is found in a tenth of the time that one pattern takes for all.
_WHOLE = {
    "key": r"keys?(?![a-z])",
    "pass": r"(?:pass(?:wor[dt]|wd|phrase|code)|(?<=_)pass)s?(?![a-z])",
    "token": r"tokens?(?![a-z])",
    "secret": r"secrets?(?![a-z])",
    "pwd": r"pwds?(?![a-z])",
    "credential": r"credentials?(?![a-z])",
}
_HAS_NAME = f"(?i){'|'.join(_WHOLE)}"
_KEY = rf"(?i)(?:(?:^|[_\W]|(?<=[a-z0-9]))({NAME}|authorization)|({NAME_ABROAD}))(s)?$"


class Name(NamedTuple):
    """What a name says of its values: their kind, and whether it names several."""

    kind: str
    many: bool


def names_a_secret(text: str) -> bool:
    """Whether an English name of a secret stands in `text`, in any case."""
    if not text.isascii():
        return compiled(_HAS_NAME).search(text) is not None
    lowered = text.lower()
    return (  # written out: each turn pays for it, and a loop takes twice as long
        ("key" in lowered and _stands("key", lowered))
        or ("pass" in lowered and _stands("pass", lowered))
        or ("token" in lowered and _stands("token", lowered))
        or ("secret" in lowered and _stands("secret", lowered))
        or ("pwd" in lowered and _stands("pwd", lowered))
        or ("credential" in lowered and _stands("credential", lowered))
    )


def _stands(name: str, lowered: str) -> bool:
    return compiled(_WHOLE[name]).search(lowered) is not None


def names_one_abroad(text: str) -> bool:
    """Whether something is given to a name in another language."""
    lowered = text.lower()
    for sign in SIGNS:
        at = lowered.find(sign)
        while at >= 0:
            before = lowered[max(0, at - _LONGEST_ABROAD) : at].rstrip(" *`\"'\\")
            if before[-2:] in _LAST_ABROAD and before.endswith(_ENDS_ABROAD):
                return True
            at = lowered.find(sign, at + 1)
    return False


@lru_cache(maxsize=512)
def name_of(key: str) -> Name | None:
    """The name of a secret that a key of JSON data ends with, if any."""
    found = compiled(_KEY).search(str(key))
    return Name(kind_of(found[1] or found[2]), found[3] is not None) if found else None


def tells_no_secret(key: str) -> bool:
    """Whether what stands under this key beside a secret is none: a user, an address, a date, a part of a schema."""
    return compiled(_NO_SECRET_KEY).match(key) is not None


def kind_of(name: str) -> str:
    """The kind of secret that a name stands for, as `[redacted:KIND]` gives it."""
    lowered = name.lower()
    if lowered in _KIND_ABROAD:
        return _KIND_ABROAD[lowered]
    for word in ("pass", "pwd", "token", "secret", "key", "authorization"):
        if word in lowered:
            return {"pass": "password", "pwd": "password", "key": "api_key"}.get(word, word)
    return "credential"
