"""A home with a provider written for Hermes Agent, where the package that loads such providers is missing or blocked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import importlib_metadata
import pytest
from click.testing import CliRunner, Result

from hermes_core import open_memory, register_in_hermes_agent
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.errors import ProviderUnavailable
from hermes_core.loader import extensions
from hermes_core.loader.discover import discover
from hermes_core.loader.load import load_provider
from tests.loader.conftest import DUCK, NATIVE, REGISTER, Site

PACKAGE = "plugins/hermes-agent"


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension is not installed."""
    installed = extensions.installed_entry_points

    def others() -> Iterator[importlib_metadata.EntryPoint]:
        return (
            one
            for one in installed()
            if (one.group, one.name) != (extensions.EXTENSION_GROUP, "hermes-agent")
        )

    monkeypatch.setattr(extensions, "installed_entry_points", others)
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", others)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def used(site: Site, missing: None) -> Site:
    """A home whose provider was written for Hermes Agent."""
    site.plugin("duck", DUCK + REGISTER)
    set_value(site.home, "memory.provider", "duck")
    return site


def test_the_configured_provider_says_which_package_it_needs_everywhere(used: Site) -> None:
    said = "'duck' was written for Hermes Agent and needs the package hermes-memory-hermes-agent"
    with open_memory(used.home) as memory:
        (problem,) = [one for one in memory.problems() if "duck" in one]
    assert said in problem
    assert f"pip install {extensions.install_remedy('hermes-memory-hermes-agent').split()[-1]}" in problem
    assert PACKAGE in problem
    for words in (("memory", "status"), ("doctor",), ("providers",)):
        shown = run(*words)
        assert shown.exit_code == 3, words
        assert "hermes-memory-hermes-agent" in shown.output, words
        assert PACKAGE in " ".join(shown.output.split()).replace(" ", ""), words


def test_it_is_listed_as_unavailable_with_the_remedy(used: Site) -> None:
    used.distribution("pond", {"hermes_agent.memory_providers": {"pond": "pond:register"}})
    listed: list[dict[str, Any]] = json.loads(run("providers", "--json").stdout)
    for name in ("duck", "pond"):
        (entry,) = [entry for entry in listed if entry["name"] == name]
        assert (entry["state"], entry["kind"]) == ("unavailable", "hermes_agent")
        assert entry["reason"].endswith("needs the package hermes-memory-hermes-agent")
        assert entry["remedy"].startswith("run: ")


def test_a_provider_of_another_style_in_a_group_of_ours_says_it_too(site: Site, missing: None) -> None:
    site.module("provider_under_test", DUCK)
    site.distribution("under-test", {"hermes_core.providers": {"duck": "provider_under_test:Duck"}})
    with pytest.raises(ProviderUnavailable, match="needs the package hermes-memory-hermes-agent"):
        load_provider("duck", site.home)


def test_a_blocked_extension_says_by_which_setting(site: Site) -> None:
    site.plugin("duck", DUCK + REGISTER)
    site.home.config_yaml.write_text("extensions:\n  block: [hermes-agent]\n")
    with pytest.raises(
        ProviderUnavailable, match="which is blocked: 'hermes-agent' is on the block"
    ) as refused:
        load_provider("duck", site.home)
    assert refused.value.remedy == "change extensions.allow or extensions.block"


@pytest.mark.parametrize(
    ("entry", "provider"),
    [
        (NATIVE, ""),
        (NATIVE + "\ndef register(ctx):\n    ctx.register_memory_provider(Notes())\n", ""),
        ("from .provider import Notes\n", NATIVE),
        ("import provider\n\ndef register(ctx):\n    ctx.register_memory_provider(provider.Notes)\n", NATIVE),
    ],
    ids=["class", "register", "relative", "absolute"],
)
def test_a_native_folder_needs_no_extension(site: Site, missing: None, entry: str, provider: str) -> None:
    folder = site.plugin("notes", entry)
    if provider:
        (folder / "provider.py").write_text(provider)
    (place,) = [one for one in discover(site.home) if one.name == "notes"]
    assert place.kind == "native"
    loaded: Any = load_provider("notes", site.home).factory()
    assert loaded.prefetch("?") == "tea"


def test_a_file_with_the_name_of_a_module_of_the_host_is_the_native_folders_own(
    site: Site, missing: None
) -> None:
    folder = site.plugin("notes", "import utils\n" + NATIVE.replace('"tea"', "utils.WORD"))
    (folder / "utils.py").write_text("WORD = 'own'\n")
    loaded: Any = load_provider("notes", site.home).factory()
    assert loaded.prefetch("?") == "own"


def test_the_command_says_which_package_has_it(used: Site) -> None:
    shown = run("plugins", "list")
    assert shown.exit_code == 1
    assert (
        "'plugins' is in the package hermes-memory-hermes-agent, which is not installed; run: "
        in shown.output
    )
    assert "hermes-memory-hermes-agent" in run("--help").output


def test_a_provider_of_ours_inside_hermes_agent_says_what_that_needs(missing: None) -> None:
    with pytest.raises(
        ProviderUnavailable, match="'notes' needs the package hermes-memory-hermes-agent"
    ) as told:
        register_in_hermes_agent(object(), "notes")
    assert PACKAGE in told.value.remedy
