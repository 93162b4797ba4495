"""The promises of every host, on the agent with a scripted model server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hermes_core import Memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
from hermes_memory_testing.hosting import (
    Break,
    Call,
    HostContract,
    HostedAgent,
    RecordedRequest,
    Say,
    Step,
)
from hermes_memory_testing.model_server import ModelServer, Reply
from hermes_memory_testing.trust_checks import NOTE, SAVE


class AgentHost(HostedAgent):
    """The agent as a gateway uses it: a new one for each message, which is dropped without `close`."""

    absent: ClassVar[Mapping[str, str]] = {
        "pause": "no tool waits for an approval",
        "run_structured": "an answer is a text",
        "run_blocks": "an answer is a text",
        "run_blocked": "there are no guardrails",
        "run_two_agents": "a session has one agent",
        "run_nested": "a subagent has no tools of memory",
        "run_summarised": "the agent compresses a conversation itself",
        "run_with_history": "the history is that of the stored session",
        "run_late_result": "a turn ends with the results of all its tools",
    }

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        return self._run(text, session, user, [reply_of(step) for step in script])

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
        message = [{"type": "text", "text": text}, picture]
        return self._run(message, session, user, [reply_of(step) for step in script])

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        shown: list[str] = []
        ends = [len("".join(answer[:count])) for count in range(1, len(answer))]
        self._run(text, session, user, [Reply("".join(answer), chunk=ends)], on_text=shown.append)
        return "".join(shown)

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        return self._run(text, session, user, [Reply(status=503), Reply(answer)], retries=1)

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        with ModelServer([*map(reply_of, script), Reply("Once upon a time")]) as server:
            agent = self._agent(server, session, user)
            result = agent.run_turn(text, on_text=lambda _: agent.interrupt())
        assert result.outcome == "interrupted"

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        call, *rest = script
        assert isinstance(call, Call)
        return self._run(text, session, user, [searched(call, cites=cites), *map(reply_of, rest)])

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        self._run(message, session, user, [Reply("I see.")], author="bot:researcher")
        return self.run(text, session=session, user=user, script=script)

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        with ModelServer([Reply(answer)]) as server:
            agent = self._agent(server, session, user)
            return agent.run_turn(agent.undo()).text

    def session_id(self, session: str, user: str) -> str:
        return f"{user}-{session}"

    def _run(
        self,
        message: Any,
        session: str,
        user: str,
        replies: Sequence[Reply],
        retries: int = 0,
        **options: Any,
    ) -> str:
        with ModelServer(replies) as server:
            result = self._agent(server, session, user, retries).run_turn(message, **options)
            for request in server.requests:
                system, *rest = request["messages"]
                said = tuple((each["role"], text_of(each.get("content"))) for each in rest)
                names = tuple(tool["function"]["name"] for tool in request.get("tools", ()))
                self.requests.append(RecordedRequest(system["content"], said, names))
        if result.outcome != "answered":
            raise RuntimeError("; ".join(result.problems))
        return result.text

    def _agent(self, server: ModelServer, session: str, user: str, retries: int = 0) -> Agent:
        settings = ModelSettings(
            server.base_url, "scripted", retries=retries, pause=0.001, context_length=32768
        )
        own = self.session_id(session, user)
        return Agent(self._memory, OpenAIModel(settings), session_id=own, platform="gateway", user_id=user)


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def reply_of(step: Step) -> Reply:
    if isinstance(step, Break):
        return Reply(status=400, error=step.message)
    if isinstance(step, Call):
        return Reply(calls=[(step.name, step.arguments)])
    assert isinstance(step, Say)
    return Reply(step.text)


def searched(call: Call, *, cites: bool) -> Reply:
    """Return the call of a model whose server searched, as OpenAI cites pages, or as Perplexity lists them."""
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    delta: dict[str, Any] = {
        "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]
    }
    chunk: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    page = {"url": "https://example.org", "title": "Office"}
    if cites:
        delta["annotations"] = [{"type": "url_citation", "url_citation": page}]
    else:
        chunk["search_results"] = [page]
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    return Reply(raw="".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n")


class TestAgent(HostContract):
    # The agent keeps an interrupted turn for the person, explains the fence in its prompt, and reports what it could not
    # store in the result of the turn: test_turn.py.
    test_an_interrupted_run_reaches_no_provider: Any = None
    test_a_process_killed_before_the_end_of_a_turn_leaves_no_half_turn: Any = None
    test_recall_is_in_the_current_request_only: Any = None
    test_a_run_that_is_answered_does_not_fail_with_its_memory: Any = None

    def agent(self, memory: Memory) -> HostedAgent:
        return AgentHost(memory)


def test_a_search_after_a_note_says_nothing_about_it(tmp_path: Path) -> None:
    contract = TestAgent()
    with contract.process(tmp_path) as (memory, agent):
        assert isinstance(agent, AgentHost)
        replies = [
            reply_of(SAVE),
            searched(Call("session_search", {"query": "tea"}), cites=True),
            Reply("Noted."),
        ]
        assert agent._run("When are they paid?", "c1", "ann", replies) == "Noted."
        assert NOTE in memory.conversation(platform="gateway", user_id="ann").system_prompt
