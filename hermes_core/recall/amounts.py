"""Number of results by the kind of a question: a list or a count needs more messages than a single fact."""

from __future__ import annotations

import re

from hermes_core.recall.tokens import fold

# Results for a question about a single fact.
FACT_RESULTS = 10

# Results for a question whose answer is a list or a count, because its parts stand in many messages. With 10, 20 and 30
# results, 50, 60 and 65 % of the messages of LoCoMo's multi-hop questions of this kind are found.
LIST_RESULTS = 30

# Verbs that follow "what" and "which" if no noun does.
_VERBS = "am|is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must"
# A plural in English, Spanish and Portuguese. "this", "us", "class" and "James's" are none.
_PLURAL = r"[^\W\d_]{2,}(?<![suiI'])s\b(?!')"

_LIST = re.compile(
    rf"""
    \b(?:what|which)\s+(?:(?!(?:{_VERBS})\b)[\w-]+\s+){{0,3}}(?!(?:{_VERBS}|this|his|its|as)\b){_PLURAL}
    |\b(?:what|which|where|who)\s+(?:all\s+)?(?:has|have|are|were)\b
    |\b(?:what|which)\b[^.?!]*\bhave\b
    |\bhow\s+(?:many|often)\b|\bsummar(?:y|i[sz]e)\b|\border\s+in\s+which\b|\bin\s+(?:what|which)\s+order\b
    |\b(?:list|name|enumerate)\s+(?:all|every|each|the|my|our|me)\b|\ball\s+(?:the|my|our|of)\b|\bevery\s+time\b
    |\bwie\s*(?:viele|oft)\b|\bwelche\b|\balle\b
    |\bcombien\b|\bquel(?:le)?s\b|\bcuáles\b|\bcuánt[oa]s\b|\bqué\s+{_PLURAL}|\bqua(?:li|is)\b|\bquant[ieoa]s?\b
    |\bкакие\b|\bсколько\b
    |哪些|哪几|多少|几[个次种位本部场回]|所有|列出|いくつ|何[回個人冊種]|どんな|全部|몇|모든
    """,
    re.VERBOSE | re.IGNORECASE,
)


def asks_for_list(question: str) -> bool:
    """Return True if the answer to a question is a list or a count.

    >>> asks_for_list("What books has Tim read?"), asks_for_list("你去过哪些城市？"), asks_for_list("Where is my passport?")
    (True, True, False)
    """
    return bool(_LIST.search(fold(question)))


def result_count(question: str) -> int:
    """Return the number of results for a question that comes without a limit."""
    return LIST_RESULTS if asks_for_list(question) else FACT_RESULTS
