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
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

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

# Distance and weight of each message to which the words of a message count.
STEPS = ((0, 1.0), *enumerate(CONTEXT_BEFORE, 1), *((-n, share) for n, share in enumerate(CONTEXT_AFTER, 1)))

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

# Shares of the score of a message with all words of the question that the best message by words needs: up to the first
# one, messages are ranked by meaning alone, and from the second one, by words as well. A hint ("I volunteered again and
# am overwhelmed") shares chance words with many messages, and nothing with what it reminds of ("I learned to say no").
FEW_WORDS, ENOUGH_WORDS = 0.39, 0.63

# Added for a message of the only person whom the question names.
SPEAKER_WEIGHT = 0.6

# Added for a message in which the only named person writes "I" or "my", or the person who asks about "my" things, if nobody
# is named.
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

# The next constants judge the best message: a turn gets anything only if their sum is above 0 (`proactive_evidence`). They
# were fitted on the half of `bench/own_facts.txt` and `bench/idle_turns.txt` that is not held out, in stores of 5 to
# 10,000 messages and in those of five data sets, and on the questions of these sets. Fitted without one of the sets,
# they give the same results on it within 3 points, except on agent history.
EVIDENCE_BASE = -1.2

# Added for each nat by which the words that a question and a message share surprise more than the best of all messages
# would by chance: chance meets a word, or words together, in one of `total` messages if their surprise is log(total).
SURPRISE_WEIGHT = 0.4

# Added for the share of the question's surprise that the message has. A word that no message has counts in full, so that
# a question about another subject finds nothing because of the words that all subjects have.
COVERAGE_WEIGHT = 1.0

# Added to it if the turn is about its speaker and the message is a person's statement about themselves, or a person's
# statement that begins with a word of the question.
OWN_COVERAGE_WEIGHT = 2.2

# Added if the turn asks.
ASKED_WEIGHT = 2.5

# Subtracted for each e-fold of the part that is shown, in words of five letters: a longer text shares words by chance.
EVIDENCE_LENGTH_WEIGHT = 0.73

# Added if the question names a person of the store.
NAMED_PERSON_WEIGHT = 3.0

# Added for each unit of cosine between the question and the best message above this cosine, in a search with vectors. A
# message without a vector counts as one of the lowest cosine, at which other subjects are.
COSINE_WEIGHT = 5.0
EXPECTED_COSINE = 0.34
LOWEST_COSINE = 0.15

# Shares of a word's surprise that count in coverage and in surprise if only the message before or after has the word.
NEIGHBOUR_COVERAGE = 0.5
NEIGHBOUR_SURPRISE = 0.75

# Number of messages that a store is assumed to have beside its own, with words as frequent as their length says. So what
# a common word is comes from the language in a small store, and from the store itself in a large one.
ASSUMED_MESSAGES = 300

# Share of these messages that have a word of two letters: in every language, frequent words are short. Each further letter
# halves the share, down to the lowest. Two characters of a dense run are such a word, and one is more frequent.
SHORT_WORD_SHARE = 0.06
LONG_WORD_SHARE = 0.001
CHARACTER_SHARE, PAIR_SHARE = 0.02, 0.003

# Characters of a word, by the first and the last letter of the script: kana, and the scripts of Thai, Lao, Burmese and
# Khmer; two in the other scripts of dense runs. A word has one pair of characters less, and its surprise is shared by them:
# otherwise many Thai messages would share half of a question by chance.
WORD_LENGTHS = (("\u0e00", "\u109f", 7), ("\u1780", "\u17ff", 7), ("\u3041", "\u30ff", 4))

# Lowest probability, in thousandths for each token of a message, that the message answers, for proactive recall: a
# longer message must be more probable.
MIN_ODDS_PER_TOKEN = 0.87

# Tokens that a longer message counts as. Otherwise hardly a message of an assistant would be shown.
MAX_COST = 60

# Tokens for which the weight of the best message counts as the weight 1: a message needs 1 % of it, however high the lead of
# a named person raises all weights. On questions of LoCoMo and REALTALK that are not about lists, this doubles the share of
# messages that answer (from 15 and 17 to 30 and 32 %), halves the tokens, and costs 0.8 and 0 points of recall.
BESIDE_BEST_TOKENS = 11.5

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


class TermHits(Struct, frozen=True):
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


class Overlap(Struct, frozen=True):
    """The words that a question shares with the part of a message that would be shown, by their surprise in nats.

    Attributes:
        question: Surprise of all words of the question.
        own: Surprise of the words that the part has.
        near: Surprise of the words that only the messages beside it have.
        total: Number of messages in the store.
        words: The words that the part has.
        near_words: The words that only the messages beside it have.
    """

    question: float
    own: float
    near: float
    total: int
    words: tuple[str, ...] = ()
    near_words: tuple[str, ...] = ()


class RankCandidate(Struct, frozen=True):
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
        person: True if a person wrote the text, and not a program.
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
    person: bool = False


class Ranked(Struct, frozen=True):
    """A candidate with its final score.

    The score is the logarithm of the odds that the candidate answers, plus a constant that is the same for all
    candidates of one question. It is the sum of `parts`: by words, meaning, speaker, marks, kind and time.
    """

    candidate: RankCandidate
    score: float
    parts: Mapping[str, float] = {}


class ProactiveOdds(Struct, frozen=True):
    """The decision whether proactive recall shows a candidate: if its weight is at least `least`.

    The weights of all candidates sum up to 1 times the lead of a named person, so that they are probabilities without one.
    """

    entry: Ranked
    weight: float
    least: float

    @property
    def suffices(self) -> bool:
        """True if the candidate is probable enough for its length."""
        return self.weight >= self.least


def score_places(
    terms: Sequence[TermHits],
    total: int,
    sizes: Mapping[Place, int] | None = None,
    earlier: Mapping[Place, float] | None = None,
) -> dict[Place, float]:
    """Return a BM25 score for each place that has a term, or a neighbour with a term.

    The words of a neighbour count at lower weights: a question often has the words of one message, and the next message
    is the answer. The words of the message itself are scored again alone.

    Args:
        terms: The places of each term of the question.
        total: The approximate number of messages in the store.
        sizes: The number of characters by place; a missing place counts as of typical size.
        earlier: Scores of other terms of the question, to which these are added.
    """
    scores: dict[Place, float] = dict(earlier or {})
    sizes = sizes or {}
    # Plain loops: there are thousands of places for each question.
    for term in terms:
        worth = term.weight * rarity(term.frequency, total) * (TERM_SATURATION + 1)
        typical = TYPICAL_SIZE if term.kind == "word" else TYPICAL_DENSE_SIZE
        root, base = LENGTH_WEIGHT / math.sqrt(typical), 1 - LENGTH_WEIGHT
        own: dict[Place, float] = {}
        near: dict[Place, float] = {}
        known = near.get
        for place, strength in term.places.items():
            group, position = place
            own[place] = weight = strength / (base + root * math.sqrt(sizes.get(place, typical)))
            for step, share in STEPS:
                neighbour = (group, position + step)
                near[neighbour] = known(neighbour, 0.0) + share * weight
        for place, weight in near.items():
            scores[place] = scores.get(place, 0.0) + worth * weight / (weight + TERM_SATURATION)
        for place, weight in own.items():
            scores[place] += OWN_WORDS_WEIGHT * worth * weight / (weight + TERM_SATURATION)
    return scores


def rarity(frequency: int, total: int) -> float:
    """Return the weight that BM25 gives a term which is in `frequency` of `total` messages."""
    return math.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def word_trust(terms: Sequence[TermHits], total: int, best: float) -> float:
    """Return how much the words of a question tell, from 0 to 1, in a search by words and meaning.

    Args:
        terms: All terms of the question.
        total: The approximate number of messages in the store.
        best: The highest score by `score_places`.
    """
    whole = (1 + OWN_WORDS_WEIGHT) * sum(term.weight * rarity(term.frequency, total) for term in terms)
    share = best / whole if whole else 0.0
    return min(max((share - FEW_WORDS) / (ENOUGH_WORDS - FEW_WORDS), 0.0), 1.0)


def surprise(word: str, kind: Literal["word", "gram"], frequency: int, total: int) -> float:
    """Return the surprise, in nats, that a message has a word or gram that is in `frequency` of `total` messages."""
    if kind == "word":
        usual = max(LONG_WORD_SHARE, SHORT_WORD_SHARE / 2 ** max(len(word) - 2, 0))
    else:
        usual = PAIR_SHARE if len(word) > 1 else CHARACTER_SHARE
    share = (frequency + ASSUMED_MESSAGES * usual) / (total + ASSUMED_MESSAGES)
    length = next((length for first, last, length in WORD_LENGTHS if first <= word[0] <= last), 2)
    return max(-math.log(share), 0.0) / max(length - 1, 1)


def proactive_evidence(
    analysis: Analysis,
    candidate: RankCandidate,
    part: str,
    overlap: Overlap,
    cosine: float | None = None,
) -> dict[str, float]:
    """Return what speaks for recall that the person did not ask for; it is worth showing if the sum is above 0.

    Args:
        analysis: The question.
        candidate: The best message.
        part: The part of its text that would be shown.
        overlap: The words that the part shares with the question.
        cosine: Cosine between the question and the message; None in a search by words only.
    """
    meaning = 0.0 if cosine is None else COSINE_WEIGHT * (max(cosine, LOWEST_COSINE) - EXPECTED_COSINE)
    beyond_chance = (
        overlap.own + NEIGHBOUR_SURPRISE * overlap.near - math.log(overlap.total + ASSUMED_MESSAGES)
    )
    coverage = (overlap.own + NEIGHBOUR_COVERAGE * overlap.near) / (overlap.question or 1.0)
    is_of_self = speaks_of_self(analysis.text) and speaks_of_self(part)
    # Many languages leave out "I", so that a statement begins with its verb: "Onde moro?", "Moro em Lisboa."
    begins_alike = asks(analysis.text) and not asks(part) and not {*words(part)[:1]}.isdisjoint(overlap.words)
    own_fact = candidate.person and (is_of_self or begins_alike)
    return {
        "base": EVIDENCE_BASE,
        "meaning": meaning,
        "surprise": SURPRISE_WEIGHT * beyond_chance,
        "coverage": COVERAGE_WEIGHT * coverage,
        "own fact": OWN_COVERAGE_WEIGHT * own_fact * coverage,
        "asks": ASKED_WEIGHT * asks(analysis.text),
        "length": -EVIDENCE_LENGTH_WEIGHT * math.log(max(len(part) / 5, 1.0)),
        "named person": NAMED_PERSON_WEIGHT * bool(analysis.names),
    }


_TIME_WORD = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|(?:last|next|this|past) (?:\w+ )?(?:night|week|weekend|month|year|summer|"
    r"winter|spring|fall|autumn|friday|monday|tuesday|wednesday|thursday|saturday|sunday)|week|weekend|month|years?|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|recently|since|just|soon|(?:19|20)\d\d)\b|昨|今天|明天|年|月"
)


# "I", "my", "we" and "our" in languages that have words for them. "me" is not among them, because tasks have it ("for me").
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|i'd|my|mine|we|our|ours|ich|mein\w*|wir|unser\w*|je|j|j'\w+|mon|ma|mes|nous|notre|nos|yo|mi|mis|mío|"
    r"mía|soy|nuestr\w+|io|mio|mia|miei|mie|noi|nostr\w+|eu|meu|meus|minha|minhas|nosso|nossa|ik|mijn|wij|onze|jag|jeg|"
    r"mitt|mina|vår|vores|minä|minun|mój|moja|moje|můj|moje|я|меня|мой|моя|моё|мои|мою|моего|моей|моих|мы|нас|наш\w*|"
    r"мій|моє|мої|ми|ben|benim|biz|bizim|én|mea|meu|tôi|saya|aku|εγώ|μου|μας|אני|שלי|أنا|मैं|मेरा|मेरी|मेरे|हम|हमारा)\b"
    r"|我|咱|私|俺|僕|(?:^|\s)(?:나|내|제|우리)(?=\s|[는의가])"
)
_NUMBER = re.compile(
    r"\b(\d+|one|two|three|four|five|six|seven|eight|nine|ten|dozen|once|twice|several|few)\b|[二三四五六七八九十百两]"
)


# Patterns of texts in lower case: a pattern that ignores case takes twice as long.
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
    re.VERBOSE,
)
# A text that `_NOT_KNOWN` matches has one of these, which two of three texts have not.
_DENIALS = (
    "n't ", "not ", "no ", " no", "non ", "nothing", "never", "una", "unknown", "nicht", "kein", "pas", "rien", "aucun",
    "não", "не", "不", "没", "沒", "無", "无", "ませ", "모르", "찾",
)  # fmt: skip
# After these words the message may go on with what is known.
_BUT = re.compile(
    r"\b(?:but|however|though|although|except|aber|jedoch|mais|pero|però|mas|но)\b|但|でも|しかし",
)
# A text that is one question begins with one of these words, or has one of the characters in it.
_ASKS = re.compile(
    r"\W*(?:(?:please|can you|could you)\s+)?(?:tell me|remind me|find|look (?:up|for)|search|show me|"
    r"what|where|when|who|whose|which|how|why|do you know|wo|was|wann|wer|wem|wen|wie|welche[nrsm]?|où|quand|qui|quel(?:le)?s?|"
    r"combien|comment|dónde|donde|cuándo|cuando|cuál|cual|quién|quien|cuánt[oa]s?|qué|dove|chi|quale|quanto|come|onde|quem|"
    r"qual|waar|wanneer|hoeveel|hvor|hvem|hvad|var|vem|när|gdzie|kto|kiedy|ile|kde|kdo|kdy|где|когда|кто|кого|сколько|как|"
    r"какой|какая|какие|де|коли|хто|nerede|ne zaman|kim|hol|mikor|ki|unde|când|πού|πότε|ποιος|איפה|מתי|מי|أين|متى|من|कहाँ|कब|कौन)\b[^.!?。]*[.!]?\s*$"
)
_ASKS_DENSE = re.compile(
    "哪|什么|谁|几[点个次]|多少|吗|どこ|いつ|誰|何|어디|언제|누구|ไหน|ใคร|อะไร|กี่|เมื่อไ|ทำไม|หรือยัง|ไหม"
)


def speaks_of_self(text: str) -> bool:
    """Return True if a text has a word for its speaker, as "I" or "my".

    >>> speaks_of_self("Wo ist mein Reisepass?"), speaks_of_self("Generate a UUID for me.")
    (True, False)
    """
    return bool(_FIRST_PERSON.search(text.lower().replace("\u2019", "'")))


def says_unknown(text: str) -> bool:
    """Return True if a short text says no more than that something is not known or was not found.

    >>> says_unknown("I don't know where the passport is."), says_unknown("Not there, but look in the drawer.")
    (True, False)
    """
    # Typographic apostrophes are as common as plain ones.
    text = text[: MAX_UNANSWERED_CHARS + 1].lower().replace("\u2019", "'")
    if len(text) > MAX_UNANSWERED_CHARS or not any(map(text.__contains__, _DENIALS)):
        return False
    return bool(_NOT_KNOWN.search(text)) and not _BUT.search(text)


def asks(text: str) -> bool:
    """Return True if a text is one question or request for something known, and tells nothing itself."""
    if len(text) > MAX_UNANSWERED_CHARS:
        return False
    return (
        text.rstrip().endswith(("?", "？"))
        or bool(_ASKS.match(text.lower()))
        or (not text.isascii() and bool(_ASKS_DENSE.search(text)))
    )


def rank_candidates(
    analysis: Analysis,
    candidates: Sequence[RankCandidate],
    *,
    limit: int,
    budget: int | None = None,
    zone: tzinfo = UTC,
    word_trust: float = 1.0,
) -> list[Ranked]:
    """Return the best `limit` candidates for a question, best first.

    Args:
        analysis: The question.
        candidates: The candidates.
        limit: Largest number of candidates to return.
        budget: Largest number of tokens of all returned texts together; None for no limit. A candidate that does not
            fit is skipped, and shorter candidates after it are tried.
        zone: Time zone of dates in the question.
        word_trust: How much the words of the question tell, as the function of this name returns it.
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
    is_own = speaks_of_self(analysis.text)
    by_meaning = any(c.likeness for c in candidates)
    lexical = (LEXICAL_BESIDE_MEANING * word_trust if by_meaning else LEXICAL_WEIGHT) / deviation
    ranked = []
    for c in candidates:
        parts = {"words": lexical * (c.score * (UNANSWERED_SHARE if c.unanswered else 1) - mean)}
        parts |= _bonus(analysis, c, named, zone, is_own=is_own)
        if unnamed and c.assistant:
            parts["assistant"] = -ASSISTANT_WEIGHT
        ranked.append(Ranked(c, sum(parts.values()), parts))
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


def select_proactive(analysis: Analysis, odds: Sequence[ProactiveOdds]) -> list[Ranked]:
    """Return the candidates to show in proactive recall, which the person did not ask for; best first."""
    return [one.entry for one in odds if one.suffices][: proactive_limit(analysis)]


def proactive_limit(analysis: Analysis) -> int:
    """Return the largest number of messages that proactive recall shows for a question."""
    return LIST_RESULTS if asks_for_list(analysis.text) else MAX_PROACTIVE_HITS


def proactive_odds(analysis: Analysis, ranked: Sequence[Ranked]) -> list[ProactiveOdds]:
    """Return for each candidate how probable it is that it answers, and how probable it must be to be shown.

    A long text must be more probable than a short text. `ranked` must hold all candidates.
    """
    share = MIN_ODDS_PER_TOKEN * (LIST_ODDS_SHARE if asks_for_list(analysis.text) else 1) / 1000
    named = named_in(analysis.text, {entry.candidate.speaker for entry in ranked if entry.candidate.speaker})
    theirs = [entry.score for entry in ranked if len(named) == 1 and entry.candidate.speaker in named]
    others = [entry.score for entry in ranked if entry.candidate.speaker not in named]
    lead = LEAD_WEIGHT * (max(theirs) - max(others)) if theirs and others else 0.0
    top = max((entry.score for entry in ranked), default=0.0)
    odds = sum(math.exp(entry.score - top) for entry in ranked)
    penalties = (
        OTHER_SPEAKER_WEIGHT if theirs and entry.candidate.speaker not in named else 0.0 for entry in ranked
    )
    weights = [
        math.exp(entry.score - top + lead - penalty) / odds
        for entry, penalty in zip(ranked, penalties, strict=True)
    ]
    beside_best = share * BESIDE_BEST_TOKENS * max(weights, default=0.0)
    costs = (min(count_tokens(entry.candidate.text), MAX_COST) + 1 for entry in ranked)
    return [
        ProactiveOdds(entry, weight, max(share * cost, beside_best))
        for entry, weight, cost in zip(ranked, weights, costs, strict=True)
    ]


def _repeats(asked: set[str], text: str) -> bool:
    """Return True if a text only asks what was asked, so that it has all words of the question and tells nothing."""
    return text.rstrip().endswith(("?", "？")) and asked.issuperset(words(text)) and not dense_runs(text)


def _bonus(
    analysis: Analysis, candidate: RankCandidate, named: frozenset[str], zone: tzinfo, *, is_own: bool
) -> dict[str, float]:
    """Return the parts of a candidate's score that do not come from its words.

    They depend on closeness in meaning, the speaker, question marks, exact parts, the kind of the question, and dates.
    `is_own` is True if the question has a word for its speaker.
    """
    text = candidate.text
    parts: dict[str, float] = {}
    if candidate.likeness:
        parts["meaning"] = candidate.likeness * (UNANSWERED_SHARE if candidate.unanswered else 1)
    if len(named) == 1 and candidate.speaker in named:
        parts["speaker"] = SPEAKER_WEIGHT + SELF_WEIGHT * speaks_of_self(text)
    elif is_own and not (named or candidate.speaker) and candidate.person and speaks_of_self(text):
        parts["speaker"] = SELF_WEIGHT
    shortness = min(1.0, TYPICAL_SIZE / max(len(text), 1))
    if text.rstrip().endswith(("?", "？")):
        parts["question"] = -QUESTION_WEIGHT * shortness
    if candidate.reply and not candidate.unanswered:
        parts["reply"] = REPLY_WEIGHT * shortness
    if analysis.exact:
        folded = fold(text)
        parts["exact"] = EXACT_WEIGHT * sum(piece in folded for piece in analysis.exact) / len(analysis.exact)
    if (analysis.shape == "when" and _TIME_WORD.search(text.lower())) or (
        analysis.shape == "how many" and _NUMBER.search(text.lower())
    ):
        parts["kind"] = TIME_WORD_WEIGHT if analysis.shape == "when" else NUMBER_WEIGHT
    if analysis.dates and candidate.timestamp is not None:
        # A time outside of the years of `datetime` is near no date.
        with contextlib.suppress(OverflowError, OSError, ValueError):
            moment = datetime.fromtimestamp(candidate.timestamp, zone)
            parts["time"] = DATE_WEIGHT * max(when.closeness(moment) for when in analysis.dates)
    return parts
