"""Giving a task away: the tool `delegate_task`, and what a subagent is told and reports."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.agent.cancel import Cancelled
from hermes_core.agent.tools import Tool, error
from hermes_core.agent.turn import TurnResult
from hermes_core.contract.values import Delegation, Session

INSTRUCTIONS = (
    "You are a subagent: do the one task that you are given, with your tools, and answer with a report of what you did "
    "and found. Nobody is there to answer questions."
)

_DESCRIPTION = (
    "Give a self-contained task to a subagent and get its report. It sees nothing of this conversation and has no "
    "memory: put all that it needs into `task` and `context`. For work that would fill your context with detail."
)
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What to do, and what to report."},
        "context": {"type": "string", "description": "Facts that it needs: names, paths, constraints."},
    },
    "required": ["task"],
}


def delegate_tool(delegate: Callable[[str, str], str]) -> Tool:
    """The tool; `delegate` takes task and context and gives the report."""

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        del session
        task, context = arguments.get("task"), arguments.get("context") or ""
        if not isinstance(task, str) or not task.strip():
            return error(f"task must be a text, is {task!r}", "say what to do")
        if not isinstance(context, str):
            context = json.dumps(context, ensure_ascii=False)
        return json.dumps({"report": delegate(task, context)}, ensure_ascii=False)

    return Tool("delegate_task", _DESCRIPTION, _PARAMETERS, run, "delegation", parallel=True)


def child_identity(session: Session) -> dict[str, Any]:
    """The fields of `Session` that a subagent has from its parent."""
    own = {"parent_id": session.id, "agent_context": "subagent"}
    return {k: v for k, v in session.to_dict().items() if k not in ("id", "home")} | own


def delegation_of(task: str, result: TurnResult) -> Delegation:
    """What came of a task, for providers and the parent. Raises `Cancelled` where it was interrupted."""
    if result.outcome == "interrupted":
        raise Cancelled
    problems = "; ".join(result.problems)
    report = f"{result.text}\n\n[{problems}]" if problems else result.text
    if result.outcome != "answered":
        report = f"the subagent failed: {problems}"
    return Delegation(uuid.uuid4().hex, task, report, result.session_id)
