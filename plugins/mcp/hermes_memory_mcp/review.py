"""The dialog in which the person of an MCP client confirms or rejects the notes that wait, over the client's own forms.

The model can open the dialog. What is in a form, and what the person answers, goes past it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import ClientCapabilities, ElicitationCapability, FormElicitationCapability

from hermes_core import Memory, Session
from hermes_core.actions.approval import Approval, WaitingItem
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import ORIGIN_NAMES
from hermes_core.errors import HermesError
from hermes_core.safety.terminal import counted, escape_hidden
from hermes_memory_mcp.toolset import ToolAnswer, ToolDefinition

REVIEW = ToolDefinition(
    "review_notes",
    "Let the person confirm or reject notes and skills that wait: those that came from a tool, a page or another program. "
    "Call it if the person asks what waits. The person decides in the client; you get the counts alone.",
    {"type": "object", "properties": {}},
)

# Forms in one call. A person who is asked more often stops reading.
MAX_FORMS = 10

ELSEWHERE = "the person confirms or rejects them with `hermes-memory review` in a terminal, or on the page of `hermes-memory ui`"

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "enum": ["later", "confirm", "reject"],
            "description": "confirm: it is true, and the agent may rely on it. reject: remove it.",
        }
    },
    "required": ["decision"],
}

Context = ServerRequestContext[dict[str, object], object]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class ReviewDialog:
    """The dialog about what waits for one owner.

    Args:
        memory: The memory.
        session: The session of the owner.
        in_thread: Runs a function that blocks on another thread.
    """

    def __init__(self, memory: Memory, session: Session, in_thread: InThread) -> None:
        self._memory, self._session, self._in_thread = memory, session, in_thread

    async def run(self, context: Context) -> ToolAnswer:
        """Ask the person about what waits, in the client of this request. Return the counts."""
        try:
            approval: Approval = await self._in_thread(self._approval)
            items: list[WaitingItem] = await self._in_thread(approval.waiting)
            if not items:
                return ToolAnswer("Nothing waits for the person.")
            if not _has_forms(context):
                return ToolAnswer(f"{_waiting(len(items))}; this client has no forms: {ELSEWHERE}.")
            return ToolAnswer(await self._ask(context, approval, items))
        except HermesError as exc:
            return ToolAnswer(str(exc), failed=True)
        except NoBackChannelError:
            return ToolAnswer(f"{_waiting(len(items))}; this connection carries no forms: {ELSEWHERE}.")
        except MCPError as exc:
            return ToolAnswer(f"the client did not show the form ({exc}); {ELSEWHERE}.", failed=True)

    def _approval(self) -> Approval:
        return Approval(self._memory, self._memory.curated.of(self._session), self._session)

    async def _ask(self, context: Context, approval: Approval, items: list[WaitingItem]) -> str:
        counts = {"confirm": 0, "reject": 0}
        for number, item in enumerate(items[:MAX_FORMS], 1):
            message = f"{number} of {len(items)}, {_text(item)}"
            answer = await context.session.elicit_form(message, _SCHEMA, context.request_id)
            if answer.action != "accept":
                break
            decision = (answer.content or {}).get("decision")
            if decision == "confirm":
                await self._in_thread(partial(approval.accept, item))
            elif decision == "reject":
                await self._in_thread(partial(approval.reject, item))
            if decision in counts:
                counts[str(decision)] += 1
        left = len(items) - sum(counts.values())
        rest = f"; {_waiting(left)}" if left else ""
        return f"The person confirmed {counts['confirm']} and rejected {counts['reject']}{rest}."


def _waiting(count: int) -> str:
    return (
        f"{counted(count, 'note or skill', 'notes or skills')} wait{'s' if count == 1 else ''} for the person"
    )


def _text(item: WaitingItem) -> str:
    """Return what the person reads of an item: its origin, its text, and what it replaces."""
    if isinstance(item, PartItem):
        return f"{item.noun} {item.name!r} from {ORIGIN_NAMES[item.origin]}:\n\n{escape_hidden(item.text)}"
    replaced = f"\n\nIt replaces: {escape_hidden(item.previous)}" if item.previous else ""
    flag = f"\n\nThe safety scan found: {item.flag}" if item.flag else ""
    return f"from {ORIGIN_NAMES[item.origin]}:\n\n{escape_hidden(item.entry)}{replaced}{flag}"


def _has_forms(context: Context) -> bool:
    wanted = ElicitationCapability(form=FormElicitationCapability())
    return context.session.check_client_capability(ClientCapabilities(elicitation=wanted))
