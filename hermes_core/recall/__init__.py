"""Pure functions for search: reading a question, ranking candidates, and cutting a text in any script into words.

Nothing here opens a database. Each store passes its own candidates.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.recall.changes import Statement, asks_formerly, find_outdated
    from hermes_core.recall.letters import hebrew_forms
    from hermes_core.recall.query import Analysis, Term, analyse
    from hermes_core.recall.rank import (
        CONTEXT_AFTER,
        CONTEXT_BEFORE,
        SIMILAR_WORD_WEIGHT,
        Place,
        RankCandidate,
        Ranked,
        TermHits,
        rank_candidates,
        says_unknown,
        score_places,
    )
    from hermes_core.recall.tokens import (
        CUT_VERSION,
        count_tokens,
        dense_runs,
        fold,
        grams,
        index_text,
        is_stop_word,
        strip_possessive,
        words,
    )

__all__ = [
    "CONTEXT_AFTER",
    "CONTEXT_BEFORE",
    "CUT_VERSION",
    "SIMILAR_WORD_WEIGHT",
    "Analysis",
    "Place",
    "RankCandidate",
    "Ranked",
    "Statement",
    "Term",
    "TermHits",
    "analyse",
    "asks_formerly",
    "count_tokens",
    "dense_runs",
    "find_outdated",
    "fold",
    "grams",
    "hebrew_forms",
    "index_text",
    "is_stop_word",
    "rank_candidates",
    "says_unknown",
    "score_places",
    "strip_possessive",
    "words",
]

# The names of each module but `tokens`.
_NAMES = {
    "changes": ("Statement", "asks_formerly", "find_outdated"),
    "letters": ("hebrew_forms",),
    "query": ("Analysis", "Term", "analyse"),
    "rank": (
        "CONTEXT_AFTER", "CONTEXT_BEFORE", "SIMILAR_WORD_WEIGHT", "Place", "RankCandidate", "Ranked", "TermHits",
        "rank_candidates", "says_unknown", "score_places",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported when it is first used: every program imports this package, and few search.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _NAMES.items() if name in names), "tokens")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
