from __future__ import annotations

import os
import subprocess
import sys
import weakref
from pathlib import Path
from textwrap import dedent

import pytest

from hermes_core.config import Credentials
from hermes_core.home import HermesHome
from hermes_memory_foreign import host_modules
from hermes_memory_foreign.environment import call_in, environment_of, get_hermes_home
from hermes_memory_foreign.host_modules import (
    VIEWS,
    ctx_bound,
    is_trivial_prompt,
    spawn_context_thread,
)


def run(code: str, folder: Path) -> str:
    """What a fresh interpreter prints that starts in this folder with the finder installed."""
    start = "from hermes_memory_foreign.host_modules import install_host_modules\ninstall_host_modules()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + dedent(code)], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


def test_every_host_module_can_be_imported_with_all_its_names(tmp_path: Path) -> None:
    code = """
        import importlib
        from hermes_memory_foreign.host_modules import VIEWS
        for name, offered in VIEWS.items():
            module = importlib.import_module(name)
            assert all(hasattr(module, key) for key in offered), name
        print("all")
    """
    assert run(code, tmp_path) == "all"


def test_nothing_is_offered_before_a_published_provider_is_loaded(tmp_path: Path) -> None:
    code = "import hermes_core.loader.load, sys, importlib.util as u; print(u.find_spec('hermes_constants'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"


def test_a_package_keeps_what_it_registered_beside_the_hosts_plugin_manager() -> None:
    """One package looks its providers up by the manager, weakly, and names the kind of plugin it is."""
    host = VIEWS["hermes_cli.plugins"]
    manager = host["get_plugin_manager"]()  # type: ignore[operator]
    known = weakref.WeakKeyDictionary({manager: "mine"})
    manifest = host["PluginManifest"](name="rag", kind="exclusive", author="Ada", requires_env=["KEY"])  # type: ignore[operator]
    context = host["PluginContext"](manifest, manager)  # type: ignore[operator]
    context.register_hook("on_session_end", print)
    assert known[manager] == "mine"
    assert (context.manifest.name, context.manifest.kind) == ("rag", "exclusive")


def test_a_persons_own_modules_win(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("mine = 'utils'")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("mine = 'tools'")
    (tmp_path / "tools" / "saw.py").write_text("mine = 'saw'")
    code = """
        import tools, tools.saw, utils
        from tools.registry import tool_error
        print(utils.mine, tools.mine, tools.saw.mine, tool_error("no"), hasattr(utils, "atomic_json_write"))
    """
    assert run(code, tmp_path) == 'utils tools saw {"error": "no"} False'


def test_a_module_of_the_same_name_that_turns_up_later_is_found(tmp_path: Path) -> None:
    (tmp_path / "later" / "plugins" / "memory" / "cashew").mkdir(parents=True)
    (tmp_path / "later" / "plugins" / "memory" / "cashew" / "__init__.py").write_text("nut = True")
    code = """
        import sys
        from plugins.memory.config_schema import KIND_SECRET
        sys.path.insert(0, "later")
        import plugins.memory.cashew
        print(plugins.memory.cashew.nut, KIND_SECRET)
    """
    assert run(code, tmp_path) == "True secret"


def test_a_namespace_of_other_packages_keeps_its_members(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "memory" / "sonzai").mkdir(parents=True)
    (tmp_path / "plugins" / "memory" / "sonzai" / "__init__.py").write_text("here = 1")
    code = """
        import plugins.memory.sonzai
        from plugins.memory.config_schema import ProviderField
        print(plugins.memory.sonzai.here, ProviderField("k", "K").kind)
    """
    assert run(code, tmp_path) == "1 text"


def test_a_module_that_hides_the_host_is_named_in_the_reason(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("")
    folder = tmp_path / "home" / "plugins" / "duck"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from tools.registry import tool_error\ndef register(ctx): ctx.register_memory_provider(1)\n"
    )
    code = """
        from hermes_core.errors import ProviderError
        from hermes_core.home import HermesHome
        from hermes_core.loader.load import load_provider
        try:
            load_provider("duck", HermesHome.resolve("home"))
        except ProviderError as exc:
            print(exc)
    """
    said = run(code, tmp_path)
    assert str(tmp_path / "tools.py") in said
    assert "rename that module" in said


# -------------------------------------------------------------------------------------------------------------- home


def test_the_home_is_that_of_the_running_call(tmp_path: Path) -> None:
    with call_in(tmp_path / "a"):
        assert get_hermes_home() == tmp_path / "a"
        with call_in(tmp_path / "b"):
            assert get_hermes_home() == tmp_path / "b"
        assert get_hermes_home() == tmp_path / "a"


@pytest.mark.parametrize("before", [None, "before"])
def test_the_environment_is_put_back_when_the_last_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    if before:
        monkeypatch.setenv("HERMES_HOME", before)
    with environment_of(tmp_path / "a"):
        with environment_of(tmp_path / "b"):
            assert os.environ["HERMES_HOME"] == str(tmp_path / "b")
        assert os.environ.get("HERMES_HOME", before) != before
    assert os.environ.get("HERMES_HOME") == before


def test_the_secrets_of_the_home_are_in_the_environment_of_a_call_and_then_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DUCK_KEY", "DUCK_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DUCK_MODE", "of the environment")
    for home in ("a", "b"):
        (tmp_path / home).mkdir()
        (tmp_path / home / ".env").write_text(f"DUCK_KEY={home}\nDUCK_MODE=file\nLD_PRELOAD=/tmp/evil.so\n")
    with environment_of(tmp_path / "a"):
        assert (os.environ["DUCK_KEY"], os.environ["DUCK_MODE"]) == ("a", "of the environment")
        assert os.environ.get("LD_PRELOAD") != "/tmp/evil.so"
        with environment_of(tmp_path / "b"):
            assert os.environ["DUCK_KEY"] == "b"
    assert "DUCK_KEY" not in os.environ


def test_a_thread_of_the_provider_knows_the_home_of_its_call(tmp_path: Path) -> None:
    seen: list[Path] = []
    with call_in(tmp_path):
        thread = spawn_context_thread(lambda: seen.append(get_hermes_home()), name="t")
        bound = ctx_bound(get_hermes_home)
    assert not thread.is_alive()
    thread.start()
    thread.join()
    assert seen == [tmp_path]
    assert bound() == tmp_path


# ------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize("text", [None, "", "  ", "/help me", "ok", "Thanks :)", "go ahead…", "YES!!", "k\N{NO-BREAK SPACE}"])  # fmt: skip
def test_small_talk_is_trivial(text: str | None) -> None:
    assert is_trivial_prompt(text)


@pytest.mark.parametrize("text", ["k8s", "yolo", "note", "hello world", "no dogs", "next week?"])
def test_a_question_is_not_trivial(text: str) -> None:
    assert not is_trivial_prompt(text)


def test_a_config_of_a_real_person_is_read_as_the_host_reads_it(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("token: !secret ha\nmemory:\n  provider: duck\t# mine\n")
    with call_in(hermes_home.path):
        assert host_modules.read_config()["memory"] == {"provider": "duck"}


def test_a_saved_configuration_keeps_comments_and_what_it_does_not_name(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    words = "word " * 40
    hermes_home.config_yaml.write_text(f"memory:\n  provider: duck  # mine\nother: 1\ntext: {words}\n")
    view = VIEWS["hermes_cli.config"]
    with call_in(hermes_home.path):
        view["save_config"]({"memory": {"duck": {"pond": "big"}}}, merge_existing=True)  # type: ignore[operator]
        config = view["load_config"]()  # type: ignore[operator]
    assert config == {
        "memory": {"provider": "duck", "duck": {"pond": "big"}},
        "other": 1,
        "text": words.strip(),
    }
    assert hermes_home.config_yaml.read_text() == (
        f"memory:\n  provider: duck  # mine\n  duck:\n    pond: big\nother: 1\ntext: {words}\n"
    )


def test_values_are_read_by_path_with_a_default() -> None:
    get = host_modules._cfg_get
    assert get({"a": {"b": 1}}, "a", "b") == 1
    assert get({"a": {"b": None}}, "a", "b", default=2) == 2
    assert get({"a": 3}, "a", "b", default=4) == 4


def test_secrets_come_from_the_home_of_the_call(hermes_home: HermesHome) -> None:
    view = VIEWS["hermes_cli.config"]
    with call_in(hermes_home.path):
        view["save_env_value"]("DUCK_KEY", "s3cret")  # type: ignore[operator]
        assert VIEWS["agent.secret_scope"]["get_secret"]("DUCK_KEY") == "s3cret"  # type: ignore[operator]
        assert VIEWS["agent.secret_scope"]["get_secret"]("GOOSE_KEY", "none") == "none"  # type: ignore[operator]
    assert Credentials(hermes_home).get("DUCK_KEY") == "s3cret"


def test_json_files_are_written_whole_and_read_as_empty_when_broken(tmp_path: Path) -> None:
    write, read = VIEWS["utils"]["atomic_json_write"], VIEWS["utils"]["read_json_or_empty"]
    path = tmp_path / "deep" / "state.json"
    write(path, {"a": "ö"}, mode=0o600)  # type: ignore[operator]
    assert read(path) == {"a": "ö"}  # type: ignore[operator]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("{")
    assert read(path) == {}  # type: ignore[operator]


ALONGSIDE = "The user has provided the following instruction alongside the skill invocation: "
SKILL = (
    '[IMPORTANT: The user has invoked the "tea" skill, indicating they want you to follow its instructions. The full '
    "skill content is loaded below.]\n\nsteps\nUser instruction: not this one\n"
)
BUNDLE = (
    '[IMPORTANT: The user has invoked the "kitchen" skill bundle, loading 2 skills together.]\n\nBundle: kitchen\n'
    f'User instruction: cook\n\n[Loaded as part of the "kitchen" skill bundle.]\n{ALONGSIDE}not this'
)
LOADED = (
    '[IMPORTANT: The "tea" skill is auto-loaded. Follow its instructions for this session.]\n\n# Tea\n\nBoil water.\n\n'
    "[Skill directory: /home/ann/skills/tea]\nResolve any relative paths in this skill (e.g. `scripts/foo.js`) against "
    "that directory, then run them with the terminal tool using the absolute path."
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("plain words", "plain words"),
        (f"{SKILL}\n{ALONGSIDE}make green tea\n\n[Runtime note: Monday]", "make green tea"),
        (f"{SKILL}quotes {ALONGSIDE}x\n\n{ALONGSIDE}make green tea", "make green tea"),
        (BUNDLE, "cook"),
        (BUNDLE.replace("User instruction: cook", ""), None),
        (SKILL, None),
        (f"{LOADED}\n\nGreen, please.", "Green, please."),
        (LOADED, None),
        (7, None),
    ],
)
def test_the_persons_words_are_taken_out_of_a_skill_message(content: object, words: str | None) -> None:
    assert host_modules._instruction_of_skill(content) == words
