"""Ranking of candidates for a question, in two steps, as pure functions of values.

`score_places` scores thousands of places (positions of messages in sessions) by the words there, without reading the
texts. `rank_candidates` reads the texts of the few best candidates.

The weights were fitted on five data sets together (people who chat, LLM-written and real; a user and an assistant; tool
output; Chinese), each counting alike, and each set was also scored with weights fitted without it (`bench/recall.py`).
A figure above a constant is recall@10 in per cent in a search by words: on LoCoMo, REALTALK, BEAM, agent history and
MemDaily, in this order. With all
constants it is 80, 63, 52, 76, 71.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Literal

from hermes_core.recall.amounts import LIST_RESULTS, asks_for_list
from hermes_core.recall.query import Analysis, named_in
from hermes_core.recall.tokens import count_tokens, dense_runs, fold, words

# Place of a message: a number for its session, and its position there. Positions of neighbours differ by one.
Place = tuple[int, int]

# Weights of a word in the four messages before a message, nearest first, and in the three messages after it. They are
# applied when a question is asked; the index does not hold them.
CONTEXT_BEFORE = (0.6, 0.5, 0.3, 0.2)
CONTEXT_AFTER = (0.4, 0.3, 0.1)

# Weight of the score of a message by its own words alone, beside its score by these words and its neighbours'. LLM-written
# chats need the neighbours, other conversations hardly (own words alone: 62, 57, 54, 52, 70).
OWN_WORDS_WEIGHT = 0.4

_STEPS = ((0, 1.0), *enumerate(CONTEXT_BEFORE, 1), *((-n, share) for n, share in enumerate(CONTEXT_AFTER, 1)))

# Weight of a word that is similar to the word of the question, as film for movie. An irregular form, as ran for run,
# counts in full.
SIMILAR_WORD_WEIGHT = 0.5

# k1 of BM25: the lower it is, the less repetitions of a word add.
TERM_SATURATION = 1.2

# b of BM25, and the typical length in characters of a message in words, and in Chinese or another script of dense runs.
# Lengths are compared by their square root, because an agent's answer is long for other reasons than repeating itself.
# With 0.3 and one typical length, recall@10 is 2 to 6 points lower on BEAM and MemDaily, and equal on the others.
LENGTH_WEIGHT = 0.8
TYPICAL_SIZE = 130
TYPICAL_DENSE_SIZE = 30

# With the following weights, a score is the logarithm of the odds that a message answers. In the fit, questions that
# name the wrong person had half the weight of other questions.

# Weight of a standard deviation of the score by words; lower beside vectors, which measure much of the same.
LEXICAL_WEIGHT = 1.1
LEXICAL_BESIDE_MEANING = 0.5

# Added for a message of the only person whom the question names.
SPEAKER_WEIGHT = 0.6

# Added for a message in which the only named person writes "I" or "my".
SELF_WEIGHT = 1.0

# Added for a message from a time that the question names.
DATE_WEIGHT = 4.3

# Added for a word of time in a message if the question asks when.
TIME_WORD_WEIGHT = 1.2

# Added for a number in a message if the question asks how many.
NUMBER_WEIGHT = 0.5

# Subtracted from a short message that ends with a question mark, and added for a short message after a message with a
# question mark, because it may answer. Both shrink with the length beyond `TYPICAL_SIZE`: a long message that ends with
# a question also tells something, as most messages to an assistant do.
QUESTION_WEIGHT = 0.7
REPLY_WEIGHT = 0.5

# Subtracted from a message of the assistant where no speakers have names: there a person says the facts, and the
# assistant repeats them at length.
ASSISTANT_WEIGHT = 1.8

# Added for parts of the question in which punctuation has a meaning, such as C# or --verbose.
EXACT_WEIGHT = 2.5

# Share of its score by words and meaning that a message keeps if it says that the answer is not known, or if it is the
# question before such a message. Both have all words of the question, and neither answers it.
UNANSWERED_SHARE = 0.25

# Largest number of characters that a search shows of one message: of a longer message, the part that answers best. Ten
# messages to and from an assistant have 7,000 tokens, and ten such parts at most 2,000.
MAX_EXCERPT_CHARS = 800

# Characters of a message that says no more than that the answer is not known.
MAX_UNANSWERED_CHARS = 400

# The constants of proactive recall, which the person did not ask for. Compared with always ten messages, it returns
# 45 % of the tokens (48 % with vectors) for questions that name the wrong person, and 40 % (33 %) for small talk;
# recall falls by 0.6 points (0.8) (`bench/recall.py --proactive`). Without OTHER_SPEAKER_WEIGHT and LEAD_WEIGHT,
# questions that name the wrong person can't be told from others: at the same loss, they return 67 % of the tokens.

# The next constants decide if a turn gets anything at all (`Telling.opens`). In a search by words, 8 % of 60 tasks ("Write
# a haiku about the sea.") and 11 % of small talk get messages of an unrelated chat of two persons, 13 % and 15 % of real
# people's chats, and 23 % and 8 % of an assistant's chat; without these limits 45 to 95 %. It costs 0.4 points of
# recall@10 on LoCoMo, 0.8 on REALTALK and 4.5 on BEAM.

# Lowest number of telling words that one exchange must have. A word that no message has counts 1, a common word less.
MIN_TELLING_WORDS = 1.2

# The same in a store of at most `FEW_MESSAGES`, where words of small talk are rarely met by chance.
MIN_TELLING_WORDS_OF_FEW = 0.6
FEW_MESSAGES = 30

# Lowest share of the question's telling words that one exchange must have. A word that no message has counts in full, so
# that a question about another subject finds nothing because of the words that all subjects have.
MIN_TELLING_SHARE = 0.3

# Lowest cosine between the question and the nearest message, in a search with vectors, if one exchange has so many
# telling words as `ENOUGH_TELLING_WORDS` and `MIN_TELLING_SHARE` of the question's; other subjects are below it. Each word
# fewer raises it. It costs 0.5 points of recall@10 on LoCoMo, 1.4 on REALTALK and 3.5 on BEAM; then 0 %, 0 % and 1 % of the
# tasks get anything, and 0 %, 8 % and 0 % of small talk. With 0.40 for two words and 0.08 for each word fewer it is 16 %
# in REALTALK, where friends write small talk too.
MIN_PROACTIVE_COSINE = 0.36
COSINE_PER_MISSING_WORD = 0.1
ENOUGH_TELLING_WORDS = 2.5

# The same in a store of at most `FEW_MESSAGES`, where hardly another subject is so close. It is a word lower if the words
# alone would open recall: "I work as a nurse" is not near to "Where do I work?".
MIN_COSINE_OF_FEW = 0.45

# Lowest number of telling words in the question, in a search with vectors, because "continue" and "try again" have been
# said before, and so are very near to a message.
MIN_QUESTION_WORDS = 0.8

# Number of messages that a store is assumed to have beside its own, so that a word is no common word because it is
# in two of four messages.
ASSUMED_MESSAGES = 300

# Characters above which a message has words by chance: each word of it then counts less, unless the part that answers was
# sought.
MAX_FULL_SIZE = 3_000

# Characters of a word, by the first and the last letter of the script: kana, Korean, and the scripts of Thai, Lao, Burmese
# and Khmer. A script without spaces is not cut into words, so that the characters are counted that an exchange has.
# With pairs of characters instead, of which those across two words are in no message, the limits cost 36 points of
# recall@10 on MemDaily instead of 5, and many Thai messages have two telling words by chance.
WORD_LENGTHS = (
    ("\u0e00", "\u109f", 7.0),
    ("\u1100", "\u11ff", 2.0),
    ("\u1780", "\u17ff", 7.0),
    ("\u3041", "\u30ff", 4.0),
    ("\u3131", "\u318e", 2.0),
    ("\uac00", "\ud7a3", 2.0),
)

# The same for Chinese characters, and for all other characters of dense runs.
DENSE_WORD_LENGTH = 2.3

# Share of the characters of dense runs in a question that tell something. Others, as in the Chinese for "what" and "is",
# would be stop words in English.
TELLING_CHARACTERS_SHARE = 0.7

# Lowest probability, in thousandths for each token of a message, that the message answers, for proactive recall: a
# longer message must be more probable.
MIN_ODDS_PER_TOKEN = 0.87

# Tokens that a longer message counts as. Otherwise hardly a message of an assistant would be shown.
MAX_COST = 60

# Share of `MIN_ODDS_PER_TOKEN` if the answer is a list or a count, because its parts stand in many messages.
LIST_ODDS_SHARE = 0.25

# Subtracted in proactive recall from a message of another speaker, if the question names exactly one person.
OTHER_SPEAKER_WEIGHT = 1.5

# Added to all messages, times the lead of the named person's best message over the best message of others. If that
# message is behind, the question may name the wrong person, and no message should be returned.
LEAD_WEIGHT = 0.7

# Largest number of messages of proactive recall. With ten, recall is a point lower, because many short messages are
# ranked late.
MAX_PROACTIVE_HITS = 15

# Number of the best candidates by words whose mean and deviation normalise all scores. If there are
# fewer candidates, scores of 0 fill the number up.
NORMALISED_CANDIDATES = 150

# Lowest deviation, as a share of the best score, so that two nearly equal candidates stay nearly equal.
MIN_DEVIATION_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class TermHits:
    """The places where a term occurs.

    Attributes:
        frequency: Approximate number of messages that contain the term.
        places: Strength of the occurrence, from 0 to 1, by place.
        weight: Weight of the term, see `Term.weight`.
        kind: Kind of the term, see `Term.kind`.
    """

    frequency: int
    places: Mapping[Place, float]
    weight: float = 1.0
    kind: Literal["word", "gram"] = "word"


@dataclass(frozen=True, slots=True)
class Telling:
    """The telling words of a question, and those in the best exchange of a store. A word that no message has counts 1.

    Attributes:
        question: Number of telling words in the question.
        exchange: Number of them in the exchange that has most.
        minimum: Lowest number of them that the exchange must have.
    """

    question: float
    exchange: float
    minimum: float = MIN_TELLING_WORDS

    def with_match(self, weight: float = 1.0) -> Telling:
        """Return this with a word more that the exchange has."""
        return replace(self, question=self.question + weight, exchange=self.exchange + weight)

    def opens(self, cosine: float | None = None) -> bool:
        """Return True if recall is worth a search that the person did not ask for.

        Args:
            cosine: Cosine between the question and the nearest message; None in a search by words only.
        """
        share = MIN_TELLING_SHARE * self.question
        by_words = self.exchange >= max(self.minimum, share)
        if cosine is None:
            return by_words
        if self.minimum < MIN_TELLING_WORDS:
            lowest = MIN_COSINE_OF_FEW - COSINE_PER_MISSING_WORD * by_words
        else:
            missing = max(ENOUGH_TELLING_WORDS - self.exchange, share - self.exchange, 0.0)
            lowest = MIN_PROACTIVE_COSINE + COSINE_PER_MISSING_WORD * missing
        return cosine >= lowest and self.question >= min(MIN_QUESTION_WORDS, self.minimum)


@dataclass(frozen=True, slots=True)
class RankCandidate:
    """A text that may answer a question.

    Attributes:
        id: Id of the text in its store.
        text: The text.
        score: The store's score of the text by words, on any scale; higher is better.
        speaker: Name of the person who wrote the text.
        timestamp: Time of the text in epoch seconds; None if unknown.
        reply: True if the message before the text ends with a question mark.
        likeness: Weighted closeness of the text to the question in meaning; 0 in a search by words only.
        unanswered: True if the text says that an answer is not known, or is the question before such a text. The
            ranking also takes a text for one that only repeats the question.
        assistant: True if the assistant wrote the text.
    """

    id: int
    text: str
    score: float
    speaker: str = ""
    timestamp: float | None = None
    reply: bool = False
    likeness: float = 0.0
    unanswered: bool = False
    assistant: bool = False


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its final score.

    The score is the logarithm of the odds that the candidate answers, plus a constant that is the same for all
    candidates of one question.
    """

    candidate: RankCandidate
    score: float


def score_places(
    terms: Sequence[TermHits], total: int, sizes: Mapping[Place, int] | None = None
) -> dict[Place, float]:
    """Return a BM25 score for each place that has a term, or a neighbour with a term.

    The words of a neighbour count at lower weights: a question often has the words of one message, and the next message
    is the answer. The words of the message itself are scored again alone.

    Args:
        terms: The places of each term of the question.
        total: The approximate number of messages in the store.
        sizes: The number of characters by place; a missing place counts as of typical size.
    """
    scores: dict[Place, float] = {}
    for term in terms:
        worth = term.weight * rarity(term.frequency, total) * (TERM_SATURATION + 1)
        own = _own_weights(term, sizes or {})
        for place, weight in _with_neighbours(own).items():
            scores[place] = scores.get(place, 0.0) + worth * weight / (weight + TERM_SATURATION)
        for place, weight in own.items():
            scores[place] += OWN_WORDS_WEIGHT * worth * weight / (weight + TERM_SATURATION)
    return scores


def count_telling(
    terms: Sequence[tuple[TermHits, float]],
    total: int,
    sizes: Mapping[Place, int],
    places: Collection[Place],
) -> Telling:
    """Count the telling words of a question, and those in the best exchange: a message and the messages beside it.

    Args:
        terms: The places of each term of the question, and the weight of the term beside a word.
        total: The approximate number of messages in the store.
        sizes: The number of characters by place.
        places: The places of the messages that may be recalled.
    """
    question, matches = 0.0, dict.fromkeys(places, 0.0)
    for term, weight in terms:
        worth = (
            weight * rarity(term.frequency, total + ASSUMED_MESSAGES) / rarity(0, total + ASSUMED_MESSAGES)
        )
        question += worth * (TELLING_CHARACTERS_SHARE if term.kind == "gram" else 1.0)
        strength = {
            place: value * min(1.0, math.sqrt(MAX_FULL_SIZE / max(sizes.get(place, 1), 1)))
            for place, value in term.places.items()
        }
        for group, position in matches:
            near = max(strength.get((group, position + step), 0.0) for step in (-1, 0, 1))
            matches[group, position] += worth * near
    minimum = MIN_TELLING_WORDS_OF_FEW if total <= FEW_MESSAGES else MIN_TELLING_WORDS
    return Telling(question, max(matches.values(), default=0.0), minimum)


def telling_characters(text: str, grams: Mapping[str, TermHits]) -> list[tuple[TermHits, float]]:
    """Return each character of the dense runs of a question as a term for `count_telling`, with its weight beside a word.

    A character has the places of the two pairs that it is part of, and is as frequent as the more frequent pair. So a pair
    across two words, which is in no message, makes no telling word of them.

    Args:
        text: The question.
        grams: The places of the characters and pairs that were looked up.
    """
    terms: dict[tuple[str, ...], tuple[TermHits, float]] = {}
    for run in dense_runs(text):
        pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        for at, character in enumerate(run):
            around = tuple(dict.fromkeys(pair for pair in pairs[max(at - 1, 0) : at + 1] if pair in grams))
            if not around:
                continue
            places: dict[Place, float] = {}
            for pair in around:
                for place, strength in grams[pair].places.items():
                    places[place] = max(places.get(place, 0.0), strength)
            frequency = max(grams[pair].frequency for pair in around)
            weight = 1 / _word_length(character)
            terms[character, *around] = TermHits(frequency, places, kind="gram"), weight
    return list(terms.values())


def _word_length(character: str) -> float:
    """Return the number of characters of a word in the script of a character of a dense run."""
    lengths = (length for first, last, length in WORD_LENGTHS if first <= character <= last)
    return next(lengths, DENSE_WORD_LENGTH)


def rarity(frequency: int, total: int) -> float:
    """Return the weight of a word that occurs in `frequency` of `total` messages; a rare word weighs more."""
    return math.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def _own_weights(term: TermHits, sizes: Mapping[Place, int]) -> dict[Place, float]:
    """Return the weight of a term at each of its places; it is lower in a longer message."""
    typical = TYPICAL_SIZE if term.kind == "word" else TYPICAL_DENSE_SIZE
    root, base = LENGTH_WEIGHT / math.sqrt(typical), 1 - LENGTH_WEIGHT
    return {
        place: strength / (base + root * math.sqrt(sizes.get(place, typical)))
        for place, strength in term.places.items()
    }


def _with_neighbours(own: Mapping[Place, float]) -> dict[Place, float]:
    """Return weights of a term at places, and at lower shares at the places near them."""
    # Plain loops: there are thousands of places for each question.
    weights: dict[Place, float] = {}
    known = weights.get
    for (group, position), weight in own.items():
        for step, share in _STEPS:
            near = (group, position + step)
            weights[near] = known(near, 0.0) + share * weight
    return weights


_TIME_WORD = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|(?:last|next|this|past) (?:\w+ )?(?:night|week|weekend|month|year|summer|"
    r"winter|spring|fall|autumn|friday|monday|tuesday|wednesday|thursday|saturday|sunday)|week|weekend|month|years?|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|recently|since|just|soon|(?:19|20)\d\d)\b|昨|今天|明天|年|月"
)


_FIRST_PERSON = re.compile(r"\b(i|i'm|i've|me|my|mine|we|our)\b|我|私")
_NUMBER = re.compile(
    r"\b(\d+|one|two|three|four|five|six|seven|eight|nine|ten|dozen|once|twice|several|few)\b|[二三四五六七八九十百两]"
)


_NOT_KNOWN = re.compile(
    r"""\b(?:
        i\ (?:really\ )?(?:don't|do\ not|didn't|did\ not)\ (?:actually\ )?(?:know|have|recall|remember|see|find)\b
        |i(?:'m|\ am)\ (?:not\ (?:sure|aware|certain)|unable\ to|unaware)
        |i\ (?:have|had|see|found|find)\ (?:no|nothing)\b
        |(?:could(?:n't|\ not)|can(?:'t|not|\ not)|was(?:n't|\ not)\ able\ to|was\ unable\ to|did(?:n't|\ not))\ (?:find|locate|see|determine|tell)
        |no\ (?:idea|record|information|mention|match(?:es|ing)?|results?)\b
        |nothing\ (?:was\ |is\ |has\ been\ )?(?:found|known|stored|recorded)
        |you\ (?:have(?:n't|\ not)|did(?:n't|\ not)|never)\ (?:told|mention|sa(?:id|y)|share)
        |(?:is|are|was)\ (?:not\ known|unknown)
        |wei(?:ß|ss)\ (?:ich\ |es\ |das\ |ich\ es\ )?(?:leider\ )?nicht|keine\ (?:ahnung|informationen|angaben|hinweise)|nicht\ (?:finden|gefunden)
        |(?:ne\ )?sais\ pas|(?:n'ai|ai)\ (?:rien|pas|aucune?)\ |pas\ trouv|aucune?\ (?:information|trace|idée)
        |no\ (?:lo\ )?s[eé]\b|no\ (?:lo\ )?(?:encuentro|encontré|recuerdo)|no\ tengo\ (?:información|idea|datos)
        |non\ (?:lo\ )?so\b|non\ (?:ho\ trovato|trovo|ricordo)|não\ (?:sei|encontrei|tenho)
        |не\ (?:знаю|наш[её]л|нашла|помню|удалось\ найти)|нет\ (?:информации|данных|сведений)
    )|不知道|不清楚|找不到|没有找到|沒有找到|没找到|無法找到|无法找到|没有(?:相关|任何)?(?:记录|信息)|わかりません|分かりません|知りません|見つかりません|모르겠|찾을\ 수\ 없|찾지\ 못""",
    re.IGNORECASE | re.VERBOSE,
)
# After these words the message may go on with what is known.
_BUT = re.compile(
    r"\b(?:but|however|though|although|except|aber|jedoch|mais|pero|però|mas|но)\b|但|でも|しかし",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？]\s*$|^\W*(?:(?:please|can you|could you)\s+)?(?:tell me|remind me|find|look (?:up|for)|search|show me|"
    r"what|where|when|who|which|how|why|wo|was|wann|wer|wie|welche|où|quand|qui|dónde|cuándo)\b[^.!?。]*[.!]?\s*$",
    re.IGNORECASE,
)


def says_unknown(text: str) -> bool:
    """Return True if a short text says no more than that something is not known or was not found.

    >>> says_unknown("I don't know where the passport is."), says_unknown("Not there, but look in the drawer.")
    (True, False)
    """
    # Typographic apostrophes are as common as plain ones.
    text = text[: MAX_UNANSWERED_CHARS + 1].replace("\u2019", "'")
    return len(text) <= MAX_UNANSWERED_CHARS and bool(_NOT_KNOWN.search(text)) and not _BUT.search(text)


def asks(text: str) -> bool:
    """Return True if a text is one question or request for something known, and tells nothing itself."""
    return len(text) <= MAX_UNANSWERED_CHARS and bool(_ASKS.search(text))


def rank_candidates(
    analysis: Analysis,
    candidates: Sequence[RankCandidate],
    *,
    limit: int,
    budget: int | None = None,
    zone: tzinfo = UTC,
) -> list[Ranked]:
    """Return the best `limit` candidates for a question, best first.

    Args:
        analysis: The question.
        candidates: The candidates.
        limit: Largest number of candidates to return.
        budget: Largest number of tokens of all returned texts together; None for no limit. A candidate that does not
            fit is skipped, and shorter candidates after it are tried.
        zone: Time zone of dates in the question.
    """
    if not candidates:
        return []
    asked = set(words(analysis.text))
    candidates = [replace(c, unanswered=True) if _repeats(asked, c.text) else c for c in candidates]
    scores = heapq.nlargest(NORMALISED_CANDIDATES, (candidate.score for candidate in candidates))
    scores += [0.0] * (NORMALISED_CANDIDATES - len(scores))
    mean = math.fsum(scores) / NORMALISED_CANDIDATES
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / NORMALISED_CANDIDATES)
    deviation = max(deviation, MIN_DEVIATION_SHARE * max(map(abs, scores))) or 1.0
    named = named_in(analysis.text, {c.speaker for c in candidates if c.speaker})
    unnamed = not any(c.speaker for c in candidates)
    lexical = (LEXICAL_BESIDE_MEANING if any(c.likeness for c in candidates) else LEXICAL_WEIGHT) / deviation
    ranked = [
        Ranked(
            c,
            lexical * (c.score * (UNANSWERED_SHARE if c.unanswered else 1) - mean)
            + _bonus(analysis, c, named, zone)
            - ASSISTANT_WEIGHT * (unnamed and c.assistant),
        )
        for c in candidates
    ]
    ranked.sort(key=lambda r: (-r.score, -(r.candidate.timestamp or 0.0), r.candidate.id))
    ranked = ranked[:limit]
    if budget is None:
        return ranked
    fitting = []
    for entry in ranked:
        cost = count_tokens(entry.candidate.text)
        if cost <= budget:
            fitting.append(entry)
            budget -= cost
    return fitting


def select_proactive(analysis: Analysis, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the candidates to show in proactive recall, which the person did not ask for; best first.

    A candidate is shown if it probably answers the question; a long text must be more probable than a short text.
    `ranked` must hold all candidates.
    """
    is_list = asks_for_list(analysis.text)
    named = named_in(analysis.text, {entry.candidate.speaker for entry in ranked if entry.candidate.speaker})
    theirs = [entry.score for entry in ranked if len(named) == 1 and entry.candidate.speaker in named]
    others = [entry.score for entry in ranked if entry.candidate.speaker not in named]
    lead = LEAD_WEIGHT * (max(theirs) - max(others)) if theirs and others else 0.0
    top = max((entry.score for entry in ranked), default=0.0)
    odds = sum(math.exp(entry.score - top) for entry in ranked)
    selected = []
    for entry in ranked:
        penalty = OTHER_SPEAKER_WEIGHT if theirs and entry.candidate.speaker not in named else 0.0
        probability = math.exp(entry.score - top + lead - penalty) / odds
        cost = min(count_tokens(entry.candidate.text), MAX_COST) + 1
        if 1000 * probability >= MIN_ODDS_PER_TOKEN * (LIST_ODDS_SHARE if is_list else 1) * cost:
            selected.append(entry)
    return selected[: LIST_RESULTS if is_list else MAX_PROACTIVE_HITS]


def _repeats(asked: set[str], text: str) -> bool:
    """Return True if a text only asks what was asked, so that it has all words of the question and tells nothing."""
    return text.rstrip().endswith(("?", "？")) and asked.issuperset(words(text)) and not dense_runs(text)


def _bonus(analysis: Analysis, candidate: RankCandidate, named: frozenset[str], zone: tzinfo) -> float:
    """Return the part of a candidate's score that does not come from its words.

    It depends on closeness in meaning, the speaker, question marks, exact parts, the kind of the question, and dates.
    """
    text = candidate.text
    score = candidate.likeness * (UNANSWERED_SHARE if candidate.unanswered else 1)
    lowered = text.lower()
    if len(named) == 1 and candidate.speaker in named:
        score += SPEAKER_WEIGHT + SELF_WEIGHT * bool(_FIRST_PERSON.search(lowered))
    shortness = min(1.0, TYPICAL_SIZE / max(len(text), 1))
    if text.rstrip().endswith(("?", "？")):
        score -= QUESTION_WEIGHT * shortness
    if candidate.reply and not candidate.unanswered:
        score += REPLY_WEIGHT * shortness
    if analysis.exact:
        folded = fold(text)
        score += EXACT_WEIGHT * sum(piece in folded for piece in analysis.exact) / len(analysis.exact)
    if analysis.shape == "when" and _TIME_WORD.search(lowered):
        score += TIME_WORD_WEIGHT
    if analysis.shape == "how many" and _NUMBER.search(lowered):
        score += NUMBER_WEIGHT
    if analysis.dates and candidate.timestamp is not None:
        # A time outside of the years of `datetime` is near no date.
        with contextlib.suppress(OverflowError, OSError, ValueError):
            moment = datetime.fromtimestamp(candidate.timestamp, zone)
            score += DATE_WEIGHT * max(when.closeness(moment) for when in analysis.dates)
    return score
