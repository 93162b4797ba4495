from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contract.values import Session
from hermes_core.errors import ConfigError, ContextOverflow, ModelUnavailable
from hermes_core.safety.fence import build_memory_context_block
from hermes_memory_agent import Answer, ModelSettings, OpenAIModel, Tool, ToolRequest
from hermes_memory_agent.answer import ChatMessage
from hermes_memory_agent.cancel import Cancel, Cancelled
from hermes_memory_agent.loop import LAST_REQUEST_NOTE, ToolLoop
from hermes_memory_agent.prompt import INTERRUPTED_RESULT, repair_messages, system_prompt
from hermes_memory_agent.tools import ToolRegistry, delegate_tool, todo_tool
from hermes_memory_testing.model_server import ModelServer, Reply, Script
from tests.rounds import rounds

SESSION = Session("s1")
FENCE = build_memory_context_block([("notes", "The safe opens with 4711.")])


def look(arguments: Mapping[str, Any], session: Session) -> str:
    return json.dumps({"seen": arguments.get("at")})


def explode(arguments: Mapping[str, Any], session: Session) -> str:
    raise RuntimeError("the lens broke")


TOOLS = ToolRegistry([Tool("look", "Look.", {}, look), Tool("explode", "", {}, explode), todo_tool()])


class Run:
    """A tool loop with a scripted model, and what it told its callbacks."""

    def __init__(self, server: ModelServer, model: OpenAIModel) -> None:
        self.server = server
        self.kept: list[ChatMessage] = []
        self.heard: list[str] = []
        self.cancel = Cancel()
        self.loop = ToolLoop(model, TOOLS, SESSION, self.cancel, 5, self.kept.append, self.heard.append)

    def go(self) -> str:
        return self.loop.run([{"role": "user", "content": "Go."}])


@contextmanager
def running(*script: Script) -> Iterator[Run]:
    with ModelServer(script) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "m", retries=0))
        yield Run(server, model)
        assert server.refused == []
        model.close()


def test_tools_are_run_until_the_model_answers() -> None:
    with running(Reply(calls=[("look", {"at": "sea"}), ("look", {"at": "sky"})]), Reply("Both.")) as run:
        assert run.go() == "Both."
    assert [m["role"] for m in run.kept] == ["assistant", "tool", "tool", "assistant"]
    assert [json.loads(m["content"])["seen"] for m in run.kept[1:3]] == ["sea", "sky"]
    assert run.loop.calls == 2
    assert run.loop.usage.prompt > 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("look", '{"at": '), "were no JSON object"),
        (("look", "[1]"), "were no JSON object"),
        (("look", "[" * 5000), "were no JSON object"),
        (("look", '{"at": ' + "[" * 100 + "]" * 100 + "}"), "were no JSON object"),
        (("look", '{"at": NaN}'), "were no JSON object"),
        (("todo", {"todos": "eat, sleep"}), "must be a list"),
        (("fly", {}), "there is no tool 'fly'"),
        (("explode", {}), "the lens broke"),
    ],
)
def test_what_can_not_be_called_is_an_error_for_the_model_and_the_turn_goes_on(call: Any, said: str) -> None:
    with running(Reply(calls=[call]), Reply("Sorry.")) as run:
        assert run.go() == "Sorry."
    assert said in json.loads(run.kept[1]["content"])["error"]
    json.loads(run.kept[0]["tool_calls"][0]["function"]["arguments"])


def test_a_model_that_never_stops_calling_gets_a_last_word() -> None:
    with running(*[Reply(calls=[("look", {})])] * 4, Reply("Enough.")) as run:
        assert run.go() == "Enough."
    assert len(run.server.requests) == run.loop.max_requests
    asked = run.server.requests[-1]["messages"]
    assert asked[-1]["content"] == LAST_REQUEST_NOTE
    assert [m["role"] for m in asked[-3:]] == ["tool", "assistant", "user"]  # as Mistral wants it
    assert LAST_REQUEST_NOTE not in [m["content"] for m in run.kept]


def test_of_one_request_alone_no_tool_is_run() -> None:
    with running(Reply("Let me see.", calls=[("look", {})]), Reply(calls=[("look", {})])) as run:
        run.loop.max_requests = 1
        assert [run.go(), run.go()] == ["Let me see.", ""]
        assert "agent.max_iterations" in run.loop.problems("")[0]
    assert [request["messages"][-1]["content"] for request in run.server.requests] == ["Go.", "Go."]
    assert run.kept == [{"role": "assistant", "content": "Let me see."}]


def test_an_answer_without_a_word_is_not_kept_and_the_reason_is_told() -> None:
    with running(*[Reply(calls=[("look", {})])] * 6) as run:
        assert run.go() == ""
        assert "agent.max_iterations" in run.loop.problems("")[0]
    assert run.kept[-1]["role"] == "tool"
    with running(Reply(finish="tool_calls")) as run:
        assert "sent none" in run.loop.problems(run.go())[0]
    with running(Reply(finish="SAFETY")) as run:
        assert "its server says 'SAFETY'" in run.loop.problems(run.go())[0]
    with running(Reply(" ", finish="length")) as run:
        assert run.loop.problems(run.go()) == [
            "the model gave no answer: its server's limit of tokens was reached"
        ]
    assert run.kept == []


def reading(room: int) -> Script:
    """A model that reads twice and answers, behind a server with room for so many characters."""

    def answer(request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        if len(json.dumps(messages)) > room:
            return Reply(status=400, error="maximum context length is 4096 tokens")
        read = sum(message["role"] == "tool" for message in messages)
        return Reply("Read.") if read == 2 else Reply(calls=[("read", {})])

    return answer


@pytest.mark.parametrize(("room", "newest"), [(16_000, 9_000), (8_000, 2_000)])
def test_a_turn_whose_results_are_too_long_goes_on_with_short_ones(room: int, newest: int) -> None:
    with running(reading(room)) as run:
        run.loop.tools = ToolRegistry([Tool("read", "", {}, lambda a, s: "x" * 9_000)])
        assert run.go() == "Read."
    sent = [len(m["content"]) for m in run.server.requests[-1]["messages"] if m["role"] == "tool"]
    assert [length // 1000 * 1000 for length in sent] == [2_000, newest]
    assert [len(m["content"]) for m in run.kept if m["role"] == "tool"] == [9_000, 9_000]


def counting(calls: int, told: int | None = None) -> Script:
    """A model that calls so often and answers, behind a server that cuts what is too long without a word."""

    def answer(request: dict[str, Any]) -> Reply:
        done = sum(message["role"] == "tool" for message in request["messages"]) == calls
        return Reply("Read.", prompt_tokens=told) if done else Reply(calls=[("read", {})], prompt_tokens=told)

    return answer


@pytest.mark.parametrize(("calls", "size"), [(3, 9_000), (2, 15_000), (12, 2_000)])
def test_no_request_outgrows_the_context_within_a_turn(calls: int, size: int) -> None:
    with running(counting(calls)) as run:
        run.loop.model = OpenAIModel(ModelSettings(run.server.base_url, "m", context_length=4096))
        run.loop.tools, run.loop.max_requests = (
            ToolRegistry([Tool("read", "", {}, lambda a, s: "x" * size)]),
            20,
        )
        assert run.go() == "Read."
    sizes = [len(json.dumps(request["messages"])) // 4 for request in run.server.requests]
    assert max(sizes) < 4096
    assert {len(m["content"]) for m in run.kept if m["role"] == "tool"} == {size}


def test_room_is_made_by_the_servers_count_where_that_is_higher() -> None:
    with running(counting(3, told=2_900)) as run:
        run.loop.model = OpenAIModel(ModelSettings(run.server.base_url, "m", context_length=4096))
        run.loop.tools = ToolRegistry([Tool("read", "", {}, lambda a, s: "x" * 2_500)])
        assert run.go() == "Read."
    sent = [len(m["content"]) // 100 for m in run.server.requests[-1]["messages"] if m["role"] == "tool"]
    assert sent == [20, 20, 20]


def test_a_conversation_that_is_too_long_without_any_result_is_not_asked_twice() -> None:
    with running(reading(10)) as run, pytest.raises(ContextOverflow):
        run.go()
    assert len(run.server.requests) == 1


def test_an_answer_that_outgrows_the_context_is_not_begun_again() -> None:
    begun = {"choices": [{"index": 0, "delta": {"content": "Once"}}]}
    full = {"error": {"code": 500, "message": "Context size has been exceeded."}}
    broken = Reply(raw="".join(f"data: {json.dumps(event)}\n\n" for event in (begun, full)))
    with running(Reply(calls=[("read", {})]), broken, Reply("Twice.")) as run:
        run.loop.tools = ToolRegistry([Tool("read", "", {}, lambda a, s: "x" * 9_000)])
        with pytest.raises(ContextOverflow):
            run.go()
    assert "".join(run.heard) == "Once"


def test_a_call_that_was_cut_off_says_so_to_the_model() -> None:
    with running(Reply(calls=[("look", '{"at": "se')], finish="length"), Reply("Sorry.")) as run:
        run.go()
    assert "cut off at the limit of tokens" in run.kept[1]["content"]


@pytest.mark.parametrize(
    ("name", "sent"), [(" look\n", "look"), ("functions.fly", "functions_fly"), ("", "unnamed")]
)
def test_a_name_that_no_server_takes_back_is_not_sent_back(name: str, sent: str) -> None:
    with running(Reply(calls=[(name, {})]), Reply("Sorry.")) as run:
        run.go()
    assert run.server.requests[1]["messages"][1]["tool_calls"][0]["function"]["name"] == sent
    assert ("error" in json.loads(run.kept[1]["content"])) is (sent != "look")


def test_an_interrupted_tool_leaves_a_call_with_a_result() -> None:
    started, release = threading.Event(), threading.Event()

    def hang(arguments: Mapping[str, Any], session: Session) -> str:
        started.set()
        release.wait(10)
        return "late"

    with running(Reply(calls=[("hang", {}), ("hang", {})])) as run:
        run.loop.tools = ToolRegistry([Tool("hang", "", {}, hang)])
        threading.Thread(target=lambda: (started.wait(10), run.cancel.set())).start()
        with pytest.raises(Cancelled):
            run.go()
        release.set()
    assert [m["content"] for m in run.kept[1:]] == [INTERRUPTED_RESULT, INTERRUPTED_RESULT]


def test_calls_that_may_run_side_by_side_do_and_their_results_keep_the_order() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def meet(arguments: Mapping[str, Any], session: Session) -> str:
        meeting.wait()
        threading.Event().wait(0.05 * (3 - arguments["at"]))  # the last one ends first
        return f"met {arguments['at']}"

    calls = [("look", {"at": 0}), *(("meet", {"at": number}) for number in (1, 2, 3)), ("look", {"at": 4})]
    with running(Reply(calls=calls), Reply("Done.")) as run:
        run.loop.tools = ToolRegistry([Tool("look", "", {}, look), Tool("meet", "", {}, meet, parallel=True)])
        assert run.go() == "Done."
    said = [m["content"] for m in run.kept if m["role"] == "tool"]
    assert said == ['{"seen": 0}', "met 1", "met 2", "met 3", '{"seen": 4}']


@pytest.mark.parametrize("quick", [True, False])
def test_a_tool_that_ends_the_program_fails_where_calls_run_side_by_side(quick: bool) -> None:
    def leave(arguments: Mapping[str, Any], session: Session) -> str:
        raise SystemExit(2)

    with running(Reply(calls=[("leave", {}), ("leave", {})]), Reply("Done.")) as run:
        run.loop.tools = ToolRegistry([Tool("leave", "", {}, leave, quick=quick, parallel=True)])
        assert run.go() == "Done."
    said = [json.loads(m["content"])["error"] for m in run.kept if m["role"] == "tool"]
    assert said == ["tool 'leave' failed: SystemExit: 2"] * 2


def test_calls_that_may_not_run_side_by_side_follow_one_another() -> None:
    running_now: list[int] = []

    def alone(arguments: Mapping[str, Any], session: Session) -> str:
        running_now.append(1)
        threading.Event().wait(0.02)
        busy = len(running_now)
        running_now.pop()
        return str(busy)

    with running(Reply(calls=[("alone", {})] * 3), Reply("Done.")) as run:
        run.loop.tools = ToolRegistry([Tool("alone", "", {}, alone)])
        run.go()
    assert [m["content"] for m in run.kept if m["role"] == "tool"] == ["1", "1", "1"]


def test_an_interrupt_ends_all_that_run_side_by_side() -> None:
    started, release = threading.Semaphore(0), threading.Event()

    def hang(arguments: Mapping[str, Any], session: Session) -> str:
        started.release()
        release.wait(10)
        return "late"

    with running(Reply(calls=[("hang", {}), ("hang", {})])) as run:
        run.loop.tools = ToolRegistry([Tool("hang", "", {}, hang, parallel=True)])
        threading.Thread(target=lambda: (started.acquire(), started.acquire(), run.cancel.set())).start()
        with pytest.raises(Cancelled):
            run.go()
        release.set()
    assert [m["content"] for m in run.kept[1:]] == [INTERRUPTED_RESULT, INTERRUPTED_RESULT]


def test_a_stream_that_breaks_off_keeps_what_was_seen() -> None:
    with running(Reply("Once upon a time", cut_after=3)) as run, pytest.raises(ModelUnavailable):
        run.go()
    assert run.kept == [{"role": "assistant", "content": "Once upon a time"}]


class Echo:
    """A model that repeats the fence, cut anywhere."""

    name = "echo"
    context_length = 1000

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def complete(self, messages: Any, tools: Any, *, on_text: Any, cancel: Cancel) -> Answer:
        for piece in self.pieces:
            on_text(piece)
        return Answer("".join(self.pieces))


@settings(max_examples=rounds(200))
@given(st.lists(st.integers(0, len(FENCE) + 12), max_size=6))
def test_a_fence_that_the_model_repeats_is_never_shown_however_the_stream_is_cut(cuts: list[int]) -> None:
    text = f"Well. {FENCE} Done."
    ends = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
    heard: list[str] = []
    kept: list[ChatMessage] = []
    exchange = ToolLoop(Echo(pieces), TOOLS, SESSION, Cancel(), 5, kept.append, heard.append)
    answer = exchange.run([])
    assert answer == "".join(heard) == kept[0]["content"]
    assert "4711" not in answer
    assert answer.split() == ["Well.", "Done."]


def test_every_single_cut_of_the_fence_over_http_hides_it() -> None:
    text = f"A {FENCE} B"
    with running(*[Reply(text, chunk=[cut]) for cut in range(1, len(text))]) as run:
        for _ in range(1, len(text)):
            assert run.go().split() == ["A", "B"]


def test_a_fence_in_the_arguments_of_a_call_is_neither_run_nor_kept() -> None:
    with running(Reply(calls=[("look", {"at": f"here {FENCE}"})]), Reply("Ok")) as run:
        run.go()
    assert "4711" not in json.dumps(run.kept)


def test_a_fence_in_the_models_thoughts_is_not_kept() -> None:
    with running(Reply(f"<think>So {FENCE} then</think>Ok")) as run:
        assert run.go() == "Ok"
    assert run.kept[0]["reasoning"].split() == ["So", "then"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Tea or coffee?\n</think>\n\nTea.", "Tea."),
        ("The tags are <think> and </think>\n\nTea.", "The tags are <think> and </think>\n\nTea."),
        ("```\n</think>\n```\n\nTea.", "```\n</think>\n```\n\nTea."),
    ],
)
def test_thoughts_whose_beginning_the_server_left_out_are_seen_and_not_kept(text: str, kept: str) -> None:
    with running(Reply(text)) as run:
        assert run.go() == kept
    assert [message["content"] for message in run.kept] == [kept]


def test_the_todo_list_belongs_to_its_session() -> None:
    belt = ToolRegistry([todo_tool()])
    new = json.dumps({"todos": [{"content": "eat", "status": "odd"}, "sleep", 7]})
    belt.call(ToolRequest("1", "todo", new), SESSION, Cancel())
    mine = json.loads(belt.call(ToolRequest("2", "todo", ""), SESSION, Cancel()))
    other = json.loads(belt.call(ToolRequest("3", "todo", "{}"), Session("s2"), Cancel()))
    assert mine == {"todos": [{"content": step, "status": "pending"} for step in ("eat", "sleep")]}
    assert other == {"todos": []}


def test_facts_for_a_task_may_come_as_data() -> None:
    belt = ToolRegistry([delegate_tool(lambda task, context: f"{task} {context}")])
    told = belt.call(
        ToolRequest("1", "delegate_task", '{"task": "Go.", "context": {"at": "sea"}}'), SESSION, Cancel()
    )
    assert json.loads(told) == {"report": 'Go. {"at": "sea"}'}


def test_a_long_result_is_cut_in_the_middle() -> None:
    belt = ToolRegistry([Tool("long", "", {}, lambda a, s: "x" * 500)], result_limit=90)
    assert "410 characters left out" in belt.call(ToolRequest("1", "long", ""), SESSION, Cancel())


def test_a_long_error_is_cut_too() -> None:
    def fail(arguments: Mapping[str, Any], session: Session) -> str:
        raise ValueError("x" * 500)

    told = ToolRegistry([Tool("fail", "", {}, fail)], result_limit=90).call(
        ToolRequest("1", "fail", ""), SESSION, Cancel()
    )
    assert "410 characters left out" in json.loads(told)["error"]


def test_a_result_that_is_no_text_is_read_as_json() -> None:
    belt = ToolRegistry([Tool("odd", "", {}, lambda a, s: {"at": SESSION.id, "no": None, "é": {1}})])
    told = belt.call(ToolRequest("1", "odd", ""), SESSION, Cancel())
    assert told == '{"at": "s1", "no": null, "é": "{1}"}'
    belt = ToolRegistry([Tool("odd", "", {}, lambda a, s: {(1, 2): 3})])
    assert "error" in json.loads(belt.call(ToolRequest("1", "odd", ""), SESSION, Cancel()))


def test_an_async_tool_is_refused_at_once() -> None:
    async def later(arguments: Mapping[str, Any], session: Session) -> str:
        return "late"

    with pytest.raises(ConfigError, match="'later' is async"):
        Tool("later", "", {}, later)
    belt = ToolRegistry([Tool("later", "", {}, lambda arguments, session: later(arguments, session))])
    assert "gave a coroutine" in belt.call(ToolRequest("1", "later", ""), SESSION, Cancel())


def test_a_tool_that_gives_its_result_bit_by_bit_is_an_error() -> None:
    belt = ToolRegistry([Tool("slow", "", {}, lambda arguments, session: (word for word in ("Not", "yet")))])
    assert "gave a generator" in belt.call(ToolRequest("1", "slow", ""), SESSION, Cancel())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parameters": {"type": "array"}}, "'array', not an object"),
        ({"parameters": {"properties": {"at": {"default": {1}}}}}, "can't be written as JSON"),
        ({"parameters": ["at"]}, "a list for its parameters"),
        ({"description": None}, "a NoneType for its description"),
        ({"name": 5}, "a int for its name"),
        ({"run": "look"}, "a str for its run"),
        ({"toolset": ["host"]}, "a list for its toolset"),
    ],
)
def test_a_tool_whose_schema_fails_every_request_is_refused_at_once(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Tool(**{"name": "look", "description": "", "parameters": {}, "run": look, **given})


def test_why_a_tool_failed_stands_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    TOOLS.call(ToolRequest("1", "explode", ""), SESSION, Cancel())
    assert "in explode" in caplog.text


@pytest.mark.parametrize("name", ["get weather", "", "häuser", "x" * 65, "files.read"])
def test_a_tool_of_a_name_that_fails_every_request_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match="up to 64 letters"):
        Tool(name, "", {}, look)


@pytest.mark.parametrize("schema", [{}, "look", {"description": "Look."}, {"function": {"name": "look"}}])
def test_a_schema_that_names_no_tool_makes_none(schema: Any) -> None:
    with pytest.raises(ConfigError, match="its name"):
        Tool.of(schema, look, "host")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="look"):
        ToolRegistry([Tool("look", "", {}, look), Tool("look", "", {}, look)])


def test_only_enabled_toolsets_are_offered() -> None:
    assert [s["name"] for s in ToolRegistry([Tool("look", "", {}, look), todo_tool()], {"todo"}).schemas] == [
        "todo"
    ]


CHATS = st.lists(
    st.one_of(
        st.just({"role": "user", "content": "u"}),
        st.builds(
            lambda ids: {"role": "assistant", "content": "", "tool_calls": [{"id": i} for i in ids]},
            st.lists(st.sampled_from("abc"), unique=True, max_size=3),
        ),
        st.builds(lambda i: {"role": "tool", "tool_call_id": i, "content": "r"}, st.sampled_from("abc")),
    )
)


@given(CHATS)
def test_whatever_a_crash_left_every_call_has_one_answer_and_each_speaker_one_message(
    messages: list[ChatMessage],
) -> None:
    waiting: list[str] = []
    before = ""
    for message in repair_messages(messages):
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert waiting == []
            assert message["role"] != before
            assert (message["role"], before) != ("user", "tool")  # Mistral wants an answer in between
            waiting = [call["id"] for call in message.get("tool_calls", ())]
        before = message["role"]
    assert waiting == []


def test_two_messages_of_a_person_become_one_with_all_that_was_said() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    asked = [{"role": "user", "content": text} for text in ("One", "", "two", [picture])]
    assert repair_messages(asked[:3]) == [{"role": "user", "content": "One\n\ntwo"}]
    assert repair_messages(asked)[0]["content"] == [{"type": "text", "text": "One\n\ntwo"}, picture]


def test_the_prompt_stands_in_its_order() -> None:
    prompt = system_prompt(
        {"memory", "session_search", "skill_manage"},
        identity="I am.",
        instructions="Be kind.",
        memory="MEMORY block",
        skills="- a/b: c",
        context_file="AGENTS.md says",
        platform="telegram",
    )
    order = [
        "I am.",
        "`memory` tool",
        "session_search",
        "skill_manage",
        "Be kind.",
        "MEMORY block",
        "- a/b: c",
    ]
    places = [prompt.index(text) for text in [*order, "AGENTS.md says", "Telegram"]]
    assert places == sorted(places)


def test_without_a_tool_the_prompt_says_nothing_of_it() -> None:
    assert "`memory`" not in system_prompt({"todo"})
