"""The table of the threat scan: what an entry that must not become memory says, by category.

A rule joins what is done with what it is done to, so that a word alone never decides. `needs` are words of which one
must stand in the text before the pattern is tried at all; it keeps the scan of an ordinary entry at microseconds.
Gaps between the parts are a bounded number of words within one sentence, which keeps every pattern linear.
"""

from __future__ import annotations

from hermes_core.safety.patterns import code, disguise, instructions, languages, leaks
from hermes_core.safety.patterns.rule import CATEGORIES, Rule

__all__ = ["CATEGORIES", "RULES", "Rule"]

RULES = (*instructions.RULES, *languages.RULES, *disguise.RULES, *leaks.RULES, *code.RULES)
