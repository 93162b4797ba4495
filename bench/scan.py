"""Detection and false refusals of the threat scan, on files of texts.

    python bench/scan.py FILE... [--skills FOLDER] [--untrusted] [--json] [--misses]

A FILE is JSON of one of these forms:

- {"attacks": [{"text", "style"}...], "benign": [{"text", "topic"}...]}
- {GROUP: [{"text"} or {"entries": [text...]}...]}: a group named "scan: missed..." holds attacks, and one named
  "scan: public memory entry..." holds honest notes; other groups are left out.
- [{"text"}...]: honest notes.

--skills loads each SKILL.md below FOLDER as the agent does, and counts those that are unusable or have a finding.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core.curated.document import split_threat
from hermes_core.errors import SkillError
from hermes_core.safety.scan import first_threat, scan
from hermes_memory_agent.skills.document import read_skill


@dataclass
class Group:
    """Texts of one kind, with the result of the scan."""

    name: str
    attacks: bool
    total: int = 0
    flagged: int = 0
    wrong: list[str] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def samples(data: Any) -> Iterator[tuple[str, bool, list[str]]]:
    """Yield the name of a group, True for attacks, and the texts of one sample; a sample may have several entries."""
    if isinstance(data, list):
        yield from (("notes", False, [entry["text"]]) for entry in data)
        return
    for name, entries in data.items():
        attacks = name == "attacks" or name.startswith("scan: missed")
        if attacks or name == "benign" or name.startswith("scan: public memory entry"):
            for entry in entries:
                kind = entry.get("style") or entry.get("topic") or entry.get("category") or name
                yield kind, attacks, entry.get("entries") or [entry["text"]]


def measure(data: Any, untrusted: bool) -> list[Group]:
    """Return the groups of a file with the number of samples that the scan flags."""
    groups: dict[tuple[str, bool], Group] = {}
    scan("warm up")
    for name, attacks, texts in samples(data):
        group = groups.setdefault((name, attacks), Group(name, attacks))
        start = time.perf_counter()
        rules = [threat.id for text in texts for threat in scan(text, untrusted=untrusted)]
        for place in range(1, len(texts)):
            if threat := split_threat("\n".join(texts[:place]), texts[place], first_threat):
                rules.append(threat.id)
        group.seconds += time.perf_counter() - start
        group.total += 1
        group.flagged += bool(rules)
        group.rules.update(rules)
        if bool(rules) != attacks:
            group.wrong.append(" / ".join(texts))
    return sorted(groups.values(), key=lambda group: (not group.attacks, group.name))


def load_skills(folder: Path) -> dict[str, Any]:
    """Read every SKILL.md below `folder` as the store of skills does, and scan its text."""
    unusable: list[str] = []
    rules: Counter[str] = Counter()
    total = flagged = 0
    for path in sorted(folder.rglob("SKILL.md")):
        total += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            read_skill(text, path.parent.name)
        except SkillError as exc:
            unusable.append(f"{path}: {exc}")
        threats = [threat.id for threat in scan(text)]
        flagged += bool(threats)
        rules.update(threats)
    return {
        "total": total,
        "unusable": unusable,
        "with a finding": flagged,
        "rules": dict(rules.most_common()),
    }


def table(groups: list[Group]) -> Table:
    """Return the table of one file."""
    shown = Table()
    for column in ("group", "kind", "flagged", "of", "µs each"):
        shown.add_column(column, justify="left" if column in ("group", "kind") else "right")
    for group in groups:
        kind = "attack" if group.attacks else "honest"
        each = round(group.seconds / group.total * 1e6)
        shown.add_row(group.name, kind, str(group.flagged), str(group.total), str(each))
    for attacks, title in ((True, "detection"), (False, "false refusals")):
        part = [group for group in groups if group.attacks is attacks]
        flagged, total = sum(group.flagged for group in part), sum(group.total for group in part)
        if total:
            shown.add_row(f"[bold]{title}: {flagged / total:.1%}[/bold]", "", str(flagged), str(total), "")
    return shown


def main() -> None:
    """Measure the files and print the result."""
    parser = argparse.ArgumentParser(description="detection and false refusals of the threat scan")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--skills", type=Path, help="folder that holds SKILL.md files")
    parser.add_argument("--untrusted", action="store_true", help="also try the rules for untrusted notes")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--misses", action="store_true", help="print the attacks that pass and the honest texts refused"
    )
    options = parser.parse_args()
    results = {
        str(file): measure(json.loads(file.read_text(encoding="utf-8")), options.untrusted)
        for file in options.files
    }
    skills = load_skills(options.skills) if options.skills else None
    if options.json:
        files = {file: [vars(group) for group in groups] for file, groups in results.items()}
        print(json.dumps({"files": files, "skills": skills}, indent=2, ensure_ascii=False))
        return
    console = Console()
    for file, groups in results.items():
        console.print(file, table(groups))
        if options.misses:
            for group in groups:
                for text in group.wrong:
                    console.print(f"[{group.name}]", text, markup=False)
    if skills:
        console.print("skills:", skills)


if __name__ == "__main__":
    main()
