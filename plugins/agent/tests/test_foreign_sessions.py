"""Sessions that no agent wrote, but an import or a host by `end_turn`: an agent goes on with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

OF_A_CHAT = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
CALLS: list[Any] = [
    OF_A_CHAT,
    OF_A_CHAT | {"extra_content": {"google": {"thought_signature": "s"}}},
    {"name": "web.run", "arguments": "print(1)"},  # as an export of ChatGPT has it
    {"function": {"name": "look", "arguments": {"a": 1}}},  # as Ollama's own API has it
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    {"id": 7, "function": None},
    "look",
]


@pytest.mark.parametrize("answering", [{"tool_call_id": "call_1"}, {}], ids=["named", "unnamed"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_an_agent_goes_on_with_calls_of_any_form_and_their_results(
    stage: Stage, call: Any, answering: dict[str, str]
) -> None:
    session = stage.memory.start_session("import")
    messages = [
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "A cat.", **answering},
        {"role": "assistant", "content": "A cat."},
    ]
    stage.memory.end_turn(session, "What is there?", "A cat.", messages=messages)

    agent = stage.agent(session_id="import")
    assert agent.run_turn("Go on.").outcome == "answered"  # its server is strict
    sent = stage.asked()[-1]
    asked, result = sent[2]["tool_calls"][0], sent[3]
    assert result["tool_call_id"] == asked["id"]
    if call is OF_A_CHAT or not answering:
        assert result["content"] == "A cat."
    if isinstance(call, dict) and call.get("id") == "call_1":
        assert asked == call


@pytest.mark.parametrize(
    "content", [["There is", "a cat."], ["There is", 1, "cat."], [{"text": "A cat."}]], ids=str
)
def test_an_agent_goes_on_with_content_of_any_parts(stage: Stage, content: list[Any]) -> None:
    session = stage.memory.start_session("import")
    messages: list[Any] = [{"role": role, "content": content} for role in ("user", "assistant")]
    stage.memory.end_turn(session, "What?", "A cat.", messages=messages)

    assert stage.agent(session_id="import").run_turn("Go on.").outcome == "answered"  # its server is strict
    assert isinstance(stage.asked()[-1][1]["content"], str)
