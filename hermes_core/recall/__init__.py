"""Pure functions that find: reading of a question, ranking of candidates, and the words of a text in any script.

Nothing here opens a database. Each store brings its own candidates. Names are imported when they are first used, because
every program imports this package and few search.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.recall.dates import When, find_dates
    from hermes_core.recall.forms import irregular_forms, similar_words
    from hermes_core.recall.letters import hebrew_forms, persian_forms, stem_words, unaccented
    from hermes_core.recall.query import Analysis, Leaf, Node, Term, analyse, named_in, parse_condition
    from hermes_core.recall.rank import Candidate, Ranked, rank_candidates, select_proactive
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

_MODULES = {
    "dates": ("When", "find_dates"),
    "forms": ("irregular_forms", "similar_words"),
    "letters": ("hebrew_forms", "persian_forms", "stem_words", "unaccented"),
    "query": ("Analysis", "Leaf", "Node", "Term", "analyse", "named_in", "parse_condition"),
    "rank": ("Candidate", "Ranked", "rank_candidates", "select_proactive"),
    "tokens": (
        "CUT_VERSION",
        "count_tokens",
        "dense_runs",
        "fold",
        "grams",
        "index_text",
        "is_stop_word",
        "strip_possessive",
        "words",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "CUT_VERSION",
    "Analysis",
    "Candidate",
    "Leaf",
    "Node",
    "Ranked",
    "Term",
    "When",
    "analyse",
    "count_tokens",
    "dense_runs",
    "find_dates",
    "fold",
    "grams",
    "hebrew_forms",
    "index_text",
    "irregular_forms",
    "is_stop_word",
    "named_in",
    "parse_condition",
    "persian_forms",
    "rank_candidates",
    "select_proactive",
    "similar_words",
    "stem_words",
    "strip_possessive",
    "unaccented",
    "words",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
