"""Two people on one gateway process, in any order: neither is ever shown what is the other's.

Each turn an agent is built anew, as a gateway does. All that the model is sent in a turn of one person, by the turn
itself or by a review behind it, is searched for the other's word.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hermes_core.errors import SessionError
from hermes_core.memory import Memory
from hermes_memory_agent import Agent
from hermes_memory_testing.model_server import Reply
from tests.rounds import rounds

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

WORDS = {"ann": "ZEBRA", "bob": "WALRUS"}
OTHER = {"ann": "bob", "bob": "ann"}
CONFIG = "memory: {nudge_interval: 3, flush_min_turns: 2}\nrecall: {sessions: %s}\n"

SKILL = "---\nname: words\ndescription: {}\n---\n\nSay the word.\n"

WRITTEN_FOR_HERMES_AGENT = '''
"""Keeps session, person and what was said on itself, and prepares recall on a thread of its own, as published ones do."""
import json
import threading

from agent.memory_provider import MemoryProvider


class SelfKeeping(MemoryProvider):
    @property
    def name(self):
        return "self-keeping"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self._session_id = session_id
        self._user_id = kwargs.get("user_id", "")
        self._kept = []
        self._prefetched = ""
        self._thread = None

    def get_tool_schemas(self):
        return [{"name": "sk_remember", "description": "Keep a fact.", "parameters": {
            "type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}}]

    def system_prompt_block(self):
        return f"You remember for {self._user_id or 'somebody'}."

    def prefetch(self, query, *, session_id=""):
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        found, self._prefetched = self._prefetched, ""
        return found or "\\n".join(self._kept[-3:])

    def queue_prefetch(self, query, *, session_id=""):
        def work():
            self._prefetched = "\\n".join(self._kept[-5:])
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        self._kept.append(user_content)

    def handle_tool_call(self, tool_name, args, **kwargs):
        self._kept.append(args["fact"])
        return json.dumps({"kept": len(self._kept), "for": self._user_id})

    def on_memory_write(self, action, target, content, metadata=None):
        self._kept.append(content)

    def on_session_end(self, messages):
        self._kept.append(f"They spoke {len(messages)} times.")

    def on_session_switch(self, new_session_id, *, parent_session_id="", reset=False, **kwargs):
        self._session_id = new_session_id
        if reset:
            self._kept = []


def register(ctx):
    ctx.register_memory_provider(SelfKeeping())
'''


def self_keeping(stage: Stage) -> str:
    """A provider as they are published for Hermes Agent; its name."""
    folder = stage.home / "plugins" / "self-keeping"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(WRITTEN_FOR_HERMES_AGENT)
    return "self-keeping"


PROVIDERS: dict[str, Callable[[Stage], str]] = {
    "holographic": lambda _: "holographic",
    "self-keeping": self_keeping,
}
REMEMBER = {
    "holographic": ("fact_store", "content", {"action": "add"}),
    "self-keeping": ("sk_remember", "fact", {}),
}
ACTIONS = ("tell", "keep", "note", "skill", "ask", "search", "browse", "end")


def model(provider: str) -> Callable[[dict[str, Any]], Reply]:
    """A model that does what the person's last message names, and saves the person's word in each review."""
    tool, argument, more = REMEMBER[provider]

    def answer(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]
        said = str(last["content"])
        if last["role"] != "user":
            return Reply("Done.")
        if "not from the person" in said:
            found = re.findall("|".join(f"{word}-[0-9]+" for word in WORDS.values()), json.dumps(request))
            note = {
                "action": "add",
                "target": "memory",
                "content": f"Reviewed {found[-1] if found else 'nothing'}",
            }
            return Reply(calls=[("memory", note)])
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "keep": (tool, {**more, argument: said}),
            "note": ("memory", {"action": "add", "target": "user", "content": said}),
            "skill": ("skill_manage", {"action": "create", "name": "words", "content": SKILL.format(said)}),
            "search": ("session_search", {"query": "word"}),
            "browse": ("session_search", {}),
        }
        name = said.split()[0].lower().rstrip(":")
        return Reply(calls=[calls[name]]) if name in calls else Reply("Yes.")

    return answer


@dataclass
class Gateway:
    """One process, one memory; `requests` of a turn are those that reached the model since `seen`."""

    stage: Stage
    memory: Memory
    turns: int = 0
    recalled: int = 0
    sessions: dict[str, str] = field(default_factory=dict)

    def turn(self, user: str, action: str) -> None:
        self.turns += 1
        seen = len(self.stage.server.requests)
        agent = self.agent(user)
        word = f"{WORDS[user]}-{self.turns}"
        result = agent.run_turn(f"{action.capitalize()}: my word is {word}.")
        assert result.outcome == "answered"
        assert agent.wait_for_review(10)
        if action == "end":
            agent.new()
        self.sessions[user] = agent.session.id
        assert self.memory.flush(30)
        for request in self.stage.server.requests[seen:]:
            sent = json.dumps(request)
            assert WORDS[OTHER[user]] not in sent, f"{user} was shown what is {OTHER[user]}'s"
            self.recalled += "<memory-context>" in str(request["messages"])

    def agent(self, user: str) -> Agent:
        session = self.sessions.get(user, f"first-of-{user}")
        who = {"platform": "telegram", "user_id": user, "chat_id": user}
        return Agent(self.memory, self.stage.model(), session_id=session, **who)

    def probe(self, user: str) -> None:
        """Ask for the other's word itself, by every way that leads to memory."""
        agent, other = self.agent(user), OTHER[user]
        report = self.memory.recall(f"{WORDS[other]} word", session=agent.session)
        assert [found.text for found in report.results if WORDS[other] in found.text] == []
        for arguments in ({"query": WORDS[other]}, {}, {"session_id": self.sessions[other]}):
            answer = self.memory.call_tool(agent.session, "session_search", arguments)
            assert WORDS[other] not in answer.replace(f'"query": "{WORDS[other]}"', "")
        notes, skills = self.memory.curated.of(agent.session), agent.skills
        for target in notes.enabled_targets:
            assert all(WORDS[other] not in entry for entry in notes.entries(target))
        assert skills is not None
        assert all(WORDS[other] not in skill.document.description for skill in skills.skills())
        assert not any(WORDS[other] in str(change.after) for change in skills.history())
        with pytest.raises(SessionError):
            agent.resume(self.sessions[other])
        stored = [entry.session for entry in self.memory.sessions.list_sessions(everybody=True, limit=1000)]
        mine = [one for one in stored if one.user == agent.session.owner]
        assert mine
        assert all(WORDS[other] not in one.title for one in mine)
        own_titles = {one.title for one in mine}
        others_titles = [one.title for one in stored if one.title and one.title not in own_titles]
        for title in others_titles:
            with pytest.raises(SessionError):
                agent.resume(title)


def opened(stage: Stage, provider: str, sessions: str = "on_request") -> Gateway:
    stage.config(CONFIG % sessions)
    stage.script(model(provider))
    return Gateway(stage, stage.open_memory(PROVIDERS[provider](stage)))


@pytest.mark.shortened
@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_hundred_turns_of_two_people_show_neither_what_is_the_others(stage: Stage, provider: str) -> None:
    gateway, dice = opened(stage, provider), random.Random(2026)
    turns = rounds(200)
    for _ in range(turns):
        gateway.turn(dice.choice(list(WORDS)), dice.choice(ACTIONS))
    for user in WORDS:
        gateway.turn(user, "note")
    for user in WORDS:
        gateway.probe(user)
        profile = gateway.memory.curated.of(gateway.agent(user).session).entries("user")
        assert any(WORDS[user] in entry for entry in profile), "each keeps their own"
    assert gateway.recalled > turns / 4
    assert gateway.memory.problems() == []


STEPS = st.lists(st.tuples(st.sampled_from(sorted(WORDS)), st.sampled_from(ACTIONS)), min_size=2, max_size=12)


@pytest.mark.shortened
@pytest.mark.parametrize("sessions", ["on_request", "auto"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_in_any_order_neither_sees_what_is_the_others(
    tmp_path_factory: pytest.TempPathFactory, provider: str, sessions: str
) -> None:
    from plugins.agent.tests.conftest import Stage

    @settings(
        max_examples=rounds(15),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=STEPS)
    def check(steps: list[tuple[str, str]]) -> None:
        stage = Stage(tmp_path_factory.mktemp("gateway") / "home")
        try:
            gateway = opened(stage, provider, sessions)
            for user, action in [("ann", "tell"), ("bob", "tell"), *steps]:
                gateway.turn(user, action)
            for user in WORDS:
                gateway.probe(user)
        finally:
            stage.close()

    check()
