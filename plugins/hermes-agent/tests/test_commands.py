from __future__ import annotations

from typing import Any

import pytest

from hermes_core.errors import ProviderError
from hermes_core.loader.load import load_provider
from hermes_memory_foreign.registration import run_host_command
from tests.loader.conftest import DUCK, REGISTER, Site

CLI = """
import os

def register_cli(subparser):
    actions = subparser.add_subparsers(dest="action")
    quack = actions.add_parser("quack")
    quack.add_argument("--loud", type=int, default=1)
    quack.set_defaults(func=lambda options: print("quack", options.loud) or 4)
    actions.add_parser("where").set_defaults(func=lambda options: print(os.environ["HERMES_HOME"]))
    actions.add_parser("fail").set_defaults(func=lambda options: 1 / 0)
"""

HANDLED = """
def register_cli(subparser):
    subparser.add_argument("word")

def my_duck_command(options):
    print("handled", options.word)
"""

POND = """
def register(ctx):
    ctx.register_memory_provider(Duck())
    ctx.register_cli_command(
        name="pond", help="Ponds", setup_fn=lambda p: p.add_argument("--deep", action="store_true"),
        handler_fn=lambda options: print("deep", options.deep),
    )
"""


def run(site: Site, *words: str, name: str = "duck") -> int:
    return run_host_command(load_provider(name, site.home).factory(), site.home, name, words)


@pytest.fixture
def duck(site: Site) -> Site:
    site.plugin("duck", DUCK + POND).joinpath("cli.py").write_text(CLI)
    return site


def test_all_words_go_to_the_parser_of_cli_py(duck: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(duck, "quack", "--loud", "3") == 4
    assert capsys.readouterr().out == "quack 3\n"


def test_one_that_makes_its_parser_itself_has_the_providers_name_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    made = CLI.replace(
        "(subparser):", "(subparsers):\n    subparser = subparsers.add_parser('duck', help='Quacks')"
    )
    site.plugin("duck", DUCK + REGISTER).joinpath("cli.py").write_text(made)
    assert run(site, "quack", "--loud", "3") == 4
    assert capsys.readouterr().out == "quack 3\n"


def test_a_command_runs_in_the_home_of_the_provider(
    duck: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", "elsewhere")
    assert run(duck, "where") == 0
    assert capsys.readouterr().out.strip() == str(duck.home.path)


def test_a_command_that_was_registered_stands_beside(duck: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(duck, "pond", "--deep") == 0
    assert capsys.readouterr().out == "deep True\n"


def test_one_that_was_registered_alone_is_the_providers_own(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("duck", DUCK + POND)
    assert run(site) == 0
    assert capsys.readouterr().out == "deep False\n"


def test_the_handler_is_found_by_the_name_also_with_a_hyphen(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("my-duck", DUCK + REGISTER).joinpath("cli.py").write_text(HANDLED)
    assert run(site, "hello", name="my-duck") == 0
    assert capsys.readouterr().out == "handled hello\n"


def test_cli_py_imports_its_neighbours(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    folder = site.plugin("duck", DUCK + REGISTER)
    (folder / "voice.py").write_text("def quack(options):\n    print('quack')\n")
    (folder / "cli.py").write_text(
        "from .voice import quack\n\ndef register_cli(parser):\n    parser.set_defaults(func=quack)\n"
    )
    assert run(site) == 0
    assert capsys.readouterr().out == "quack\n"


@pytest.mark.parametrize("value", ["pond.plugin:register", "pond"])
def test_the_cli_of_an_installed_package_is_found(
    site: Site, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.module("pond.plugin", DUCK + REGISTER)
    site.module("pond.cli", CLI)
    site.folder.joinpath("pond", "__init__.py").write_text("from pond.plugin import register\n")
    site.distribution("pond", {"hermes_agent.memory_providers": {"duck": value}})
    assert run(site, "quack") == 4


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [(("nothing",), "invalid choice", 2), (("quack", "--loud", "x"), "invalid int", 2), (("--help",), "", 0)],
)
def test_wrong_usage_and_help_are_argparses(
    duck: Site, words: Any, said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run(duck, *words)
    assert stop.value.code == code
    assert said in capsys.readouterr().err


def test_without_a_word_the_help_is_shown(duck: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(duck) == 0
    assert "usage: hermes-memory duck" in capsys.readouterr().out


def test_a_command_that_raises_is_one_line(duck: Site) -> None:
    with pytest.raises(ProviderError, match="'duck' raised ZeroDivisionError"):
        run(duck, "fail")


@pytest.mark.parametrize("cli", ["", "import nothing_of_this_name", "def main(): ..."])
def test_a_provider_without_commands_says_so(site: Site, cli: str) -> None:
    site.plugin("duck", DUCK + REGISTER).joinpath("cli.py").write_text(cli)
    with pytest.raises(ProviderError, match="has no commands"):
        run(site, "quack")
