"""What plugin.yaml asks for and declares is read: the version of the host, the system, tools, hooks and capabilities."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from hermes_core import discover_providers, load_provider, open_memory
from hermes_core.errors import ProviderUnavailable
from hermes_memory_foreign.manifest import declared_words, manifest_notes, refusal_of
from tests.loader.conftest import DUCK, REGISTER, Site
from tests.table import table

HERE = {"linux": "linux", "darwin": "macos", "win32": "windows"}[sys.platform]


@table(("manifest", "said"), [
    ({}, ""),
    ({"requires_hermes": ">=0.19"}, ""), ({"requires_hermes": ">=0.21.6"}, ""), ({"requires_hermes": ""}, ""),
    ({"requires_hermes": ">=0.21,<1"}, ""), ({"requires_hermes": "a pond"}, ""),
    ({"requires_hermes": ">=9.0"}, "needs Hermes Agent >=9.0"), ({"requires_hermes": "<0.19"}, "needs Hermes Agent <0.19"),
    ({"platforms": []}, ""), ({"platforms": [HERE]}, ""), ({"platforms": [HERE.upper(), "plan9"]}, ""),
    ({"platforms": ["plan9"]}, "runs on plan9"), ({"platforms": HERE}, ""),
])  # fmt: skip
def test_what_a_plugin_needs_is_compared_with_this_host(manifest: dict[str, Any], said: str) -> None:
    refused = refusal_of(manifest)
    assert refused.startswith(said)
    assert bool(refused) is bool(said)


@table(("manifest", "words"), [
    ({}, ""),
    ({"provides_tools": ["dig"], "provides_hooks": ["pre_llm_call"]}, "tools dig; hooks pre_llm_call"),
    ({"hooks": ["post_llm_call"]}, "hooks post_llm_call"),
    ({"requires_env": ["A", {"name": "B"}]}, "variables A, B"),
    ({"capabilities": ["tools.override", {"id": "net"}]}, "capabilities tools.override, net"),
    ({"capabilities": {"provides_tools": ["dig"], "provides_middleware": ["m"]}}, "tools dig; middleware m"),
])  # fmt: skip
def test_what_a_plugin_declares_is_one_line(manifest: dict[str, Any], words: str) -> None:
    assert declared_words(manifest) == words


def test_what_is_registered_and_not_declared_is_named() -> None:
    manifest = {"provides_tools": ["dig"], "capabilities": {"provides_hooks": ["pre_llm_call"]}}
    assert manifest_notes(manifest, ["dig"], ["pre_llm_call"]) == ()
    assert manifest_notes(manifest, ["dig", "swim"], ["post_llm_call", "post_llm_call"]) == (
        "it registers tools that plugin.yaml does not declare: swim",
        "it registers hooks that plugin.yaml does not declare: post_llm_call",
    )
    assert manifest_notes({}, ["swim"], ["post_llm_call"]) == ()
    assert manifest_notes({"requires_hermes": "a pond"}, [], []) == (
        "requires_hermes of plugin.yaml is no version range: 'a pond'",
    )


@pytest.mark.parametrize("asks", ["requires_hermes: '>=99'", "platforms: [plan9]"])
def test_a_plugin_for_another_host_is_listed_with_the_reason_and_runs_no_code(site: Site, asks: str) -> None:
    folder = site.plugin("duck", "raise SystemExit('it ran')\n" + DUCK + REGISTER)
    (folder / "plugin.yaml").write_text(f"name: duck\n{asks}\n")
    with pytest.raises(
        ProviderUnavailable, match=r"plugin.yaml of provider 'duck' says that it (needs|runs on)"
    ):
        load_provider("duck", site.home)
    for active in ((), ("duck",)):
        (entry,) = [one for one in discover_providers(site.home, active=active) if one.name == "duck"]
        assert (entry.state, "says that it" in entry.reason) == ("unavailable", True)
    with open_memory(site.home, provider="duck") as memory:
        assert any("says that it" in text for text in memory.problems())


def test_what_a_loaded_plugin_does_not_declare_is_a_note(site: Site) -> None:
    hooks = REGISTER + "    ctx.register_hook('pre_llm_call', lambda **_: None)\n"
    folder = site.plugin("duck", DUCK + hooks)
    (folder / "plugin.yaml").write_text("name: duck\nprovides_hooks: [post_llm_call]\n")
    loaded = load_provider("duck", site.home)
    assert "it registers hooks that plugin.yaml does not declare: pre_llm_call" in loaded.warnings
