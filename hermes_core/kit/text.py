"""Rules about text that every provider needs: white space, length, bullets, keys and names, JSON data, and what is not worth a
recall.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from hermes_core.contract.values import Recall, RecallItem, Session
from hermes_core.recall.tokens import MARKS, count_tokens, fold

_NUMBER = re.compile(r"""('[^']*'|"[^"]*")|\d+(?:[.,]\d+)*""")

# Words of agreement, greeting and thanks in the languages our users write most. A message made of nothing else asks
# for nothing that memory could answer.
_TRIVIAL_WORDS = """
ah alright and awesome bye cheers cool fine go good goodbye got great hello hey hi hmm it k kk lol makes morning
night nice nah no nope ok okay oh perfect please proceed right sense sounds sure thank thanks that thx ty very
welcome well wow yeah yep yes you your continue much so done agreed exactly correct yup again ahead
danke hallo ja nein tschüss bitte gracias hola sí adiós vale merci bonjour oui non salut obrigado olá sim grazie
ciao 好 好的 谢谢 你好 是 不 嗯 はい いいえ ありがとう こんにちは 네 아니요 спасибо привет да нет
dank vielen schön guten morgen genau beaucoup bonsoir d'accord muchas buenos días claro mille buongiorno obrigada bom dia
谢谢你 多谢 早上好 再见 好的谢谢 明白了 ありがとうございます おはよう おはようございます 了解 了解です 감사합니다 고마워요
안녕하세요 ขอบคุณ ขอบคุณครับ ขอบคุณค่ะ สวัสดี большое пожалуйста здравствуйте доброе утро хорошо ок дякую привіт так ні
ευχαριστώ γεια σου καλημέρα ναι όχι εντάξει شكرا جزيلا مرحبا نعم لا السلام عليكم سلام ممنون بله תודה רבה שלום כן לא
धन्यवाद नमस्ते शुक्रिया हाँ नहीं teşekkürler teşekkür ederim merhaba evet hayır tamam cảm ơn bạn xin chào vâng không
dziękuję cześć tak nie
"""
# People paste files: one megabyte took a local search over a second, and embedders refuse it.
MAX_QUERY_CHARS = 4000

_MAX_TRIVIAL_WORDS = 6  # longer chains of such words are sentences, as "thanks, go on and please do it right"
_LETTER = rf"(?:[^\W_]|[{MARKS}\u0e00-\u0eff])"  # with the vowels of Hindi and Thai
_WORD = re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*")

# Of a name, for people to read; the hash behind it tells it from all others. Backends limit names to 64 or 100.
MAX_READABLE_CHARS = 40


def fold_space(text: str) -> str:
    """Return the text with each run of white space as one space, and none at the ends.

    >>> fold_space("  two\\n\\twords ")
    'two words'
    """
    return " ".join(text.split())


def storable(text: str) -> str:
    """Return the text without what files and databases refuse: lone surrogates become "?", and NUL is removed.

    >>> storable("half \\ud83d\\0")
    'half ?'
    """
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def plain(value: Any) -> Any:
    """Return `value` as JSON data. An object that JSON can't represent becomes its `str`.

    >>> plain({1: ("a", ValueError("b"))})
    {'1': ['a', 'b']}
    """
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if names := field_names(type(value)):  # type: ignore[arg-type]  # mypy takes no type for hashable
        return {name: plain(getattr(value, name)) for name in names}
    return str(value)


@lru_cache(maxsize=64)
def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a `Struct`, () for any other class."""
    # Cached: `plain` asks for each value of each row of the outbox.
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    return names


def query_text(text: str, limit: int = MAX_QUERY_CHARS) -> str:
    """Return a question as a backend can take it: storable, in one line, at most `limit` characters.

    People paste whole files. A search for a megabyte takes seconds and finds nothing better than its beginning does.

    >>> query_text("What  did\\nMel say?")
    'What did Mel say?'
    """
    return clip(fold_space(storable(text[: 8 * limit])), limit)


def utc_time(at: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC, to the millisecond; "" for 0, which means no time.
    `[:10]` is the day.

    >>> utc_time(1700000000.25)
    '2023-11-14T22:13:20.250Z'
    """
    if not at:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_time(text: str) -> float:
    """Return an ISO time in seconds since the epoch; 0 if the text is none. Without a zone it is UTC.

    >>> epoch_time("2026-05-08T10:00:00Z")
    1778234400.0
    """
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def local_day(time: str | float) -> str:
    """Return the day of a time in this machine's zone, as people name it: of an ISO time or of seconds since the epoch.

    A text without a clock time, or without a zone, keeps its own day; 0 and "" have none.

    >>> local_day("2026-03-01"), local_day("2026-03-01T09:00:00"), local_day(0)
    ('2026-03-01', '2026-03-01', '')
    """
    text = utc_time(time) if isinstance(time, int | float) else time
    try:
        at = datetime.fromisoformat(text)
        return (at.astimezone() if at.tzinfo else at).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return text[:10]


def without_numbers(text: str) -> str:
    """Return a sentence with 0 for each number outside of quotes, to tell whether two of them say the same.

    A name in quotes may hold a number that tells two things apart: a port, a session.

    >>> without_numbers("'x1' is left alone for 12.5 s more")
    "'x1' is left alone for 0 s more"
    """
    return _NUMBER.sub(lambda found: found[1] or "0", text)


def clip(text: str, limit: int) -> str:
    """Return `text` in at most `limit` characters. It is cut between words if a space is near, and "…" marks the cut.

    >>> clip("a sentence about tea", 12)
    'a sentence…'
    """
    if len(text) <= limit:
        return text
    if limit <= 1:
        return "…"[:limit]
    head = text[: limit - 1]
    cut_inside_word = not text[limit - 1].isspace() and not head[-1].isspace()
    space = head.rfind(" ")
    if cut_inside_word and space > limit // 2:
        head = head[:space]
    return f"{head.rstrip()}…"


def bullet_list(lines: Iterable[str], budget: int, measure: Callable[[str], int] = len) -> str:
    """Return the lines that fit in `budget` as bullets, in order. Blank lines, repeats and lines that do not
    fit are left out.

    `measure` returns the cost of a bullet, by default its characters.

    >>> print(bullet_list(["tea", "", "tea", "much too long", "milk"], budget=14))
    - tea
    - milk
    """
    bullets: list[str] = []
    spent = 0
    for line in dict.fromkeys(fold_space(line) for line in lines):
        bullet = f"- {line}"
        cost = measure(f"{bullet}\n")
        if line and spent + cost <= budget:
            bullets.append(bullet)
            spent += cost
    return "\n".join(bullets)


@cache
def _trivial_words() -> frozenset[str]:
    return frozenset(fold(_TRIVIAL_WORDS).split())


def is_trivial(text: str) -> bool:
    """Return whether a message asks for nothing that memory could answer: "ok, thanks!", "👍", "/help", "".

    >>> is_trivial("Sounds good, thanks!"), is_trivial("Where does Mel live?")
    (True, False)
    """
    stripped = text.strip()[:MAX_QUERY_CHARS]
    if stripped.startswith("/") and " " not in stripped:
        return True
    words = _WORD.findall(fold(stripped))
    if not words:
        return True
    return len(words) <= _MAX_TRIVIAL_WORDS and _trivial_words().issuperset(words)


def recall_within(items: Iterable[RecallItem], budget: int) -> Recall:
    """Return the items that fit in `budget` tokens, in their order. An item that is too long for the rest is
    left out.

    >>> recall_within([RecallItem("a" * 400), RecallItem("Likes tea.")], 20).render()
    '- Likes tea.'
    """
    chosen: list[RecallItem] = []
    for item in items:
        cost = count_tokens(Recall((item,)).render())
        if cost <= budget:
            chosen.append(item)
            budget -= cost
    return Recall(tuple(chosen))


def key_of(*parts: str, length: int = 32) -> str:
    """Return a key of `length` hexadecimal digits, 64 at most. Equal parts have equal keys, and other parts other keys.

    >>> key_of("memory", "Likes tea.", length=12)
    '8db87340a701'
    """
    # NUL separates the parts, so one inside a part becomes a byte that UTF-8 does not have.
    encoded = (part.encode("utf-8", "surrogatepass").replace(b"\0", b"\xff") for part in parts)
    return hashlib.sha256(b"\0".join(encoded)).hexdigest()[:length]


def profile_name(identity: str, separator: str = "-") -> str:
    """Return the name of a profile's memory, as Hermes Agent writes it. A name with other characters gets a hash.

    >>> profile_name("default"), profile_name("work", "_"), profile_name("at work")
    ('hermes', 'hermes_work', 'hermes-at-work-7e50d822')
    """
    if identity in ("", "default"):
        return "hermes"
    plain = re.sub(r"[^A-Za-z0-9_-]+", separator, identity)
    own = plain if plain == identity else f"{plain}{separator}{key_of(identity, length=8)}"
    return f"hermes{separator}{own}"


def person_name(session: Session, separator: str = "-") -> str:
    """Return a unique name for a user of a gateway, or for a chat without users; "" for the home's own person.

    It is "" if `session.owner` is. The name has letters, digits and `separator`: platform and id for people to read, then a hash that also
    covers the profile. A user has one name in all their chats.

    >>> person_name(Session("s1", platform="telegram", user_id="42"), "_")
    'telegram_42_318da146c455727a'
    """
    if not session.owner:
        return ""
    who = session.user_id or session.chat_id or session.gateway_session_key or session.user_name
    whose = dataclasses.replace(session, chat_id="") if session.user_id else session
    readable = re.sub(r"[^A-Za-z0-9]+", separator, f"{session.platform} {who}")[:MAX_READABLE_CHARS]
    return f"{readable.strip(separator)}{separator}{key_of(whose.scope, length=16)}"
