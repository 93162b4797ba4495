from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from hermes_core.config import set_value
from hermes_core.errors import (
    ProviderError,
    ProviderInvalid,
    ProviderNotFound,
    ProviderUnavailable,
    ProviderUnconfigured,
)
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import discover
from hermes_core.loader.load import load_provider
from hermes_memory_foreign.adapter import HermesAgentProvider
from tests.loader.conftest import DUCK, REGISTER, Site


def install(
    site: Site, source: str, value: str, group: str = "hermes_core.providers", name: str = ""
) -> None:
    site.module("provider_under_test", source)
    site.distribution("under-test", {group: {name or "notes": f"provider_under_test{value}"}})


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("", REGISTER),
        (":register", REGISTER),
        (":Duck", ""),
        (":duck", "duck = Duck()\n"),
        (":make", "def make():\n    return Duck()\n"),
        (":register", "def register():\n    return Duck\n"),
        (":register", "def register(ctx=None):\n    ctx and ctx.register_memory_provider(Duck())\n"),
        (":register", "def register(ctx):\n    ctx.register_memory_provider(Duck)\n"),
        (":plugin", "class Plugin:\n    def register(self, ctx):\n        ctx.register_memory_provider(Duck())\n\nplugin = Plugin()\n"),
        ("", "from abc import ABC\n\nclass Abstract(Duck, ABC): ...\n"),
    ],
    ids=[
        "module", "register", "class", "instance", "factory", "register-returns-class",
        "register-optional-ctx", "register-class", "object-with-register", "subclass-scan",
    ],
)  # fmt: skip
def test_a_published_provider_loads_from_every_kind_of_value(site: Site, value: str, more: str) -> None:
    install(site, DUCK + more, value, "hermes_agent.memory_providers", "duck")
    provider = load_provider("duck", site.home).factory()
    assert isinstance(provider, HermesAgentProvider)
    assert provider.name == "duck"


def test_a_raise_after_registration_keeps_the_provider(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    source = DUCK + REGISTER + "    ctx.config\n"
    install(site, source, ":register", "hermes_agent.memory_providers", "duck")
    assert load_provider("duck", site.home).factory()
    assert "after it had registered" in caplog.text


def test_a_class_that_is_taken_because_register_raised_is_told_as_that(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("duck", DUCK + "\ndef register(ctx):\n    raise ValueError('no pond')\n")
    assert load_provider("duck", site.home).factory()
    assert "is made of its class, because register() raised ValueError: no pond" in caplog.text


def test_what_has_no_effect_here_is_noted(site: Site) -> None:
    more = "    ctx.register_anything(1, two=3)\n    assert not hasattr(ctx, 'llm')\n"
    site.plugin("duck", DUCK + REGISTER + more)
    assert load_provider("duck", site.home).warnings == ("register_anything has no effect here",)


def test_the_second_group_is_tried_when_the_first_registers_nothing(site: Site) -> None:
    groups = {
        "hermes_agent.memory_providers": {"duck": "provider_under_test:nothing"},
        "hermes_agent.plugins": {"duck": "provider_under_test:register"},
    }
    site.module("provider_under_test", DUCK + REGISTER + "\ndef nothing(ctx): ...\n")
    site.distribution("under-test", groups)
    assert load_provider("duck", site.home).entry.source == "hermes_agent.plugins"


def test_a_provider_loads_by_its_own_name_under_that_of_its_folder(site: Site) -> None:
    site.plugin("folder-name", DUCK + REGISTER)
    loaded = load_provider("duck", site.home)
    assert loaded.entry.name == loaded.factory().name == "folder-name"  # type: ignore[attr-defined]


def test_a_source_that_only_seems_to_have_the_name_is_not_taken(site: Site) -> None:
    site.plugin("duck", DUCK + REGISTER + '\nmodel_name = "duckling"\n')
    with pytest.raises(ProviderNotFound, match="did you mean 'duck'"):
        load_provider("duckling", site.home, entry_points=[])


def test_a_package_that_lies_in_the_plugin_folder_loads_by_each_of_its_names(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("duck", DUCK + REGISTER)
    monkeypatch.syspath_prepend(str(site.home.plugins))
    site.distribution("pond-memory", {"hermes_agent.memory_providers": {"duck": "duck:register"}})
    for name in ("duck", "pond-memory"):
        entry = load_provider(name, site.home).entry
        assert (entry.name, entry.source, entry.distribution) == ("duck", "plugins", "pond-memory")


def test_what_a_published_provider_imports_to_say_if_it_can_run_is_imported_while_it_loads(
    site: Site,
) -> None:
    """An SDK takes seconds, and the manager waits one for the answer."""
    site.module("large_sdk", "")
    site.plugin("duck", DUCK.replace("return True", "import large_sdk; raise OSError", 1) + REGISTER)
    load_provider("duck", site.home)
    assert "large_sdk" in sys.modules


def test_home_is_in_the_environment_while_a_published_provider_loads(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_HOME")
    site.plugin("duck", "import os\nseen = os.environ['HERMES_HOME']\n" + DUCK + REGISTER)
    provider: Any = load_provider("duck", site.home).factory()
    assert sys.modules[type(provider.wrapped).__module__].seen == str(site.home.path)
    assert "HERMES_HOME" not in os.environ


def test_a_provider_that_keeps_one_object_still_gives_each_session_its_own(site: Site) -> None:
    source = DUCK + "one = Duck()\n\ndef register(ctx):\n    ctx.register_memory_provider(one)\n"
    site.plugin("duck", source)
    factory: Any = load_provider("duck", site.home).factory
    assert factory().wrapped is not factory().wrapped


def test_a_module_that_a_folder_lacks_is_named_as_it_is_written(site: Site) -> None:
    folder = site.plugin("duck", "from .legs.left import register\n")
    with pytest.raises(ProviderUnavailable, match=r"needs '\.legs', which is not in its folder") as caught:
        load_provider("duck", site.home)
    assert caught.value.remedy == f"copy all of it to {str(folder)!r} again"


@pytest.mark.parametrize("missing", ["agent.estop", "gateway.platforms", "model_tools"])
def test_a_module_of_the_other_host_is_nothing_to_install(site: Site, missing: str) -> None:
    """Packages of such names are on PyPI, and they are of others."""
    site.module("duck_under_test", f"import {missing}\n")
    site.distribution(
        "duck",
        {"hermes_agent.memory_providers": {"duck": "duck_under_test:register"}},
        requires=("httpx", "hermes-agent>=0.19"),
    )
    with pytest.raises(ProviderUnavailable, match="of Hermes Agent itself, which is not here") as caught:
        load_provider("duck", site.home)
    assert "pip" not in caught.value.remedy


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (DUCK.replace('    name = "duck"\n', "") + REGISTER, "Duck, which lacks name"),
        (
            "def register(ctx):\n    ctx.register_memory_provider({})\n",
            "dict, which lacks name, is_available",
        ),
        (
            "from agent.memory_provider import MemoryProvider\n"
            + DUCK.replace("class Duck", "class Duck(MemoryProvider)").replace("get_tool_schemas", "tools"),
            "abstract method '?get_tool_schemas",
        ),
    ],
)
def test_a_class_of_a_published_provider_that_lacks_a_member_says_which(
    site: Site, source: str, told: str
) -> None:
    site.plugin("duck", f"# MemoryProvider\n{source}")
    with pytest.raises(ProviderError, match=told):
        load_provider("duck", site.home)


def test_a_published_provider_without_register_says_what_to_write(site: Site) -> None:
    site.plugin("duck", DUCK.replace('    name = "duck"\n', "") + REGISTER.replace("register(", "regsiter("))
    with pytest.raises(ProviderInvalid, match=r"write register\(ctx\)"):
        load_provider("duck", site.home)


def test_a_published_provider_that_is_async_is_refused(site: Site) -> None:
    """Its host never waits for one, and what it returned would be in the prompt as `<coroutine object ...>`."""
    site.plugin("duck", DUCK.replace("def prefetch", "async def prefetch") + REGISTER)
    with pytest.raises(ProviderInvalid, match=r"prefetch\(\) is async"):
        load_provider("duck", site.home)


HIDDEN = "def register(ctx): getattr(ctx, 'register_' + 'tool')('t', {}, print)\n"


def test_a_plugin_that_registers_no_provider_is_not_listed_after_a_load(site: Site) -> None:
    """Its source leaves it open, so a load decides."""
    folder = site.plugin("maybe", HIDDEN)
    with pytest.raises(ProviderInvalid, match="registered no provider"):
        load_provider("maybe", site.home)
    assert discover(site.home, []) == []
    (folder / "__init__.py").write_text(DUCK + REGISTER)
    assert [place.name for place in discover(site.home, [])] == ["maybe"]


def test_a_package_that_comes_later_lets_a_plugin_try_again(site: Site) -> None:
    site.plugin("maybe", "try:\n    from water import register\nexcept ImportError:\n    register = None\n")
    with pytest.raises(ProviderInvalid):
        load_provider("maybe", site.home)
    assert discover(site.home, []) == []
    site.module("water", DUCK + REGISTER)
    site.distribution("water", {})
    assert [place.name for place in discover(site.home, [])] == ["maybe"]


def test_a_package_that_is_needed_is_not_taken_from_the_file_of_its_name(site: Site) -> None:
    folder = site.plugin(
        "duck", "from pond_water import Client\n" + DUCK + REGISTER, "pip_dependencies: [pond-water]"
    )
    (folder / "pond_water.py").write_text("")
    with pytest.raises(ProviderUnavailable, match="'pond_water', which is not installed"):
        load_provider("duck", site.home)
    site.module("pond_water", "Client = 1")
    load_provider("duck", site.home)


SUPERMEMORY = DUCK.replace('"duck"', '"supermemory"') + REGISTER


def test_a_folder_of_any_other_name_is_the_same_under_both_names(site: Site) -> None:
    site.plugin("duck", DUCK + REGISTER)
    assert load_provider("folder:duck", site.home).entry.name == "duck"
    with pytest.raises(ProviderNotFound, match="no plugin folder for 'folder:drake'"):
        load_provider("folder:drake", site.home)


def test_a_chosen_folder_reads_and_writes_its_own_name_in_the_config(site: Site) -> None:
    source = SUPERMEMORY.replace(
        "def is_available(self):",
        "def is_available(self):\n        from hermes_cli.config import load_config, save_config\n"
        "        config = load_config()\n        self.chosen = config['memory']['provider']\n"
        "        config['memory']['supermemory'] = {'tag': 'x'}\n        save_config(config)",
    )
    site.plugin("supermemory", source)
    set_value(site.home, "memory.provider", "folder:supermemory")
    provider = load_provider("folder:supermemory", site.home).factory()
    assert provider.wrapped.chosen == "supermemory"  # type: ignore[attr-defined]
    text = site.home.config_yaml.read_text()
    assert "provider: folder:supermemory" in text
    assert "tag: x" in text


def test_a_class_that_a_package_exports_lazily_is_found(site: Site) -> None:
    folder = site.plugin(
        "duck",
        """
        def __getattr__(name):
            if name == "Duck":
                from .pond import Duck
                return Duck
            if name == "Frozen":
                raise ImportError("no ice")
            raise AttributeError(name)

        def __dir__():
            return ["Duck", "Frozen", "MemoryProvider"]
        """,
    )
    (folder / "pond.py").write_text(DUCK)
    assert load_provider("duck", site.home).entry.name == "duck"


def test_a_lazy_class_whose_package_is_missing_names_that_package(site: Site) -> None:
    site.plugin(
        "duck",
        """
        def __getattr__(name):
            if name == "DuckMemoryProvider":
                import pond_that_nobody_has
            raise AttributeError(name)

        def __dir__():
            return ["DuckMemoryProvider", "register_memory_provider"]
        """,
    )
    with pytest.raises(
        ProviderUnavailable, match="needs the module 'pond_that_nobody_has', which is not installed"
    ):
        load_provider("duck", site.home)


# The class is no module's attribute, so that register() alone makes the provider.
POND = (
    "import os, textwrap\nspace = {}\nexec(textwrap.dedent("
    + repr(DUCK)
    + "), space)\nDUCKS = [space['Duck']]\n"
)


NEEDS_A_SETTING = {
    "constructor": """
def register(ctx):
    if not os.environ.get("POND_KEY"):
        raise ValueError("POND_KEY is not set")
    ctx.register_memory_provider(DUCKS[0]())
""",
    "variable": """
def register(ctx):
    key = os.environ["POND_KEY"]
    ctx.register_memory_provider(DUCKS[0]())
""",
    "own error": """
class PondError(Exception): ...

def register(ctx):
    if not os.environ.get("POND_KEY"):
        raise PondError("POND_KEY is not set")
    ctx.register_memory_provider(DUCKS[0]())
""",
    "file": """
def register(ctx):
    open(os.path.join(os.environ["HERMES_HOME"], "pond.json")).close()
    ctx.register_memory_provider(DUCKS[0]())
""",
    "silence": """
def register(ctx):
    if os.environ.get("POND_KEY"):
        ctx.register_memory_provider(DUCKS[0]())
""",
}


@pytest.mark.parametrize("source", NEEDS_A_SETTING.values(), ids=NEEDS_A_SETTING)
def test_a_provider_that_can_not_be_made_without_a_setting_works_with_it(site: Site, source: str) -> None:
    folder = site.plugin("duck", POND + source)
    with pytest.raises(ProviderUnconfigured) as caught:
        load_provider("duck", site.home)
    assert "hermes-memory keys set" in caught.value.remedy
    (folder / "plugin.yaml").write_text("name: duck\nrequires_env: [{name: POND_KEY}, PATH]\n")
    with pytest.raises(ProviderUnconfigured) as caught:
        load_provider("duck", site.home)
    assert caught.value.remedy == "run: hermes-memory keys set POND_KEY"
    entries = discover_providers(site.home, active="duck", probe=True, entry_points=[])
    assert {entry.name: entry.state for entry in entries}["duck"] == "unavailable"
    site.home.env_file.write_text("POND_KEY=k\n")
    site.home.env_file.chmod(0o600)
    (site.home.path / "pond.json").touch()
    assert load_provider("duck", site.home).factory()


@pytest.mark.parametrize("statement", ["DUCKS[0](1)", "ctx.no_such.thing()", "undefined", "assert not DUCKS"])
def test_a_constructor_with_a_fault_in_its_code_is_no_missing_setting(site: Site, statement: str) -> None:
    register = f"def register(ctx):\n    {statement}\n    ctx.register_memory_provider(DUCKS[0]())\n"
    site.plugin("duck", POND + register)
    with pytest.raises(ProviderError, match="can't be made") as caught:
        load_provider("duck", site.home)
    assert not isinstance(caught.value, ProviderUnconfigured)
