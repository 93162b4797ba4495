"""Any life: whatever order things come in, nothing that was said is lost, and the provider hears each turn once.

What a person says, takes back, branches and compresses is written down beside the agent, and held against it: what the
conversation shows, what a new agent of the same session would show, what search finds, what the provider was told.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_core.contract.values import Message
from hermes_core.errors import BackendUnavailable, SessionError
from hermes_memory_agent import Agent, Tool
from hermes_memory_testing.fakes import RecordingProvider
from hermes_memory_testing.model_server import Reply
from plugins.agent.tests.conftest import Stage
from plugins.agent.tests.test_fresh_agents import is_summary_request
from tests.rounds import rounds

CONFIG = "memory: {nudge_interval: 0, flush_min_turns: 0}"
KINDS = ("answered", "with a tool", "noted", "failed", "stopped")
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "with a tool": ("session_search", {"query": "word"}),
    "stopped": ("stop", {}),
}

_SHOWING: dict[str, Callable[[dict[str, Any]], Iterable[Message]]] = {
    "prefetch": lambda given: given["query"].recent,
    "on_pre_compress": lambda given: given["messages"],
    "on_session_end": lambda given: given["reader"].messages(),
}
"""Where a provider is shown a part of the conversation."""


def model(request: dict[str, Any]) -> Reply:
    """Does what the person's last message names."""
    last = request["messages"][-1]
    if is_summary_request(request):
        return Reply("They spoke of words.")
    if last["role"] == "tool":
        return Reply("Done.")
    # A turn without an answer stands before it in the same message, what was recalled behind it.
    said = str(last["content"]).split("<memory-context>")[0]
    kind, word = re.findall(rf"({'|'.join(KINDS)}): (word[0-9]+)", said)[-1]
    if kind == "failed":
        return Reply(status=500)
    if kind == "noted":
        return Reply(calls=[("memory", {"action": "add", "target": "memory", "content": f"Of {word}."})])
    return Reply(calls=[CALLS[kind]]) if kind in CALLS else Reply("Yes.")


class Provider(RecordingProvider):
    """Takes turns, unless its backend is away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.taken: list[tuple[str, str, str]] = []
        self.shown: list[str] = []
        self.forgotten: set[str] = set()

    def answer(self, hook: str, **given: Any) -> Any:
        if self.away and hook in ("prefetch", "sync_turn", "on_session_end", "on_session_switch"):
            raise BackendUnavailable("nobody answers", "wait")
        if hook == "sync_turn":
            turn = given["turn"]
            self.taken.append((given["session"].id, turn.id, turn.user))
        if hook in _SHOWING:
            self.shown += asked_in(_SHOWING[hook](given))
        if hook == "on_session_switch":
            self.forgotten.update(given["switch"].rewound_turns)
        return super().answer(hook, **given)


@dataclass
class Said:
    """A message of the person, and what must have become of it."""

    word: str
    session: str
    told: bool
    undone: bool = False
    deleted: bool = False


@dataclass
class Written:
    """What a session should show: the person's messages, `whole` as long as none is left out or stands in a summary."""

    messages: list[Said] = field(default_factory=list)
    whole: bool = True
    prompt: str = ""


class AnyLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stage = Stage(self.folder / "home")
        self.stage.config(CONFIG)
        self.stage.script(model)
        self.stage.provider = self.provider = Provider()
        self.memory = self.stage.memory
        self.said: list[Said] = []
        self.written: dict[str, Written] = {}
        self.agent = self.fresh("life")

    def fresh(self, session_id: str, **given: Any) -> Agent:
        if session_id in self.written and self.memory.sessions.get_session(session_id) is None:
            self.written[session_id].prompt = ""  # nothing was said in it: it begins anew
        stop = Tool("stop", "Stop.", {}, lambda arguments, session: agent.interrupt())
        agent = self.stage.agent(self.memory, session_id=session_id, tools=[stop], **given)
        return agent

    @property
    def here(self) -> Written:
        return self.written.setdefault(self.agent.session.id, Written())

    # ----------------------------------------------------------------- what happens

    @rule(kind=st.sampled_from(KINDS))
    def speak(self, kind: str) -> None:
        self.said_by(self.agent, kind)

    @rule()
    def speak_without_memory(self) -> None:
        """Beside the agent, which is made anew and so sees it."""
        if not self.memory.sessions.get_messages(self.agent.session.id):
            return  # an empty session's row is made by its first turn
        self.said_by(self.fresh(self.agent.session.id, skip_memory=True), "answered", told=False)
        self.agent = self.fresh(self.agent.session.id)

    def said_by(self, agent: Agent, kind: str, told: bool = True) -> None:
        said = Said(f"word{len(self.said):04}", agent.session.id, told and kind not in ("failed", "stopped"))
        result = agent.run_turn(f"{kind}: {said.word}. {'And more of it. ' * 20}")
        assert result.outcome == {"failed": "failed", "stopped": "interrupted"}.get(kind, "answered")
        self.said.append(said)
        self.here.messages.append(said)

    @rule(turns=st.integers(1, 2))
    def take_back(self, turns: int) -> None:
        here = self.here
        try:
            again = self.agent.undo(turns)
        except SessionError:
            assert not here.whole or len(here.messages) < turns
            return
        gone = here.messages[-turns:]
        assert gone[0].word in again
        del here.messages[-turns:]
        for said in gone:
            said.undone |= said.session == self.agent.session.id

    @rule()
    def compress(self) -> None:
        before = self.here
        if self.agent.compress():
            self.here.messages = [said for said in before.messages if said.word in words(self.agent)]
            self.here.whole = False

    @rule()
    def branch(self) -> None:
        before = self.here
        self.agent.branch()
        self.here.messages = list(before.messages)
        self.here.whole = before.whole

    @rule(how=st.sampled_from(["new", "reset"]))
    def begin_anew(self, how: str) -> None:
        getattr(self.agent, how)()
        assert self.agent.history == ()

    @rule(number=st.integers(0, 30))
    def resume(self, number: int) -> None:
        if stored := self.stored():
            self.agent.resume(stored[number % len(stored)])

    @rule()
    def evict(self) -> None:
        self.agent.evict()

    @rule()
    def commit(self) -> None:
        self.agent.commit_memory_session()

    @rule()
    def go_on_with_a_new_agent(self) -> None:
        before = self.agent
        self.agent = self.fresh(before.session.id)
        if before.history:
            assert self.agent.history == before.history
            assert self.agent.prompt == before.prompt

    @rule()
    def the_backend_goes_away(self) -> None:
        self.provider.away = True

    @rule()
    def the_program_starts_again(self) -> None:
        self.provider.away = False
        session_id = self.agent.session.id
        self.memory.close()
        self.memory = self.stage.open_memory()
        self.agent = self.fresh(session_id)

    @rule(number=st.integers(0, 30))
    def delete(self, number: int) -> None:
        if others := [one for one in self.stored() if one != self.agent.session.id]:
            gone = others[number % len(others)]
            self.memory.delete_session(gone)
            for said in self.said:
                said.deleted |= said.session == gone

    def stored(self) -> list[str]:
        return [one for one in self.written if self.memory.sessions.get_session(one)]

    # ----------------------------------------------------------------- what must hold

    @invariant()
    def the_conversation_shows_what_was_said_in_it(self) -> None:
        if self.here.whole:
            assert words(self.agent) == [said.word for said in self.here.messages]

    @invariant()
    def the_prompt_of_a_session_stays_as_it_was(self) -> None:
        if self.agent.prompt:
            self.here.prompt = self.here.prompt or self.agent.prompt
            assert self.agent.prompt == self.here.prompt

    def teardown(self) -> None:
        try:
            self.the_program_starts_again()
            assert self.memory.flush(30)
            self.what_was_said_is_found()
            self.the_provider_heard_of_each_turn_once_and_in_order()
            assert self.stage.server.refused == []
        finally:
            self.stage.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def what_was_said_is_found(self) -> None:
        for said in self.said:
            if not (said.undone or said.deleted):
                assert self.memory.sessions.past.search(said.word), f"{said} is lost"

    def the_provider_heard_of_each_turn_once_and_in_order(self) -> None:
        taken = [(session, turn, words_in(user)[0]) for session, turn, user in self.provider.taken]
        ids = [turn for _, turn, _ in taken]
        assert len(ids) == len(set(ids))
        heard = {word: turn for _, turn, word in taken}
        for said in self.said:
            if not said.told:
                assert said.word not in {*heard, *self.provider.shown}, f"{said} is kept back"
            elif said.undone:
                assert said.word not in heard or heard[said.word] in self.provider.forgotten
            elif not said.deleted:
                assert said.word in heard, f"{said} never reached the provider"
        for session in {session for session, _, _ in taken}:
            of_session = [word for one, _, word in taken if one == session]
            assert of_session == sorted(of_session)


def words(agent: Agent) -> list[str]:
    return asked_in(agent.history)


def asked_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The words of the person's own messages; what a search found stands in those of tools."""
    return [word for m in messages if m["role"] == "user" for word in words_in(str(m["content"]))[:1]]


def words_in(text: str) -> list[str]:
    return re.findall(r"word[0-9]{4}", text)


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=rounds(12), stateful_step_count=25, phases=[Phase.generate])
