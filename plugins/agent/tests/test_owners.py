"""Who is who: the person at home, also from other platforms, and two users of the gateway, on every way to memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.errors import SessionError
from hermes_core.memory import Memory
from hermes_core.sessions.owners import stored_users
from hermes_memory_agent import Agent
from hermes_memory_mcp.memory_files import MemoryFiles
from hermes_memory_mcp.toolset import ToolSet
from hermes_memory_testing.model_server import Reply
from tests.rounds import ALL

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

HOME: dict[str, str] = {}
MEL = {"platform": "telegram", "user_id": "1", "chat_id": "1", "user_name": "Mel"}
ANN = {"platform": "telegram", "user_id": "42", "chat_id": "42"}
BOB = {"platform": "telegram", "user_id": "43", "chat_id": "43"}
CHAT = {"platform": "irc", "gateway_session_key": "#tea"}
OWNERS = "identity: {owners: ['telegram:1']}\n"
SKILL = "---\nname: {0}\ndescription: What {0} does\n---\n\nThe {0} way.\n"
STRANGERS = [
    ANN,
    BOB,
    CHAT,
    {"platform": "telegram", "chat_id": "1"},
    {"platform": "telegram", "user_name": "Mel"},
    {"platform": "telegram"},
    {"platform": "Telegram", "user_id": "1"},
    {"platform": "telegram ", "user_id": "1"},
    {"platform": "telegram", "user_id": "1\0"},
    {"platform": "telegram", "user_id": "１"},
    {"platform": "telegram", "user_id": ":1"},
    {"user_id": "telegram:1"},
    {"user_id": "1"},
    {"user_name": "Mel"},
    {"thread_id": "7"},
    {"platform": "", "user_id": ""},
    {"platform": "CLI"},
    {"platform": "cli", "chat_id": "1"},
    {"platform": "mcp", "user_id": ".."},
]


def fill(memory: Memory, who: dict[str, str], word: str) -> Session:
    """Store a turn, notes and a title with `word` in them."""
    session = memory.start_session(f"of-{word}", **who)
    memory.end_turn(session, f"My word is {word}.", "Noted.")
    memory.sessions.meta.set_title(session.id, f"About {word}")
    for target in ("memory", "user"):
        assert memory.change_memory("add", target, f"Says {word}", session=session)["success"]
    return session


def shown(memory: Memory, session: Session) -> str:
    """Return all that memory shows in a session, without an agent."""
    tools, files = ToolSet(memory, session), MemoryFiles(memory, session)
    parts = [
        memory.system_prompt(session),
        *(hit.text for hit in memory.recall("word", session=session).results),
        memory.begin_turn(session, "What was my word?").context,
        *(
            memory.call_tool(session, "session_search", asked)
            for asked in ({"query": "word"}, {}, {"query": "About"})
        ),
        tools.call("memory_read", {}).text,
        tools.call("recall", {"query": "word"}).text,
        tools.call("session_search", {"query": "word"}).text,
        *(str(tools.read_resource(uri)) for uri in tools.resources()),
        *(
            files.call({"command": "view", "path": f"/memories/{name}.md"}).text
            for name in ("MEMORY", "USER")
        ),
    ]
    return "\n".join(parts)


@pytest.mark.shortened
@pytest.mark.parametrize(
    ("config", "stranger"),
    [
        (config, stranger)
        for config in (OWNERS, "", "recall: {sessions: auto}\n")
        for stranger in (STRANGERS if ALL or config == OWNERS else STRANGERS[:4])
    ],
    ids=lambda value: json.dumps(value),
)
def test_nobody_else_is_shown_what_is_the_homes_or_another_users(
    stage: Stage, stranger: dict[str, str], config: str
) -> None:
    stage.config(config)
    memory = stage.open_memory("holographic")
    fill(memory, HOME, "ZEBRA")
    other = ANN if stranger is not ANN else BOB
    fill(memory, other, "WALRUS")
    assert memory.flush(30)
    own = fill(memory, stranger, "HERON")
    text = shown(memory, own)
    assert "HERON" in text
    assert "ZEBRA" not in text
    assert "WALRUS" not in text
    agent = stage.agent(memory, **stranger)
    for title in ("About ZEBRA", "About WALRUS", "of-ZEBRA", "of-WALRUS"):
        with pytest.raises(SessionError):
            agent.resume(title)


def test_an_owner_has_the_memory_of_the_home_from_every_platform(stage: Stage) -> None:
    stage.config(OWNERS)
    memory = stage.open_memory("holographic")
    at_home = fill(memory, HOME, "ZEBRA")
    fill(memory, ANN, "WALRUS")
    assert memory.flush(30)
    mel = memory.start_session("chat-1", **MEL)
    assert (mel.is_owner, mel.owner, mel.user_id) == (True, "", "1")
    assert "ZEBRA" in memory.system_prompt(mel)
    assert memory.change_memory("add", "memory", "Says HERON", session=mel)["success"]
    memory.end_turn(mel, "I am away.", "I see.")
    assert "Says HERON" in memory.curated.entries("memory")
    assert "ZEBRA" in shown(memory, mel)
    assert "I am away" in memory.call_tool(at_home, "session_search", {"query": "away"})
    agent = stage.agent(memory, **MEL)
    agent.resume("About ZEBRA")
    assert agent.session.id == at_home.id
    assert not any("WALRUS" in entry for entry in memory.curated.entries("user"))


def test_only_config_yaml_makes_an_owner(stage: Stage) -> None:
    stage.config(OWNERS)
    memory = stage.memory
    fill(memory, HOME, "ZEBRA")
    forged = Session("forged", platform="telegram", user_id="42", is_owner=True)
    assert "ZEBRA" not in shown(memory, forged)
    assert not memory.start_session("forged", **ANN).is_owner
    assert stage.agent(memory, **ANN, is_owner=True).session.owner == "telegram:42"


def test_sessions_from_before_the_id_was_listed_become_those_of_the_home(stage: Stage) -> None:
    with stage.open_memory() as before:
        fill(before, HOME, "ZEBRA")
        session = fill(before, MEL, "HERON")
        before.sessions.meta.set_title(session.id, "About ZEBRA")
        before.end_turn(before.start_session("unnamed", **MEL), "And my word is HERON.", "Yes.")
    stage.config(OWNERS)
    memory = stage.open_memory()
    again = memory.start_session("of-HERON", **MEL)
    assert again.id == "of-HERON"
    stored = {entry.session.id: entry.session for entry in memory.sessions.list_sessions(user="")}
    assert {*stored} == {"of-ZEBRA", "of-HERON", "unnamed"}
    assert stored["of-HERON"].title == "About ZEBRA #2"
    assert stored_users(memory.sessions.database) == []
    assert len(memory.sessions.get_messages(again.id)) == 2


@pytest.mark.parametrize(("before", "after"), [(OWNERS, ""), ("", OWNERS)])
def test_idle_sessions_end_also_if_the_owners_have_changed(stage: Stage, before: str, after: str) -> None:
    stage.config(before)
    with stage.open_memory() as memory:
        fill(memory, MEL, "HERON")
    stage.config(after)
    memory = stage.open_memory()
    assert memory.end_idle(0) == ["of-HERON"]
    stored = memory.sessions.get_session("of-HERON")
    assert stored is not None
    assert stored.end_reason == "evict"
    assert memory.end_idle(0) == []


# -------------------------------------------------------------------------------------------------------------- skills


def agents(stage: Stage, *people: dict[str, str]) -> list[Agent]:
    return [stage.agent(**who) for who in people]


def skill_tool(agent: Agent, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(agent.tools._tools[name].run(arguments, agent.session))
    return answer


def create_skill(agent: Agent, name: str) -> dict[str, Any]:
    arguments = {"action": "create", "name": name, "content": SKILL.format(name)}
    return skill_tool(agent, "skill_manage", arguments)


def test_users_have_skills_of_their_own_and_owners_those_of_the_home(stage: Stage) -> None:
    folder = stage.home / "external" / "team" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format("greet"))
    stage.config(f"{OWNERS}skills: {{external_dirs: [external]}}\n")
    at_home, mel, ann, bob = agents(stage, HOME, MEL, ANN, BOB)
    assert create_skill(at_home, "bake")["success"]
    assert create_skill(ann, "knit")["success"]
    assert create_skill(bob, "bake")["success"], "the name of the home's skill is free for others"
    names = [
        [skill["name"] for skill in skill_tool(agent, "skill_view", {})["skills"]]
        for agent in (mel, ann, bob)
    ]
    assert names == [["bake", "greet"], ["knit"], ["bake"]]
    for agent, unknown in ((ann, "bake"), (ann, "greet"), (bob, "knit"), (mel, "knit")):
        refused = skill_tool(agent, "skill_view", {"name": unknown})
        assert "there is no skill" in refused["error"]
        assert not skill_tool(agent, "skill_manage", {"action": "delete", "name": unknown})["success"]
    assert skill_tool(mel, "skill_manage", {"action": "delete", "name": "bake"})["success"]
    assert bob.skills is not None
    assert [change.action for change in bob.skills.history()] == ["create"]
    prompts = [agent.prompt for agent in agents(stage, ANN, BOB, HOME)]
    assert ["knit" in prompt for prompt in prompts] == [True, False, False]
    assert ["greet" in prompt for prompt in prompts] == [False, False, True]


def test_all_read_the_skills_of_the_shared_base(stage: Stage) -> None:
    folder = stage.home / "base" / "skills" / "team" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format("greet"))
    stage.config("memory: {shared_base: base}\n")
    for agent in agents(stage, HOME, ANN):
        assert "greet" in agent.prompt
        assert (
            "only read" in skill_tool(agent, "skill_manage", {"action": "delete", "name": "greet"})["error"]
        )
    assert stage.memory.problems() == []


def test_where_notes_are_shared_skills_are_too(stage: Stage) -> None:
    stage.config("memory: {per_user: false}\n")
    at_home, ann = agents(stage, HOME, ANN)
    assert create_skill(ann, "knit")["success"]
    assert at_home.skills is ann.skills


# ------------------------------------------------------------------------------------------------ reviews, delegation


def saving(word: str) -> Callable[[dict[str, Any]], Reply]:
    def answer(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]
        if last["role"] != "user" or "not from the person" not in str(last["content"]):
            return Reply("done")
        return Reply(
            calls=[
                ("memory", {"action": "add", "target": "memory", "content": f"Reviewed {word}"}),
                (
                    "skill_manage",
                    {"action": "create", "name": word.lower(), "content": SKILL.format(word.lower())},
                ),
            ]
        )

    return answer


def test_a_review_writes_to_the_notes_and_skills_of_its_own_user(stage: Stage) -> None:
    stage.config(f"{OWNERS}memory: {{nudge_interval: 1}}\n")
    for who, word in ((ANN, "WALRUS"), (BOB, "HERON"), (MEL, "ZEBRA")):
        stage.script(saving(word))
        agent = stage.agent(**who)
        assert agent.run_turn("Look at this.").outcome == "answered"
        assert agent.wait_for_review(10)
        assert stage.memory.curated.of(agent.session).entries("memory") == (f"Reviewed {word}",)
        assert agent.skills is not None
        assert [skill.name for skill in agent.skills.skills()] == [word.lower()]
    assert stage.memory.curated.entries("memory") == ("Reviewed ZEBRA",)
    assert [path.parent.name for path in (stage.home / "skills").rglob("SKILL.md")] == ["zebra"]


@pytest.mark.parametrize(("who", "owner"), [(MEL, ""), (ANN, "telegram:42")])
def test_a_subagent_has_the_owner_of_its_parent(stage: Stage, who: dict[str, str], owner: str) -> None:
    stage.config(OWNERS)
    agent = stage.agent(**who)
    agent.delegate("Count to three")
    rows = stage.memory.sessions.database.execute("SELECT s.user FROM sessions s WHERE source = 'subagent'")
    assert [row["user"] for row in rows] == [owner]


# ------------------------------------------------------------------------------------------------------------ upgrades


def test_the_first_turn_from_outside_says_that_nobody_is_named(stage: Stage) -> None:
    memory = stage.memory
    assert memory.change_memory("add", "memory", "Says ZEBRA")["success"]
    assert memory.begin_turn(memory.start_session(), "Hi").problems == ()
    first, second = (memory.begin_turn(memory.start_session(**who), "Hi").problems for who in (ANN, BOB))
    assert "hermes-memory identity add telegram:123" in first[0]
    assert second == ()
    assert not any("42" in problem for problem in first), "a stranger's id is not what to paste"


@pytest.mark.parametrize("config", [OWNERS, "memory: {per_user: false}\n", ""])
def test_a_home_that_needs_no_owner_says_nothing(stage: Stage, config: str) -> None:
    stage.config(config)
    if config:
        assert stage.memory.change_memory("add", "memory", "Says ZEBRA")["success"]
    assert stage.memory.begin_turn(stage.memory.start_session(**ANN), "Hi").problems == ()


def test_an_agent_says_it_in_the_result_of_the_turn(stage: Stage) -> None:
    assert stage.memory.change_memory("add", "memory", "Says ZEBRA")["success"]
    assert "identity add telegram:123" in stage.agent(**ANN).run_turn("Hi").problems[0]
    assert stage.agent(**ANN).run_turn("Hi").problems == ()


def test_shared_notes_stay_shared_and_warn_of_a_second_user(stage: Stage) -> None:
    stage.config("memory: {per_user: false}\n")
    memory = stage.memory
    ann = memory.start_session(**ANN)
    assert memory.begin_turn(ann, "Hi").problems == ()
    memory.end_turn(ann, "Hi", "Hello")
    assert memory.change_memory("add", "memory", "Says WALRUS", session=ann)["success"]
    bob = memory.start_session(**BOB)
    assert "memory.per_user is false" in memory.begin_turn(bob, "Hi").problems[0]
    assert memory.begin_turn(bob, "Hi").problems == ()
    assert "WALRUS" not in memory.system_prompt(bob)
    assert "(from a memory provider" in memory.begin_turn(bob, "Hi").context  # which ann's turn had read
    assert "Says WALRUS" in memory.begin_turn(bob, "Hi").context
    assert "ZEBRA" not in memory.call_tool(bob, "session_search", {"query": "Hi"})
