"""How many attacks the threat scan finds and how many honest entries it refuses, by style and topic.

    python bench/threats.py --data FILE [--json] [--misses]

FILE is JSON: {"attacks": [{"style", "text", "id"}...], "benign": [{"topic", "text", "id"}...]}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core.safety.scan import scan


def measure(entries: list[dict[str, str]], group: str) -> dict[str, Any]:
    """Flagged and total by group, the ids that were flagged and those that were not, and the time an entry takes."""
    groups: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    ids: dict[bool, list[str]] = {True: [], False: []}
    start = time.perf_counter()
    for entry in entries:
        flagged = bool(scan(entry["text"]))
        groups[entry[group]][0] += flagged
        groups[entry[group]][1] += 1
        ids[flagged].append(entry.get("id", ""))
    took = time.perf_counter() - start
    total = len(entries)
    return {
        "flagged": len(ids[True]),
        "total": total,
        "rate": len(ids[True]) / total if total else 0.0,
        "by_group": {
            name: {"flagged": found, "total": count} for name, (found, count) in sorted(groups.items())
        },
        "flagged_ids": ids[True],
        "passed_ids": ids[False],
        "microseconds_each": round(took / total * 1e6) if total else 0,
    }


def table(title: str, result: dict[str, Any]) -> Table:
    """The rates of one half of the set."""
    shown = Table(title=title)
    shown.add_column("group")
    shown.add_column("flagged", justify="right")
    shown.add_column("of", justify="right")
    for name, counts in result["by_group"].items():
        shown.add_row(name, str(counts["flagged"]), str(counts["total"]))
    shown.add_section()
    shown.add_row(f"[bold]all: {result['rate']:.1%}[/bold]", str(result["flagged"]), str(result["total"]))
    return shown


def main() -> None:
    """Measure one file and print it."""
    parser = argparse.ArgumentParser(description="detection and false positives of the threat scan")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--misses", action="store_true", help="name the attacks that passed and the honest entries refused"
    )
    options = parser.parse_args()
    data = json.loads(options.data.read_text(encoding="utf-8"))
    scan("warm up")
    attacks, benign = measure(data["attacks"], "style"), measure(data["benign"], "topic")
    if options.json:
        print(json.dumps({"attacks": attacks, "benign": benign}, indent=2))
        return
    console = Console()
    console.print(table("Attacks found", attacks))
    console.print(table("Honest entries refused", benign))
    console.print(
        f"{benign['microseconds_each']} µs for an honest entry, {attacks['microseconds_each']} µs for an attack"
    )
    if options.misses:
        console.print(
            "attacks that passed:", attacks["passed_ids"], "honest entries refused:", benign["flagged_ids"]
        )


if __name__ == "__main__":
    main()
