"""What a migration did, for people and for programs; secrets are in neither."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_core.importers.openclaw.values import STATUSES, Item, Plan
from hermes_core.safety.redact import redact, redact_value
from hermes_core.storage.files import write_atomic

HEADINGS = {
    "migrated": "Migrated",
    "conflict": "Conflicts",
    "error": "Errors",
    "archived": "Archived",
    "skipped": "Skipped",
}


@dataclass(frozen=True, slots=True)
class Report:
    """A plan with the time, and the folder of the migration when it was done."""

    plan: Plan
    folder: Path | None
    at: datetime
    executed: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data, redacted."""
        plan, options = self.plan, self.plan.options
        data = {
            "timestamp": self.at.isoformat(timespec="seconds"),
            "mode": "execute" if self.executed else "preview",
            "source_root": str(plan.source),
            "target_root": str(plan.home),
            "workspace_target": str(options.workspace_target) if options.workspace_target else None,
            "output_dir": str(self.folder) if self.folder else None,
            "preset": options.preset,
            "overwrite": options.overwrite,
            "migrate_secrets": options.migrate_secrets,
            "skill_conflict_mode": options.skill_conflict,
            "summary": plan.summary,
            "entries": self.entries(),
            "items": [_plain(item) for item in plan.items],
            "warnings": list(plan.warnings),
            "next_steps": self.next_steps(),
        }
        redacted: dict[str, Any] = dict(redact_value(data))  # type: ignore[arg-type]  # a dict stays one
        return redacted

    def entries(self) -> dict[str, int]:
        """The entries of all notes by what became of them."""
        counts: dict[str, int] = {}
        for item in self.plan.items:
            for name, count in item.details.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def next_steps(self) -> list[str]:
        """What the person may want to do now."""
        done = {item.status for item in self.plan.items}
        steps = (
            ["Imported memory stands in the prompt of new sessions: begin one."] if "migrated" in done else []
        )
        if self.entries().get("overflow"):
            steps.append(
                "Entries without room are in overflow/: shorten memory, or raise memory.memory_char_limit."
            )
        if "conflict" in done:
            steps.append("Run it again with --overwrite or --skill-conflict where OpenClaw's should win.")
        if "archived" in done:
            steps.append("Look through archive/ for what you want to take over by hand.")
        if any(item.kind == "conversations" for item in self.plan.items):
            steps.append(
                "Past conversations stay in OpenClaw's folder, also after cleanup: keep it if you want them."
            )
        return [*steps, "When all is well: hermes-memory claw cleanup moves OpenClaw's folder aside."]

    def to_markdown(self) -> str:
        """The report for people, redacted."""
        plan = self.plan
        lines = [
            "# Migration from OpenClaw",
            "",
            f"From `{plan.source}` to `{plan.home}`, {self.at.isoformat(timespec='seconds')}.",
            "",
            ", ".join(f"{plan.summary[status]} {status}" for status in STATUSES),
        ]
        for status, heading in HEADINGS.items():
            items = [item for item in plan.items if item.status == status]
            lines += ["", f"## {heading}", "", *map(_line, items)] if items else []
        lines += (
            ["", "## Warnings", "", *(f"- {one_line(text)}" for text in plan.warnings)]
            if plan.warnings
            else []
        )
        lines += ["", "## Next", "", *(f"- {step}" for step in self.next_steps())]
        return redact("\n".join(lines)) + "\n"


def write_report(report: Report) -> None:
    """`report.json` and `summary.md` in the migration's folder."""
    if report.folder is None:
        return
    data = json.dumps(report.to_dict(), ensure_ascii=False, indent=2)
    write_atomic(report.folder / "report.json", data.encode("utf-8", "replace"))
    write_atomic(report.folder / "summary.md", report.to_markdown().encode("utf-8", "replace"))


def counts_of(item: Item) -> str:
    """The counts of an item's entries as people read them; "" when it has none.

    >>> counts_of(Item("memory", "a", details={"found": 2, "added": 2, "known": 0}))
    '2 found, 2 added'
    """
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in item.details.items() if count)


def _plain(item: Item) -> dict[str, Any]:
    data = asdict(item)
    del data["steps"]
    return data


def _line(item: Item) -> str:
    parts = [f"- {item.kind}: `{one_line(item.source)}`"]
    parts += [f"to `{one_line(item.destination)}`"] if item.destination else []
    parts += [f"({counts})"] if (counts := counts_of(item)) else []
    return " ".join(parts) + (f": {one_line(item.reason)}" if item.reason else "")


def one_line(text: str) -> str:
    """A name of the source may hold anything; what people see of it is one line and no markup."""
    return " ".join(text.replace("`", "'").split())
