"""What the modules of Hermes Agent do here when a provider uses them."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from hermes_core import Session, open_memory
from hermes_core.errors import ConfigError
from hermes_core.health.provider import examine_provider
from hermes_core.home import HermesHome
from hermes_core.loader.load import load_provider
from hermes_memory_foreign.environment import call_in
from hermes_memory_foreign.host_modules import VIEWS, install_host_modules
from hermes_memory_testing.model_server import ModelServer, Reply
from tests.forked import python
from tests.loader.conftest import DUCK, REGISTER, Site

IMPORTED = {
    "agent.memory_manager": "sanitize_context build_memory_context_block",
    "agent.coding_context": "INTERACTIVE_CODING_PLATFORMS",
    "agent.turn_author": "a2a_key parse_turn_author turn_author_from_env",
    "agent.message_content": "flatten_message_text",
    "agent.file_safety": "raise_if_read_blocked get_read_block_error",
    "agent.auxiliary_client": "call_llm extract_content_or_reasoning",
    "agent.plugin_llm": "PluginLlm PluginLlmTextInput PluginLlmTrustError",
    "agent.delegation_context": "is_delegated_child_context",
    "hermes_cli": "__version__",
    "hermes_cli.input_decode": "decode_modified_key_sequences safe_input",
    "hermes_cli.profiles": "_get_default_hermes_home list_profiles",
    "hermes_cli.memory_setup": "cmd_setup_provider",
    "utils": "env_var_enabled is_truthy_value",
    "hermes_state": "SessionDB apply_wal_with_fallback",
    "gateway.session_context": "get_session_env",
    "plugins.plugin_utils": "SingletonSlot",
    "plugins.memory.query_rewrite": "rewrite_memory_query",
    "tools.lazy_deps": "ensure FeatureUnavailable",
}


def view(module: str, name: str) -> Any:
    return VIEWS[module][name]


@pytest.mark.parametrize("module", sorted(IMPORTED))
def test_modules_that_published_providers_import_are_here(module: str, tmp_path: Path) -> None:
    code = f"""
        from hermes_memory_foreign.host_modules import install_host_modules
        install_host_modules()
        from {module} import {", ".join(IMPORTED[module].split())}
        print("imported")
    """
    done = subprocess.run(
        [*python(), "-c", dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "imported", done.stderr


# ------------------------------------------------------------------------------------------------------------- folders

FOLDER = f"""
from plugins.memory.teal.pond import DEPTH
{DUCK}
    def depth(self):
        import plugins.memory.teal as teal
        from plugins.memory.teal.deep.water import LEVEL
        from plugins.memory.teal import pond
        from . import pond as own
        return DEPTH, LEVEL, pond is own, teal.Duck is type(self)
{REGISTER}
"""


def test_a_bundled_provider_copied_as_a_folder_finds_its_own_modules(site: Site) -> None:
    folder = site.plugin("teal", FOLDER)
    (folder / "deep").mkdir()
    (folder / "pond.py").write_text("DEPTH = 3\n")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "water.py").write_text("LEVEL = 7\n")
    provider: Any = load_provider("teal", site.home).factory()
    assert provider.wrapped.depth() == (3, 7, True, True)
    with pytest.raises(ModuleNotFoundError, match=r"plugins\.memory\.teal\.nest"):
        importlib.import_module("plugins.memory.teal.nest")


# --------------------------------------------------------------------------------------------------------------- model


def configure(home: HermesHome, server: ModelServer) -> None:
    home.path.mkdir(parents=True, exist_ok=True)
    home.config_yaml.write_text(
        f"model:\n  base_url: {server.base_url}\n  name: large\nauxiliary:\n  name: small\n"
    )


def test_a_provider_asks_the_auxiliary_model(hermes_home: HermesHome) -> None:
    with ModelServer([Reply("Tea.")]) as server, call_in(hermes_home.path):
        configure(hermes_home, server)
        reply = view("agent.auxiliary_client", "call_llm")(
            task="compression", messages=[{"role": "user", "content": "Drink?"}], max_tokens=9
        )
    assert reply.choices[0].message.content == "Tea."
    assert view("agent.auxiliary_client", "extract_content_or_reasoning")(reply) == "Tea."
    assert (server.requests[0]["model"], server.requests[0]["max_tokens"]) == ("small", 9)


def test_a_provider_does_not_choose_the_model(hermes_home: HermesHome) -> None:
    llm = view("agent.plugin_llm", "PluginLlm")(plugin_id="duck")
    with ModelServer([Reply("Tea."), Reply("Tea.")]) as server, call_in(hermes_home.path):
        configure(hermes_home, server)
        view("agent.auxiliary_client", "call_llm")(
            model="huge", messages=[{"role": "user", "content": "Drink?"}]
        )
        with pytest.raises(PermissionError, match="'duck' may not choose model"):
            llm.complete([{"role": "user", "content": "Drink?"}], model="huge")
    assert [request["model"] for request in server.requests] == ["small"]


def test_a_structured_answer_is_parsed(hermes_home: HermesHome) -> None:
    llm = view("agent.plugin_llm", "PluginLlm")(plugin_id="duck")
    text = view("agent.plugin_llm", "PluginLlmTextInput")("I drink tea.")
    with (
        ModelServer([Reply('```json\n{"drink": "tea"}\n```'), Reply("none")]) as server,
        call_in(hermes_home.path),
    ):
        configure(hermes_home, server)
        first, second = (
            llm.complete_structured(instructions="What?", input=[text], json_schema={"type": "object"})
            for _ in range(2)
        )
    assert (first.parsed, first.content_type) == ({"drink": "tea"}, "json")
    assert (second.parsed, second.content_type, second.text) == (None, "text", "none")
    assert "I drink tea." in str(server.requests[0]["messages"][-1]["content"])


def test_without_a_model_there_is_no_ctx_llm(hermes_home: HermesHome, site: Site) -> None:
    site.plugin(
        "duck",
        f"{DUCK}\ndef register(ctx):\n    Duck.llm = hasattr(ctx, 'llm')\n    ctx.register_memory_provider(Duck())\n",
    )
    provider: Any = load_provider("duck", hermes_home).factory()
    assert provider.wrapped.llm is False
    with call_in(hermes_home.path), pytest.raises(ConfigError, match="names none"):
        view("agent.auxiliary_client", "call_llm")(messages=[])


# ------------------------------------------------------------------------------------------------------------ sessions


def test_a_provider_reads_the_sessions_of_its_own_user(hermes_home: HermesHome, site: Site) -> None:
    site.plugin("duck", DUCK + REGISTER)
    ada, bob = (Session(name, platform="telegram", user_id=name) for name in ("ada", "bob"))
    with open_memory(hermes_home, provider="duck") as memory:
        for session, text in ((ada, "I drink tea"), (bob, "I drink mead")):
            started = memory.start_session(session.id, platform="telegram", user_id=session.user_id)
            memory.end_turn(started, text, "Noted.")
        database = view("hermes_state", "SessionDB")()
        with call_in(hermes_home.path, ada):
            assert [row["content"] for row in database.get_messages("ada")] == ["I drink tea", "Noted."]
            assert database.get_messages("bob") == []
            assert database.get_session("bob") is None
            assert [row["id"] for row in database.list_sessions_rich()] == ["ada"]
            assert {row["session_id"] for row in database.search_messages("drink")} == {"ada"}
        with call_in(hermes_home.path):
            assert database.list_sessions_rich() == []


def test_sessions_that_nobody_has_open_are_not_read(hermes_home: HermesHome) -> None:
    with call_in(hermes_home.path), pytest.raises(RuntimeError, match="not open here"):
        view("hermes_state", "SessionDB")().get_session("ada")


def test_the_session_of_a_call_is_known(hermes_home: HermesHome) -> None:
    get = view("gateway.session_context", "get_session_env")
    child = view("agent.delegation_context", "is_delegated_child_context")
    session = Session("s1", platform="telegram", user_id="42", agent_context="subagent")
    with call_in(hermes_home.path, session):
        assert (get("HERMES_SESSION_ID"), get("HERMES_SESSION_USER_ID")) == ("s1", "42")
        assert (get("HERMES_SESSION_CHAT_ID", "none"), child()) == ("none", True)
    assert (get("HERMES_SESSION_ID", "none"), child()) == ("none", False)


WRITES = f"""
{DUCK}
    def sync_turn(self, user, assistant, *, session_id=""):
        from hermes_state import SessionDB
        database = SessionDB()
        database.append_message(session_id, "user", user)
        database.append_message(session_id, "assistant", assistant)
{REGISTER}
"""


def test_what_has_no_effect_is_said_once(hermes_home: HermesHome, site: Site) -> None:
    site.plugin("duck", WRITES)
    with open_memory(hermes_home, provider="duck") as memory:
        session = memory.start_session()
        for _ in range(2):
            memory.end_turn(session, "tea", "Noted.")
        assert memory.flush()
        said = [text for text in memory.problems() if "append_message" in text]
        found = [
            one
            for one in examine_provider(memory, memory.internals.selection.entries())
            if "append_message" in one.detail
        ]
    assert len(said) == 1
    assert "has no effect here" in said[0]
    assert [one.state for one in found] == ["warning"]


# ------------------------------------------------------------------------------------------------------------- helpers


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        "/dev/stdin",
        "/sys/kernel",
        "x/.env",
        ".env.local",
        ".envrc",
        "~/.ssh/id_ed25519",
        "a.pem",
    ],
)
def test_files_with_secrets_are_not_read(path: str) -> None:
    with pytest.raises(ValueError, match="name another file"):
        view("agent.file_safety", "raise_if_read_blocked")(path)


@pytest.mark.parametrize("path", ["notes.md", ".env.example", "procedure.txt", "environment.py"])
def test_other_files_are_read(path: str) -> None:
    view("agent.file_safety", "raise_if_read_blocked")(path)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("\x1b[27;2;84~ea", "Tea"),
        ("\x1b[84;2uea", "Tea"),
        ("\x1b[27;3;84~", "\x1b[27;3;84~"),
        ("\x1b[27;2;13~", "\x1b[27;2;13~"),
        ("\x1b[57427;2u", "\x1b[57427;2u"),
        ("tea", "tea"),
        ("", ""),
    ],
)
def test_letters_typed_with_shift_are_read(typed: str, text: str) -> None:
    assert view("hermes_cli.input_decode", "decode_modified_key_sequences")(typed) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("tea", "tea"),
        (None, ""),
        (
            [{"type": "text", "text": "tea"}, {"type": "image_url", "image_url": {"url": "data:"}}, "cup"],
            "tea\ncup",
        ),
        ({"content": "tea"}, "tea"),
        ({"pond": "deep"}, ""),
        ([{"pond": "deep"}, object()], ""),
        (object(), ""),
        ({"summary_text": "tea"}, "tea"),
        (7, "7"),
    ],
)
def test_content_becomes_text(content: Any, text: str) -> None:
    assert view("agent.message_content", "flatten_message_text")(content) == text


@pytest.mark.parametrize(
    ("raw", "author"),
    [
        ('{"id": "bot:ops", "name": "Ops", "is_bot": "yes"}', ("bot:ops", "Ops", True)),
        ({"id": "bot:ops", "origin": "host", "is_bot": True}, ("bot:host/ops", None, True)),
        ({"id": "4\x002", "name": " Ada "}, ("42", "Ada", False)),
        ({"name": "Ada"}, (None, "Ada", False)),
        ({"is_bot": True}, None),
        ("{", None),
        (7, None),
    ],
)
def test_an_author_is_read_in_every_form(raw: Any, author: Any) -> None:
    parsed = view("agent.turn_author", "parse_turn_author")(raw)
    assert (parsed and (parsed["id"], parsed["name"], parsed["is_bot"])) == author


def test_profiles_are_listed_from_the_home_itself(hermes_home: HermesHome) -> None:
    profile = hermes_home.path / "profiles" / "coder"
    profile.mkdir(parents=True)
    install_host_modules()
    with call_in(profile):
        assert view("hermes_cli.profiles", "_get_default_hermes_home")() == hermes_home.path
        assert [one.name for one in view("hermes_cli.profiles", "list_profiles")()] == ["default", "coder"]
