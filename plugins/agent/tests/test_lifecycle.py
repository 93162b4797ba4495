from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable, SessionError
from hermes_core.storage.leases import Lease
from hermes_memory_agent.answer import ChatMessage
from hermes_memory_agent.cancel import Cancel
from hermes_memory_agent.compression import SUMMARY_MARK, Compressed, Compressor
from hermes_memory_agent.lifecycle import EVENTS, JOINED, STEPS
from hermes_memory_testing.fakes import Clock
from hermes_memory_testing.model_server import Reply

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

HOOK_OF = {
    "initialize": "initialize",
    "pre_compress": "on_pre_compress",
    "session_end": "on_session_end",
    # The row of a switch is written with the rows of the sessions.
    "rotate": "on_session_switch",
    "reopen": "on_session_switch",
    "rewind": "on_session_switch",
    "prompt": "system_prompt_block",
    "shutdown": "shutdown",
}


class Engine:
    """A compressor that keeps the first and the last message, and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.memory_context = ""

    def compress(self, messages: Any, memory_context: str, cancel: Cancel) -> Compressed | None:
        self.told.append("compress")
        self.memory_context = memory_context
        summary: ChatMessage = {"role": "assistant", "content": f"{SUMMARY_MARK}\nTwo spoke."}
        return Compressed((messages[0], summary, messages[-1]), len(messages) - 2)

    def on_session_start(self, session: Session, boundary_reason: str) -> None:
        self.told.append(f"start {boundary_reason}")

    def on_session_end(self, session: Session) -> None:
        self.told.append("end")


def expected(event: Any, *, durable: bool, first: bool = False) -> list[str]:
    """The hooks that the table promises for an event, of one lane; `initialize` only once an instance."""
    hooks = [
        HOOK_OF[step] for step in EVENTS[event] if step in HOOK_OF and (event, step) != ("open", "reopen")
    ]
    return [hook for hook in hooks if POLICIES[hook].durable is durable and (first or hook != "initialize")]


def talk(agent: Any, turns: int = 1) -> None:
    for number in range(turns):
        agent.run_turn(f"Message {number}.")


def do(agent: Any, event: str) -> None:
    calls = {
        "rewind": agent.undo,
        "commit": agent.commit_memory_session,
        "shutdown": agent.shutdown_memory_provider,
        "cadence": agent._life.cadence,
        "crash": lambda: agent.end_crashed("crashed"),
    }
    calls.get(event, getattr(agent, event, None))()


END, SWITCH, PROMPT = "on_session_end", "on_session_switch", "system_prompt_block"


@pytest.mark.parametrize(
    ("event", "flushes", "writes", "reads", "engine", "ended", "moves"),
    [
        ("new", 1, [END, SWITCH], [PROMPT], ["end", "start new"], "new", True),
        ("reset", 1, [END, SWITCH], [PROMPT], ["end", "start reset"], "reset", True),
        ("resume", 1, [END, SWITCH], [], ["end", "start resume"], "resume", True),
        ("branch", 0, [END, SWITCH], [], ["end", "start branch"], "branch", True),
        ("rewind", 0, [SWITCH], [], [], "", False),
        (
            "compress",
            1,
            [END, SWITCH],
            ["on_pre_compress", PROMPT],
            ["compress", "end", "start compression"],
            "compression",
            True,
        ),
        ("cadence", 1, [END], [], [], "", False),
        ("commit", 0, [END], [], ["end"], "", False),
        ("evict", 1, [END], [], ["end"], "evict", False),
        ("close", 1, [END], [], ["end"], "close", False),
        ("shutdown", 1, [END], ["shutdown"], ["end"], "close", False),
    ],
)
def test_each_event_does_what_is_written_here_once_and_in_order(
    stage: Stage,
    event: str,
    flushes: int,
    writes: list[str],
    reads: list[str],
    engine: list[str],
    ended: str,
    moves: bool,
) -> None:
    """`flushes` are requests to the model, `writes` and `reads` the provider's hooks of each lane, `engine` is what the
    compressor was told, `ended` how state.db has the session that was the agent's, which `moves` to another one."""
    stage.config("memory: {flush_min_turns: 2, nudge_interval: 0}")
    compressor = Engine()
    agent = stage.agent(compressor=compressor)
    first = agent.session.id
    warmed = 2
    if event == "resume":
        talk(agent)
        assert stage.provider.wait_for("queue_prefetch")
        agent.new()
        warmed = 3
    talk(agent, 2)
    assert stage.provider.wait_for("queue_prefetch", warmed)
    stage.told(durable=True)
    stage.provider.calls.clear()
    compressor.told.clear()
    before, asked = agent.session.id, len(stage.server.requests)

    agent.resume(first) if event == "resume" else do(agent, event)

    assert (stage.told(durable=True), stage.told(durable=False)) == (writes, reads)
    assert (len(stage.server.requests) - asked, compressor.told) == (flushes, engine)
    row = stage.memory.sessions.get_session(before)
    assert row is not None
    assert (row.end_reason, row.ended_at is not None) == (ended, bool(ended))
    assert (agent.session.id != before) is moves


def test_a_start_initializes_once_and_asks_for_the_prompt(stage: Stage) -> None:
    stage.agent()
    setup = ["is_available", "get_tool_schemas"]
    assert stage.told(durable=False) == setup + expected("start", durable=False, first=True)


def test_a_resume_ends_the_session_that_is_left_and_restores_the_other(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent)
    first, prompt = agent.session.id, agent.prompt
    agent.new()
    talk(agent)
    second = agent.session.id
    stage.told(durable=True)
    stage.provider.calls.clear()
    agent.resume(first[:12])
    assert stage.told(durable=True) == expected("resume", durable=True)
    (call,) = stage.provider.of("on_session_switch")
    assert (call["switch"].old.id, call["switch"].new.id, call["switch"].reason) == (second, first, "resume")
    assert agent.prompt == prompt
    assert [m["content"] for m in agent.history] == ["Message 0.", "Yes."]
    row = stage.memory.sessions.get_session(first)
    assert row is not None
    assert row.ended_at is None


def test_a_whole_life_is_told_in_order_and_each_thing_once(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine())
    began = agent.session.id
    talk(agent, 3)
    agent.compress()
    talk(agent)
    agent.branch()
    talk(agent)
    assert stage.memory.flush()  # what was not sent yet is dropped by undo, and never told
    agent.undo()
    agent.reset()
    talk(agent)
    agent.resume(began)
    agent.close()
    turn, switch, end = "sync_turn", "on_session_switch", "on_session_end"
    assert stage.told(durable=True) == [
        *(turn, turn, turn),
        *(end, switch),  # compress
        turn,
        *(end, switch),  # branch
        turn,
        switch,  # undo
        switch,  # reset; the only turn of the branch was taken back, so it has no end to tell of
        turn,
        *(end, switch),  # resume
    ]  # close: nothing was said since the end that was told when the branch left
    ends = [(c["session"].id, c["reason"]) for c in stage.provider.of("on_session_end")]
    assert len(ends) == len(set(ends))
    reasons = [c["switch"].reason for c in stage.provider.of("on_session_switch")]
    assert reasons == ["compression", "branch", "rewind", "reset", "resume"]
    ids = [c["turn"].id for c in stage.provider.of("sync_turn")]
    assert len(ids) == len(set(ids)) == 6


def test_an_end_comes_before_the_switch_and_after_the_turns_of_its_session(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent, 2)
    agent.new()
    assert stage.told(durable=True) == ["sync_turn", "sync_turn", "on_session_end", "on_session_switch"]
    (end,) = stage.provider.of("on_session_end")
    assert len(end["reader"].messages()) == 4


def test_a_session_without_turns_has_no_end_to_tell_of(stage: Stage) -> None:
    agent = stage.agent()
    agent.new()
    assert stage.told(durable=True) == ["on_session_switch"]
    (call,) = stage.provider.of("on_session_switch")
    assert call["switch"].reset


def test_the_same_end_is_told_once(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent)
    agent.commit_memory_session()
    agent.evict()
    agent.close()
    assert stage.told(durable=True).count("on_session_end") == 1


def test_the_engine_is_told_in_the_order_of_the_table(stage: Stage) -> None:
    engine = Engine()
    stage.provider.results["on_pre_compress"] = "Keep the cat's name."
    agent = stage.agent(compressor=engine)
    talk(agent, 2)
    agent.compress()
    agent.new()
    agent.close()
    assert engine.told == ["start start", "compress", "end", "start compression", "end", "start new", "end"]
    assert engine.memory_context == "Keep the cat's name."


def test_a_compression_goes_on_in_a_child_that_the_list_shows_as_one_entry(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine())
    talk(agent, 3)
    parent, prompt = agent.session, agent.prompt
    stage.memory.curated.add("user", "Lives in Oslo.")
    assert agent.compress()
    sessions = stage.memory.sessions
    old, new = sessions.get_session(parent.id), sessions.get_session(agent.session.id)
    assert old is not None
    assert new is not None
    assert (old.end_reason, new.parent_id, new.relation) == ("compression", parent.id, "compression")
    assert (old.title, new.title) == ("Message 0.", "Message 0. #2")
    assert agent.prompt != prompt
    assert "Oslo" in agent.prompt
    assert [entry.session.id for entry in sessions.list_sessions()] == [agent.session.id]
    assert agent.history[0]["content"] == "Message 0."
    agent.run_turn("And on.")
    assert agent.history[-1]["content"] == "Yes."
    stage.told(durable=True)
    assert stage.provider.of("sync_turn")[-1]["session"].id == agent.session.id
    assert sessions.past.search("Message 1")


def test_what_a_compression_carries_along_is_found_once_and_told_once(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine())
    talk(agent, 2)
    began = agent.session.id
    for number in range(2, 5):
        agent.compress()
        agent.run_turn(f"Message {number}.")
    sessions = stage.memory.sessions
    assert [hit.session_id for hit in sessions.past.search('"Message 0"')] == [began]
    assert agent.history[0]["content"] == sessions.get_messages(agent.session.id)[0].content == "Message 0."
    agent.close()
    stage.told(durable=True)
    ends = [call["reader"].messages() for call in stage.provider.of("on_session_end")]
    told = [m["content"] for messages in ends for m in messages if m["role"] == "user"]
    assert told == [f"Message {number}." for number in range(5)]
    assert sessions.check() == []


def test_without_a_summary_nothing_moves_and_nothing_is_lost(stage: Stage) -> None:
    stage.config("agent: {protect_last: 1}")
    agent = stage.agent()
    talk(agent, 6)
    before = agent.session.id
    stage.script(Reply(status=500))
    assert not agent.compress()
    assert agent.session.id == before
    assert len(agent.history) < 12
    assert "left out" in json.dumps(agent.history)
    assert len(stage.memory.sessions.get_messages(before)) == 12
    assert "on_session_switch" not in stage.told(durable=True)
    assert "Message 2." not in json.dumps(agent.history)
    found = stage.memory.call_tool(agent.session, "session_search", {"query": '"Message 2"'})
    assert "Message 2." in found


def test_thirty_turns_in_a_small_context_are_compressed_and_nothing_is_forgotten(stage: Stage) -> None:
    agent = stage.agent(context_length=4096)
    stage.script(lambda request: Reply("word " * 100 if "tools" in request else "They spoke of words."))
    ids = []
    for number in range(1, 31):
        said = "The code of the safe is 4711." if number == 2 else f"Number {number}."
        assert agent.run_turn(said).outcome == "answered"
        ids.append(agent.session.id)
    assert 3 <= len(set(ids)) <= 11, "at least twice, and no oftener than each third turn"
    assert max(len(json.dumps(request["messages"])) for request in stage.server.requests) // 4 < 4096
    assert len(stage.memory.sessions.list_sessions()) == 1
    summaries = [request for request in stage.server.requests if "tools" not in request]
    assert "previous-summary" in json.dumps(summaries[-1])

    assert "Number 14." not in json.dumps(agent.history)
    found = stage.memory.call_tool(agent.session, "session_search", {"query": '"Number 14"'})
    assert "Number 14." in found, "it is searched by the conversation that it left"

    # The thirtieth turn starts a review, which would otherwise hear the answers meant for the next agent.
    assert agent.wait_for_review(10)
    other = stage.agent()
    stage.script(Reply(calls=[("session_search", {"query": "code of the safe"})]), Reply("4711."))
    other.run_turn("What was the code?")
    assert "4711" in other.history[2]["content"]
    results = stage.memory.recall("What is the code of the safe?").results
    assert any("4711" in result.text for result in results)


def test_a_session_that_another_process_compressed_goes_on_where_that_one_left_it(stage: Stage) -> None:
    one = stage.agent(compressor=Engine())
    talk(one, 2)
    two = stage.agent(compressor=Engine(), session_id=one.session.id)
    one.compress()
    assert two.compress()
    assert two.session.id == one.session.id
    assert two.history == one.history


def test_who_waits_for_another_that_compresses_can_be_interrupted(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine())
    talk(agent, 2)
    before = agent.session
    other = Lease(stage.memory.sessions.database, f"compress-{before.id}")
    assert other.take()
    threading.Timer(0.1, agent.interrupt).start()
    assert not agent.compress()
    other.release()
    assert agent.session == before


def test_undo_takes_turns_back_here_and_at_the_provider(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent, 3)
    stage.told(durable=True)
    ids = [call["turn"].id for call in stage.provider.of("sync_turn")]
    assert agent.undo(2) == "Message 1."
    stage.told(durable=True)
    (call,) = stage.provider.of("on_session_switch")
    assert list(call["switch"].rewound_turns) == ids[1:]
    assert (call["switch"].old, call["switch"].reason) == (agent.session, "rewind")
    assert [m["content"] for m in agent.history] == ["Message 0.", "Yes."]
    assert not stage.memory.sessions.past.search('"Message 2"')
    with pytest.raises(SessionError, match="of 2 turns only 1"):
        agent.undo(2)


def test_what_is_taken_back_names_the_session_no_longer(stage: Stage) -> None:
    title = lambda: stage.memory.sessions.get_session(agent.session.id).title  # noqa: E731
    stage.agent().run_turn("Hello.")
    agent = stage.agent()
    talk(agent, 2)
    agent.undo()
    assert title() == "Message 0."
    agent.undo()
    assert title() == ""
    agent.run_turn("Hello.")
    assert title() == "Hello. #2"
    agent.undo()
    assert title() == ""


def test_undo_takes_nothing_back_that_another_process_said(stage: Stage) -> None:
    mine = stage.agent()
    talk(mine, 1)
    other = stage.agent(session_id=mine.session.id)
    other.run_turn("Said elsewhere.")
    with pytest.raises(SessionError, match="another process added messages"):
        mine.undo()
    assert stage.memory.sessions.past.search('"said elsewhere"')
    mine.run_turn("Said here.")
    assert mine.undo() == "Said here."
    assert mine.problems == (JOINED,)
    assert [m["content"] for m in mine.history if m["role"] == "user"] == ["Message 0.", "Said elsewhere."]
    assert mine.undo() == "Said elsewhere.", "now it is seen here"


@pytest.mark.parametrize("said", ["caf\udce9 \0", [{"type": "text", "text": "What is this?"}, PICTURE]])
def test_whatever_was_said_is_known_again_when_it_is_taken_back(stage: Stage, said: Any) -> None:
    agent = stage.agent()
    agent.run_turn(said)
    agent.undo()
    agent.run_turn(said)
    stage.agent(session_id=agent.session.id).undo()
    assert stage.memory.sessions.get_messages(agent.session.id) == []


@pytest.mark.parametrize("turns", [0, -1, "1", None, 1.0])
def test_undo_of_what_is_no_number_of_turns_takes_nothing_back(stage: Stage, turns: Any) -> None:
    agent = stage.agent()
    agent.run_turn("Hello.")
    with pytest.raises(SessionError, match=rf"turns must be 1 or more, got {turns!r}"):
        agent.undo(turns)
    assert len(agent.history) == 2


def test_undo_reaches_back_to_a_compression_and_no_further(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine())
    talk(agent, 3)
    agent.compress()
    agent.run_turn("Since then.")
    assert agent.undo() == "Since then."
    with pytest.raises(SessionError, match="no turn to undo"):
        agent.undo()


def test_a_branch_of_nothing_leaves_no_session_behind(stage: Stage) -> None:
    agent = stage.agent()
    agent.branch()
    agent.close()
    assert stage.memory.sessions.counts()["sessions"] == 0
    agent.run_turn("Hello.")
    alone = stage.memory.sessions.get_session(agent.session.id)
    assert alone is not None
    assert (alone.relation, alone.parent_id) == ("", "")


def test_a_branch_may_take_back_what_its_parent_keeps(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent, 2)
    parent = agent.session.id
    agent.branch()
    assert agent.undo() == "Message 1."
    stage.told(durable=True)
    assert stage.provider.of("on_session_switch")[-1]["switch"].rewound_turns == ()
    assert len(stage.memory.sessions.get_messages(parent)) == 4


def test_what_is_taken_back_where_it_was_said_leaves_the_provider_also_where_a_branch_keeps_it(
    stage: Stage,
) -> None:
    agent = stage.agent()
    talk(agent, 1)
    parent, said = agent.session.id, agent.run_turn("The code is 4711.").turn_id
    agent.branch()
    branch = agent.session.id
    agent.resume(parent)
    stage.told(durable=True)  # a turn that had not arrived would be withdrawn instead
    agent.undo()
    stage.told(durable=True)
    assert stage.provider.of("on_session_switch")[-1]["switch"].rewound_turns == (said,)
    assert "The code is 4711." in [m.content for m in stage.memory.sessions.get_messages(branch)]


def test_undo_before_the_turn_was_sent_lets_it_never_arrive(stage: Stage) -> None:
    gate = threading.Event()
    stage.provider.gates["sync_turn"] = gate
    agent = stage.agent()
    talk(agent, 2)
    agent.undo()
    gate.set()
    stage.told(durable=True)
    assert [call["turn"].user for call in stage.provider.of("sync_turn")] == ["Message 0."]


def test_a_branch_leaves_its_parent_as_it_is(stage: Stage) -> None:
    agent = stage.agent()
    talk(agent, 2)
    parent, prompt = agent.session.id, agent.prompt
    agent.branch()
    agent.run_turn("Another way.")
    assert agent.prompt == prompt
    sessions = stage.memory.sessions
    assert len(sessions.get_messages(parent)) == 4
    assert len(sessions.get_messages(agent.session.id)) == 6
    row = sessions.get_session(agent.session.id)
    assert row is not None
    assert (row.parent_id, row.relation) == (parent, "branch")
    stage.told(durable=True)
    assert len(stage.provider.of("sync_turn")) == 3


def test_a_chat_that_never_ends_is_told_by_turns_and_quiet(stage: Stage) -> None:
    stage.config("agent: {cadence_turns: 2, cadence_minutes: 10}")
    clock = Clock()
    agent = stage.agent(clock=clock)
    clock.now = stage.memory.sessions.get_session(agent.session.id).last_active  # type: ignore[union-attr]
    talk(agent, 3)
    assert "on_session_end" not in stage.told(durable=True)
    clock.advance(3600)
    talk(agent, 1)
    assert stage.told(durable=True).count("on_session_end") == 1
    assert stage.provider.of("on_session_end")[0]["reason"] == "cadence"
    clock.advance(3600)
    talk(agent, 1)
    assert stage.told(durable=True).count("on_session_end") == 1


def test_every_step_of_the_table_is_described() -> None:
    assert {step for steps in EVENTS.values() for step in steps} == set(STEPS)


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_runs_the_steps_of_the_table_in_order(
    stage: Stage, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    agent = stage.agent(compressor=Engine())
    began = agent.session.id
    talk(agent, 2)
    if event == "resume":
        agent.new()
    if event == "crash":
        stage.agent(session_id="crashed").run_turn("Hello.")
    with caplog.at_level("DEBUG", "hermes_memory_agent.lifecycle"):
        if event in ("start", "open"):
            stage.agent(session_id="" if event == "start" else began)
        elif event == "resume":
            agent.resume(began)
        else:
            do(agent, event)
    assert steps_of(caplog) == [(event, step) for step in EVENTS[event]]


def test_a_compression_without_a_summary_stops_before_the_session_ends(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    agent = stage.agent()
    talk(agent)
    with caplog.at_level("DEBUG", "hermes_memory_agent.lifecycle"):
        assert not agent.compress()
    assert steps_of(caplog) == [("compress", "can_shorten")]


def steps_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The event and the name of each step that ran."""
    return [
        record.args  # type: ignore[misc]
        for record in caplog.records
        if record.name == "hermes_memory_agent.lifecycle" and record.levelname == "DEBUG"
    ]


def test_ctrl_c_in_the_middle_of_a_passage_ends_its_step_and_the_rest_goes_on(
    stage: Stage,
) -> None:
    agent = stage.agent()
    agent.run_turn("Hello.")
    before = agent.session.id

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    agent._life.build_prompt = interrupted
    with pytest.raises(KeyboardInterrupt):
        agent.new()
    assert agent.session.id != before
    assert stage.told(durable=True)[-2:] == ["on_session_end", "on_session_switch"]


def test_ctrl_c_before_a_passage_changed_anything_leaves_everything_as_it_was(
    stage: Stage,
) -> None:
    agent = stage.agent()
    agent.run_turn("Hello.")
    before = agent.session.id

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    agent._reviewer.flush = interrupted
    with pytest.raises(KeyboardInterrupt):
        agent.new()
    assert agent.session.id == before
    assert stage.told(durable=True) == ["sync_turn"]
    with pytest.raises(KeyboardInterrupt):
        agent.close()
    stored = stage.memory.sessions.get_session(before)
    assert stored is not None
    assert stored.end_reason == "close", "who leaves does not stay"
    assert stage.told(durable=True) == ["sync_turn", "on_session_end"]


def test_what_could_not_be_stored_is_not_mistaken_for_the_turn_before_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise DatabaseUnavailable("the disk is full", "free space")

    agent = stage.agent()
    agent.run_turn("One.")
    with monkeypatch.context() as at_that_time:
        for method in ("append_message", "append_turn"):
            at_that_time.setattr(stage.memory.sessions, method, full)
        problems = agent.run_turn("Two.").problems
        assert [one.partition(":")[0] for one in problems] == [
            "storing a message failed",
            "storing the turn failed",
        ]
    with pytest.raises(SessionError, match="the last turn is not stored"):
        agent.undo()
    assert [m["content"] for m in agent.history] == ["One.", "Yes.", "Two.", "Yes."]
    agent.run_turn("Three.")
    assert agent.undo() == "Three."


def test_every_reason_that_a_compressor_is_told_is_named_to_its_author() -> None:
    told = [event for event, steps in EVENTS.items() if "compressor_start" in steps]
    named = re.findall(r"\w+", Compressor.on_session_start.__doc__ or "")
    assert [event for event in told if event.replace("compress", "compression") not in named] == []
