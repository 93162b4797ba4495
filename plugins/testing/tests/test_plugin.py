"""The pytest plugin: what it adds for those who ask, and that it changes nothing for others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hermes_core import HermesHome, MemoryProvider
from hermes_memory_testing.pytest_plugin import CHECK, FIX, Line, lines_of, table

pytest_plugins = ["pytester"]

LEAFLET = """
from hermes_core import MemoryProvider
from hermes_memory_testing import ProviderContract

class Leaflet(MemoryProvider):
    name = "leaflet"

    def system_prompt_block(self):
        return 7

class TestLeaflet(ProviderContract):
    def make_provider(self):
        return Leaflet()
"""


def test_the_run_ends_with_a_table_that_says_what_to_fix_and_how(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAFLET)
    done = pytester.runpytest_inprocess(
        "-q", "--assert=plain", "-p", "no:xdist", "-k", "prompt_block_is or recall"
    )
    done.stdout.fnmatch_lines(
        [
            "*contract of memory providers*",
            "TestLeaflet: 1 to fix, * not claimed*",
            "*FIX recall: the prompt block is text",
            "*system_prompt_block: returned a int; return a str",
            '*-> return a str, "" for nothing',
            "*not claimed: prefetch()*",
        ]
    )


def test_a_check_that_is_overridden_stays_in_its_group(pytester: pytest.Pytester) -> None:
    override = """
    def test_homes_do_not_see_each_other(self):
        self.not_claimed("two homes share it")
"""
    pytester.makepyfile(LEAFLET + override)
    done = pytester.runpytest_inprocess("-q", "--assert=plain", "-p", "no:xdist", "-k", "homes")
    done.stdout.fnmatch_lines(["TestLeaflet: 1 not claimed", "  isolation * 1 not claimed"])


def test_where_plugins_are_not_loaded_the_contract_runs_without_its_table(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAFLET)
    quiet = (
        "-q",
        "--assert=plain",
        "-p",
        "no:xdist",
        "-p",
        "no:hermes_core",
        "-k",
        "prompt_block_is or starts",
    )
    done = pytester.runpytest_inprocess(*quiet)
    done.assert_outcomes(failed=1, passed=2, skipped=1)


def test_a_suite_of_somebody_else_looks_as_before(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass\n\ndef test_two(): pass")
    done = pytester.runpytest_inprocess("-q", "-p", "no:xdist")
    assert "contract" not in done.stdout.str()
    done.assert_outcomes(passed=2)


def test_an_installed_provider_is_run_by_its_name_and_nothing_else(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    done = pytester.runpytest_inprocess(
        "--collect-only", "-q", "--assert=plain", "-p", "no:xdist", "--hermes-provider", "holographic"
    )
    assert "TestInstalled::test_it_starts" in done.stdout.str()
    assert "test_mine" not in done.stdout.str()


def test_a_provider_in_a_folder_of_the_persons_home_is_run_by_its_name(
    pytester: pytest.Pytester, hermes_home: HermesHome
) -> None:
    folder = hermes_home.path / "plugins" / "leaflet"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(LEAFLET.partition("class TestLeaflet")[0])
    options = (
        "-q",
        "--assert=plain",
        "-p",
        "no:xdist",
        "--hermes-provider",
        "leaflet",
        "-k",
        "prompt_block_is",
    )
    done = pytester.runpytest_inprocess(*options)
    done.stdout.fnmatch_lines(["*system_prompt_block: returned a int; return a str"])


def test_a_provider_that_is_not_there_is_said_to_be_missing(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_subprocess("-q", "-p", "no:xdist", "--hermes-provider", "holographi")
    done.stderr.fnmatch_lines(
        ["ERROR: no provider called 'holographi' is installed; did you mean 'holographic'?*"]
    )
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_deadlines_are_multiplied(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        LEAFLET + "    def test_scale(self):\n        assert self.run.deadlines['prefetch'] == 10.0\n"
    )
    done = pytester.runpytest_inprocess("-q", "-p", "no:xdist", "--hermes-deadlines", "2", "-k", "scale")
    done.assert_outcomes(passed=1)


def test_the_plugin_loads_nothing_of_the_package() -> None:
    code = "import hermes_memory_testing.pytest_plugin, sys; print([m for m in sys.modules if 'hermes' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["hermes_memory_testing", "hermes_memory_testing.pytest_plugin"])


# ----------------------------------------------------------------------- table


class Report:
    """A report as pytest and pytest-xdist hand it over: properties as lists."""

    def __init__(
        self, outcome: str, properties: list[list[object]], longrepr: object = "", when: str = "call"
    ) -> None:
        self.passed, self.failed, self.skipped = (outcome == name for name in ("passed", "failed", "skipped"))
        self.user_properties = properties
        self.longrepr = longrepr
        self.longreprtext = str(longrepr)
        self.when = when


NOTES = [CHECK, ["notes", "recall", "it recalls"]]


def test_reports_of_others_are_no_lines() -> None:
    assert lines_of([Report("passed", []), Report("failed", [["seconds", 3]])]) == []


def test_set_up_and_tear_down_count_only_when_they_fail() -> None:
    reports = [Report("passed", [NOTES], when=when) for when in ("setup", "call", "teardown")]
    assert [line.result for line in lines_of(reports)] == ["passed"]


def test_what_is_not_claimed_is_no_pass() -> None:
    reason = ("file.py", 7, "Skipped: not claimed: prefetch()")
    assert lines_of([Report("skipped", [NOTES], reason)])[0] == Line(
        "notes", "recall", "it recalls", "not claimed", "prefetch()"
    )


def test_an_exception_of_the_authors_own_code_is_shown_by_its_last_line() -> None:
    line = lines_of([Report("failed", [NOTES], "def test\n>   boom()\nE   ValueError: no\n\nfile.py:3")])[0]
    assert line.why == "ValueError: no"


def test_the_table_counts_by_group_and_gathers_what_is_not_claimed() -> None:
    lines = [
        Line("notes", "recall", "a", "passed"),
        Line("notes", "recall", "b", "to fix", "too long", "cut it"),
        Line("notes", "tools", "c", "not claimed", "no tools"),
        Line("notes", "tools", "d", "not claimed", "no tools"),
        Line("notes", "tools", "e", "not run", "Teas at 'http://127.0.0.1:4711' answered 429"),
        Line("notes", "tools", "f", "not run", "Teas at 'http://127.0.0.1:4712' answered 429"),
    ]
    assert list(table(lines)) == [
        "notes: 1 passed, 1 to fix, 2 not claimed, 2 not run",
        "  recall         1 passed, 1 to fix",
        "  tools          2 not claimed, 2 not run",
        "  FIX recall: b",
        "      too long",
        "      -> cut it",
        "  not claimed: no tools (2 checks)",
        "  not run: Teas at 'http://127.0.0.1' answered 429 (2 checks)",
    ]


def test_a_brief_table_has_a_line_for_each_suite_and_what_is_wrong() -> None:
    lines = [
        Line("notes", "recall", "a", "passed"),
        Line("notes", "tools", "c", "not claimed", "no tools"),
        Line("leaflet", "recall", "b", "to fix", "too long", "cut it"),
        Line("leaflet", "tools", "e", "not run", "it does not start"),
    ]
    assert list(table(lines, brief=True)) == [
        "notes: 1 passed, 1 not claimed",
        "leaflet: 1 to fix, 1 not run",
        "  FIX recall: b",
        "      too long",
        "      -> cut it",
        "  not run: it does not start",
    ]


def test_a_run_of_many_suites_ends_with_a_line_for_each(pytester: pytest.Pytester) -> None:
    override = """
    def test_homes_do_not_see_each_other(self):
        self.not_claimed("two homes share it")
"""
    more = "".join(f"\nclass Test{n}(TestLeaflet):\n    pass\n" for n in range(5))
    pytester.makepyfile(LEAFLET + override + more)
    done = pytester.runpytest_inprocess("-q", "-ra", "--assert=plain", "-p", "no:xdist", "-k", "homes")
    done.stdout.fnmatch_lines(["TestLeaflet: 1 not claimed", "Test0: 1 not claimed", "*6 not claimed in *"])
    done.stdout.no_fnmatch_line("*SKIPPED*")
    done.stdout.no_fnmatch_line("*two homes share it*")


def test_a_finding_carries_its_remedy() -> None:
    found = Report("failed", [NOTES, [FIX, ["too long", "cut it"]]])
    assert (lines_of([found])[0].why, lines_of([found])[0].remedy) == ("too long", "cut it")


def test_settings_without_the_providers_name_are_refused_in_words(hermes_home: HermesHome) -> None:
    # Imported here: at the top of this file the contract would be collected.
    from hermes_memory_testing import ProviderContract

    class Nameless(ProviderContract):
        def make_provider(self) -> MemoryProvider:
            raise NotImplementedError

    with pytest.raises(pytest.UsageError, match="Nameless has settings and no name"):
        Nameless().furnish(hermes_home, {"limit": 5})
    assert list(hermes_home.path.iterdir()) == []


@pytest.mark.parametrize("claim", [{"recalled_from": ["sync_turns"]}, {"deadlines": {"sync_turns": 1.0}}])
def test_a_claim_on_a_hook_that_there_is_not_is_refused_in_words(claim: dict[str, Any]) -> None:
    from hermes_memory_testing import ProviderContract

    with pytest.raises(pytest.UsageError, match=r"Typo\.\w+: 'sync_turns' is none of .*sync_turn"):
        type("Typo", (ProviderContract,), claim)
