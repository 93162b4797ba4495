"""Examines a whole home, tries it with a real write, and repairs what is safe to repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hermes_core.config import Config, load_config
from hermes_core.health.databases import examine_databases, examine_vectors
from hermes_core.health.files import examine_files
from hermes_core.health.finding import Finding, failed, guarded
from hermes_core.health.packages import examine_packages
from hermes_core.health.provider import examine_catalog, examine_outbox, examine_provider
from hermes_core.health.record import examine_hooks
from hermes_core.health.roundtrip import started, try_everything
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, open_memory


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings of one run; `works` says whether everything that is configured does."""

    home: str
    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Whether nothing failed."""
        return not any(finding.failed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "home": self.home,
            "works": self.works,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def examine(home: HermesHome, *, fix: bool = False) -> Examination:
    """Look at everything and try it. With `fix`, what is safe to repair is repaired before memory is tried."""
    findings = [*guarded("config.yaml", lambda: _config(home)), *_at_rest(home, fix)]
    blocking = any(finding.failed for finding in findings)
    told = {finding.detail for finding in findings if finding.failed}
    in_use = guarded("memory", lambda: _open(home, skip_writes=blocking))
    findings += [finding for finding in in_use if finding.detail not in told]
    return Examination(str(home.path), tuple(findings))


def _at_rest(home: HermesHome, fix: bool) -> list[Finding]:
    """What can be said before memory is opened."""
    found = [
        *guarded("files", lambda: examine_files(home)),
        *guarded("databases", lambda: examine_databases(home)),
    ]
    if not fix or not any(finding.safe_to_fix for finding in found):
        return found
    return [finding.repaired() if finding.safe_to_fix else finding for finding in found]


def _open(home: HermesHome, *, skip_writes: bool) -> list[Finding]:
    """What an open memory says, and what a real turn shows."""
    with open_memory(home) as memory:
        if skip_writes:
            tried = [Finding("a turn", "note", "not tried, because of what failed", "repair that first")]
            started(memory.manager, memory.local_session)
        else:
            tried = list(try_everything(memory))
        entries = memory.providers()
        return [
            *guarded("built-in memory", lambda: _curated(memory)),
            *guarded("provider", lambda: examine_provider(memory, entries)),
            *guarded("hooks", lambda: examine_hooks(memory)),
            *guarded("plugins", lambda: examine_catalog(entries, memory.selected)),
            *guarded("packages", examine_packages),
            *guarded("outbox", lambda: examine_outbox(memory)),
            *guarded("search by meaning", lambda: examine_vectors(memory)),
            *tried,
        ]


def _config(home: HermesHome) -> Iterator[Finding]:
    config: Config = load_config(home)
    for warning in config.warnings:
        yield Finding("config.yaml", "warning", warning, "correct or delete that line")
    if not config.warnings:
        yield Finding("config.yaml", "ok", "read" if home.config_yaml.exists() else "not there: all defaults")


def _curated(memory: Memory) -> Iterator[Finding]:
    """The person's own two files: read, and within their limits."""
    broken = memory.curated.problems()
    for target, conflict in broken.items():
        yield failed(f"built-in {target}", conflict.message, conflict.remedy)
    for target in memory.curated.enabled_targets:
        if target not in broken:
            used, limit = memory.curated.usage(target)
            count = len(memory.curated.entries(target))
            yield Finding(
                f"built-in {target}",
                "ok",
                f"{count} {'entry' if count == 1 else 'entries'}, {used:,} of {limit:,} characters",
            )
    for flagged in memory.curated.flagged():
        yield Finding(
            "built-in memory",
            "warning",
            f"an entry is kept from the model: {flagged.reason}",
            "hermes-memory memory remove takes it out",
        )
    if not memory.curated.enabled_targets:
        yield Finding("built-in memory", "note", "it is switched off in config.yaml")
