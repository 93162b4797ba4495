"""The documentation is true: everything has its heading, generated pages are fresh, and every block runs or parses."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from click.testing import CliRunner

import hermes_core
import hermes_memory_agent as agent
from hermes_core import errors, kit
from hermes_core.config import KEYS, Config, parse_config
from hermes_core.contract.hooks import HOOK_NAMES, OBSERVER_HOOK_NAMES
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import load_extensions
from hermes_core.packages import KNOWN_EXTENSIONS
from tests.forked import python
from tests.table import table

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
REPOSITORY = re.compile(r"^https://github\.com/hermes-memory/hermes-memory/(?:blob|raw)/main/")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
# Packages of others, which may warn of themselves. The tests do without most of them, of 95 MB to 1 GB.
FRAMEWORKS = ("agno", "autogen_agentchat", "crewai", "fastapi", "llama_index", "smolagents")
READ_ONLY = {
    "text",
    "pycon",
    "ts",
}  # the client in TypeScript is run by plugins/http/tests/test_typescript.py
WORKED = (0, 3)
"""Exit codes of a command that did what it says: 3 means that something configured does not work here."""


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load("docs/generate.py")
run_page = load("docs/run_page.py")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            yield Block(page, text[: match.start()].count("\n") + 1, match[2], match[3])


BLOCKS = list(blocks())


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


# ------------------------------------------------------------------- headings


@pytest.fixture(scope="module")
def headings() -> set[str]:
    found = {h for page in PAGES for h in HEADING.findall(page.read_text(encoding="utf-8"))}
    return {heading.partition("(")[0].strip("` ") for heading in found}


@table("hook", sorted(HOOK_NAMES | OBSERVER_HOOK_NAMES))
def test_every_hook_has_a_heading(hook: str, headings: set[str]) -> None:
    assert hook in headings


@table("key", [*KEYS, *generate.ENVIRONMENT])
def test_every_key_and_variable_has_a_heading(key: str, headings: set[str]) -> None:
    assert key in headings


def test_every_public_name_has_a_heading(headings: set[str]) -> None:
    assert {*hermes_core.__all__, *agent.__all__} - headings == {
        "MemoryProvider",
        "hookimpl",
    }  # the page of hooks begins with these


@table("name", kit.__all__)
def test_every_name_of_the_kit_has_a_heading(name: str, headings: set[str]) -> None:
    assert name in headings


@table("error", [n for n, c in vars(errors).items() if isinstance(c, type)])
def test_every_error_has_a_heading(error: str, headings: set[str]) -> None:
    assert error in headings


def test_every_command_has_a_heading_and_a_help(headings: set[str]) -> None:
    found = dict(generate.commands())
    assert [path for path in found if path not in headings] == []
    assert [path for path, command in found.items() if not command.help] == []


def test_every_command_is_in_the_table_of_forms_and_on_the_page_of_one_topic() -> None:
    table_of_forms = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    running = [
        path.removeprefix("hermes-memory ")
        for path, command in generate.commands()
        if not isinstance(command, click.Group) or command.invoke_without_command
    ]
    assert re.findall(r"^\| \[`([^`]+)`\]", table_of_forms, re.MULTILINE) == running
    assert generate.NOT_RUN.keys() <= set(running)
    words = [word for topic in generate.TOPICS for word in topic.commands]
    assert len(words) == len(set(words))
    assert [word for word in words if f"hermes-memory {word}" not in dict(generate.commands())] == []


@table("page", sorted((ROOT / "docs/reference").rglob("*.md")))
def test_a_page_of_the_reference_is_short_enough_to_find_something_on_it(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 4_000


def test_every_option_says_what_it_is_for() -> None:
    silent = [
        f"{path} {param.opts[0]}"
        for path, command in generate.commands()
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert silent == []


@pytest.mark.parametrize("variable", sorted(generate.ENVIRONMENT))
def test_every_variable_that_is_documented_is_read_somewhere(variable: str) -> None:
    sources = [*(ROOT / "hermes_core").rglob("*.py"), *ROOT.glob("plugins/*/hermes_memory_*/*.py")]
    assert any(variable in path.read_text(encoding="utf-8") for path in sources)


def test_the_tables_of_names_end_in_hooks_of_ours() -> None:
    rows = (ROOT / "docs/reference/names.md").read_text(encoding="utf-8").splitlines()
    named = {m[1] for row in rows if (m := re.match(r"\| [^|]+ \| `(\w+)\(", row))}
    assert named <= HOOK_NAMES
    assert named == HOOK_NAMES - {"register_cli"}


def test_every_tool_has_a_heading(headings: set[str]) -> None:
    assert {"memory", "session_search"} <= headings


@table("page", PAGES)
def test_every_link_leads_to_a_page_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        here = REPOSITORY.sub("", target)
        if "://" in here:
            continue
        path, _, anchor = here.partition("#")
        folder = page.parent if here == target else ROOT
        goal = (folder / path).resolve() if path else page
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(target)
    assert broken == []


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """The headings of a page as its addresses name them."""
    found = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in found}


@table("page", generate.PAGES)
def test_a_generated_page_is_what_the_code_says(page: str) -> None:
    assert not generate.stale(page), "run: python docs/generate.py"


def test_every_path_of_the_home_is_in_the_table_of_files() -> None:
    text = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
    home = HermesHome(Path("/home"))
    paths = [getattr(home, name) for name, value in vars(HermesHome).items() if isinstance(value, property)]
    relative = [path.relative_to(home.path).as_posix() for path in paths]
    assert [name for name in relative if name != "memories" and f"`{name}" not in text] == []


def test_the_packages_stand_in_the_order_that_the_architecture_test_checks() -> None:
    steps = load("tests/architecture/test_imports.py").STEPS[:-1]  # the last is the program's own name
    told = re.findall(r"^\| \d+ \| ([^|]+) \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in told] == [set(packages) for packages in steps]


def test_the_extensions_have_the_hooks_that_the_page_on_architecture_names() -> None:
    rows = re.findall(
        r"^\| ([a-z-]+) \| (`[^|]+`) \| ", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {name: set(re.findall(r"`(\w+)`", hooks)) for name, hooks in rows}
    extensions = load_extensions(Config()).found
    assert told == {one.name: set(one.adds) for one in extensions if one.name in KNOWN_EXTENSIONS}


def test_what_the_pages_for_readers_of_the_code_name_is_there() -> None:
    named = {
        name
        for page in (ARCHITECTURE, ROOT / "CONTRIBUTING.md")
        for name in re.findall(r"`((?:tests|docs|plugins)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


# ---------------------------------------------------------------------- blocks


@table("block", BLOCKS)
def test_a_block_names_a_language_that_is_tested(block: Block) -> None:
    assert block.language in {"python", "sh", "yaml", "json", "toml"} | READ_ONLY


@pytest.mark.parametrize("page", sorted({block.page for block in of("python")}), ids=lambda p: p.stem)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    code = run_page.program_of(page)
    package = next(
        (name for name in FRAMEWORKS if re.search(rf"^(?:from|import) {name}\b", code, re.MULTILINE)), ""
    )
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make frameworks` runs the page")
    program = f"exec(compile({code!r}, {str(page)!r}, 'exec'), {{'__name__': 'page'}})"
    if not package:  # a framework may warn of itself
        program = f"import warnings; warnings.simplefilter('error'); {program}"
    environment = {**os.environ, "HERMES_HOME": str(tmp_path / "home")}
    environment.pop("HERMES_PROFILE", None)
    done = subprocess.run(
        [*python(), "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted({block.page for block in of("sh")}), ids=lambda p: p.stem)
def test_the_commands_of_a_page_work_one_after_the_other(
    page: Path, hermes_home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_core.cli import main

    hermes_home.path.mkdir()
    monkeypatch.chdir(tmp_path)
    for block in of("sh"):
        for line in block.text.splitlines() if block.page == page else ():
            words = shlex.split(line, comments=True)
            if words[:1] == ["hermes-memory"]:
                done = CliRunner().invoke(main, words[1:])
                assert done.exit_code in WORKED, f"{block}: {line}\n{done.output}\n{done.exception!r}"


@pytest.mark.parametrize("block", of("json", "toml"), ids=str)
def test_data_parses(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    else:
        json.loads(block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_parses_and_what_is_ours_in_it_is_sound(block: Block) -> None:
    assert isinstance(yaml.safe_load(block.text), dict)
    assert parse_config(block.text).warnings == ()


# ------------------------------------------------------------------- fragments

FRAGMENT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.(added|changed|fixed|removed|security)\.md")


@table("fragment", sorted((ROOT / "changelog.d").iterdir()))
def test_a_changelog_fragment_has_a_name_by_the_rule_and_a_sentence(fragment: Path) -> None:
    if fragment.name == "README.md":
        return
    assert FRAGMENT.fullmatch(fragment.name)
    text = fragment.read_text(encoding="utf-8").strip()
    assert text.endswith(".")
    assert not text.startswith(("#", "-", "*"))
    assert len(text) < 400


# -------------------------------------------------------------------- glossary

WORDS = (
    *(
        "session",
        "turn",
        "recall",
        "prefetch",
        "fence",
        "outbox",
        "delivery",
        "dead letter",
        "lineage",
        "scope",
        "owner",
    ),
    *("notes", "provider", "instance", "worker", "breaker"),
)


def test_the_glossary_explains_each_word_in_one_sentence() -> None:
    text = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", text, re.MULTILINE))
    rows.pop("word")
    assert set(WORDS) <= rows.keys()
    assert list(rows) == sorted(rows)
    assert all(sentence.endswith(".") and ". " not in sentence for sentence in rows.values())
