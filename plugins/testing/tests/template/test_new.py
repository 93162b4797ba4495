"""`hermes-memory providers new` and `extensions new`: the template by one command, asked or told."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core.cli import main
from hermes_memory_testing import template


def new(*words: str, said: str = "", group: str = "providers") -> tuple[int, str]:
    done = CliRunner().invoke(main, [group, "new", *words], input=said)
    return done.exit_code, done.output


def test_what_is_given_is_not_asked(tmp_path: Path) -> None:
    code, said = new(str(tmp_path), "--name", "box", "--kind", "sdk", "--license", "MIT")
    assert (code, said.splitlines()[0]) == (0, f"made {tmp_path / 'hermes-memory-box'}")
    assert (tmp_path / "hermes-memory-box/hermes_box/example_sdk.py").is_file()


def test_what_is_not_given_is_asked(tmp_path: Path) -> None:
    code, said = new(str(tmp_path), said="tea-box\nhttp\nProprietary\n")
    assert code == 0, said
    made = tmp_path / "hermes-memory-tea-box"
    assert (made / "examples/stand_in.py").is_file()
    assert "All rights reserved" in (made / "LICENSE").read_text()


def test_nothing_is_asked_of_a_script(tmp_path: Path) -> None:
    assert new(str(tmp_path), "--no-input")[0] == 0
    assert (tmp_path / "hermes-memory-my-notes/hermes_my_notes").is_dir()


@pytest.mark.parametrize("group", ["providers", "extensions"])
def test_both_commands_make_an_extension(tmp_path: Path, group: str) -> None:
    kind = ("--kind", "extension") if group == "providers" else ()
    code, said = new(str(tmp_path), "--name", "box", *kind, "--yes", group=group)
    assert (code, said.splitlines()[0]) == (0, f"made {tmp_path / 'hermes-memory-box'}")
    assert (tmp_path / "hermes-memory-box/hermes_memory_box/extension.py").is_file()


def test_an_extension_is_asked_for_its_name_and_licence_only(tmp_path: Path) -> None:
    code, said = new(str(tmp_path), said="tea-box\nProprietary\n", group="extensions")
    assert code == 0, said
    assert "Name of the extension" in said
    assert (tmp_path / "hermes-memory-tea-box/hermes_memory_tea_box/reader.py").is_file()


def test_an_extension_of_a_name_that_can_not_be_is_refused(tmp_path: Path) -> None:
    code, said = new(str(tmp_path), "--name", "My Box", "--yes", group="extensions")
    assert (code, said) == (
        1,
        "error: 'My Box' can't be an extension's name; use small letters, digits and single hyphens: "
        "'my-box' for example\n",
    )


def test_what_pip_compiled_of_the_installed_template_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = shutil.copytree(template.template_folder(), tmp_path / "provider_template")
    compiled = installed / "{{cookiecutter.__distribution}}/{{cookiecutter.__package}}/__pycache__/cli.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"\0")
    monkeypatch.setattr(template, "template_folder", lambda: installed)
    code, said = new(str(tmp_path), "--no-input")
    assert (code, list(tmp_path.glob("hermes-memory-*/**/__pycache__"))) == (0, []), said


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    new(str(tmp_path), "--no-input")
    mine = tmp_path / "hermes-memory-my-notes/README.md"
    mine.write_text("mine")
    code, said = new(str(tmp_path), "--no-input")
    assert (code, "is there already" in said, mine.read_text()) == (1, True, "mine")


def test_a_name_that_can_not_be_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = new(str(tmp_path), "--name", "honcho", "--no-input")
    told = said + capfd.readouterr().err
    assert (code, told.count("\n")) == (1, 1)
    assert told.startswith("error: 'honcho' is the name of a provider")
    assert list(tmp_path.iterdir()) == []


def test_without_cookiecutter_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cookiecutter", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "hermes_memory_testing.template", raising=False)
    monkeypatch.setitem(sys.modules, "cookiecutter.main", None)
    code, said = new(str(tmp_path), "--yes")
    assert (code, said.count("\n")) == (1, 1)
    assert "needs the package 'cookiecutter" in said
    assert "plugins/testing" in said


def test_the_command_offers_what_the_template_asks(tmp_path: Path) -> None:
    asked = json.loads((template.template_folder() / "cookiecutter.json").read_text())
    assert asked["kind"] == list(template.KINDS)
    assert asked["license"] == list(template.LICENSES)


@pytest.mark.parametrize(
    "name",
    [
        "{{ 7 * 7 }}",
        "{{ cookiecutter.__class__ }}",
        "{% for x in range(3) %}a{% endfor %}",
        "{# note #}box",
        "box{{''}}",
        "../box",
        "box\n",
        "",
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_a_name_is_checked_before_it_could_run_as_a_template(tmp_path: Path, name: str, asked: bool) -> None:
    if asked and (not name or "\n" in name):
        pytest.skip("a prompt takes no such answer")
    words = (str(tmp_path),) if asked else (str(tmp_path), "--no-input", "--name", name)
    code, said = new(*words, said=f"{name}\nlocal\nMIT\n")
    assert code == 1
    assert f"{name!r} can't be a provider's name" in said
    assert list(tmp_path.iterdir()) == []
