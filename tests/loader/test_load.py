from __future__ import annotations

import sys
from typing import Any

import pytest

from hermes_core.config import set_value
from hermes_core.errors import (
    ProviderBlocked,
    ProviderError,
    ProviderInvalid,
    ProviderNotFound,
    ProviderUnavailable,
)
from hermes_core.loader.entry_points import LoadControl
from hermes_core.loader.load import load_provider
from tests.loader.conftest import DUCK, NATIVE, REGISTER, Site


def install(
    site: Site, source: str, value: str, group: str = "hermes_core.providers", name: str = ""
) -> None:
    site.module("provider_under_test", source)
    site.distribution("under-test", {group: {name or "notes": f"provider_under_test{value}"}})


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (":Notes", ""),
        (":make", "def make():\n    return Notes()\n"),
        (":instance", "instance = Notes()\n"),
        ("", ""),
        (":register", "def register(ctx):\n    ctx.register_memory_provider(Notes())\n"),
    ],
    ids=["class", "factory", "instance", "module", "register"],
)
def test_a_native_provider_loads_from_every_kind_of_value(site: Site, value: str, more: str) -> None:
    install(site, NATIVE + more, value)
    loaded = load_provider("notes", site.home)
    provider: Any = loaded.factory()
    assert provider.prefetch("?") == "tea"
    assert (loaded.entry.distribution, loaded.entry.kind) == ("under-test", "native")


def test_each_call_of_the_factory_makes_another_object(site: Site) -> None:
    install(site, NATIVE, ":Notes")
    factory = load_provider("notes", site.home).factory
    assert factory() is not factory()


@pytest.mark.parametrize("value", ["my-notes:Notes", "my notes:Notes", ":Notes", "notes/provider.py"])
def test_an_entry_point_that_names_no_module_is_told_and_no_other_is_lost(site: Site, value: str) -> None:
    site.distribution("notes-memory", {"hermes_core.providers": {"notes": value, "tea": "tea:Tea"}})
    site.module("tea", NATIVE.replace("notes", "tea").replace("Notes", "Tea"))
    assert load_provider("tea", site.home).entry.name == "tea"
    with pytest.raises(ProviderInvalid) as told:
        load_provider("notes", site.home)
    assert repr(value) in str(told.value)
    assert "package.module:Class" in told.value.remedy


def test_one_that_raises_while_it_is_looked_at_is_told_as_a_failure(site: Site) -> None:
    """As one whose __getattr__ asks itself, for a client that is not there yet."""
    install(
        site,
        NATIVE + "\n    def __getattr__(self, name):\n        return getattr(self.client, name)\n",
        ":Notes",
    )
    with pytest.raises(ProviderError, match=r"looking at provider 'notes' .* raised RecursionError") as told:
        load_provider("notes", site.home)
    assert told.value.remedy


@pytest.mark.parametrize("value", ["Plain", "Shop()"])
def test_what_is_no_provider_of_this_contract_is_told_what_makes_one(site: Site, value: str) -> None:
    source = f"class Plain:\n    def prefetch(self, query): ...\nclass Shop: ...\nthing = {value}\n"
    install(site, source, ":thing")
    with pytest.raises(ProviderError) as told:
        load_provider("notes", site.home)
    assert "subclass hermes_core.MemoryProvider" in told.value.remedy


def test_a_folder_has_relative_imports_subpackages_and_a_hyphen(site: Site) -> None:
    folder = site.plugin("hy-phen", "from .impl import Notes\nfrom .deep.sea import fish\n")
    (folder / "impl.py").write_text(NATIVE)
    (folder / "deep").mkdir()
    (folder / "deep" / "sea.py").write_text("from ..impl import Notes\nfish = Notes\n")
    loaded = load_provider("hy-phen", site.home)
    provider: Any = loaded.factory()
    assert (loaded.entry.kind, loaded.entry.name, provider.prefetch("?")) == ("native", "hy-phen", "tea")


def test_a_folder_registers_a_native_provider_and_what_else_it_registers_has_no_effect(site: Site) -> None:
    more = "\ndef register(ctx):\n    ctx.register_tool('t')\n    ctx.register_memory_provider(Notes())\n"
    site.plugin("notes", NATIVE + more)
    loaded = load_provider("notes", site.home)
    assert (loaded.entry.kind, loaded.warnings) == ("native", ())


def test_a_distribution_that_another_folder_comes_before_is_told_with_both_places(site: Site) -> None:
    site.distribution("hermes-pond-memory", {"hermes_agent.memory_providers": {"duck": "pond:register"}})
    folder = site.plugin("duck", DUCK + REGISTER)
    with pytest.raises(ProviderNotFound) as told:
        load_provider("hermes_pond_memory", site.home)
    assert told.value.message == f"hermes-pond-memory pond:register is not used: {folder} comes first"
    assert told.value.remedy == "name 'duck' for that one, or rename or remove one of the two"


# ---------------------------------------------------------------------------------------------------------- failures


def refusal(site: Site, source: str, value: str = ":Notes", name: str = "notes") -> ProviderError:
    install(site, source, value, name=name)
    with pytest.raises(ProviderError) as caught:
        load_provider(name, site.home)
    return caught.value


def test_a_missing_dependency_is_named_with_what_to_install(site: Site) -> None:
    site.module("provider_under_test", "import valkey_not_here\n")
    site.distribution(
        "under-test",
        {"hermes_core.providers": {"notes": "provider_under_test:Notes"}},
        requires=("httpx", "valkey-not-here>=6; python_version > '3'"),
    )
    with pytest.raises(ProviderUnavailable, match=r"'valkey_not_here'.*not installed") as caught:
        load_provider("notes", site.home)
    assert caught.value.remedy == "pip install 'valkey-not-here>=6'"


def test_a_missing_module_is_not_looked_for_in_the_core(site: Site) -> None:
    site.module("provider_under_test", "import valkey_not_here\n")
    points = {"hermes_core.providers": {"notes": "provider_under_test:Notes"}}
    site.distribution("under-test", points, requires=("hermes-memory-core>=0.1",))
    with pytest.raises(ProviderUnavailable) as caught:
        load_provider("notes", site.home)
    assert caught.value.remedy == "pip install valkey-not-here"


@pytest.mark.parametrize("statement", ["raise SystemExit(3)", "import sys; sys.exit()"])
def test_a_module_that_ends_the_program_is_a_failure_like_any_other(site: Site, statement: str) -> None:
    assert "ends the program" in str(refusal(site, statement))


def test_an_exception_at_import_is_shown_with_its_type(site: Site) -> None:
    assert "ZeroDivisionError" in str(refusal(site, "1 / 0"))


def test_the_persons_interrupt_goes_through(site: Site) -> None:
    install(site, "raise KeyboardInterrupt", ":Notes")
    with pytest.raises(KeyboardInterrupt):
        load_provider("notes", site.home)


def test_an_entry_point_to_nothing_says_to_reinstall(site: Site) -> None:
    site.distribution("under-test", {"hermes_core.providers": {"notes": "not_there_at_all:Notes"}})
    with pytest.raises(ProviderUnavailable, match="pip install --force-reinstall under-test"):
        load_provider("notes", site.home)


def test_a_dependency_whose_name_begins_like_the_provider_s_package_is_no_part_of_it(site: Site) -> None:
    site.module("valkey_not_here_hermes", "import valkey_not_here\n")
    site.distribution(
        "valkey-not-here-hermes",
        {"hermes_core.providers": {"notes": "valkey_not_here_hermes:Notes"}},
        requires=("valkey-not-here>=6",),
    )
    with pytest.raises(ProviderUnavailable, match=r"'valkey_not_here', which is not installed") as caught:
        load_provider("notes", site.home)
    assert caught.value.remedy == "pip install 'valkey-not-here>=6'"


def test_a_module_that_a_package_lacks_of_itself_says_to_reinstall(site: Site) -> None:
    site.module("pond.duck", "from . import eggs_not_here\nfrom .legs import x\n")
    site.module("pond.eggs_not_here", "")
    site.distribution("pond", {"hermes_core.providers": {"notes": "pond.duck:Notes"}})
    with pytest.raises(ProviderUnavailable, match=r"'pond\.legs', which is not there") as caught:
        load_provider("notes", site.home)
    assert caught.value.remedy == "reinstall it: pip install --force-reinstall pond"


def test_a_hook_with_an_unknown_parameter_is_refused(site: Site) -> None:
    error = refusal(site, NATIVE.replace("query", "question"))
    assert isinstance(error, ProviderInvalid)
    assert "question" in str(error)


def test_a_keyword_only_parameter_is_refused_with_what_to_write(site: Site) -> None:
    assert "remove the *" in str(refusal(site, NATIVE.replace("query", "*, query")))


def test_a_misspelt_hook_is_refused_with_the_right_one(site: Site) -> None:
    assert "did you mean prefetch()" in str(refusal(site, NATIVE.replace("prefetch", "prefetsch")))


def test_a_provider_of_a_newer_contract_is_refused(site: Site) -> None:
    source = NATIVE.replace('name = "notes"', 'name = "notes"\n    contract_version = 99')
    assert "upgrade hermes-memory-core" in str(refusal(site, source))


@pytest.mark.parametrize("name", ["builtin", "holographic"])
def test_a_provider_that_calls_itself_as_one_of_ours_is_refused(site: Site, name: str) -> None:
    error = refusal(site, NATIVE.replace('"notes"', f'"{name}"'))
    assert isinstance(error, ProviderInvalid)
    assert repr(name) in str(error)


def test_a_package_without_a_provider_is_reported(site: Site) -> None:
    assert "registered no provider" in str(refusal(site, "value = 3", ":value"))


def test_a_constructor_that_raises_is_reported(site: Site) -> None:
    source = NATIVE + "    def __init__(self):\n        raise OSError('no disk')\n"
    assert "OSError: no disk" in str(refusal(site, source))


def test_a_failed_folder_leaves_no_half_module_behind(site: Site) -> None:
    folder = site.plugin("notes", f"from .other import x\n{NATIVE}\n1 / 0")
    (folder / "other.py").write_text("x = 1")
    before = set(sys.modules)
    with pytest.raises(ProviderError, match="ZeroDivisionError"):
        load_provider("notes", site.home)
    assert not [name for name in set(sys.modules) - before if name.startswith("_hermes_user_memory.notes")]


def test_an_unknown_name_says_what_was_meant(site: Site) -> None:
    with pytest.raises(ProviderNotFound, match="did you mean 'holographic'"):
        load_provider("holografic", site.home, entry_points=[])


def test_a_folder_of_the_name_that_is_no_provider_says_what_it_lacks(site: Site) -> None:
    site.plugin("pond", "import json\n")
    site.plugin("duck", DUCK + REGISTER).joinpath("__init__.py").rename(
        site.home.path / "plugins/duck/init.py"
    )
    for name, why in (
        ("pond", "__init__.py' registers no memory provider"),
        ("duck", "duck' has no __init__.py"),
    ):
        with pytest.raises(ProviderNotFound, match=why):
            load_provider(name, site.home, entry_points=[])


def test_a_bundled_name_that_is_not_installed_says_what_to_install(site: Site) -> None:
    with pytest.raises(ProviderNotFound, match="hermes-memory memory setup honcho"):
        load_provider("honcho", site.home, entry_points=[])


# ------------------------------------------------------------------------------------------------------ load control


@pytest.mark.parametrize(
    ("control", "loads"),
    [
        (LoadControl(), True),
        (LoadControl(frozenset()), False),
        (LoadControl(frozenset({"notes"})), True),
        (LoadControl(frozenset({"Under_Test"})), True),
        (LoadControl(frozenset({"others"})), False),
        (LoadControl(block=frozenset({"under-test"})), False),
        (LoadControl(frozenset({"notes"}), frozenset({"notes"})), False),
    ],
)
def test_load_control_goes_by_name_or_distribution(site: Site, control: LoadControl, loads: bool) -> None:
    install(site, NATIVE, ":Notes")
    if loads:
        assert load_provider("notes", site.home, control).factory()
        return
    with pytest.raises(ProviderBlocked, match="list"):
        load_provider("notes", site.home, control)
    assert "provider_under_test" not in sys.modules


def test_without_a_load_control_the_lists_of_the_home_hold(site: Site) -> None:
    install(site, NATIVE, ":Notes")
    set_value(site.home, "providers.block", ["notes"])
    with pytest.raises(ProviderBlocked, match="'notes' is on the block list"):
        load_provider("notes", site.home)
    assert load_provider("notes", site.home, LoadControl()).factory()


def test_without_a_load_control_the_list_of_the_environment_holds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, NATIVE, ":Notes")
    monkeypatch.setenv("HERMES_LOAD_PROVIDERS", "")
    with pytest.raises(ProviderBlocked, match="allow list"):
        load_provider("notes", site.home)


BESIDE = """
import helper
from hermes_core import MemoryProvider
import helper as same
import parts.legs
import parts.legs as legs
from helper import WORD
from parts.legs import COUNT
from parts import legs as again

assert helper is same and parts.legs is legs is again


class Duck(MemoryProvider):
    name = "duck"

    def prefetch(self, query):
        import late
        return f"{WORD} {COUNT} {late.WORD}"
"""


def test_modules_beside_a_plugin_are_its_own_also_under_an_absolute_name(site: Site) -> None:
    said = []
    for name in ("duck", "drake"):
        folder = site.plugin(name, BESIDE.replace('"duck"', repr(name)))
        (folder / "helper.py").write_text(f"import late\nWORD = {name!r}\n")
        (folder / "late.py").write_text(f"WORD = 'late {name}'\n")
        (folder / "parts").mkdir()
        (folder / "parts" / "__init__.py").write_text("")
        (folder / "parts" / "legs.py").write_text("import helper\nfrom late import WORD\nCOUNT = 2\n")
        said.append(load_provider(name, site.home).factory().prefetch(""))  # type: ignore[attr-defined]
    assert said == ["duck 2 late duck", "drake 2 late drake"]
    assert not {"helper", "late", "parts"} & set(sys.modules)


def test_a_plugin_folder_sees_builtins_that_are_added_after_its_import(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `gettext.install`."""
    site.plugin("notes", NATIVE.replace('"tea"', "translated('tea')"))
    provider: Any = load_provider("notes", site.home).factory()
    monkeypatch.setattr("builtins.translated", str.upper, raising=False)
    assert provider.prefetch("") == "TEA"


SUPERMEMORY = NATIVE.replace('"notes"', '"supermemory"')


def test_a_folder_with_the_name_of_a_bundled_provider_is_chosen_on_purpose(site: Site) -> None:
    folder = site.plugin("supermemory", SUPERMEMORY)
    with pytest.raises(ProviderNotFound):
        load_provider("supermemory", site.home, entry_points=[])
    loaded = load_provider("folder:supermemory", site.home)
    # A name of its own: what waits for the bundled provider must not go to the folder.
    assert (loaded.entry.name, loaded.entry.path) == ("folder:supermemory", str(folder))


@pytest.mark.parametrize("name", ["supermemory", "builtin"])
def test_no_folder_is_taken_for_a_bundled_provider_without_the_persons_word(site: Site, name: str) -> None:
    site.plugin("duck", SUPERMEMORY.replace('"supermemory"', repr(name)))
    with pytest.raises(ProviderInvalid, match="belongs to"):
        load_provider("folder:duck", site.home)


def test_the_block_list_holds_for_a_folder_that_is_chosen_on_purpose(site: Site) -> None:
    site.plugin("supermemory", SUPERMEMORY)
    with pytest.raises(ProviderBlocked):
        load_provider("folder:supermemory", site.home, LoadControl(block=frozenset({"supermemory"})))
    load_provider("folder:supermemory", site.home, LoadControl(allow=frozenset({"folder:supermemory"})))


# ---------------------------------------------------------------------------------------------------------- settings
