from __future__ import annotations

import io
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.config.credentials import Credentials, _with_value
from hermes_core.errors import CredentialError
from hermes_core.home import HermesHome

LINE = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]))
HARD = st.text(st.sampled_from(list("'\"\\ #$={}\tab")))


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(tmp_path)


def test_the_environment_comes_first_and_an_empty_variable_does_not_count(home: HermesHome) -> None:
    home.env_file.write_text("A=file\nB=file\n")
    credentials = Credentials(home, {"A": "environment", "B": ""})
    assert (credentials.get("A"), credentials.get("B"), credentials.get("C")) == ("environment", "file", None)
    assert [credentials.source(name) for name in "ABC"] == ["environment", ".env", ""]


def test_a_variable_that_controls_programs_is_not_lent_to_an_environment(home: HermesHome) -> None:
    home.env_file.write_text("A=1\nB=2\nEMPTY=\nLD_PRELOAD=x\nPATH=/evil\nHERMES_HOME=/evil\n")
    assert Credentials(home, {"B": "here"}).for_environment() == {"A": "1"}


@given(st.lists(LINE | HARD, min_size=1, max_size=4))
def test_any_line_of_text_is_read_back_by_python_dotenv(values: list[str]) -> None:
    text = "# keys\nexport K0='old' # note\n"
    for index, value in enumerate(values):
        text = _with_value(text, f"K{index}", value)
    read = dotenv_values(stream=io.StringIO(text), interpolate=False)
    assert [read[f"K{index}"] for index in range(len(values))] == values
    assert text.startswith("# keys\nexport K0=")


def test_a_value_that_an_older_reader_would_misread_is_refused(
    home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_1_2_3 = re.compile(r"'((?:\\'|[^'])*)'")
    monkeypatch.setattr("dotenv.parser._single_quoted_value", before_1_2_3)
    credentials = Credentials(home, {})
    credentials.set("A", "ends in \\")
    before = home.env_file.read_text()
    with pytest.raises(CredentialError, match="or a value beside it"):
        credentials.set("B", "'")
    assert home.env_file.read_text() == before
    assert credentials.get("A") == "ends in \\"


def test_comments_order_and_export_survive_a_write(home: HermesHome) -> None:
    home.env_file.write_text(
        "# mine\nexport KEY=old  # rotated in May\n\nOTHER=2\nKEY=older\nnot a line ' at all\n"
    )
    Credentials(home, {}).set("KEY", "new")
    assert home.env_file.read_text() == (
        "# mine\nexport KEY=new  # rotated in May\n\nOTHER=2\nnot a line ' at all\n"
    )


def test_a_file_without_a_last_line_end_is_continued_on_a_new_line(home: HermesHome) -> None:
    home.env_file.write_text("A=1")
    Credentials(home, {}).set("B", "2")
    assert home.env_file.read_text() == "A=1\nB=2\n"


def test_a_quote_that_was_left_open_before_swallows_nothing(home: HermesHome) -> None:
    home.env_file.write_text("OPEN='broken\nB=2\n")
    Credentials(home, {}).set("K", "two words")
    assert Credentials(home, {}).names() == ["B", "K"]
    assert home.env_file.read_text() == 'OPEN=\'broken\nB=2\nK="two words"\n'


@pytest.mark.parametrize("value", ["a\nLD_PRELOAD=x", "a\rb", "a\0b", "\ud800"])
def test_a_value_that_could_be_two_lines_is_refused(home: HermesHome, value: str) -> None:
    with pytest.raises(CredentialError) as caught:
        Credentials(home, {}).set("KEY", value)
    assert not home.env_file.exists()
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1A",
        "A B",
        "A=B",
        "A\n",
        "Ä",
        "LD_PRELOAD",
        "ld_preload",
        "DYLD_X",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "PATH",
        "GIT_SSH",
        "SHELL",
        "EDITOR",
        "HERMES_HOME",
        "BASH_ENV",
        "PROMPT_COMMAND",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "SSLKEYLOGFILE",
        "OPENSSL_CONF",
        "PIP_INDEX_URL",
        "UV_INDEX_URL",
        "npm_config_registry",
        "HTTP_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "NO_PROXY",
        "JAVA_TOOL_OPTIONS",
        "LESSOPEN",
        "ZDOTDIR",
        "DOCKER_HOST",
    ],
)
def test_a_name_that_controls_programs_is_refused(home: HermesHome, name: str) -> None:
    with pytest.raises(CredentialError):
        Credentials(home, {}).set(name, "x")


def test_a_name_that_controls_programs_is_written_if_it_is_forced_and_lent_to_nobody(
    home: HermesHome,
) -> None:
    credentials = Credentials(home, {})
    credentials.set("HTTPS_PROXY", "http://proxy:3128", force=True)
    assert credentials.get("HTTPS_PROXY") == "http://proxy:3128"
    assert credentials.controlling_names() == ["HTTPS_PROXY"]
    assert credentials.for_environment() == {}
    with pytest.raises(CredentialError):
        credentials.set("A B", "x", force=True)


@pytest.mark.parametrize(
    "name",
    [
        "HERMES_MONGODB_URI",
        "HERMES_MONGODB_EMBEDDING_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GITHUB_TOKEN",
        "GIT_TOKEN",
        "RUSHDB_API_KEY",
    ],
)
def test_a_secret_of_a_provider_may_begin_with_the_hosts_name(home: HermesHome, name: str) -> None:
    credentials = Credentials(home, {})
    credentials.set(name, "x")
    assert credentials.for_environment() == {name: "x"}


def test_remove_takes_every_line_of_the_name_and_says_whether_there_was_one(home: HermesHome) -> None:
    home.env_file.write_text("# a\nexport K=1\nL=2\nK=3\n")
    credentials = Credentials(home, {})
    assert (credentials.remove("K"), credentials.remove("K")) == (True, False)
    assert home.env_file.read_text() == "# a\nL=2\n"


def test_nothing_shown_holds_the_secret(home: HermesHome) -> None:
    credentials = Credentials(home, {})
    credentials.set("LONG", "sk-0123456789abcdef")
    credentials.set("SHORT", "hunter2")
    assert credentials.names() == ["LONG", "SHORT"]
    assert "sk-0" not in repr(credentials)
    assert (credentials.masked("LONG"), credentials.masked("SHORT"), credentials.masked("NO")) == (
        "...cdef",
        "***",
        "",
    )


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_the_file_is_private_whatever_it_was_and_whatever_the_umask(home: HermesHome) -> None:
    home.env_file.write_text("A=1\n")
    home.env_file.chmod(0o644)
    Credentials(home, {}).set("A", "2")
    assert stat.S_IMODE(home.env_file.stat().st_mode) == 0o600


def test_the_environment_of_the_process_is_not_changed(home: HermesHome) -> None:
    before = dict(os.environ)
    Credentials(home).set("SOME_KEY", "x")
    assert Credentials(home).get("SOME_KEY") == "x"
    assert dict(os.environ) == before


def test_two_processes_writing_lose_nothing(home: HermesHome) -> None:
    code = (
        "import sys; from hermes_core.config import Credentials; from hermes_core.home import HermesHome\n"
        "c = Credentials(HermesHome.resolve(sys.argv[1]))\n"
        "for n in range(20): c.set(f'{sys.argv[2]}{n}', str(n))"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(home.path), name]) for name in "AB"]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(Credentials(home, {}).names()) == 40


def test_line_ends_around_a_value_are_no_part_of_it(home: HermesHome) -> None:
    credentials = Credentials(home, {"A": "geheim\r\n", "B": "\n"})
    assert (credentials.get("A"), credentials.get("B")) == ("geheim", None)
