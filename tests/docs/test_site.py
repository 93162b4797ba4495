"""The site: every page is in its navigation, and its search finds the names that people look for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_core.config import KEYS

ROOT = Path(__file__).resolve().parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    stored = sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))
    assert sorted(pages(SITE["nav"])) == stored


def test_guides_are_grouped_by_reader() -> None:
    (guides,) = (entry["How to"] for entry in SITE["nav"] if "How to" in entry)
    groups = [name for entry in guides if isinstance(entry, dict) for name in entry]
    assert groups == [
        "Chat with an agent",
        "Embed it in a program",
        "Run a gateway",
        "Write a provider",
    ]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [group for group in groups if f"\n## {group}" not in index] == []


def separator_of_words() -> re.Pattern[str]:
    """Return what separates words for the search of the site."""
    (search,) = (plugin["search"] for plugin in SITE["plugins"])
    return re.compile(search["separator"])


def test_search_finds_a_key_by_its_last_part() -> None:
    separator = separator_of_words()
    assert "per_user" in separator.split("memory.per_user")
    assert [key for key in KEYS if key.rpartition(".")[2] not in separator.split(key)] == []


def test_the_site_links_the_repository_and_has_a_dark_mode() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SITE["repo_url"] == project["urls"]["Homepage"]
    assert {palette.get("scheme") for palette in SITE["theme"]["palette"]} >= {"default", "slate"}
    assert "navigation.footer" in SITE["theme"]["features"]


SEARCHES = {
    "fastapi": "build-a-web-service",
    "multiple users": "build-a-web-service",
    "streaming": "build-a-web-service",
    "workers": "build-a-web-service",
    "telegram bot": "build-a-bot",
    "discord": "build-a-bot",
    "slack": "build-a-bot",
    "docker": "run-in-containers",
    "containers": "run-in-containers",
    "compose": "run-in-containers",
    "kubernetes": "run-in-containers",
    "serverless": "run-serverless",
    "lambda": "run-serverless",
    "cloud run": "run-serverless",
    "jupyter": "use-in-a-notebook",
    "notebook": "use-in-a-notebook",
    "gateway": "run-a-gateway",
    "uv": "use-uv",
    "uninstall": "uninstall",
    "delete user data": "delete-user-data",
    "gdpr": "delete-user-data",
    "back up": "back-up",
    "restore": "back-up",
    "install": "install",
    "mcp": "use-over-mcp",
    "http": "serve-over-http",
}
"""Words that people search for, and the page that answers."""


@pytest.mark.parametrize(("words", "page"), SEARCHES.items())
def test_what_people_search_for_leads_to_its_page(words: str, page: str) -> None:
    """The search of the site finds what the page says, and the first page has a line for each task."""
    text = (ROOT / "docs/how-to" / f"{page}.md").read_text(encoding="utf-8")
    found = [word.lower() for word in separator_of_words().split(text)]
    # The search finds the beginnings of words.
    assert [
        word for word in words.split() if not any(one.startswith(word.rstrip("s")) for one in found)
    ] == []
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    lines = [line.lower() for line in index.splitlines() if f"how-to/{page}.md" in line]
    assert any(all(word.rstrip("s") in line for word in words.split()) for line in lines), lines
