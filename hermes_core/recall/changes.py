"""Facts that changed: statements of the same kind of thing about the same subject, of which the newest holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from hermes_core.recall.rank import speaks_of_self
from hermes_core.recall.tokens import DENSE, dense_runs, fold, strip_possessive

# Characters of a message in which statements are compared; a longer text tells more than one fact.
MAX_STATEMENT_CHARS = 400

# Words of the longest sentence that states a fact in this sense; the characters of a script without spaces count as words.
MAX_STATEMENT_WORDS = 24

# Letters of the longest word that may differ between two statements of one matter: "in the" and "at".
MAX_SMALL_WORD = 3

# Messages from a statement to one that goes on with "it": an answer may stand between them.
MAX_REFERENCE_DISTANCE = 2

# Share of the words, or of the characters in a script without spaces, that two sentences of one matter have in common.
MIN_SAME_WORDS = 0.6
MIN_SAME_CHARACTERS = 0.4

# Words that say that something is different now, in the languages in which people state it by such a word.
_NOW = (
    r"now|nowadays|again|actually|since then|from now on|from today(?: on)?|jetzt|nun|inzwischen|mittlerweile|doch|eigentlich|ab sofort|"
    r"ab jetzt|wieder|ahora|de nuevo|en realidad|maintenant|désormais|en fait|à nouveau|adesso|ora|in realtà|agora|na verdade|nu|eigenlijk|теперь|artık|"
    r"şimdi|teraz"
)
_NO_LONGER = (
    r"no longer|not any ?more|any ?more|instead|nicht mehr|kein\w* mehr|sondern|stattdessen|ya no|en vez|sino|ne \w+ plus|plutôt|"
    r"non \w+ più|invece|não \w+ mais|niet meer|больше не|już nie"
)
_MOVED = (
    r"moved|switched|changed|replaced|renamed|updated|postponed|rescheduled|pushed back|brought forward|went (?:up|down)|rose|dropped|"
    r"gestiegen|gesunken|erhöht|gesenkt|subió|bajó|aument\w+|augment\w+|baissé\w*|umgezogen|gezogen|gewechselt|geändert|verschoben|verlegt|"
    r"umbenannt|ersetzt|mud[éaoó]\w*|cambi\w+|aplaz\w+|déménagé\w*|changé\w*|déplacé\w*|reporté\w*|trasferit[oa]|cambiat[oa]|"
    r"mudei|mudou|verhuisd|переехал[аи]?|сменил[аи]?|перенесли|taşındı\w*|przeprowadził\w*|zmienił\w*"
)
# Words that say that something ended.
_ENDED = (
    r"quit|stopped|sold|cancell?ed|called off|broke up|split up|divorced|scrap(?:ped)?|gekündigt|getrennt|verkauft|aufgehört|abgesagt|"
    r"quitté|fini|vendu|annulé|arrêté|rompu|séparés|dej(?:é|amos)|vendí|cancelé|terminamos|lasciati|venduto|annullato|deixei|vendi|"
    r"opgezegd|verkocht|gestopt|бросил[аи]?|уш(?:ёл|ла)|продал[аи]?|расстались|sprzedał\w*|zerwa\w+"
)
# Patterns of texts in lower case: a pattern that ignores case takes twice as long.
_NEGATION = re.compile(
    rf"\b(?:{_NO_LONGER}|not|no(?!,)|never|nicht|kein\w*|pas|non|não|niet|geen|inte|ikke|не|nie)\b|n['’]t\b|不"
)
_END_VERB = re.compile(rf"\b(?:{_ENDED})\b(?:\s+(?:with|von|mit|de|con|avec)\b)?", re.IGNORECASE)
_CHANGE_VERB = re.compile(rf"\b(?:{_MOVED})\b|改[成为到]|换[成了]|搬[到了]|変わ|引っ越|바뀌")
_CHANGE = re.compile(
    rf"\b(?:{_NOW}|{_NO_LONGER}|{_MOVED})\b|现在|不再|改[成为到]|换[成了]|搬[到了]|今は|変わ|引っ越|이제|바뀌"
)
# A new thing in place of an older one: the word after it is the subject.
_NEW = re.compile(
    r"\b(?:new|neue[rnsm]?|nuev[oa]s?|nouve(?:au|l|lle)s?|nuov[oaie]|nov[oa]s?|nieuwe|новый|новая|новое|yeni|nowy|nowa)\s+(\w+)"
)

# Words before a value of which there is one, and words of a preference, of which there is one for each matter.
_ONE_AT_A_TIME = re.compile(
    r"is|are|in|at|on|to|by|from|under|near|ist|sind|im|am|bei|auf|unter|zum|zur|um|es|son|en|est|sont|à|au|chez|sur|è|a|"
    r"sono|da|é|são|em|är|på|er|til|в|на|у|под|"
    r"named|called|name|hei(?:ß|ss)t|genannt|llama|nombre|appelle|nom|chiama|nome|chama|heet|зовут|since|until|over|after"
)
_PREFERENCE = re.compile(
    r"\b(?:prefer\w*|default\w*|bevorzug\w*|prefier\w*|préf\w*|предпочита\w*|voorkeur)\b|偏好",
    re.IGNORECASE,
)

# Questions that ask for what held before.
_FORMERLY = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|first|originally|old|earlier|früher\w*|vorher|zuerst|damals|alte[rnsm]?|"
    r"antes|anterior|primer[oa]?|avant|autrefois|ancien(?:ne)?|premi(?:er|ère)|prima|precedente|раньше|прежн\w+)\b|以前|之前|原来",
    re.IGNORECASE,
)

# Words of a statement: a word, a number, or a character of a script without spaces.
_TOKEN = re.compile(rf"[{DENSE}]|(?:(?![{DENSE}])[^\W_])+(?:['’][^\W\d_]+)*")
_CLAUSE_END = re.compile(r"\s*[,–—，、]\s*")
# Words that French and Italian join to the next word.
_ELISION = re.compile(r"\b([cdjlmnst]|qu|dell|all|un)['’](?=\w)", re.IGNORECASE)
# A sentence about what its speaker does: people visit several cities and read several books.
_I_DO = re.compile(
    r"(?:i|i['’]\w+|we|we['’]\w+|ich|wir|je|j['’]\w+|nous|yo|nosotr[oa]s|io|noi|eu|nós|ik|wij|jag|jeg|vi|я|мы|ben|biz|我们?)\b|我",
    re.IGNORECASE,
)
_IT = re.compile(
    r"(?:actually,?\s+|no,?\s+)?(?:it|it['’]s|that|they|she|he|es|er|sie|das|está|ahora|il|elle|c['’]est|è|оно|он|она)\b|它|那",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"an|the|my|ein\w*|de[rmns]|die|das|mein\w*|une?|les?|la|una?|el|los")
# Words before a German noun, which is no name for its capital letter.
_BEFORE_NOUN = re.compile(rf"{_ARTICLE.pattern}|im|ins|zum|zur|vom|beim")
_SENTENCE_END = re.compile(r"(?<=[^\d][.!?。！？])\s+|(?<=[。！？])|\n+|[;；]\s*")


class Statement(Struct, frozen=True):
    """A message in which a person may have stated a fact.

    Attributes:
        id: Id of the message.
        text: Its text.
        time: Its time in epoch seconds.
        author: Name of the person; "" for the one person of a store without names.
        place: Number of its session, and its position there.
    """

    id: int
    text: str
    time: float
    author: str = ""
    place: tuple[int, int] = (0, 0)


def asks_formerly(question: str) -> bool:
    """Return True if a question asks for what held before a change.

    >>> asks_formerly("Where did I use to live before?"), asks_formerly("Where do I live?")
    (True, False)
    """
    return bool(_FORMERLY.search(question))


def find_outdated(statements: Sequence[Statement], about: Collection[int]) -> dict[int, int]:
    """Return for each statement that a newer one changes the id of the newest statement of the same matter.

    Args:
        statements: The statements to compare.
        about: Ids of statements of which one must belong to a pair: those that answer the question best.
    """
    in_time = sorted(statements, key=lambda statement: (statement.time, statement.id))
    newest: dict[int, int] = {}
    about = set(about)
    for at, newer in enumerate(in_time):
        for older in in_time[:at]:
            if older.author != newer.author or not (older.id in about or newer.id in about):
                continue
            if changes(older.text, newer.text) or _goes_on(older, newer):
                newest[older.id] = newer.id
                about |= {older.id, newer.id}
    for older_id in newest:
        while newest[older_id] in newest:
            newest[older_id] = newest[newest[older_id]]
    return newest


def changes(older: str, newer: str) -> bool:
    """Return True if a text states the same kind of thing about the same subject as an older text, with another value.

    >>> changes("My passport is in the blue drawer.", "My passport is in the safe now.")
    True
    >>> changes("My sister lives in Graz.", "My brother lives in Kiel.")
    False
    """
    if len(older) > MAX_STATEMENT_CHARS or len(newer) > MAX_STATEMENT_CHARS:
        return False
    return any(_changes(one, other) for one in _sentences(older) for other in _sentences(newer))


def contradicts(standing: str, new: str) -> bool:
    """Return True if a new note and one that stands can't both hold, because they give one matter two values.

    A note says what holds, and is no event that may happen again. So another name or number at the same place is enough,
    or another preference.

    >>> contradicts("User lives in Graz", "User lives in Vienna"), contradicts("User likes tea", "User likes coffee")
    (True, False)
    """
    if changes(standing, new):
        return True
    if len(standing) > MAX_STATEMENT_CHARS or len(new) > MAX_STATEMENT_CHARS:
        return False
    return any(_differs(one, other) for one in _sentences(standing) for other in _sentences(new))


def _differs(standing: str, new: str) -> bool:
    """Return True if two sentences are the same but for a value of which there is only one at a time."""
    one, other = _read(standing).tokens, _read(new).tokens
    kind = _restates(one, other) if one and other else ""
    if not kind:
        return False
    if kind != "word":
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a.key != b.key), 0)
        # Of a name, there may be several: "speaks German". Of what one is, or where, there is one.
        single = (at and _ONE_AT_A_TIME.fullmatch(one[at - 1].key)) or ":" in standing
        return kind == "definite" or one[at].kind == "number" or bool(single)
    return bool(_PREFERENCE.search(standing)) or any(map(_is_owned, _TOKEN.findall(standing)))


def _is_owned(word: str) -> bool:
    return word.endswith(("'s", "’s"))


def _goes_on(older: Statement, newer: Statement) -> bool:
    """Return True if a message right after another one says "it is ... now" of what that one says."""
    (group, position), (newer_group, newer_position) = older.place, newer.place
    if group != newer_group or not 0 < newer_position - position <= MAX_REFERENCE_DISTANCE:
        return False
    # The sentence that says "it" says the change too: the next one may speak of something else.
    said = next(iter(_sentences(newer.text)), "")
    if len(older.text) > MAX_STATEMENT_CHARS or not _IT.match(said) or not _CHANGE.search(said.lower()):
        return False
    kind = _kind(_tokens(older.text))
    return bool(kind) and kind == _kind(_tokens(_without_change(said)))


@lru_cache(maxsize=1024)
def _sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of a text that state something."""
    parts = (part.strip() for part in _SENTENCE_END.split(text))
    return tuple(part for part in parts if part and not part.endswith(("?", "？")))


def _changes(older: str, newer: str) -> bool:
    """Return True if one sentence changes an older one.

    Either both are the same but for one value; or the newer one says that something moved or is new, has the subject of
    the older one, and a value of the same kind; or it says that the older one no longer holds.
    """
    one, other = _read(older), _read(newer)
    if max(len(one.tokens), len(other.tokens)) > MAX_STATEMENT_WORDS:
        return False
    if other.ended and not one.ended and (one.is_of_self or other.is_of_self):
        return any(token.kind == "name" and token.key in other.ended for token in one.content)
    if one.keys.isdisjoint(other.keys):
        return False
    if not other.says_change:
        if not one.is_deed and any(_restates(one.tokens, part) == "definite" for part in other.parts):
            return True
    else:
        wanted = ("definite", "value", "word") if one.is_of_self else ("definite", "value")
        if any(_restates(one.tokens, part) in wanted for part in other.parts):
            return True
    if (
        other.negates
        and not one.negates
        and one.keys <= other.keys
        and (len(one.keys) > 1 or other.says_change)
    ):
        return True
    is_new = not one.is_deed and any(noun in one.words for noun in other.new_nouns)
    if not (other.moves or is_new) or one.content[0].key not in other.keys:
        return False
    values = [token for token in one.content if token.key not in other.keys]
    new_values = [token for token in other.content if token.key not in one.keys]
    kinds = {token.kind for token in values} & {token.kind for token in new_values}
    most = 2 if dense_runs(older) else 1
    return bool(kinds - {"word"}) or (bool(kinds) and max(len(values), len(new_values)) <= most)


class _Sentence(Struct, frozen=True):
    """Parts of a sentence that are compared with those of another one.

    Attributes:
        tokens: Its words.
        words: Their keys.
        content: Its words that are no small words, without words of change.
        keys: Their keys.
        parts: The whole sentence and its clauses, without words of change.
        says_change: True if it says that something is different now.
        negates: True if it says that something does not hold, or no longer.
        ended: In clauses that say that something ended, the words to the first noun: "the Polo", but not "to Ben".
        moves: True if it says that something moved or changed.
        new_nouns: The words after "new".
        is_deed: True if it begins with "I" or "we".
        is_of_self: True if it has a word for its speaker.
    """

    tokens: tuple[_Token, ...]
    words: frozenset[str]
    content: tuple[_Token, ...]
    keys: frozenset[str]
    parts: tuple[tuple[_Token, ...], ...]
    says_change: bool
    negates: bool
    ended: frozenset[str]
    moves: bool
    new_nouns: tuple[str, ...]
    is_deed: bool
    is_of_self: bool


@lru_cache(maxsize=1024)
def _read(text: str) -> _Sentence:
    """Read a sentence. A search compares each sentence with many others."""
    tokens, lowered = _tokens(text), text.lower()
    says_change, new_nouns = bool(_CHANGE.search(lowered)), _NEW.findall(lowered)
    rest = _without_change(text) if says_change else text
    if new_nouns:
        rest = re.sub(_NEW.pattern, r"\1", rest, flags=re.IGNORECASE)
    # Most sentences say nothing of a change, and are cut into words once.
    content = tuple(_content(tokens if rest is text else _tokens(rest)))
    clauses = dict.fromkeys((text, *_CLAUSE_END.split(text)))
    ending = (_tokens(_END_VERB.sub("", part)) for part in _CLAUSE_END.split(text) if _END_VERB.search(part))
    return _Sentence(
        tokens=tokens,
        words=frozenset(token.key for token in tokens),
        content=content,
        keys=frozenset(token.key for token in content),
        parts=tuple(_tokens(_without_change(part) if says_change else part) for part in clauses),
        says_change=says_change,
        negates=bool(_NEGATION.search(lowered)),
        ended=frozenset(
            token.key
            for part in ending
            for at, token in enumerate(part)
            if all(before.kind != "word" for before in part[1:at])
        ),
        moves=says_change and bool(_CHANGE_VERB.search(lowered)),
        new_nouns=tuple(map(fold, new_nouns)),
        is_deed=bool(_I_DO.match(text)),
        is_of_self=speaks_of_self(text),
    )


def _without_change(text: str) -> str:
    """Return a text with a space in place of each word that says that something is different now."""
    return re.sub(_CHANGE.pattern, " ", text, flags=re.IGNORECASE)


class _Token(Struct, frozen=True):
    """A word of a sentence.

    Attributes:
        key: The word in the form in which words are compared.
        kind: "number", "name", "word", or "" for a small word, which is no value and no subject.
    """

    key: str
    kind: str


def _tokens(text: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    before = ""
    for match in _TOKEN.finditer(_ELISION.sub(r"\1 ", text)):
        word = match[0]
        key = strip_possessive(fold(word))
        # "my car", but not "I ran"
        is_owned = _is_first_person(before) and not _I_DO.match(before)
        if any(map(str.isdigit, word)):
            kind = "number"
        elif word[0].isupper() and tokens and not _BEFORE_NOUN.fullmatch(before):
            kind = "name"
        elif not _is_first_person(word) and (
            len(word) > MAX_SMALL_WORD - is_owned or (tokens and word[0].isupper()) or dense_runs(word)
        ):
            kind = "word"
        else:
            kind = ""
        tokens.append(_Token(key, kind))
        before = key
    return tuple(tokens)


# A text repeats its words, and its patterns take longer than a look into a table.
_is_first_person = lru_cache(maxsize=4096)(speaks_of_self)


def _content(tokens: Sequence[_Token]) -> list[_Token]:
    return [token for token in tokens if token.kind]


def _kind(tokens: Sequence[_Token]) -> str:
    """Return the kind of the most specific value among tokens."""
    kinds = {token.kind for token in tokens}
    return next((kind for kind in ("number", "name", "word") if kind in kinds), "")


def _value(tokens: Sequence[_Token]) -> tuple[str, bool]:
    """Return the kind of a value, and True if it is a word after a small word: "at home" is another thing than "cheap"."""
    before = [token.kind for token in tokens if not _is_article(token)]
    return _kind(tokens), _kind(tokens) == "word" and "" in before[:-1]


def _is_article(token: _Token) -> bool:
    return bool(_ARTICLE.fullmatch(token.key)) or _is_first_person(token.key)


def _restates(one: Sequence[_Token], other: Sequence[_Token]) -> str:
    """Return a word if two sentences are the same but for one value at their end, or for one number; else "".

    The word is "definite" if both have the same subject with an article or a possessive, as "my passport"; else "value"
    for a name or a number, and "word" for other values.
    """
    least = MIN_SAME_CHARACTERS if all(len(token.key) == 1 for token in one) else MIN_SAME_WORDS
    enough = least * min(len(one), len(other))
    if len({t.key for t in one} & {t.key for t in other}) < min(enough, len({t.key for t in one})):
        return ""
    matcher = SequenceMatcher(None, [t.key for t in one], [t.key for t in other], autojunk=False)
    same = 0
    before = after = definite = False
    values: list[tuple[tuple[str, bool], tuple[str, bool]]] = []
    for operation, start, end, other_start, other_end in matcher.get_opcodes():
        old, new = one[start:end], other[other_start:other_end]
        if operation == "equal":
            same += end - start
            is_content = bool(_content(old))
            before = before or (is_content and not values)
            definite = definite or (
                not values and any(_is_article(a) and not _is_article(b) for a, b in pairwise(old))
            )
            after = after or (is_content and bool(values) and end - start > 1)
        elif _content(old) or _content(new):
            values.append((_value(old), _value(new)))
        elif not values and not before and not all(map(_is_article, (*old, *new))):
            return ""  # another subject, as cat and dog
    if len(values) != 1 or values[0][0] != values[0][1] or not before or same < enough:
        return ""
    kind = values[0][0][0]
    if after and kind != "number":
        return ""
    if definite:
        return "definite"
    return "word" if kind == "word" else "value"
