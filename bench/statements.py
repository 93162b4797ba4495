"""How often the rule of near-verbatim statements is wrong, in 31 languages.

    python bench/statements.py [--json]

`reversed.txt` was written before the rule, `reversed_later.txt` after it. A person says a sentence, and a note words it:
as it was said, or with the meaning reversed or changed. The first must pass the rule, the second must wait.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from hermes_core.safety.statements import is_stated

FOLDER = Path(__file__).parent
FILES = ("reversed.txt", "reversed_later.txt")
QUESTION_MARKS = {"zh": "？", "ja": "？", "ar": "؟", "fa": "؟", "el": ";"}
_LANGUAGE = re.compile(r"\[(\w\w)\]")
_VALUE = re.compile(r"\[(.*?)>(.*?)\]")


class Case(NamedTuple):
    """A message of a person and a note.

    Attributes:
        same: True if the note says what the person said.
        later: True if a part of it was written after the rule.
    """

    language: str
    said: str
    note: str
    same: bool
    later: bool


def cases() -> Iterator[Case]:
    """Yield each statement of a language in each of its sentences."""
    lines: dict[str, dict[str, list[tuple[str, bool]]]] = defaultdict(lambda: defaultdict(list))
    for name in FILES:
        language = ""
        for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
            if found := _LANGUAGE.fullmatch(line):
                language = found[1]
            elif line and line[0] != "#":
                lines[language][line[0]].append((line[2:].replace("\\n", "\n"), name != FILES[0]))
    for language, kinds in lines.items():
        for fact, later in kinds["+"]:
            yield from _of_fact(language, *fact.split(" | "), later, kinds)
        for pair, later in kinds["&"]:
            yield Case(language, *pair.split(" | "), True, later)


def _of_fact(
    language: str, positive: str, negative: str, later: bool, kinds: dict[str, list[tuple[str, bool]]]
) -> Iterator[Case]:
    said, changed = _VALUE.sub(r"\1", positive), _VALUE.sub(r"\2", positive)
    bare = said.rstrip(".。।")
    question = f"{bare}{QUESTION_MARKS.get(language, '?')}"
    for message, note in ((negative, said), (said, negative), (said, changed), (question, said)):
        yield Case(language, message, note, False, later)
    for around, after in kinds["~"]:
        message = around.replace(
            "{}", said if around.endswith("{}") or (around.startswith("{} ") and after) else bare
        )
        yield Case(language, message, said, False, later or after)
    for note in (said, bare, said.lower()):
        yield Case(language, said, note, True, later)
    for around, after in kinds["="]:
        yield Case(language, around.replace("{}", said), said, True, later or after)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases():
        kind = "same" if case.same else "reversed"
        for name in (case.language, "later" if case.later else "first", "all"):
            counts[name][kind] += 1
            counts[name][f"{kind}, wrong"] += is_stated(case.note, [case.said]) is not case.same
    if options.json:
        print(json.dumps(counts, indent=1))
        return
    table = Table(title="The rule of near-verbatim statements")
    for column in ("language", "reversed", "pass", "same", "wait"):
        table.add_column(column, justify="left" if column == "language" else "right")
    for name, count in counts.items():
        table.add_row(
            name, *(str(count[key]) for key in ("reversed", "reversed, wrong", "same", "same, wrong"))
        )
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
