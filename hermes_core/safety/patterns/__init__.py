"""Rules of the threat scan, by subject.

Each rule combines an action with its object, so that one word alone never matches. `Rule.needs` keeps the scan of an
ordinary entry at microseconds. Gaps between the parts of a pattern are a bounded number of words within one sentence,
which keeps the time linear.
"""

from __future__ import annotations

from hermes_core.safety.patterns import code, disguise, instructions, languages, leaks
from hermes_core.safety.patterns.rule import CATEGORIES, Rule

__all__ = ["CATEGORIES", "RULES", "Rule"]

RULES = (*instructions.RULES, *languages.RULES, *disguise.RULES, *leaks.RULES, *code.RULES)
