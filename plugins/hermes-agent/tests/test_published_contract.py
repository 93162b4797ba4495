"""Parts of Hermes Agent's contract that came in August 2026, through the memory as a host uses it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_core import open_memory
from hermes_core.errors import ProviderError
from hermes_core.home import HermesHome
from hermes_core.loader.discover import discover
from hermes_core.loader.load import load_provider
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel, Tool
from hermes_memory_agent.agent import shared_services
from hermes_memory_foreign.registration import run_host_command
from hermes_memory_foreign.turn_authors import turn_author
from hermes_memory_testing.model_server import ModelServer, Reply
from tests.loader.conftest import DUCK, REGISTER, Site

RECORDER = f"""
import json
from pathlib import Path
from hermes_constants import get_hermes_home

def note(**facts):
    with (get_hermes_home() / "heard.jsonl").open("a") as file:
        file.write(json.dumps(facts, default=str) + "\\n")
{DUCK}
"""


def heard(home: HermesHome, kind: str) -> list[Any]:
    lines = (home.path / "heard.jsonl").read_text().splitlines()
    return [json.loads(line)[kind] for line in lines if kind in json.loads(line)]


# ------------------------------------------------------------------------------------------------------------- authors


@pytest.mark.parametrize(
    ("author", "user", "expected"),
    [
        ("bot:ops", "42", {"id": "bot:ops", "name": "ops", "is_bot": True}),
        ("bot:host/ops", "", {"id": "bot:host/ops", "name": "ops", "is_bot": True}),
        ("plugin:calendar", "42", {"id": "plugin:calendar", "name": "calendar", "is_bot": True}),
        ("Ada", "42", {"id": "42", "name": "Ada", "is_bot": False}),
        ("", "42", {"id": "42", "name": "Bob", "is_bot": False}),
        ("robot: Ada", "", {"id": "", "name": "robot: Ada", "is_bot": False}),
    ],
)
def test_programs_are_told_from_people(author: str, user: str, expected: dict[str, Any]) -> None:
    assert turn_author(author, user, "Bob") == expected


SYNC = """
    def sync_turn(self, user, assistant, *, session_id="", messages=None, turn_author=None):
        note(synced=[user, messages, turn_author])
"""


def test_a_turn_brings_its_author_and_the_conversation_so_far(site: Site) -> None:
    site.plugin("duck", RECORDER + SYNC + REGISTER)
    with open_memory(site.home, provider="duck") as memory:
        session = memory.start_session(platform="telegram", user_id="42")
        memory.end_turn(session, "tea?", "Tea.", author="Ada")
        memory.end_turn(
            session, "my key is sk-proj-abcdefghij0123456789abcdefghij", "Noted.", author="bot:ops"
        )
        assert memory.flush()
    first, second = heard(site.home, "synced")
    assert [message["content"] for message in first[1]] == ["tea?", "Tea."]
    assert [message["content"] for message in second[1]][:2] == ["tea?", "Tea."]
    assert len(second[1]) == 4
    assert "abcdefghij" not in json.dumps(second)
    assert (first[2]["id"], first[2]["name"], second[2]) == (
        "42",
        "Ada",
        {"id": "bot:ops", "name": "ops", "is_bot": True},
    )


# ---------------------------------------------------------------------------------------------------------- initialize

START = """
    def initialize(self, session_id, **kwargs):
        kwargs.get("warning_callback", print)("the pond is shallow")
        kwargs.get("status_callback", print)("starting")
        note(started=kwargs)
"""


def test_the_start_brings_title_folder_and_callbacks(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site.plugin("duck", RECORDER + START + REGISTER)
    monkeypatch.chdir(tmp_path)
    with open_memory(site.home, provider="duck") as memory:
        memory.start_session(title="Ducks")
        assert memory.manager.initialize_all(memory.local_session, wait=10.0) is None
        memory.start_session(platform="telegram", user_id="42", user_id_alt="ada")
        memory.flush()
        problems = memory.problems()
    local, remote = heard(site.home, "started")[0], heard(site.home, "started")[-1]
    assert (local["session_title"], local["session_title_source"], local["cwd"]) == (
        "Ducks",
        "user",
        str(tmp_path),
    )
    assert (remote["user_id_alt"], "warning_callback" in remote, "cwd" in remote) == ("ada", False, False)
    assert [text for text in problems if "shallow" in text] == ["duck: the pond is shallow"]


# -------------------------------------------------------------------------------------------------------------- recall

STATUS = """
    def recall_status(self):
        from agent.memory_provider import RecallStatus
        return RecallStatus("Pond", COUNT)
"""


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("3", "\N{BRAIN} Pond: recalled 3 memories"),
        ("1", "\N{BRAIN} Pond: recalled 1 memory"),
        ("0", "\N{BRAIN} Pond: recalled relevant memory"),
        ("None", ""),
        ("1 / 0", ""),
    ],
)
def test_a_recall_says_what_it_brought(site: Site, count: str, said: str) -> None:
    site.plugin("duck", RECORDER + STATUS.replace("COUNT", count) + REGISTER)
    with open_memory(site.home, provider="duck") as memory:
        session = memory.start_session()
        memory.manager.initialize_all(session, wait=10.0)
        parts = memory.begin_turn(session, "tea?").recall.parts
    assert [part.recall.status for part in parts if part.recall] == [said]


# --------------------------------------------------------------------------------------------------------- checkpoints

CHECKPOINT = """
    pre_compress_checkpoint_api_version = VERSION

    def on_pre_compress(self, messages, *, require_checkpoint=False):
        note(compressed=[messages, require_checkpoint])
        ANSWER
"""


@pytest.mark.parametrize(
    ("version", "answer", "reason"),
    [
        ("2", "return 'kept'", ""),
        ("2", "raise OSError('the disk is full')", "has stored no checkpoint: OSError: the disk is full"),
        ("1", "return 'kept'", "no provider stores a checkpoint"),
    ],
)
def test_without_a_checkpoint_nothing_is_compressed(
    site: Site, version: str, answer: str, reason: str
) -> None:
    source = CHECKPOINT.replace("VERSION", version).replace("ANSWER", answer)
    site.plugin("duck", RECORDER + source + REGISTER)
    site.home.config_yaml.write_text(
        "agent:\n  checkpoint_required: true\n  protect_first: 0\n  protect_last: 1\n  review: false\n"
    )
    with ModelServer([Reply("A pond. " * 300)] * 3 + [Reply("They spoke of ponds.")]) as server:
        settings = ModelSettings(server.base_url, "scripted", context_length=4096)
        with open_memory(site.home, provider="duck") as memory, closing(OpenAIModel(settings)) as model:
            agent = Agent(memory, model)
            for _ in range(3):
                agent.run_turn("Tell me of a pond, please.")
            before = agent.session.id
            agent.compress()
            problems, moved = agent.problems, agent.session.id != before
    assert moved is not bool(reason), problems
    messages, required = heard(site.home, "compressed")[0]
    assert required is (version == "2")
    assert {"role": "user", "content": "Tell me of a pond, please."} in messages or version == "1"
    assert not reason or any(reason in text for text in problems)


@pytest.mark.parametrize("required", [True, False])
def test_the_default_compresses_without_a_checkpoint(site: Site, required: bool) -> None:
    site.plugin("duck", DUCK + REGISTER)
    with open_memory(site.home, provider="duck") as memory:
        session = memory.start_session()
        if required:
            with pytest.raises(ProviderError, match="no provider stores a checkpoint"):
                memory.manager.on_pre_compress([], 0, session, require_checkpoint=True)
        else:
            assert memory.manager.on_pre_compress([], 0, session) == ""


# -------------------------------------------------------------------------------------------- what a package brings along

BESIDE = """
def deepen(words):
    if words == "deep":
        raise ValueError("no bottom")
    return f"pond of {words}" if words else None

def guard(tool_name, args, **facts):
    if args.get("text") == "drain":
        return {"action": "block", "message": "ducks live there"}

def register(ctx):
    from pathlib import Path
    ctx.register_memory_provider(Duck())
    ctx.register_skill("swim", Path(__file__).parent / "skills" / "swim" / "SKILL.md")
    ctx.register_skill("fly", Path(__file__).parent / "fly")
    ctx.register_command("/Pond", deepen, description="Dig", args_hint="NAME")
    ctx.register_hook("pre_tool_call", guard)
    ctx.register_hook("post_tool_call", lambda tool_name, result, session_id, **_: note(used=[tool_name, result]))
    ctx.register_hook("transform_tool_result", lambda result, **_: result.replace("mud", "water"))
    ctx.register_context_engine(object())
"""


def digging() -> Tool:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return Tool("dig", "Digs", parameters, lambda arguments, session: f"mud {arguments['text']}")


def test_skills_commands_and_tool_hooks_of_a_package_work(site: Site) -> None:
    folder = site.plugin("duck", RECORDER + BESIDE)
    (folder / "skills" / "swim").mkdir(parents=True)
    (folder / "skills" / "swim" / "SKILL.md").write_text(
        "---\nname: swim\ndescription: How to swim\n---\nPaddle.\n"
    )
    calls = [("dig", {"text": "here"}), ("dig", {"text": "drain"})]
    with ModelServer([Reply(calls=calls), Reply("Done.")]) as server:
        settings = ModelSettings(server.base_url, "scripted")
        with open_memory(site.home, provider="duck") as memory, closing(OpenAIModel(settings)) as model:
            agent = Agent(memory, model, tools=[digging()])
            agent.run_turn("Dig.")
            extras = memory.internals.selection.extras
            store = shared_services(memory).skills_of(agent.session)
            found = {skill.name for skill in store.skills()} if store else set()
            said = extras.chat_commands["pond"].run("frogs"), extras.chat_commands["pond"].run("")
            with pytest.raises(ProviderError, match="/pond raised ValueError: no bottom"):
                extras.chat_commands["pond"].run("deep")
            notes = next(
                entry.notes for entry in memory.internals.selection.entries() if entry.name == "duck"
            )
    first, second = (
        message["content"] for message in server.requests[1]["messages"] if message["role"] == "tool"
    )
    assert first == "water here"
    assert "ducks live there" in second
    assert heard(site.home, "used") == [["dig", "mud here"]]
    assert (found, said) == ({"swim"}, ("pond of frogs", ""))
    assert extras.chat_commands["pond"].description == "NAME Dig"
    assert [note.partition(" ")[0] for note in notes] == ["register_context_engine", "register_skill('fly')"]


COMPANION = """
def register(ctx):
    ctx.register_tool("swim", {"name": "swim", "parameters": {}}, lambda args: "swam")
    ctx.register_command("pond", lambda words: "deep")
"""


def test_the_other_plugin_of_a_providers_package_is_used(site: Site) -> None:
    site.module("duck_pond.provider", DUCK + REGISTER)
    site.module("duck_pond.tools", COMPANION)
    site.module("duck_pond.broken", "def register(ctx):\n    raise OSError('frozen')\n")
    site.distribution(
        "duck-pond",
        {
            "hermes_agent.memory_providers": {"duck": "duck_pond.provider:register"},
            "hermes_agent.plugins": {"duck": "duck_pond.tools", "duck-ice": "duck_pond.broken:register"},
        },
    )
    with open_memory(site.home, provider="duck") as memory:
        session = memory.start_session()
        memory.manager.initialize_all(session, wait=10.0)
        assert memory.call_tool(session, "swim", {}) == "swam"
        assert list(memory.internals.selection.extras.chat_commands) == ["pond"]
        notes = next(entry.notes for entry in memory.internals.selection.entries() if entry.name == "duck")
    assert any("duck_pond.broken" in note and "frozen" in note for note in notes)


# ----------------------------------------------------------------------------------------------------- project plugins


@pytest.mark.parametrize(("value", "expected"), [("", []), ("0", []), ("1", ["duck"]), ("true", ["duck"])])
def test_plugins_of_a_project_are_off_by_default(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, expected: list[str]
) -> None:
    folder = tmp_path / "project" / ".hermes" / "plugins" / "duck"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DUCK + REGISTER)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HERMES_ENABLE_PROJECT_PLUGINS", value)
    assert [place.name for place in discover(site.home, [])] == expected
    if expected:
        assert load_provider("duck", site.home).entry.source == ".hermes/plugins"
    site.plugin("duck", DUCK + REGISTER)
    winner, *others = discover(site.home, [])
    assert (winner.source, [bool(place.shadowed_by) for place in others]) == (
        "plugins",
        [True] * len(expected),
    )


# ------------------------------------------------------------------------------------------- files beside the provider

PANEL = """
from plugins.memory.config_schema import KIND_NUMBER, KIND_SECRET, KIND_SELECT, ProviderConfigSchema, ProviderField
from plugins.memory.config_schema import ProviderFieldOption, STORAGE_FLAT_JSON

CONFIG_SCHEMA = ProviderConfigSchema(
    name="duck", label="Duck", storage=STORAGE_FLAT_JSON,
    fields=(
        ProviderField(key="mode", label="Mode", kind=KIND_SELECT, default="wet",
                      options=(ProviderFieldOption("wet", "Wet"), ProviderFieldOption("dry", "Dry"))),
        ProviderField(key="key", label="Key", kind=KIND_SECRET, env_key="DUCK_KEY"),
        ProviderField(key="depth", label="Depth", kind=KIND_NUMBER, default="3"),
    ),
)
"""
OWN_SCHEMA = """
    def get_config_schema(self):
        return [{"key": "mode", "description": "own"}]
"""


@pytest.mark.parametrize(("own", "asked"), [("", ["mode", "key", "depth"]), (OWN_SCHEMA, ["mode"])])
def test_a_settings_panel_becomes_settings(site: Site, own: str, asked: list[str]) -> None:
    folder = site.plugin("duck", DUCK + own + REGISTER)
    (folder / "config_schema.py").write_text(PANEL)
    loaded = load_provider("duck", site.home)
    fields = {field.name: field for field in loaded.settings}
    assert list(fields) == ["mode", "key", "depth"]
    assert [name for name, field in fields.items() if not field.advanced] == asked
    assert (fields["key"].secret, fields["key"].env, fields["depth"].default) == (True, "DUCK_KEY", 3.0)
    provider: Any = loaded.factory()
    provider.store_settings({"mode": "dry"})
    provider.store_settings({"depth": 4})
    assert json.loads((site.home.path / "duck" / "config.json").read_text()) == {"mode": "dry", "depth": 4}


FLOW = """
asked = []
def start_loopback_flow_background(hermes_home):
    asked.append(hermes_home)
def get_flow_status():
    return {"state": STATE, "detail": "no browser"}
"""


@pytest.mark.parametrize(
    ("state", "code", "said"), [("connected", 0, "connected"), ("error", 1, "no browser")]
)
def test_a_provider_with_a_login_has_a_command_for_it(
    site: Site, state: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = site.plugin("duck", DUCK + REGISTER)
    (folder / "oauth_flow.py").write_text(FLOW.replace("STATE", repr(state)))
    provider = load_provider("duck", site.home).factory()
    assert run_host_command(provider, site.home, "duck", ["login"]) == code
    assert said in "".join(capsys.readouterr())
