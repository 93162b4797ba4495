"""Hosts give messages in the form of any model's API; the store keeps the OpenAI chat form, with nothing lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from hermes_core import HermesHome, open_memory, open_memory_async
from hermes_core.errors import SessionError
from hermes_core.safety.parts import PARTS
from hermes_core.sessions.chat_forms import chat_messages, in_form

NOTE = {"action": "add", "target": "user", "content": "Lives in Oslo."}
CALL = {"id": "c1", "type": "function", "function": {"name": "memory", "arguments": json.dumps(NOTE)}}
TEXT = {"role": "assistant", "content": "Noted."}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}


class Block:
    """An object of an SDK, as pydantic makes them."""

    def __init__(self, **data: Any) -> None:
        self._data = data

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        assert (mode, exclude_none) == ("json", True)
        return self._data


COMPLETION = ChatCompletion.model_validate(
    {
        "id": "x",
        "created": 1,
        "model": "m",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Noted."}}
        ],
    }
)
ANSWERS: dict[str, Any] = {
    "text": "Noted.",
    "parts": [{"type": "text", "text": "Noted."}],
    "dict": TEXT,
    "OpenAI's message": COMPLETION.choices[0].message,
    "OpenAI's answer": COMPLETION,
    "Anthropic's message": Block(
        role="assistant",
        type="message",
        id="m1",
        content=[{"type": "text", "text": "Noted."}],
        stop_reason="end_turn",
    ),
    "a list of Anthropic's blocks": [Block(type="text", text="Noted.")],
    "items of the Responses API": Block(
        id="r1",
        output=[
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]}
        ],
    ),
    "Gemini's content": {"role": "model", "parts": [{"text": "Noted."}]},
    "Converse's message": {"role": "assistant", "content": [{"text": "Noted."}]},
    "LangChain's message": {"type": "ai", "content": "Noted.", "tool_calls": []},
}
CALLS: dict[str, Any] = {
    "OpenAI": CALLING,
    "Anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "memory", "input": NOTE}],
    },
    "Responses": [
        {"type": "function_call", "call_id": "c1", "name": "memory", "arguments": json.dumps(NOTE)}
    ],
    "Converse": {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": "c1", "name": "memory", "input": NOTE}}],
    },
    "Gemini": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "memory", "args": NOTE}}]},
    "LangChain": {"type": "ai", "content": "", "tool_calls": [{"name": "memory", "args": NOTE, "id": "c1"}]},
}
RESULTS: dict[str, Any] = {
    "OpenAI": RESULT,
    "Anthropic": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}],
    },
    "Responses": {"type": "function_call_output", "call_id": "c1", "output": "done"},
    "Converse": {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "done"}], "status": "success"}}],
    },
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_turn_takes_an_answer_in_every_form(hermes_home: HermesHome, answer: Any) -> None:
    with open_memory() as memory:
        chat = memory.conversation()
        chat.turn("I live in Oslo.").finish(answer)
        turn = chat.turn("And now?")
        turn.add(answer)
        turn.finish()
        assert [(message.role, message.content) for message in chat.history()] == [
            ("user", "I live in Oslo."),
            ("assistant", "Noted."),
            ("user", "And now?"),
            ("assistant", "Noted."),
        ]


@pytest.mark.parametrize("calling", CALLS.values(), ids=CALLS)
def test_a_call_is_stored_beside_the_content_and_run(hermes_home: HermesHome, calling: Any) -> None:
    with open_memory() as memory:
        chat = memory.conversation()
        turn = chat.turn("I live in Oslo.")
        assert turn.run_tools(calling) == []
        turn.finish("Noted.")
        assert memory.curated.of(chat.session).entries("user") == ("Lives in Oslo.",)
        call, result = chat.history()[1:3]
        assert (call.role, call.content, result.role, result.tool_call_id) == ("assistant", "", "tool", "c1")
        assert [json.loads(one["function"]["arguments"]) for one in call.tool_calls] == [NOTE]
        assert "[tool_use]" not in json.dumps(chat.turn("?").messages)


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_is_the_message_of_a_tool(result: Any) -> None:
    (message,) = chat_messages(result, "assistant")
    assert message == RESULT


def test_the_id_and_the_name_of_a_result_are_texts() -> None:
    odd = {"role": "tool", "tool_call_id": ["c1"], "name": 5, "content": "done"}
    assert chat_messages(odd, "tool") == [
        {"role": "tool", "tool_call_id": "['c1']", "name": "5", "content": "done"}
    ]


def test_calls_of_other_tools_are_returned_to_the_program(hermes_home: HermesHome) -> None:
    other = {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    with open_memory() as memory:
        turn = memory.conversation().turn("Rain?")
        assert turn.run_tools({**CALLING, "tool_calls": [CALL, other]}) == [other]
        assert [message["role"] for message in turn.messages] == ["user", "assistant", "tool"]


def test_a_turn_begins_with_any_message_of_the_person(hermes_home: HermesHome) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    with open_memory() as memory:
        chat = memory.conversation()
        for said in (
            "Hi",
            [{"type": "text", "text": "Hi"}],
            {"role": "user", "content": "Hi"},
            Block(role="user", content="Hi"),
        ):
            assert chat.turn(said).text == "Hi"
        turn = chat.turn({"role": "user", "content": [picture, {"type": "text", "text": "Who is it?"}]})
        url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
        assert turn.messages[-1]["content"] == [url, {"type": "text", "text": "Who is it?"}]
        assert turn.messages("anthropic")[-1]["content"] == [picture, {"type": "text", "text": "Who is it?"}]


@pytest.mark.parametrize(
    "beside",
    [{"refusal": "I can't."}, {"audio": {"id": "a", "data": "", "expires_at": 1, "transcript": "I can't."}}],
)
def test_an_answer_without_content_is_its_refusal_or_what_it_spoke(
    hermes_home: HermesHome, beside: dict[str, Any]
) -> None:
    message = {"role": "assistant", "content": None, **beside}
    with open_memory() as memory:
        chat = memory.conversation()
        chat.turn("Hi").finish(ChatCompletionMessage.model_validate(message))
        assert [one.content for one in chat.history()] == ["Hi", "I can't."]


def test_an_answer_may_be_a_choice_or_stand_in_the_answer_of_a_server(hermes_home: HermesHome) -> None:
    with open_memory() as memory:
        chat = memory.conversation()
        for answer in (COMPLETION.choices[0], Block(model="m", done=True, message={**TEXT})):
            chat.turn("Hi").finish(answer)
        assert [one.content for one in chat.history()][1::2] == [
            COMPLETION.choices[0].message.content,
            "Noted.",
        ]


REFUSED = [
    7,
    b"bytes",
    object(),
    [],
    {},
    {"content": "no role"},
    [3],
    {"role": "user", "content": 5},
    {"type": "message_start", "message": {**TEXT}},  # an event of Anthropic's stream, without the words
    ChatCompletionMessage,
]


@pytest.mark.parametrize("value", REFUSED, ids=range(len(REFUSED)))
def test_the_three_doors_refuse_the_same_values_with_the_same_error(
    hermes_home: HermesHome, value: Any
) -> None:
    with open_memory() as memory:
        chat = memory.conversation()
        turn = chat.turn("Hi")
        refusals = set()
        for door in (chat.turn, turn.add, turn.finish):
            with pytest.raises(SessionError) as refusal:
                door(value)
            refusals.add(str(refusal.value))
        assert len(refusals) == 1
        assert chat.history() == []
        turn.finish("Hello")


KEYS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "function",
        "custom",
        "arguments",
        "choices",
        "message",
        "output",
        *PARTS,
    ]
)
NAMES = st.sampled_from(["user", "assistant", "tool", "model", "ai", "message", *PARTS])
VALUES = st.recursive(
    st.none() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_of_any_shape_is_messages_or_refused(value: Any) -> None:
    try:
        messages = chat_messages(value, "user")
    except SessionError:
        return
    in_form(messages, "openai")
    in_form(messages, "anthropic")
    for call in (call for message in messages for call in message.get("tool_calls", ())):
        assert {*call} == {"id", "type", "function"}
        assert {*call["function"]} == {"name", "arguments"}


def test_a_turn_does_not_begin_with_what_no_person_says(hermes_home: HermesHome) -> None:
    with open_memory() as memory:
        for value in (
            TEXT,
            RESULTS["Anthropic"],
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        ):
            with pytest.raises(SessionError, match="one message of the person"):
                memory.conversation().turn(value)


def test_thoughts_go_back_to_anthropic_and_to_nobody_else(hermes_home: HermesHome) -> None:
    thought = {"type": "thinking", "thinking": "Save it.", "signature": "s"}
    blocks = [thought, {"type": "text", "text": "One moment."}, CALLS["Anthropic"]["content"][0]]
    with open_memory() as memory:
        chat = memory.conversation()
        turn = chat.turn("I live in Oslo.")
        turn.run_tools({"role": "assistant", "content": blocks})
        asked, called, answered = turn.messages("anthropic")
        assert (asked["role"], called) == ("user", {"role": "assistant", "content": blocks})
        assert (answered["role"], answered["content"][0]["type"]) == ("user", "tool_result")
        assert "Save it." not in json.dumps(turn.messages)
        turn.finish("Noted.")
        assert chat.history()[1].reasoning == "Save it."
        assert chat.history()[1].content == "One moment."


def test_results_of_several_calls_are_one_message_for_anthropic() -> None:
    calls = [{**CALL, "id": call_id} for call_id in ("a", "b")]
    results = [{**RESULT, "tool_call_id": call_id} for call_id in ("a", "b")]
    _, answered = in_form([{**CALLING, "tool_calls": calls}, *results], "anthropic")
    assert [block["tool_use_id"] for block in answered["content"]] == ["a", "b"]


def test_there_is_no_other_form(hermes_home: HermesHome) -> None:
    with open_memory() as memory, pytest.raises(SessionError, match="use one of openai, anthropic"):
        memory.conversation().turn("Hi").messages("gemini")  # type: ignore[arg-type]


def test_an_exception_in_the_block_cancels_the_turn(hermes_home: HermesHome) -> None:
    with open_memory() as memory:
        chat = memory.conversation()
        with pytest.raises(ZeroDivisionError), chat.turn("Hi", turn_id="t1"):
            raise ZeroDivisionError
        with pytest.raises(SessionError, match="is not open"):
            chat.resume("t1")
        with chat.turn("Hi", turn_id="t2") as turn:
            turn.finish("Hello")
        with pytest.raises(SessionError, match="is finished"):
            chat.resume("t2")
        with chat.turn("Wait", turn_id="t3"):
            pass  # it waits for an approval
        assert chat.resume("t3").text == "Wait"


def test_the_awaitable_twins_do_the_same(hermes_home: HermesHome) -> None:
    async def talk() -> list[tuple[str, str]]:
        memory = await open_memory_async()
        chat = await memory.conversation()
        async with await chat.turn({"role": "user", "content": "I live in Oslo."}) as turn:
            assert await turn.run_tools(CALLS["Anthropic"]) == []
            await turn.finish(ANSWERS["Anthropic's message"])
        with pytest.raises(ZeroDivisionError):
            async with await chat.turn("Hi", turn_id="t1"):
                raise ZeroDivisionError
        with pytest.raises(SessionError):
            await chat.resume("t1")
        said = [(message.role, message.content) for message in await chat.history()]
        await memory.close()
        return said

    assert [role for role, _ in asyncio.run(talk())] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    "nobody",
    [
        {},
        *({"user_id": value} for value in (None, "", "  ", False, True, float("nan"), [], {}, b"")),
        {"chat_type": "private"},
    ],
    ids=repr,
)
def test_strangers_without_a_name_share_nothing(hermes_home: HermesHome, nobody: dict[str, Any]) -> None:
    with open_memory() as memory:
        first, second = (memory.conversation(session, platform="web", **nobody) for session in ("s1", "s2"))
        first.turn("My passport is in the blue drawer.").finish("Noted.")
        first.change_memory("add", "user", "Lives in Oslo.")
        assert first.session.owner != second.session.owner
        assert "Oslo" not in second.turn("Hello").messages[0]["content"]
        assert second.recall("Where is my passport?").results == ()
        again = memory.conversation("s1", platform="web", **nobody)
        assert memory.curated.of(again.session).entries("user") == ("Lives in Oslo.",)
