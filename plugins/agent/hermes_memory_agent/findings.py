"""Findings of `doctor` and `status` about skills and about the models that config.yaml names."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_core import HermesHome
from hermes_core.config import Config, Credentials
from hermes_core.contract.values import ORIGIN_NAMES
from hermes_core.errors import ModelRefused
from hermes_core.health.files import notice_findings
from hermes_core.health.finding import Finding, run_check
from hermes_core.sessions.home_store import open_sessions
from hermes_memory_agent.skills.store import open_skills

if TYPE_CHECKING:
    from hermes_memory_agent.model import ModelSettings

NO_SUCH_PATH = 404


def examine_agent(folder: Path, config: Config, *, trial: bool) -> list[Finding]:
    """Return findings about the skills, and in a trial about the models, whose servers are asked."""
    home = HermesHome(folder)
    texts = run_check("text", lambda: _skills(home, config))
    return [*texts, *(run_check("model", lambda: _models(home, config)) if trial else ())]


def _skills(home: HermesHome, config: Config) -> Iterator[Finding]:
    """Yield what the threat scan finds in skills, and the skills that wait."""
    if not config.skills.enabled:
        return
    with closing(open_sessions(home, config)) as sessions:
        store = open_skills(home, config, sessions.database)
        for skill in store.waiting():
            detail = f"the skill {skill.name!r} comes from {ORIGIN_NAMES[skill.origin]} and is in no list of skills"
            yield Finding("text", "warning", detail, "read and confirm it: hermes-memory review")
        yield from notice_findings(store.notices())


def _models(home: HermesHome, config: Config) -> Iterator[Finding]:
    """Yield findings about the models of `hermes-memory chat`.

    There are none if the package openai is missing: people who use memory alone have no model, or another program's.
    """
    if importlib.util.find_spec("openai") is None:
        return
    from hermes_memory_agent.configured import probe_models  # all of the agent, for a trial only

    try:
        for what, settings, listed in probe_models(config, Credentials(home)):
            yield _model(what, settings, listed)
    except ModelRefused as exc:
        if getattr(exc.__cause__, "status_code", None) != NO_SUCH_PATH:
            raise
        # Few servers have no list; more often the address lacks its /v1.
        yield Finding("model", "warning", exc.message, exc.remedy)


def _model(what: str, settings: ModelSettings, listed: Sequence[str]) -> Finding:
    if not listed or settings.name in listed:
        return Finding(what, "ok", f"{settings.name!r} at {settings.base_url!r}")
    close = difflib.get_close_matches(settings.name, listed, n=3, cutoff=0.3) or listed[:3]
    return Finding(
        what,
        "note",
        f"{settings.base_url!r} lists no {settings.name!r}; it has {', '.join(map(repr, close))}",
        f"correct {what.split()[0]}.name if the server takes listed names only",
    )
