from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from importlib_metadata import EntryPoint

from hermes_core.loader.discover import FOLDERS, discover, select
from hermes_core.loader.entry_points import installed_entry_points
from tests.loader.conftest import DUCK, NATIVE, REGISTER, Site


def point(name: str, value: str = "somewhere:Thing", group: str = "hermes_core.providers") -> EntryPoint:
    return EntryPoint(name, value, group)


def test_an_entry_point_is_described_by_its_metadata_and_not_imported(site: Site) -> None:
    path = site.module("loud", "raise SystemExit('imported')")
    site.distribution("loud-memory", {"hermes_core.providers": {"loud": "loud:Provider"}})
    (found,) = [f for f in discover(site.home) if f.name == "loud"]
    assert (found.distribution, found.version, found.description) == ("loud-memory", "1.2", "Remembers")
    assert found.path == path
    assert "loud" not in sys.modules


def test_the_host_that_is_stood_in_for_is_no_requirement(site: Site) -> None:
    """Its modules are offered by this package."""
    group = {"hermes_agent.memory_providers": {"pond": "pond:register"}}
    site.distribution("pond-memory", group, ("Hermes_Agent[all]>=0.19; python_version > '3'", "water>=2"))
    (found,) = [f for f in discover(site.home) if f.name == "pond"]
    assert found.requires == ("water>=2",)
    site.plugin("duck", DUCK + REGISTER, "pip_dependencies: [hermes-agent, bread]")
    (found,) = discover(site.home, [])
    assert found.requires == ("bread",)


@pytest.mark.parametrize("where", FOLDERS)
def test_plugin_folders_are_found_in_each_place_that_installers_use(site: Site, where: str) -> None:
    site.plugin("my-notes", DUCK + REGISTER, "name: other\nversion: 3\ndescription: Nötes", where)
    (found,) = discover(site.home, [])
    assert (found.name, found.version, found.description) == ("my-notes", "3", "Nötes")
    assert (found.source, found.kind) == (where, "hermes_agent")


def test_a_folder_that_imports_this_package_is_native(site: Site) -> None:
    site.plugin("notes", NATIVE)
    (found,) = discover(site.home, [])
    assert found.kind == "native"


def test_a_folder_on_a_base_class_of_the_kit_is_found(site: Site) -> None:
    site.plugin(
        "notes", "from hermes_core.kit import BackendProvider\nclass Notes(BackendProvider): name = 'notes'\n"
    )
    (found,) = discover(site.home, [])
    assert (found.name, found.kind) == ("notes", "native")


def test_a_symlink_to_a_package_is_a_plugin_folder(site: Site, tmp_path: Path) -> None:
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "__init__.py").write_text(DUCK + REGISTER)
    site.home.plugins.mkdir()
    (site.home.plugins / "linked").symlink_to(package)
    assert [f.name for f in discover(site.home, [])] == ["linked"]


def test_folders_that_hold_no_provider_are_not_listed(site: Site) -> None:
    site.plugin("greeter", "def hello(): ...")
    site.plugin("_hidden", DUCK)
    (site.home.plugins / "empty").mkdir()
    assert discover(site.home, []) == []


@pytest.mark.parametrize("text", ["{broken", "- a list", "\x00"])
def test_an_unreadable_manifest_costs_only_the_description(site: Site, text: str) -> None:
    site.plugin("duck", DUCK + REGISTER, text)
    (found,) = discover(site.home, [])
    assert found.description == ""


def test_a_folder_comes_before_an_entry_point_of_the_same_name(site: Site) -> None:
    folder = site.plugin("duck", DUCK + REGISTER)
    first, second = discover(site.home, [point("duck")])
    assert first.path == folder
    assert not first.shadowed_by
    assert second.shadowed_by == str(folder)


@pytest.mark.parametrize("value", ["pond:register", "pond.duck:register"])
def test_a_folder_that_an_installed_package_leads_into_is_that_package(
    site: Site, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """As after `pip install -e` of what lies below plugins/."""
    folder = site.plugin("pond", DUCK + REGISTER)
    monkeypatch.syspath_prepend(str(site.home.plugins))
    group = {"hermes_agent.memory_providers": {"pond": value}}
    site.distribution("pond-memory", group, ("bread>=2",))
    found = [f for f in discover(site.home) if f.name == "pond"]
    assert [f.shadowed_by for f in found] == ["", ""]
    assert (found[0].path, found[0].distribution, found[0].version) == (folder, "pond-memory", "1.2")
    assert found[0].requires == ("bread>=2",)
    assert select(discover(site.home), "pond-memory") == found


def test_a_link_into_an_installed_package_is_that_package(site: Site) -> None:
    site.module("pond.provider.duck", DUCK + REGISTER)
    (site.folder / "pond" / "provider" / "__init__.py").write_text("from .duck import register")
    site.distribution("pond-memory", {"hermes_agent.memory_providers": {"pond": "pond.provider:register"}})
    site.home.plugins.mkdir()
    (site.home.plugins / "pond").symlink_to(site.folder / "pond" / "provider")
    found = [f for f in discover(site.home) if f.name == "pond"]
    assert [(f.distribution, f.shadowed_by) for f in found] == [("pond-memory", "")] * 2


@pytest.mark.parametrize("name", ["holographic", "builtin", "Builtin"])
def test_a_name_of_ours_is_shadowed_whoever_uses_it(site: Site, name: str) -> None:
    site.plugin(name, DUCK + REGISTER)
    found = discover(site.home, [point(name)])
    assert len(found) == 2
    assert all(f.shadowed_by for f in found)


def test_the_bundled_distribution_wins_over_everything_else(site: Site) -> None:
    site.distribution(
        "hermes-memory-holographic", {"hermes_core.providers": {"holographic": "ours:Provider"}}
    )
    site.distribution("another", {"hermes_core.providers": {"holographic": "theirs:Provider"}})
    folder = site.plugin("holographic", DUCK + REGISTER)
    first, *others = [f for f in discover(site.home) if f.name == "holographic"]
    assert first.bundled
    assert first.distribution == "hermes-memory-holographic"
    assert {f.path for f in others} >= {folder}
    assert all("hermes-memory-holographic" in f.shadowed_by for f in others)


def test_the_same_offer_seen_twice_is_one(site: Site) -> None:
    assert len(discover(site.home, [point("notes"), point("notes")])) == 1


def test_a_distribution_that_is_on_the_path_twice_counts_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.distribution("twice", {"hermes_core.providers": {"twice": "installed:Provider"}})
    editable = Site(tmp_path / "editable", site.home)
    editable.folder.mkdir()
    editable.distribution("Twice", {"hermes_core.providers": {"twice": "editable:Provider"}})
    monkeypatch.syspath_prepend(str(editable.folder))
    assert [p.value for p in installed_entry_points() if p.name == "twice"] == ["editable:Provider"]


def test_two_groups_of_one_distribution_are_alternatives_in_order(site: Site) -> None:
    groups = {
        "hermes_agent.plugins": {"duck": "duck_memory_provider"},
        "hermes_agent.memory_providers": {"duck": "duck_memory_provider:make"},
    }
    site.module("duck_memory_provider", DUCK + REGISTER)
    site.distribution("duck-memory", groups)
    found = select(discover(site.home), "duck")
    assert [f.source for f in found] == ["hermes_agent.memory_providers", "hermes_agent.plugins"]


def test_a_general_plugin_is_listed_only_when_its_source_speaks_of_memory(site: Site) -> None:
    site.module("lamp", "def register(ctx): ctx.register_tool('lamp')")
    site.distribution("lamp-plugin", {"hermes_agent.plugins": {"lamp": "lamp"}})
    assert [f for f in discover(site.home) if f.name == "lamp"] == []


def test_a_general_plugin_beside_the_provider_of_its_package_is_no_second_provider(site: Site) -> None:
    site.module("duckling.provider", DUCK + REGISTER)
    site.module("duckling.companion", "def register(ctx): ctx.register_tool('memory_provider')")
    groups = {
        "hermes_agent.memory_providers": {"duckling-memory": "duckling.provider"},
        "hermes_agent.plugins": {"duck": "duckling.companion"},
    }
    site.distribution("duckling", groups)
    found = [f for f in discover(site.home) if f.distribution == "duckling"]
    assert [f.name for f in found] == ["duckling-memory"]
    assert select(found, "duck") == found


@pytest.mark.parametrize(
    "source",
    [
        'class P:\n    name = "own-name"\n',
        'PROVIDER_NAME: str = "own-name"\n',
        "class P:\n    @property\n    def name(self) -> str:\n        return 'own-name'\n",
        'class P:\n    @property\n    def name(self):\n        """Its name."""\n        return "own-name"\n',
    ],
)
def test_a_provider_is_selected_by_the_name_that_it_gives_itself(site: Site, source: str) -> None:
    site.plugin("folder-name", source + REGISTER)
    found = discover(site.home, [])
    assert [f.name for f in select(found, "own-name")] == ["folder-name"]


@pytest.mark.parametrize(
    "line",
    [
        "from pond import DuckProvider",
        "from pond.birds import register  # noqa: F401",
        "from pond.birds import DuckProvider, other",
    ],
)
def test_a_provider_whose_folder_only_imports_it_is_selected_by_its_own_name(site: Site, line: str) -> None:
    site.module("pond.birds", DUCK)
    shim = f"from agent.memory_provider import MemoryProvider\n{line}\n\ndef register(ctx): ...\n"
    site.plugin("folder-name", shim)
    assert [f.name for f in select(discover(site.home, []), "duck")] == ["folder-name"]


def test_a_provider_is_selected_by_its_distribution(site: Site) -> None:
    site.distribution("Verbatim_Memory", {"hermes_core.providers": {"verbatim": "v:Provider"}})
    assert [f.name for f in select(discover(site.home), "verbatim-memory")] == ["verbatim"]


def test_a_word_in_a_source_is_not_a_name(site: Site) -> None:
    site.plugin("folder-name", DUCK + REGISTER + '\nwords = ["memory", "quack"]\n')
    found = discover(site.home, [])
    assert select(found, "quack") == select(found, "goose") == select(found, "") == []


def test_a_distribution_with_damaged_metadata_does_not_hide_the_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.distribution("broken", {})
    (site.folder / "broken-1.2.dist-info" / "entry_points.txt").write_text(
        "[hermes_core.providers]\nno value"
    )
    site.distribution("sound", {"hermes_core.providers": {"sound": "sound:Provider"}})
    with caplog.at_level(logging.WARNING):
        names = [p.name for p in installed_entry_points()]
    assert "sound" in names
    assert "damaged metadata" in caplog.text


def test_a_manifest_names_the_programs_that_a_folder_needs(site: Site) -> None:
    tools = "external_dependencies:\n  - {name: boxctl, check: boxctl -v, install: brew install boxctl}\n  - nonsense\n"
    site.plugin("duck", DUCK + REGISTER, tools)
    (tool,) = next(found for found in discover(site.home, []) if found.name == "duck").tools
    assert (tool.name, tool.check, tool.install) == ("boxctl", "boxctl -v", "brew install boxctl")


def test_how_a_package_of_ours_enters_another_host_is_no_second_provider(site: Site) -> None:
    groups = {
        "hermes_core.providers": {"tea": "tea:Tea"},
        "hermes_agent.memory_providers": {"core-tea": "tea.hermes_agent:register"},
        "hermes_agent.plugins": {"core-tea": "tea.hermes_agent:register"},
    }
    site.distribution("tea-memory", groups)
    site.distribution("other-memory", {"hermes_agent.memory_providers": {"other": "other:register"}})
    names = [found.name for found in discover(site.home) if found.distribution.endswith("-memory")]
    assert {"tea", "other"} <= set(names)
    assert "core-tea" not in names


def test_a_folder_that_was_exported_for_another_host_is_no_provider_here(site: Site) -> None:
    site.plugin("core-tea", DUCK + REGISTER, "name: core-tea\nexported_for: hermes-agent\n")
    assert discover(site.home, []) == []
