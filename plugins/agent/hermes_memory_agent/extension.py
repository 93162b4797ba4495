"""Entry module of the extension `agent`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry, HomePart


@hookimpl
def register_commands(commands: Any) -> None:
    """Register the chat, the commands of skills, and the tidying of notes by a model."""
    cli = "hermes_memory_agent.cli"
    commands.add(CommandEntry("chat", "Talk with a model that remembers.", f"{cli}.chat:chat"))
    commands.add(
        CommandEntry(
            "skills", "List, show, undo and restore skills that the agent wrote down.", f"{cli}.skills:skills"
        )
    )
    commands.add(
        CommandEntry(
            "memory curate",
            "Let the model propose a shorter version: duplicates merged, stale entries dropped, contradictions shown.",
            f"{cli}.curate:curate",
        )
    )


@hookimpl
def home_parts() -> Iterable[HomePart]:
    """Return the skills of the home and of its users."""
    return [
        HomePart(
            "skills",
            "skill",
            ("skills", "memories/users/*/skills"),
            "hermes_memory_agent.skills.part:SkillPart",
            lock=".skills",
        )
    ]


@hookimpl
def examine(home: Path, config: Any, trial: bool) -> Iterable[Any]:
    """Return findings about skills, and in a trial about the models that config.yaml names."""
    from hermes_memory_agent.findings import examine_agent

    return examine_agent(home, config, trial=trial)
