"""Turns of a session of ADK, from its events. The plugin and the memory service store the same turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions import Session as AdkSession
from google.genai import types

from hermes_core import AsyncConversation, AsyncMemory, Session

# Calls by which ADK asks a person for approval, credentials or input. They are no tools of the agent.
FRAMEWORK_CALLS = "adk_request_"

# Fields of a part that hold no more than words, calls of the agent's tools and their results.
OWN_FIELDS = frozenset(
    [
        "text",
        "thought",
        "thought_signature",
        "function_call",
        "function_response",
        "part_metadata",
        "media_resolution",
        "video_metadata",
    ]
)


@dataclass(slots=True)
class AdkTurn:
    """A person's message with all events up to the answer.

    Attributes:
        id: Id of the invocation. If an invocation goes on after its answer, the later turns get a number after it.
        events: The events, the person's message first.
    """

    id: str
    events: list[Event] = field(default_factory=list)

    @property
    def asked(self) -> types.Content | None:
        """The person's message; None if the turn begins with the result of a long-running tool."""
        first = self.events[0].content if self.events and self.events[0].author == "user" else None
        return None if first is None or any(part.function_response for part in first.parts or ()) else first

    @property
    def answer(self) -> str | None:
        """Text of the answer; None if the last event is no final response: the run failed, stopped or waits."""
        last = next((event for event in reversed(self.events) if event.error_code or _parts(event)), None)
        # ADK also calls an event final if it waits for a person, or is an error.
        if last is None or last.author == "user" or last.error_code or last.long_running_tool_ids:
            return None
        actions = last.actions
        if actions.requested_tool_confirmations or actions.requested_auth_configs:
            return None
        if last.interrupted or not last.is_final_response():
            return None
        return text_of(last) or "\n".join(_result(response) for response in last.get_function_responses())

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in the OpenAI chat form, with the name of the agent that wrote each.

        If the model's server did more than answer, the message has the origin of that.
        """
        native = {"invocation_id": self.id}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": chat_content(self.asked), "native": native}
        ]
        # A call that waited for approval has two results, and only the last is real.
        last_results = {call.id: call for event in self.events for call in event.get_function_responses()}
        for event in self.events[self.asked is not None :]:
            text, calls = text_of(event), [call for call in event.get_function_calls() if _is_tool(call)]
            messages += [
                {"role": "tool", "tool_call_id": result.id or "", "content": _result(result)}
                for result in event.get_function_responses()
                if _is_tool(result) and (not result.id or last_results[result.id] is result)
            ]
            held = _origin_of(event)
            if event.author == "user":
                if text or held:
                    messages.append({"role": "user", "content": chat_content(event.content)})
            elif text or calls or held:
                tool_calls = {"tool_calls": [_chat_call(call) for call in calls]} if calls else {}
                author = {"name": event.author, "origin": held} if held else {"name": event.author}
                messages.append({"role": "assistant", "content": text, **tool_calls, **author})
        return messages


def turns_of(events: Iterable[Event]) -> list[AdkTurn]:
    """Return the turns of a session, without those that were rewound."""
    return _turns(events)[0]


def rewound_turns(events: Iterable[Event]) -> list[AdkTurn]:
    """Return the turns of a session that were rewound."""
    return _turns(events)[1]


def _turns(events: Iterable[Event]) -> tuple[list[AdkTurn], list[AdkTurn]]:
    turns: dict[str, list[AdkTurn]] = {}
    rewound: list[AdkTurn] = []
    for event in events:
        if event.actions.rewind_before_invocation_id in turns:
            invocations = list(turns)
            for undone in invocations[invocations.index(event.actions.rewind_before_invocation_id) :]:
                rewound += turns.pop(undone)
            continue
        own = turns.setdefault(event.invocation_id, [AdkTurn(event.invocation_id)])
        # The result of a long-running tool, or the next message to a task, goes on with an answered invocation.
        if event.author == "user" and own[-1].answer is not None:
            own.append(AdkTurn(f"{event.invocation_id}.{len(own) + 1}"))
        own[-1].events.append(event)
    return [turn for own in turns.values() for turn in own if turn.events], rewound


async def rewind(memory: AsyncMemory, chat: AsyncConversation, events: Iterable[Event]) -> None:
    """Undo the stored turns that were rewound in ADK, also at the provider."""
    ids = [turn.id for turn in rewound_turns(events)]
    if not any([await memory.sessions.has_turn(turn_id) for turn_id in ids]):
        return
    for message in await chat.history():
        if (message.native or {}).get("invocation_id") in ids:
            await memory.rewind(chat.session, message.id)
            return


def current_turn(events: Iterable[Event], invocation_id: str) -> AdkTurn | None:
    """Return the last turn of an invocation; None if the session has no event of it."""
    own = turns_of(event for event in events if event.invocation_id == invocation_id)
    return own[-1] if own else None


def identity(platform: str, app: str, user: str, session: str = "") -> dict[str, Any]:
    """Return whose session it is, for `Memory.conversation`. ADK's session ids are unique for one app and user only."""
    return {"session_id": f"{app}/{user}/{session}", "platform": platform, "user_id": user}


def identity_of(platform: str, session: AdkSession) -> dict[str, Any]:
    """Return whose session a session of ADK is."""
    return identity(platform, session.app_name, session.user_id, session.id)


async def store_turn(
    memory: AsyncMemory,
    session: Session,
    turn: AdkTurn,
    *,
    warm: bool = True,
    recalled_origin: Any = "person",
) -> None:
    """Store a turn with its messages, if it has an answer. A turn that is stored already stays as it is.

    Args:
        warm: True to let providers prepare the recall of the next turn.
        recalled_origin: The lowest origin of what the model read beside the messages.
    """
    answer = turn.answer
    if answer is None or await memory.sessions.has_turn(turn.id):
        return
    messages = turn.messages
    if messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        # The result of a tool is the answer.
        messages.append({"role": "assistant", "content": answer, "name": turn.events[-1].author})
    await memory.end_turn(
        session,
        messages[0]["content"],
        answer,
        messages=messages,
        turn_id=turn.id,
        at=turn.events[-1].timestamp,
        user_at=turn.events[0].timestamp,
        warm=warm,
        recalled_origin=recalled_origin,
    )


def chat_content(content: types.Content | None) -> str | list[dict[str, Any]]:
    """Return a message as text, or as content parts if it has files. The bytes of files stay with ADK."""
    parts = [_chat_part(part) for part in content.parts or ()] if content is not None else []
    if any(part and part["type"] != "text" for part in parts):
        return [part for part in parts if part]
    return "".join(part["text"] for part in parts if part)


def text_of(event: Event) -> str:
    """Return the text of an event, without thoughts."""
    return text_in(event.content)


def text_in(content: types.Content | None) -> str:
    """Return the text of a content, without thoughts."""
    parts = (content.parts or ()) if content is not None else ()
    return "".join(part.text for part in parts if part.text and not part.thought)


def texts_of(events: Iterable[Event]) -> Iterator[str]:
    """Yield the texts of events, and of the summaries that ADK made of some."""
    for event in events:
        yield text_of(event)
        if event.actions.compaction is not None:
            yield text_in(event.actions.compaction.compacted_content)


def _chat_part(part: types.Part) -> dict[str, Any] | None:
    if part.text:
        return {"type": "text", "text": part.text}
    blob = part.inline_data or part.file_data
    if blob is None:
        return None
    kind = (blob.mime_type or "").partition("/")[0]
    place = {"uri": part.file_data.file_uri} if part.file_data else {}
    return {"type": kind if kind in ("image", "audio", "video") else "file", **place}


def _parts(event: Event) -> list[types.Part]:
    return (event.content.parts or []) if event.content else []


def _origin_of(event: Event) -> str | None:
    """Return the origin of what an event holds beside words and calls; None if it holds no more."""
    if event.grounding_metadata or event.citation_metadata:
        return "web"
    fields = {
        name for part in _parts(event) for name in part.model_fields_set if getattr(part, name) is not None
    }
    return None if OWN_FIELDS.issuperset(fields) else "tool"


def _is_tool(call: types.FunctionCall | types.FunctionResponse) -> bool:
    return not (call.name or "").startswith(FRAMEWORK_CALLS)


def _chat_call(call: types.FunctionCall) -> dict[str, Any]:
    arguments = json.dumps(call.args or {}, ensure_ascii=False, default=str)
    return {"id": call.id or "", "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _result(response: types.FunctionResponse) -> str:
    return json.dumps(response.response or {}, ensure_ascii=False, default=str)
