"""Recall for the message of a person in another program, as that program takes added context."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_core import Memory
from hermes_core.contract.values import Session
from hermes_core.curated.project import repository_of
from hermes_core.recall import count_tokens
from hermes_core.safety.fence import build_memory_context_block
from hermes_core.safety.origin import may_command
from hermes_memory_capture.programs import Program
from hermes_memory_importers import LIVE_PLATFORM

PROJECT_KEY = "capture.project"
"""Key of the repository in the state of a session."""

NOTES_LABEL = "notes on this repository"


def project_of(folder: str) -> str:
    """Return the key of the repository of a folder, the same in all its worktrees; "" if there is none."""
    repository = repository_of(Path(folder)) if folder and "\0" not in folder else None
    return "" if repository is None else repository.key


def other_projects(memory: Memory, project: str) -> frozenset[str]:
    """Return the ids of the sessions of other repositories."""
    rows = memory.sessions.database.execute(
        "SELECT owner, value FROM host_state WHERE scope = 'session' AND key = ?", (PROJECT_KEY,)
    )
    return frozenset(row[0] for row in rows if json.loads(row[1]) not in ("", project))


def context_for(
    memory: Memory, program: Program, event: Mapping[str, Any], on_read: Callable[[Session, str], None]
) -> str:
    """Return the recall for the message of an event in its fence, at most `recall.budget` tokens; "" for none.

    Args:
        on_read: Called with the session and the lowest origin of the recall, if it is not the person's or the agent's.
    """
    prompt, name = str(event.get("prompt") or ""), event.get("session_id") or event.get("conversation_id")
    # The words of a subagent's prompt are those of an agent.
    if not prompt.strip() or not name or event.get("agent_id"):
        return ""
    roots = event.get("workspace_roots")
    project = project_of(str(event.get("cwd") or (roots[0] if isinstance(roots, list) and roots else "")))
    session = memory.session(program.session_id(str(name)), platform=LIVE_PLATFORM)
    begun = memory.internals.recaller.ask(session, prompt)
    begun.lineage |= other_projects(memory, project)
    recall = memory.internals.recaller.collect(begun)
    contexts = list(recall.contexts)
    if begun.is_first and project and memory.config.memory.project != "off":
        contexts.insert(0, (NOTES_LABEL, project_notes(memory, project)))
    if not may_command(recall.origin):
        on_read(begun.session, recall.origin)
    return within_budget(
        [(label, text) for label, text in contexts if text.strip()], memory.config.recall.budget
    )


def project_notes(memory: Memory, project: str) -> str:
    """Return the notes of PROJECT.md that may stand in a prompt, a line each."""
    notes = memory.curated.of_repository(project).read()
    shown = set(notes.shown_entries())
    return "\n".join(f"- {entry}" for entry in notes.entries("project") if entry in shown)


def within_budget(contexts: list[tuple[str, str]], budget: int) -> str:
    """Return the contexts in one fence of at most `budget` tokens. What is too much is cut off by lines, from the end."""
    while contexts:
        block = build_memory_context_block(contexts)
        if count_tokens(block) <= budget:
            return block
        label, text = contexts.pop()
        shorter = text.rpartition("\n")[0]
        if shorter:
            contexts.append((label, shorter))
    return ""


def rendered(program: Program, event: Mapping[str, Any], context: str) -> str:
    """Return what the hook of a program prints for added context; "" for none."""
    if program.entry == "plugin" or not context:
        return context
    if program.entry == "flat":
        return json.dumps({"continue": True, "additional_context": context})
    name = event.get("hook_event_name")
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}})
