"""A program that embeds memory, as `mypy --strict` must take it: without a cast and without an ignore."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from hermes_core import Memory, MemoryProvider, Query, Recall, RecallItem, Session, Turn, open_memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel, Tool


class Chat(TypedDict):
    """A message as many programs type it."""

    role: str
    content: str


class Notes(MemoryProvider):
    """A provider of the host's own."""

    name = "notes"

    def prefetch(self, query: Query, session: Session) -> Recall:
        return Recall((RecallItem(f"{session.owner} asked {query.text}"),))

    async def sync_turn(self, turn: Turn) -> None:
        print(turn.user, [message.get("content", "") for message in turn.messages])


def one_turn(memory: Memory, session: Session, history: list[Chat], text: str) -> str:
    said: list[dict[str, Any]] = [{"role": "user", "content": text}]
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    recalled = memory.begin_turn(session, parts, recent=history)
    request: str = recalled.inject(text)
    picture: list[dict[str, Any]] = recalled.inject(parts)
    schemas: list[dict[str, Any]] = memory.tool_schemas()
    answer = memory.call_tool(session, "memory", {"action": "add", "content": text})
    memory.end_turn(session, parts, answer, messages=said)
    memory.end_turn(session, text, None, messages=history)
    return f"{request} {picture} {schemas} {recalled.problems}"


def host(home: Path) -> None:
    with open_memory(home, provider=Notes, deadlines={"prefetch": 0.5}) as memory:
        session = memory.start_session(platform="my-app", user_id="42")
        print(one_turn(memory, session, [{"role": "user", "content": "hi"}], "Where is the key?"))
        print([result.text for result in memory.recall("key", session=session).results])
        print([(entry.name, entry.state, entry.reason) for entry in memory.internals.selection.entries()])
        print([hit.text for hit in memory.sessions.past.search("key", user=session.owner or None)])
        memory.end_session(session, "reset")


async def serve(memory: Memory, text: str) -> None:
    session = await asyncio.to_thread(memory.start_session, user_id="42")
    recalled = await asyncio.to_thread(memory.begin_turn, session, text)
    await asyncio.to_thread(memory.end_turn, session, text, recalled.inject(text), author="Ann")


def agent(memory: Memory) -> str:
    def weather(arguments: Mapping[str, Any], session: Session) -> str:
        return f"{arguments['place']}: rain"

    tool = Tool("weather", "The weather of a place.", {"type": "object", "properties": {}}, weather)
    model = OpenAIModel(ModelSettings("http://127.0.0.1:8080/v1", "a-model"))
    with Agent(memory, model, tools=[tool], platform="my-app", user_id="42") as own:
        result = own.run_turn("Will it rain?", on_text=print)
        return f"{result.outcome} {result.text} {result.problems}"
