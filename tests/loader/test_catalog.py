from __future__ import annotations

import json
import sys

import pytest

from hermes_core.config import set_value
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import BUNDLED, ProviderEntry
from hermes_core.loader.entry_points import LoadControl
from tests.loader.conftest import DUCK, NATIVE, REGISTER, Site

LOUD = "import hermes_core\nraise SystemExit('imported')\n"


def listed(
    site: Site, active: str = "", *, probe: bool = False, **control: frozenset[str]
) -> dict[str, ProviderEntry]:
    entries = discover_providers(
        site.home, control=LoadControl(**control), active=active, probe=probe, entry_points=[]
    )
    return {entry.name: entry for entry in entries}


def test_listing_imports_nothing(site: Site) -> None:
    site.plugin("loud", LOUD)
    assert listed(site, "other")["loud"].state == "idle"
    assert not [name for name in sys.modules if name.rpartition(".")[2].startswith("loud")]


def test_our_providers_that_are_not_installed_say_how_to_get_them(site: Site) -> None:
    entries = listed(site)
    assert set(entries) == set(BUNDLED)
    assert entries["mem0"].state == "unavailable"
    assert entries["mem0"].remedy == "run: hermes-memory memory setup mem0"
    assert not entries["mem0"].installed


def test_the_configured_provider_is_active(site: Site) -> None:
    site.plugin("notes", NATIVE)
    site.plugin("tea", NATIVE.replace('"notes"', '"tea"'))
    entries = listed(site, "notes")
    assert (entries["notes"].state, entries["tea"].state) == ("active", "idle")


def test_a_configured_provider_may_be_named_as_it_names_itself(site: Site) -> None:
    site.plugin("folder-name", NATIVE)
    entries = listed(site, "notes")
    assert entries["folder-name"].state == "active"
    assert "notes" not in entries


def test_a_configured_name_that_nothing_has_is_listed_as_failed(site: Site) -> None:
    entry = listed(site, "ghost")["ghost"]
    assert entry.state == "failed"
    assert "'ghost'" in entry.reason
    assert entry.remedy


def test_a_configured_folder_that_is_no_provider_says_what_it_lacks(site: Site) -> None:
    site.plugin("pond", "import json\n")
    entry = listed(site, "pond")["pond"]
    assert entry.state == "failed"
    assert "registers no memory provider" in entry.reason
    assert "register(ctx)" in entry.remedy


def test_a_configured_provider_of_ours_that_is_not_installed_is_listed_once(site: Site) -> None:
    entry = listed(site, "honcho")["honcho"]
    assert entry.state == "unavailable"
    assert "memory.provider names it" in entry.reason
    assert "hermes-memory memory setup honcho" in entry.remedy


def test_a_blocked_provider_says_by_which_list(site: Site) -> None:
    site.plugin("notes", NATIVE)
    assert "block list" in listed(site, "notes", block=frozenset({"notes"}))["notes"].reason
    assert listed(site, "notes", allow=frozenset({"duck"}))["notes"].state == "blocked"


def test_a_shadowed_folder_is_listed_beside_what_it_imitates(site: Site) -> None:
    folder = site.plugin("holographic", NATIVE)
    entries = discover_providers(site.home, entry_points=[])
    ours, theirs = [entry for entry in entries if entry.name == "holographic"]
    assert (ours.state, theirs.state) == ("unavailable", "shadowed")
    assert str(folder) in theirs.reason
    assert "hermes-memory-holographic" in theirs.reason


def test_a_configured_package_that_is_shadowed_says_by_what(site: Site) -> None:
    folder = site.plugin("duck", DUCK + REGISTER)
    site.distribution("pond-memory", {"hermes_agent.memory_providers": {"duck": "pond:register"}})
    entries = discover_providers(site.home, control=LoadControl(), active="pond-memory")
    entry = next(entry for entry in entries if entry.name == "pond-memory")
    assert (entry.state, entry.installed) == ("failed", False)
    assert f"pond-memory pond:register is not used: {folder} comes first" in entry.reason
    assert "'duck'" in entry.remedy


@pytest.mark.parametrize("name", ["notes", "pond-memory"])
def test_a_package_that_lies_in_the_plugin_folder_is_one_line(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    site.plugin("notes", NATIVE)
    monkeypatch.syspath_prepend(str(site.home.plugins))
    site.distribution("pond-memory", {"hermes_core.providers": {"notes": "notes:Notes"}})
    entries = discover_providers(site.home, control=LoadControl(), active=name)
    (entry,) = [entry for entry in entries if entry.name not in BUNDLED]
    assert (entry.name, entry.state, entry.distribution) == ("notes", "active", "pond-memory")


@pytest.mark.parametrize(
    ("source", "state", "reason"),
    [
        (NATIVE, "active", ""),
        ("import hermes_core\nregister = 1 / 0", "failed", "ZeroDivisionError"),
        ("import hermes_core, not_here_at_all\nregister = 1", "unavailable", "'not_here_at_all'"),
        (NATIVE + "    def is_available(self):\n        raise OSError('x')", "failed", "OSError: x"),
        (
            NATIVE + "    def is_available(self):\n        from hermes_core import Availability\n"
            "        return Availability.no('no key', 'set KEY')",
            "unavailable",
            "no key",
        ),
        (NATIVE + "    def is_available(self):\n        return False", "unavailable", "can't run here"),
    ],
)  # fmt: skip
def test_a_probe_tells_how_the_active_provider_fares(
    site: Site, source: str, state: str, reason: str
) -> None:
    site.plugin("notes", source)
    entry = listed(site, "notes", probe=True)["notes"]
    assert (entry.state, reason in entry.reason) == (state, True)


def test_a_probe_loads_no_other_provider(site: Site) -> None:
    site.plugin("notes", NATIVE)
    site.plugin("loud", LOUD)
    assert listed(site, "notes", probe=True)["loud"].state == "idle"


def test_an_entry_is_plain_json(site: Site) -> None:
    site.plugin("notes", NATIVE)
    assert json.loads(json.dumps(listed(site)["notes"].to_dict()))["name"] == "notes"


def test_without_a_load_control_the_listing_goes_by_the_lists_of_the_home(site: Site) -> None:
    site.plugin("notes", NATIVE)
    set_value(site.home, "providers.block", ["notes"])
    states = {one.name: one.state for one in discover_providers(site.home, entry_points=[])}
    assert states["notes"] == "blocked"


def test_the_catalog_says_which_of_two_providers_of_a_name_runs(site: Site) -> None:
    folder = site.plugin("supermemory", NATIVE.replace('"notes"', '"supermemory"'))
    places = {(entry.name, entry.state) for entry in listed_all(site, "")}
    assert ("supermemory", "shadowed") in places
    (shadowed,) = [entry for entry in listed_all(site, "") if entry.state == "shadowed"]
    assert "memory.provider: folder:supermemory" in shadowed.remedy
    (active,) = [entry for entry in listed_all(site, "folder:supermemory") if entry.state == "active"]
    assert (active.name, active.path) == ("folder:supermemory", str(folder))
    assert "in place of the bundled provider 'supermemory'" in active.notes[0]
    (missing,) = [e for e in listed_all(site, "folder:nowhere") if e.name == "folder:nowhere"]
    assert missing.state == "failed"


def listed_all(site: Site, active: str) -> list[ProviderEntry]:
    return discover_providers(site.home, control=LoadControl(), active=active, entry_points=[])
