"""Ways on which a text that no person said may reach a later system prompt, each played with a model that obeys.

A way gets a `Scene` and the text, and lets the model store it. `Scene.later` then collects what later system prompts say:
of a new program, a new session, a child session, and after an undo and a compression.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hermes_core import HermesHome, Memory, OpenTurn, Recall, RecallItem, open_memory
from hermes_core.contract.values import Capabilities
from hermes_core.sessions.transfer import import_session, session_document
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel, Tool
from hermes_memory_mcp.toolset import ToolSet
from hermes_memory_testing.fakes import RecordingProvider
from hermes_memory_testing.model_server import ModelServer, Reply, Script

Trust = Literal["open", "guarded", "strict"]
STRANGER = {"platform": "telegram", "user_id": "66", "user_name": "Eve"}
SKILL = "---\nname: invoices\ndescription: {text}\n---\n# Invoices\n{text}\n"


class Scene:
    """A home with an agent whose model says what a way scripts.

    Args:
        folder: An empty folder.
        trust: Value of `memory.trust`.
        per_user: Value of `memory.per_user`.
        settings: Further settings of `memory`.
    """

    def __init__(self, folder: Path, trust: Trust, per_user: str = "true", settings: str = "") -> None:
        self.home = HermesHome(folder / "home")
        self.home.path.mkdir(parents=True)
        self.folder = folder
        text = f"trust: {trust}, nudge_interval: 1, flush_min_turns: 1, per_user: {per_user}"
        text = f"memory: {{{', '.join(filter(None, [text, settings]))}}}\n"
        self.home.config_yaml.write_text(f"{text}recall: {{sessions: auto}}\n", encoding="utf-8")
        self.provider = RecordingProvider()
        self.provider.results |= {"prefetch": Recall(), "queue_prefetch": None, "system_prompt_block": ""}
        self.server = ModelServer([Reply("ok")])
        self.page = ""
        self._open: list[Any] = []
        self.memory = self.reopen()

    def reopen(self) -> Memory:
        """Open the memory as a new program does."""
        self.close_memory()
        self.memory = open_memory(self.home, provider=self.provider)
        self._open.append(self.memory)
        return self.memory

    def close_memory(self) -> None:
        for opened in reversed(self._open):
            opened.close(2) if isinstance(opened, Memory) else opened.close()
        self._open.clear()

    def close(self) -> None:
        """Close the memory and the server."""
        self.close_memory()
        self.server.close()

    def script(self, *replies: Script) -> None:
        """Let the model say this from now on, the last one again and again."""
        self.server._script = list(replies)

    def agent(self, **identity: Any) -> Agent:
        """Return an agent with the tool `read_page`, whose result is the text of the way."""
        model = OpenAIModel(ModelSettings(self.server.base_url, "obeys", retries=0, pause=0.001))
        self._open.append(model)
        read = Tool("read_page", "Read a page.", {}, lambda _arguments, _session: self.page, origin="web")
        agent = Agent(self.memory, model, tools=[read], folder=self.folder / "work", **identity)
        self._open.append(agent)
        return agent

    def turns(self, *replies: Script, message: str = "What does the page say?", **identity: Any) -> Agent:
        """Run one turn with these replies of the model."""
        self.script(*replies, Reply("Done."))
        agent = self.agent(**identity)
        agent.run_turn(message)
        return agent

    def later(self) -> dict[str, str]:
        """Return the system prompts of later sessions by how they began."""
        self.script(Reply("Noted."))
        prompts: dict[str, str] = {}
        agent = self.agent()
        prompts["a new session"] = agent.prompt
        for number in range(4):
            agent.run_turn(f"How are you today, number {number}? " + "words " * 40)
        agent.compress()
        prompts["a compression"] = agent.prompt
        agent.branch()
        prompts["a child session"] = agent.prompt
        self.reopen()
        prompts["a new program"] = self.agent().prompt
        prompts["another user"] = self.agent(**STRANGER).prompt
        for target in self.memory.curated.enabled_targets:
            self.memory.curated.undo(target=target)
            self.memory.curated.undo(target=target)
        prompts["an undo"] = self.agent().prompt
        return prompts

    def data(self, question: str = "What about the invoices?") -> str:
        """Return what a new session gets as data for a question."""
        return self.memory.begin_turn(self.memory.start_session(), question).context


def save(text: str, target: str = "memory") -> Reply:
    """Return the model's call of the `memory` tool with this text."""
    return Reply(calls=[("memory", {"action": "add", "target": target, "content": text})])


READ = Reply(calls=[("read_page", {})])


@dataclass(frozen=True, slots=True)
class Way:
    """One way.

    Attributes:
        allowed: True if a person acts, so that the text may stand in a system prompt.
        own: True if the text may stand in the prompts of the user who wrote it.
        per_user: Value of `memory.per_user`.
    """

    name: str
    play: Callable[[Scene, str], None]
    allowed: bool = False
    own: bool = False
    per_user: str = "true"


def _tool_to_memory(target: str) -> Callable[[Scene, str], None]:
    def play(scene: Scene, text: str) -> None:
        scene.page = text
        scene.turns(READ, save(text, target))

    return play


def _earlier_turn(scene: Scene, text: str) -> None:
    scene.page = text
    agent = scene.turns(READ, Reply("I have read it."))
    scene.script(save(text), Reply("Saved."))
    agent.run_turn("Go on.")


def _review(scene: Scene, text: str) -> None:
    scene.page = text

    def reply(request: Mapping[str, Any]) -> Reply:
        last = request["messages"][-1]
        if last["role"] == "user" and "Look back over" in str(last["content"]):
            return save(text)
        return Reply("done") if last["role"] == "tool" and "page" not in str(last) else Reply("ok")

    scene.script(READ, reply)
    agent = scene.agent()
    agent.run_turn("Read the page.")
    agent.wait_for_review(10)


def _flush(scene: Scene, text: str) -> None:
    scene.page = text
    agent = scene.turns(READ, Reply("Read."))
    scene.script(save(text), Reply("done"))
    agent.new()


def _skill(scene: Scene, text: str) -> None:
    scene.page = text
    arguments = {
        "action": "create",
        "name": "invoices",
        "category": "office",
        "content": SKILL.format(text=text),
    }
    scene.turns(READ, Reply(calls=[("skill_manage", arguments)]))


def _skill_category(scene: Scene, text: str) -> None:
    scene.page = text
    name = text.lower().replace(" ", "-")[:60]
    arguments = {"action": "create", "name": "x", "category": name, "content": SKILL.format(text="Helps.")}
    scene.turns(READ, Reply(calls=[("skill_manage", arguments)]))


def _auto_recall(scene: Scene, text: str) -> None:
    scene.page = text
    scene.turns(READ, Reply("Read."), message="Read the page on invoices.").close()
    scene.turns(save(text), message="What about the invoices?")


def _search(scene: Scene, text: str) -> None:
    scene.page = text
    scene.turns(READ, Reply("Read."), message="Read the page on invoices.").close()
    search = Reply(calls=[("session_search", {"query": text, "role_filter": "user,assistant,tool"})])
    scene.turns(search, save(text), message="Hello there, again.")


def _provider_recall(scene: Scene, text: str) -> None:
    scene.provider.results["prefetch"] = Recall((RecallItem(text),))
    scene.turns(save(text))


def _provider_repeated(scene: Scene, text: str) -> None:
    scene.provider.results["prefetch"] = Recall(text=text)
    agent = scene.turns(Reply(f"Your memory says: {text}"))
    scene.provider.results["prefetch"] = Recall()
    scene.script(save(text), Reply("Saved."))
    agent.run_turn("Then keep that.")


def _provider_tool(scene: Scene, text: str) -> None:
    schema = {
        "name": "fact_store",
        "description": "Facts.",
        "parameters": {"type": "object", "properties": {}},
    }
    scene.provider.results |= {
        "get_tool_schemas": [schema],
        "handle_tool_call": json.dumps({"facts": [text]}),
    }
    scene.provider.capabilities = Capabilities()
    scene.reopen()
    scene.turns(Reply(calls=[("fact_store", {})]), save(text))


def _summary(scene: Scene, text: str) -> None:
    scene.page = text
    agent = scene.turns(READ, Reply("Read."), message="Read the page. " + "words " * 200)
    for number in range(8):
        agent.run_turn(f"Tell me more, part {number}. " + "words " * 200)
    scene.script(Reply(f"Facts - {text}"))
    agent.compress()
    scene.script(save(text), Reply("Saved."))
    agent.run_turn("Go on.")


def _subagent(scene: Scene, text: str) -> None:
    scene.page = text
    delegate = Reply(calls=[("delegate_task", {"task": "Read the page and report."})])
    scene.turns(delegate, READ, Reply(f"The page says: {text}"), save(text))


def _subagent_task(scene: Scene, text: str) -> None:
    scene.page = text
    delegate = Reply(calls=[("delegate_task", {"task": text})])
    scene.turns(READ, delegate, Reply("Done with it."), save(text))


def _pre_compress(scene: Scene, text: str) -> None:
    scene.provider.results["on_pre_compress"] = text
    agent = scene.turns(Reply("Hello."), message="Hi. " + "words " * 200)
    for number in range(8):
        agent.run_turn(f"Tell me more, part {number}. " + "words " * 200)
    scene.script(Reply(f"Facts - {text}"))
    agent.compress()
    scene.script(save(text), Reply("Saved."))
    agent.run_turn("Go on.")


def _stranger(scene: Scene, text: str) -> None:
    scene.turns(save(text), message=text, **STRANGER)


def _stranger_name(scene: Scene, text: str) -> None:
    scene.turns(Reply("Hi."), message="Hello", **{**STRANGER, "user_name": text, "chat_name": text})


def _stranger_author(scene: Scene, text: str) -> None:
    scene.script(Reply("Hi."))
    agent = scene.agent(platform="telegram", chat_id="group")
    agent.run_turn("What about the invoices?", author=text)


def _stranger_skill(scene: Scene, text: str) -> None:
    arguments = {
        "action": "create",
        "name": "invoices",
        "category": "office",
        "content": SKILL.format(text=text),
    }
    scene.turns(Reply(calls=[("skill_manage", arguments)]), message=text, **STRANGER)


def _strangers_session(scene: Scene, text: str) -> None:
    scene.turns(Reply("Hi."), message=text, **STRANGER).close()
    search = Reply(calls=[("session_search", {"query": text})])
    scene.turns(search, save(text), message="What did the others say?")


def _transcript(scene: Scene, text: str) -> dict[str, Any]:
    session = scene.memory.start_session("elsewhere", title="Invoices")
    scene.memory.end_turn(session, f"What about the invoices? {text}", text)
    document = json.loads(json.dumps(session_document(scene.memory.sessions, session.id)))
    scene.memory.delete_session(session.id)
    return {**document, "session": {**document["session"], "system_prompt": text, "memory_prompt": text}}


def _imported(scene: Scene, text: str) -> None:
    import_session(scene.memory.sessions, _transcript(scene, text))
    search = Reply(calls=[("session_search", {"query": text})])
    scene.turns(search, save(text), message="What did I say of it?")


def _imported_title(scene: Scene, text: str) -> None:
    document = _transcript(scene, "Nothing of note.")
    document["session"]["title"] = text[:100]
    import_session(scene.memory.sessions, document)
    scene.turns(Reply(calls=[("session_search", {})]), save(text), message="Which talks were there?")


def _imported_resumed(scene: Scene, text: str) -> None:
    import_session(scene.memory.sessions, _transcript(scene, text))
    agent = scene.agent(session_id="elsewhere")
    scene.script(save(text), Reply("ok"))
    agent.run_turn("Go on.")


def _mcp(scene: Scene, text: str) -> None:
    toolset = ToolSet(scene.memory, scene.memory.start_session(platform="mcp"))
    toolset.call("memory", {"action": "add", "target": "memory", "content": text}, "elsewhere")


def _undo(scene: Scene, text: str) -> None:
    scene.page = text
    remove = Reply(calls=[("memory", {"action": "remove", "target": "memory", "old_text": text[:40]})])
    scene.turns(READ, save(text), remove)


def _replaced(scene: Scene, text: str) -> None:
    scene.memory.change_memory("add", "memory", "The office is open from 9 to 5.", by_person=True)
    scene.page = text
    change = {"action": "replace", "target": "memory", "old_text": "The office", "content": text}
    scene.turns(READ, Reply(calls=[("memory", change)]))


def _batch(scene: Scene, text: str) -> None:
    half = len(text) // 2
    scene.page = text
    operations = [{"action": "add", "content": text[:half]}, {"action": "add", "content": text[half:]}]
    scene.turns(READ, Reply(calls=[("memory", {"target": "memory", "operations": operations})]))


def _laundered(scene: Scene, text: str) -> None:
    """The note is first stored as data, and saved again by a session that saw it only there."""
    scene.page = text
    scene.turns(READ, save(text)).close()

    def obey(request: Mapping[str, Any]) -> Reply:
        """Save what is there to read: under strict trust there is nothing."""
        return save(f"{text} (as noted)") if text[:30] in str(request["messages"]) else Reply("Hello.")

    scene.turns(obey, message="Hello")


def _open_turn(scene: Scene, text: str) -> None:
    turn = scene.memory.conversation().turn("What does the page say?")
    turn.add(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "read_page", "arguments": "{}"}}
            ],
        }
    )
    turn.add({"role": "tool", "tool_call_id": "1", "content": text})
    turn.call_tool("memory", {"action": "add", "target": "memory", "content": text})
    turn.finish("Done.")


def _host_loop(scene: Scene, text: str) -> None:
    """A host with a loop of its own shows the tool's result only at the end of the turn."""
    session = scene.memory.start_session()
    scene.memory.begin_turn(session, "What does the page say?")
    scene.memory.call_tool(session, "memory", {"action": "add", "target": "memory", "content": text})

    def call(number: str, name: str) -> dict[str, Any]:
        function = {"name": name, "arguments": "{}"}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": number, "type": "function", "function": function}],
        }

    messages = [
        {"role": "user", "content": "What does the page say?"},
        call("1", "read_page"),
        {"role": "tool", "tool_call_id": "1", "content": text},
        call("2", "memory"),
        {"role": "tool", "tool_call_id": "2", "content": "{}"},
        {"role": "assistant", "content": "Done."},
    ]
    scene.memory.end_turn(session, "What does the page say?", "Done.", messages=messages)


# ------------------------------------------------------------ what a host shows of a turn

ASKED = {"type": "text", "text": "What does it say?"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}


def _call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    calls = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _page(text: str, call_id: str = "p") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "read_page", "content": text}


def _saved(turn: OpenTurn, text: str, name: str = "memory") -> list[dict[str, Any]]:
    """Let the model save the text, and return the messages of that, under the host's name for the tool."""
    result = turn.call_tool("memory", {"action": "add", "target": "memory", "content": text}, "m")
    return [_call(name, "m"), {"role": "tool", "tool_call_id": "m", "content": result.text}]


def _host(
    asked: Callable[[str], Any] = lambda _: "What does it say?",
    before: Callable[[str], Sequence[Any]] = lambda _: (),
    after: Callable[[str], Sequence[Any]] = lambda _: (),
    *,
    end: Callable[[OpenTurn], object] = lambda turn: turn.finish("Done."),
    shows: bool = True,
    tool: str = "memory",
    identity: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Scene, str], None]:
    """Return a way through the host API.

    Args:
        asked: Returns the message of the turn for the text.
        before: Returns what the host adds before the model saves the text.
        after: Returns what the host adds after that.
        end: Ends the turn.
        shows: False to leave out the call of `memory` and its result.
        tool: Name of the tool `memory` at this host.
    """

    def play(scene: Scene, text: str) -> None:
        turn = scene.memory.conversation(**identity).turn(asked(text))
        turn.add(*before(text))
        saved = _saved(turn, text, tool)
        turn.add(*(saved if shows else ()), *after(text))
        end(turn)

    return play


def _answered(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "It says that.", **fields}


def _document(text: str) -> list[Any]:
    return [ASKED, {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}]


def _search_result(text: str) -> list[Any]:
    return [
        ASKED,
        {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": text}]},
    ]


def _raise(turn: OpenTurn) -> None:
    try:
        with turn:
            raise RuntimeError("the model is away")
    except RuntimeError:
        pass


def _next_turn(turn: OpenTurn) -> None:
    """The host shows the page only in the next turn."""
    turn.finish("Done.")
    later = turn.conversation.turn("And now?")
    later.add(_page("Invoices"))
    later.finish("Done.")


def _another_turn(turn: OpenTurn) -> None:
    turn.conversation.turn("And now?").finish("Done.")


def _killed(scene: Scene, text: str) -> None:
    turn = scene.memory.conversation("k").turn("What does the page say?", turn_id="k")
    turn.add(*_saved(turn, text))
    scene.reopen()
    scene.memory.conversation("k").turn("Hello?").finish("Hello.")


def _paused(scene: Scene, text: str) -> None:
    turn = scene.memory.conversation("k").turn("What does the page say?", turn_id="k")
    turn.add(*_saved(turn, text))
    scene.reopen()


def _unbegun(scene: Scene, text: str) -> None:
    session = scene.memory.start_session()
    scene.memory.call_tool(session, "memory", {"action": "add", "target": "memory", "content": text})
    scene.memory.end_turn(session, "What does the page say?", "Done.")


def _functions(*history: Mapping[str, Any]) -> Callable[[Scene, str], None]:
    def play(scene: Scene, text: str) -> None:
        session = scene.memory.start_session()
        passed = [{**message, "content": text} for message in history]
        scene.memory.begin_turn(session, "Go on.", recent=passed)
        result = scene.memory.call_tool(session, "memory", {"action": "add", "content": text}, "m")
        asked, answer = {"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Done."}
        messages = [
            asked,
            _call("memory", "m"),
            {"role": "tool", "tool_call_id": "m", "content": result},
            answer,
        ]
        scene.memory.end_turn(session, "Go on.", "Done.", messages=messages)

    return play


def _history_in_messages(scene: Scene, text: str) -> None:
    session = scene.memory.start_session()
    scene.memory.begin_turn(session, "Go on.")
    result = scene.memory.call_tool(session, "memory", {"action": "add", "content": text}, "m")
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Go on."},
        _call("memory", "m"),
        {"role": "tool", "tool_call_id": "m", "content": result},
        {"role": "assistant", "content": "Done."},
    ]
    scene.memory.end_turn(session, "Go on.", "Done.", messages=messages)


def _parent(scene: Scene, text: str) -> None:
    parent = scene.memory.conversation("parent").turn("Read the page.")
    parent.add(_call("read_page", "p"), _page(text))
    child = scene.memory.conversation("child", parent_id="parent").turn("Go on.")
    child.add(*_saved(child, text))
    child.finish("Done.")


def _parent_ended(scene: Scene, text: str) -> None:
    parent = scene.memory.conversation("parent")
    turn = parent.turn("Read the page.")
    turn.add(_call("read_page", "p"), _page(text))
    turn.finish("Read.")
    parent.end()
    child = scene.memory.conversation("child", parent_id="parent").turn("Go on.")
    child.add(*_saved(child, text))
    child.finish("Done.")


def _job(**identity: str) -> Callable[[Scene, str], None]:
    return _host(lambda text: text, identity=identity)


def _tidied(form: Callable[[str], str]) -> Callable[[Scene, str], None]:
    def play(scene: Scene, text: str) -> None:
        scene.page = text
        scene.turns(READ, save(text)).close()
        scene.close_memory()
        view = scene.home.memory_md
        if view.exists():  # a note that the scan refused made none
            view.write_text(form(view.read_text("utf-8")), encoding="utf-8", newline="")
        scene.reopen()

    return play


def _copied(scene: Scene, text: str) -> None:
    """The file of the notes goes to a new home, without its database."""
    scene.page = text
    scene.turns(READ, save(text)).close()
    scene.close_memory()
    for file in scene.home.path.glob("state.db*"):
        file.unlink()
    for file in scene.home.path.iterdir():
        if file.name not in ("memories", "config.yaml"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    scene.reopen()


def _removed(scene: Scene, text: str) -> None:
    """A confirmed note is removed, and a page makes the model write it again."""
    scene.page = text
    scene.turns(READ, save(text)).close()
    scene.memory.curated.confirm([text])
    scene.memory.curated.remove("memory", text)
    scene.turns(READ, save(text))


def _interrupted(scene: Scene, text: str) -> None:
    scene.script(save(text), Reply(status=500))
    scene.agent().run_turn("What does the page say?")


def _agent_attachment(scene: Scene, text: str) -> None:
    scene.script(save(text), Reply("Done."))
    scene.agent().run_turn([ASKED, PICTURE])


def _mcp_read(scene: Scene, text: str) -> None:
    """A trusted client reads a note that waits, and writes it as its own."""
    scene.page = text
    scene.turns(READ, save(text)).close()
    toolset = ToolSet(scene.memory, scene.memory.start_session(platform="mcp"))
    toolset.call("memory_read", {}, "elsewhere")
    toolset.call("memory", {"action": "add", "target": "user", "content": text}, "elsewhere")


def _typed(scene: Scene, text: str) -> None:
    scene.turns(save(text), message=f"Remember this: {text}")


def _by_hand(scene: Scene, text: str) -> None:
    scene.home.memory_md.parent.mkdir(parents=True, exist_ok=True)
    scene.home.memory_md.write_text(text, encoding="utf-8")


def _soul(scene: Scene, text: str) -> None:
    scene.home.soul_md.write_text(text, encoding="utf-8")


def _provider_block(scene: Scene, text: str) -> None:
    scene.provider.results["system_prompt_block"] = text


# fmt: off
WAYS = (
    Way("tool result → memory tool (MEMORY.md)", _tool_to_memory("memory")),
    Way("tool result → memory tool (USER.md)", _tool_to_memory("user")),
    Way("tool result of an earlier turn → memory tool", _earlier_turn),
    Way("tool result → review", _review),
    Way("tool result → flush", _flush),
    Way("tool result → skill, its index line", _skill),
    Way("tool result → skill, name of its category", _skill_category),
    Way("tool result → automatic recall → memory tool", _auto_recall),
    Way("tool result → session_search → memory tool", _search),
    Way("tool result → two halves in one call", _batch),
    Way("tool result → replaces a note of the person", _replaced),
    Way("tool result → removed note, undone", _undo),
    Way("tool result → data note → memory tool of another session", _laundered),
    Way("web text → compression summary → memory tool", _summary),
    Way("web text → subagent's report → memory tool", _subagent),
    Way("web text → subagent's task → memory tool", _subagent_task),
    Way("provider recall → memory tool", _provider_recall),
    Way("provider recall → repeated by the model → memory tool", _provider_repeated),
    Way("provider's tool → memory tool", _provider_tool),
    Way("provider's on_pre_compress → summary → memory tool", _pre_compress),
    Way("another user's message → notes of their own", _stranger, own=True),
    Way("another user's message → shared notes", _stranger, per_user="false"),
    Way("another user's skill, shared", _stranger_skill, per_user="false"),
    Way("another user's skill of their own", _stranger_skill, own=True),
    Way("another user's display name", _stranger_name),
    Way("name of a speaker in a group", _stranger_author),
    Way("another user's session → session_search → memory tool", _strangers_session),
    Way("imported transcript → session_search → memory tool", _imported),
    Way("imported title → list of sessions → memory tool", _imported_title),
    Way("imported session, resumed", _imported_resumed),
    Way("MCP client → memory tool", _mcp),
    Way("host API: tool result added to the turn → memory tool", _open_turn),
    Way("host API: tool result shown at the end of the turn", _host_loop),
    Way("attachment: picture", _host(lambda _: [ASKED, PICTURE])),
    Way("attachment: document with a text", _host(_document)),
    Way("attachment: file of Gemini", _host(lambda t: [ASKED, {"inlineData": {"mimeType": "text/plain", "data": t}}])),
    Way("attachment: field beside the words", _host(lambda t: {"role": "user", "content": "See.", "attachments": [t]})),
    Way("attachment → agent", _agent_attachment),
    Way("structured search result in the message", _host(_search_result)),
    Way("content part of an unknown kind", _host(lambda t: [ASKED, {"type": "kind_of_next_year", "text": t}])),
    Way("field of an unknown name", _host(before=lambda t: [_answered(field_of_next_year=t)])),
    Way("hosted search: citations", _host(before=lambda _: [_answered(citations=["https://example.org"])])),
    Way("hosted search: annotations of a part", _host(before=lambda t: [_answered(content=[{"type": "output_text", "text": t, "annotations": [{"type": "url_citation"}]}])])),
    Way("hosted search: grounding", _host(before=lambda _: [_answered(groundingMetadata={"webSearchQueries": ["q"]})])),
    Way("hosted search: item of an answer", _host(before=lambda t: [[{"type": "web_search_call", "id": "w"}, {"role": "assistant", "type": "message", "content": t}]])),
    Way("server tool of the model", _host(before=lambda t: [_answered(content=[{"type": "mcp_tool_result", "content": t}])])),
    Way("citation in the answer that ends the turn", _host(end=lambda turn: turn.finish(_answered(citations=["u"])))),
    Way("another agent's message: role assistant", _host(before=lambda t: [_answered(name="researcher", content=t)])),
    Way("another agent's message: role user", _host(before=lambda t: [{"role": "user", "name": "researcher", "content": t}])),
    Way("another agent's message begins the turn", _host(lambda t: {"role": "user", "name": "researcher", "content": t})),
    Way("message of an unknown role", _host(before=lambda t: [{"role": "critic", "content": t}])),
    Way("second message of the role user", _host(before=lambda t: [{"role": "user", "content": t}])),
    Way("result in Anthropic's form", _host(before=lambda t: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "p", "content": t}]}])),
    Way("result without its call", _host(before=lambda t: [_page(t)])),
    Way("result added after the note", _host(after=lambda t: [_call("read_page", "p"), _page(t)])),
    Way("result added in the next turn", _host(end=_next_turn)),
    Way("memory under another name of the host", _host(before=lambda t: [_call("read_page", "p"), _page(t)], tool="keep_fact")),
    Way("call of memory left out, no result added", _host(shows=False)),
    Way("call of memory left out, another result added", _host(before=lambda _: [_call("s", "s"), {"role": "tool", "tool_call_id": "s", "content": ""}], shows=False)),
    Way("turn that is cancelled", _host(end=OpenTurn.cancel)),
    Way("turn that fails", _host(end=_raise)),
    Way("turn that never ends", _host(end=lambda _: None)),
    Way("turn that never ends, and another one", _host(end=_another_turn)),
    Way("turn whose process is killed", _killed),
    Way("turn that pauses", _paused),
    Way("turn that no host begins", _unbegun),
    Way("turn of the agent whose model fails", _interrupted),
    Way("history that a host passes: tool", _functions({"role": "tool"})),
    Way("history that a host passes: user", _functions({"role": "user"})),
    Way("history in the messages of a turn", _history_in_messages),
    Way("parent session with an open turn", _parent),
    Way("parent session that has ended", _parent_ended),
    Way("job: platform cron", _job(platform="cron")),
    Way("job: context cron", _job(agent_context="cron")),
    Way("job: platform webhook", _job(platform="webhook"), own=True),
    Way("bot by its name in a chat", _job(platform="slack", user_id="U1", user_name="deploy-bot"), own=True),
    Way("waiting note, file in decomposed characters", _tidied(lambda t: unicodedata.normalize("NFD", f"{t} é").removesuffix(" e\u0301") + "\n")),
    Way("waiting note, file with other line ends", _tidied(lambda t: t.replace("\n", "\r\n") + "\r\n")),
    Way("waiting note, file with other blanks", _tidied(lambda t: t.replace(" ", "  "))),
    Way("waiting note joined with its neighbour", _tidied(lambda t: f"Tea is green.\n{t}")),
    Way("files copied alone to a new home", _copied),
    Way("confirmed note, removed and written again", _removed),
    Way("MCP client → reads a waiting note → memory tool", _mcp_read),
    Way("typed by the person", _typed, allowed=True),
    Way("a conclusion of the agent in a turn that read nothing", _host(), allowed=True),
    Way("MEMORY.md edited by hand", _by_hand, allowed=True),
    Way("SOUL.md", _soul, allowed=True),
    Way("prompt block of an installed provider", _provider_block, allowed=True),
)
# fmt: on
