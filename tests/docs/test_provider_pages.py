"""The pages of the providers and the table that compares them: nobody is missing, and what is typed agrees with the code."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from pathlib import Path

import click
import provider_pages as pages
import pytest

from hermes_core.loader.discover import BUNDLED

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = [
    *(
        "Set up",
        "What it does",
        "What is sent where",
        "When it is down",
        "Delivery",
        "Forgetting",
        "Take memories along",
    ),
    "Commands",
]
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTING_TABLE = re.compile(r"^\| setting.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)

each = pytest.mark.parametrize("name", list(BUNDLED))


def readme(name: str) -> str:
    return (ROOT / "plugins" / name / "README.md").read_text(encoding="utf-8")


def commands(name: str) -> dict[str, click.Command]:
    return {
        path.removeprefix(f"hermes-memory {name} "): command for path, command in pages.known(name).commands
    }


# ---------------------------------------------------------------- nobody is missing


def test_the_bundled_providers_are_the_packages_in_plugins() -> None:
    files = (ROOT / "plugins").glob("*/pyproject.toml")
    groups = {path.parent.name: tomllib.loads(path.read_text("utf-8")) for path in files}
    providers = {
        name
        for name, file in groups.items()
        if "hermes_core.providers" in file["project"].get("entry-points", {})
    }
    assert providers == set(BUNDLED)


def test_the_table_has_every_provider_once_and_no_empty_cell() -> None:
    lines = [line for line in "\n".join(pages.index_page()).splitlines() if line.startswith("|")]
    assert re.findall(r"\((\w+)\.md\)", lines[0]) == list(BUNDLED)
    for line in lines:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[2:-1]]
        assert len(cells) == len(BUNDLED)
        assert all(cells)


def test_facts_are_told_of_the_bundled_providers_and_of_no_others() -> None:
    assert set(pages.FACTS) == set(BUNDLED)


@each
def test_a_provider_has_its_row_in_the_readme_and_its_place_in_the_menu(name: str) -> None:
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    facts = pages.FACTS[name]
    page = f"https://github.com/hermes-memory/hermes-memory/blob/main/docs/reference/providers/{name}.md"
    assert f"| [{facts.title}]({page}) | {facts.data} | `hermes-memory memory setup {name}` |\n" in told
    assert f"- reference/providers/{name}.md\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


# ------------------------------------------------------- what is typed agrees with the code


@each
def test_what_is_told_of_turns_fits_the_hooks(name: str) -> None:
    it = pages.known(name)
    assert ("sync_turn" in it.hooks) == (not it.facts.turns.startswith("not kept"))
    assert ("on_memory_write" in it.hooks) == (it.facts.entries != "not kept")
    for told in (it.facts.turns, it.facts.entries):
        assert re.search(r"exactly once|at least once|as turns", told)


@each
def test_settings_that_offer_more_tools_exist_and_do_offer_more(name: str) -> None:
    it = pages.known(name)
    assert set(it.facts.more_tools) <= {one.name for one in it.settings}
    assert bool(it.facts.more_tools) == bool(it.more_tools)


@each
def test_every_field_of_the_facts_says_something(name: str) -> None:
    facts = pages.FACTS[name]
    assert [
        f.name for f in dataclasses.fields(facts) if f.name != "more_tools" and not getattr(facts, f.name)
    ] == []


@each
def test_a_setting_tells_what_it_is_for(name: str) -> None:
    assert [one.name for one in pages.known(name).settings if not one.help] == []


@each
def test_a_variable_of_this_machine_changes_no_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(pages.provider_page(name))
    for one in pages.known(name).settings:
        if one.env and one.type is str:
            monkeypatch.setenv(one.env, one.choices[-1] if one.choices else "set-here")
    pages.known.cache_clear()
    assert list(pages.provider_page(name)) == before


# ------------------------------------------------------------------- the READMEs


@each
def test_a_readme_has_the_sections_that_the_page_is_made_of(name: str) -> None:
    assert re.findall(r"^## (.+)$", FENCE.sub("", readme(name)), re.MULTILINE) == SECTIONS


@each
def test_a_readme_begins_with_the_setup(name: str) -> None:
    assert f"hermes-memory memory setup {name}\n" in pages.section(name, "Set up")


@each
def test_a_readme_names_the_commands_that_there_are(name: str) -> None:
    told = set(re.findall(r"`([a-z]+)(?: [^`]*)?`", readme(name).partition("## Commands")[2]))
    assert set(commands(name)) <= told
    rows = [
        row.split("|")[1] for row in pages.section(name, "Commands").splitlines()[2:] if row.startswith("|")
    ]
    assert {word for row in rows for word in re.findall(r"`([a-z]+)", row)} == set(commands(name))


@each
def test_the_settings_that_a_readme_lists_are_those_of_the_code(name: str) -> None:
    fields = {one.name: one for one in pages.known(name).settings}
    variables = {one.env for one in fields.values() if one.env}
    listed = [
        row.split("|")[1:3] for table in SETTING_TABLE.findall(readme(name)) for row in table.splitlines()
    ]
    for names, default in listed:
        named = re.findall(r"`([^`]+)`", names)
        told = re.findall(r"`([^`]+)`", default)
        assert set(named) <= {*fields, *variables, ".env"}
        if len(named) == len(told) == 1 and named[0] in fields and default.strip() == f"`{told[0]}`":
            assert pages.default_of(fields[named[0]]).strip("`") in (told[0], f"{told[0]}.0"), named


@each
def test_the_lines_that_a_readme_shows_begin_with_programs_and_commands_that_exist(name: str) -> None:
    for block in FENCE.findall(readme(name)):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["hermes-memory", name]:
                assert words[2] in commands(name), line
            elif words[:1] == ["hermes-memory"]:
                assert words[1:4] in (["memory", "setup", name], ["memory", "use", name]), line
                settings = {one.name for one in pages.known(name).settings}
                assert {word.partition("=")[0] for word in words if "=" in word} <= settings, line
