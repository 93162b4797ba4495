"""`hermes-memory memory setup`: questions, answers that are kept, refusals that change nothing, a real try, the choice."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from hermes_core.home import HermesHome
from tests.conftest import LOCKBOX
from tests.outbox_of import outbox_of, turn_rows

InstallPlugin = Callable[..., Path]
KEY = "lockbox-key-0123456789"


def run(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["memory", "setup", *words], input=typed)


def chosen(home: HermesHome) -> str:
    return load_config(home).memory.provider


def state(home: HermesHome) -> dict[str, bytes]:
    """What a person would call their configuration."""
    names = ("config.yaml", ".env", "lockbox.json")
    return {name: (home.path / name).read_bytes() for name in names if (home.path / name).exists()}


@pytest.fixture
def home(hermes_home: HermesHome, install_plugin: InstallPlugin) -> HermesHome:
    install_plugin()
    return hermes_home


def test_without_questions_all_is_kept_in_its_place_and_the_provider_chosen(home: HermesHome) -> None:
    done = run("lockbox", "--set", f"api_key={KEY}", "--set", "limit=7", "--yes")
    assert done.exit_code == 0, done.output
    assert chosen(home) == "lockbox"
    assert Credentials(home, {}).get("LOCKBOX_API_KEY") == KEY
    assert json.loads((home.path / "lockbox.json").read_text()) == {"limit": 7}
    assert stat.S_IMODE(home.env_file.stat().st_mode) == 0o600
    assert KEY not in done.output


def test_twice_is_the_same_as_once(home: HermesHome) -> None:
    words = ("lockbox", "--set", f"api_key={KEY}", "--set", "limit=7", "--yes")
    run(*words)
    once = state(home)
    assert run(*words).exit_code == 0
    assert state(home) == once


def test_a_second_run_without_answers_changes_nothing(home: HermesHome) -> None:
    run("lockbox", "--set", f"api_key={KEY}", "--yes")
    before = state(home)
    assert run("lockbox", "--yes").exit_code == 0
    assert run("lockbox", typed="\n" * 9).exit_code == 0
    assert state(home) == before


def test_what_is_missing_is_one_error_that_names_all_of_it(home: HermesHome) -> None:
    done = run("lockbox", "--set", "mode=self", "--yes")
    assert done.exit_code == 1
    assert "api_key (LOCKBOX_API_KEY), get it at https://lockbox.example/keys; server" in done.stderr
    assert state(home) == {}


def test_a_key_of_the_environment_is_enough_and_stays_there(
    home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKBOX_API_KEY", KEY)
    assert run("lockbox", "--yes").exit_code == 0
    assert not home.env_file.exists()


def test_another_value_in_the_environment_is_told(home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKBOX_API_KEY", KEY)
    done = run("lockbox", "--set", "api_key=another-key-0123456789", "--yes")
    assert "the environment has another value, which comes first" in done.stderr


@pytest.mark.parametrize("pair", ["limit=900", "mode=local", "limt=3", "limit", "api_key=two\nlines"])
def test_a_wrong_answer_changes_nothing(home: HermesHome, pair: str) -> None:
    done = run("lockbox", "--set", f"api_key={KEY}", "--set", pair, "--yes")
    assert done.exit_code == 1
    assert state(home) == {}


@pytest.mark.parametrize("key", ["wrong-key-0123456789", "down-key-0123456789"])
def test_a_provider_that_does_not_work_is_not_chosen(home: HermesHome, key: str) -> None:
    set_value(home, "memory.provider", "holographic")
    done = run("lockbox", "--set", f"api_key={key}", "--yes")
    assert done.exit_code == 1
    assert "was not made the active one" in done.stderr
    assert chosen(home) == "holographic"


def test_writes_that_wait_for_a_person_are_told_and_keep_no_provider_from_being_chosen(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    install_plugin(source=f"{LOCKBOX}\n    def sync_turn(self, turn):\n        pass\n")
    with outbox_of(hermes_home) as outbox:
        outbox.put("lockbox", *turn_rows("t1"))
        row = outbox.next("lockbox")
        assert row
        outbox.bury(row, "recorded for another account")
    done = run("lockbox", "--set", f"api_key={KEY}", "--yes")
    assert done.exit_code == 0, done.output
    assert (
        "warning  provider lockbox: it starts; 1 write is a dead letter: `hermes-memory outbox list`"
        in done.stdout
    )
    assert chosen(hermes_home) == "lockbox"
    doctor = CliRunner().invoke(main, ["doctor", "--json"])
    (told,) = [line for line in json.loads(doctor.stdout)["findings"] if line["what"] == "provider lockbox"]
    assert "see that its backend runs" not in told["remedy"]


def test_it_is_chosen_untried_only_when_asked_for(home: HermesHome) -> None:
    assert run("lockbox", "--set", "api_key=down-key-0123456789", "--yes", "--no-check").exit_code == 0
    assert chosen(home) == "lockbox"


def test_a_person_may_choose_what_does_not_work_yet(home: HermesHome) -> None:
    done = run("lockbox", "--set", "api_key=down-key-0123456789", typed="\n\ny\n")
    assert done.exit_code == 0, done.output
    assert chosen(home) == "lockbox"


def test_enter_keeps_the_present_choice(home: HermesHome) -> None:
    run("lockbox", "--set", f"api_key={KEY}", "--yes")
    assert run(typed="\n" * 9).exit_code == 0
    assert chosen(home) == "lockbox"


def test_enter_in_a_new_home_leaves_it_new(hermes_home: HermesHome) -> None:
    assert run(typed="\n").exit_code == 0
    assert not hermes_home.config_yaml.exists()


def test_the_picker_takes_a_number_or_a_name_and_asks_again_for_anything_else(home: HermesHome) -> None:
    run("lockbox", "--set", f"api_key={KEY}", "--yes")
    assert run(typed="99\n²\nnobody\n0\n").exit_code == 0
    assert chosen(home) == ""
    assert run(typed="lockbox\n" + "\n" * 9).exit_code == 0
    assert chosen(home) == "lockbox"


def test_answers_are_asked_in_order_and_only_where_they_count(home: HermesHome) -> None:
    done = run("lockbox", "--set", f"api_key={KEY}", typed="self\nhttp://box\n99\n9\n")
    assert done.exit_code == 0, done.output
    asked = " ".join(done.output.split())
    assert "a whole number from 1 up to 50 limit" in asked
    assert "'limit' in the answer must be a whole number from 1 up to 50, is '99'" in asked
    stored = json.loads((home.path / "lockbox.json").read_text())
    assert stored == {"mode": "self", "server": "http://box", "limit": 9}


@pytest.mark.filterwarnings("ignore::getpass.GetPassWarning")
def test_a_secret_is_asked_hidden_and_shown_masked(home: HermesHome) -> None:
    done = run("lockbox", typed=f"\n{KEY}\n\n\n")
    assert done.exit_code == 0, done.output
    assert "it is required" in done.output
    assert "...6789" in run("lockbox", typed="\n\n\n").output


@pytest.mark.parametrize("typed", ["", "self\n", "self\nhttp://box\n"])
def test_a_cancelled_setup_writes_nothing(home: HermesHome, typed: str) -> None:
    done = run("lockbox", "--set", f"api_key={KEY}", typed=typed)
    assert done.exit_code == 1
    assert "cancelled; nothing was changed" in done.stderr
    assert state(home) == {}


def test_a_value_on_disk_that_is_wrong_is_asked_anew(home: HermesHome) -> None:
    run("lockbox", "--set", f"api_key={KEY}", "--yes")
    (home.path / "lockbox.json").write_text('{"limit": "many"}')
    assert run("lockbox", "--set", "limit=3", "--yes").exit_code == 0
    assert json.loads((home.path / "lockbox.json").read_text()) == {"limit": 3}


def test_an_unknown_name_says_what_there_is(home: HermesHome) -> None:
    done = run("lockbx", "--yes")
    assert done.exit_code == 1
    assert "did you mean 'lockbox'" in done.stderr


def test_missing_packages_are_asked_for_first(hermes_home: HermesHome, install_plugin: InstallPlugin) -> None:
    install_plugin(
        "boxed", "from hermes_core import MemoryProvider\n", 'pip_dependencies: ["absent-box>=2,<3"]\n'
    )
    done = run("boxed", typed="n\n")
    assert done.exit_code == 1
    assert "boxed needs absent-box>=2,<3. Install it now?" in done.output
    assert "cancelled; nothing was changed" in done.stderr


def test_a_missing_program_is_explained_and_not_installed(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    tools = 'external_dependencies:\n  - {name: boxctl, check: "boxctl --version", install: "brew install boxctl"}\n'
    folder = install_plugin(manifest=tools)
    done = run("lockbox", "--set", f"api_key={KEY}", "--yes")
    assert done.exit_code == 0, done.output
    assert (
        "needs the program 'boxctl', which does not work here; install it: brew install boxctl" in done.stderr
    )
    assert folder.exists()


def test_without_a_name_nothing_is_set_up_unasked(home: HermesHome) -> None:
    assert run("--yes").exit_code == 2


CRATE = """
from hermes_core import Field, MemoryProvider


class Crate(MemoryProvider):
    name = "crate"
    settings = (
        Field("store", str, "file", choices=("file", "vectors"), extras={"vectors": "vectors"}),
        Field("engine", str, "small", choices=("small", "large"), extras={"large": "large"}, when={"store": "file"}),
    )
"""


@pytest.fixture
def crate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A provider of an installed distribution, whose settings need extras that can't be installed."""
    folder = tmp_path / "site"
    info = folder / "crate-1.0.dist-info"
    info.mkdir(parents=True)
    needs = ["absent-vectors>=2; extra == 'vectors'", "absent-engine; extra == 'large'"]
    lines = ["Metadata-Version: 2.1", "Name: crate", "Version: 1.0", *(f"Requires-Dist: {n}" for n in needs)]
    (info / "METADATA").write_text("\n".join(lines))
    (info / "entry_points.txt").write_text("[hermes_core.providers]\ncrate = crate_provider:Crate\n")
    (folder / "crate_provider.py").write_text(CRATE)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_what_an_answer_needs_is_asked_for_before_anything_is_written(
    hermes_home: HermesHome, crate: Path
) -> None:
    done = run("crate", "--set", "store=vectors", typed="n\n")
    assert "crate needs absent-vectors>=2. Install it now?" in done.output
    assert "cancelled; nothing was changed" in done.stderr
    assert not (hermes_home.path / "crate.json").exists()


def test_what_the_answers_do_not_need_is_left_alone(hermes_home: HermesHome, crate: Path) -> None:
    done = run("crate", "--set", "store=file", "--yes")
    assert done.exit_code == 0, done.output
    assert "absent" not in done.output
    assert chosen(hermes_home) == "crate"


@pytest.mark.slow
def test_a_provider_that_starts_slowly_is_waited_for(
    hermes_home: HermesHome, install_plugin: InstallPlugin
) -> None:
    folder = install_plugin()
    source = (folder / "__init__.py").read_text()
    slow = source.replace(
        "def initialize(self, session):",
        "def initialize(self, session):\n        threading.Event().wait(2.2)",
    )
    (folder / "__init__.py").write_text(f"import threading\n{slow}")
    done = run("lockbox", "--set", f"api_key={KEY}", "--yes")
    assert done.exit_code == 0, done.output
    assert chosen(hermes_home) == "lockbox"
