from __future__ import annotations

import sys

import pytest

from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import discover
from tests.loader.conftest import DUCK, REGISTER, Site


def test_a_folder_that_only_imports_an_installed_package_is_that_package(site: Site) -> None:
    site.module("pond_memory", DUCK + REGISTER)
    site.distribution("pond-memory", {"hermes_agent.memory_providers": {"pond": "pond_memory:register"}})
    site.plugin("pond", "from pond_memory import register")
    found = [f for f in discover(site.home) if f.name == "pond"]
    assert [(f.distribution, f.shadowed_by) for f in found] == [("pond-memory", "")] * 2


COMPANION = '''"""Tools only: it never calls register_memory_provider, which the MemoryProvider beside it does."""

import json
from tools.registry import tool_error


def register(ctx):
    # register_memory_provider is the business of another plugin
    ctx.register_tool("wiki_search", {"name": "wiki_search"}, lambda args: json.dumps(tool_error("none")))
    ctx.register_hook("pre_llm_call", lambda **_: None)
'''


@pytest.mark.parametrize(
    ("source", "manifest"),
    [
        (COMPANION, ""),
        (COMPANION, "kind: standalone"),
        ("from .tools import register\n", ""),
        ("from agent.web_search_provider import WebSearchProvider\nclass W(WebSearchProvider): ...\n"
         "def register(ctx): ctx.register_web_search_provider(W())\n", "kind: backend"),
        ("class Chat: ...\ndef register(ctx): ctx.register_platform(Chat())\n", "kind: platform"),
        ("def register(ctx): ctx.register_context_engine(object())\n", "kind: exclusive"),
        ("import importlib\ndef register(ctx): importlib.import_module('x').start(ctx)\n", "kind: platform"),
    ],
)  # fmt: skip
def test_a_plugin_of_another_sort_is_not_listed(site: Site, source: str, manifest: str) -> None:
    folder = site.plugin("wiki", source, manifest)
    (folder / "tools.py").write_text("def register(ctx): ctx.register_tool('t', {}, print)\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_it.py").write_text("class Fake(MemoryProvider): ...\n")
    assert discover(site.home, []) == []


@pytest.mark.parametrize(
    "source",
    [
        "def register(ctx): ctx.register_memory_provider(object())\n",
        "def register(ctx): getattr(ctx, 'register_memory_provider')(object())\n",
        "def register(ctx): getattr(ctx, 'register_' + 'memory' + '_provider')(object())\n",
        "def register(ctx): exec('ctx.register_' + 'memory' + '_provider(1)')\n",
        "import agent.memory_provider as m\nclass Notes(m.MemoryProvider): ...\n",
        "from not_installed_here import register\n",
        "from not_installed_here import *\n",
        "import not_installed_here\ndef register(ctx): not_installed_here.setup(ctx)\n",
        "from .inner import register\n",
        "def broken(:\n",
        DUCK,
    ],
)
def test_a_plugin_that_may_register_a_provider_is_listed(site: Site, source: str) -> None:
    folder = site.plugin("maybe", source)
    (folder / "inner.py").write_text("def register(ctx): ctx.register_memory_provider(object())\n")
    assert [place.name for place in discover(site.home, [])] == ["maybe"]


def test_listing_imports_nothing_of_a_published_provider(site: Site) -> None:
    site.plugin("loud", "raise SystemExit('imported')\ndef register(ctx): ctx.register_memory_provider(1)")
    entries = {entry.name: entry for entry in discover_providers(site.home, entry_points=[])}
    assert entries["loud"].state == "idle"
    assert not [name for name in sys.modules if name.rpartition(".")[2].startswith("loud")]


def test_a_published_provider_that_says_no_is_unavailable(site: Site) -> None:
    site.plugin("duck", DUCK.replace("return True", "return False") + REGISTER)
    entries = discover_providers(site.home, active=["duck"], probe=True, entry_points=[])
    (entry,) = [entry for entry in entries if entry.name == "duck"]
    assert (entry.state, "can't run here" in entry.reason) == ("unavailable", True)
