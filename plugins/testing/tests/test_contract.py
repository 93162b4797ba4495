"""Each check of the contract is red for the provider that is broken in its way, and for no other."""

from __future__ import annotations

import gc
import inspect
import os
import re
import tempfile
from pathlib import Path

import pytest
from broken import ALSO, SUITES

import hermes_core.config
import hermes_core.safety.redact  # noqa: F401  else each run within a run would compile them again
from hermes_core.manager import worker
from hermes_memory_testing import ProviderContract
from hermes_memory_testing.contract.configuration import PackagingChecks
from hermes_memory_testing.pytest_plugin import GROUPS, Line, lines_of

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
FAST = Path("/dev/shm")

BASIC = {"test_it_keeps_to_the_forms_of_the_contract", "test_it_can_run_here", "test_it_starts"}
"""Checks that are run beside each group."""


class Frozen:
    """The tests of a run within a run out of the sight of the collector, as those of this one are."""

    def pytest_collection_finish(self) -> None:
        gc.freeze()


def run(pytester: pytest.Pytester, program: str, *options: str) -> list[Line]:
    """The lines of the contract in this program; no other test in it may be red."""
    pytester.syspathinsert(HERE)
    pytester.makepyfile(test_it=program)
    with tempfile.TemporaryDirectory(dir=FAST if FAST.is_dir() else None) as folder:
        quiet = (
            "-q",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--hermes-deadlines=10",
            f"--basetemp={folder}/t",
        )
        done = pytester.inline_run(*quiet, *options, plugins=[Frozen()])
    return lines_of(done.getreports("pytest_runtest_logreport"))


def red(lines: list[Line]) -> list[str]:
    return sorted({line.title for line in lines if line.result == "to fix"})


def checks() -> set[str]:
    """Names of all checks, with their parameters' one proof each."""
    functions = inspect.getmembers(ProviderContract, inspect.isfunction)
    return {name for name, _ in functions if name.startswith("test_")}


def test_a_provider_without_fault_passes_and_claims_everything(pytester: pytest.Pytester) -> None:
    lines = run(pytester, "from notebook import NotebookContract\nclass TestGood(NotebookContract): pass")
    assert red(lines) == []
    assert {line.why for line in lines if line.result != "passed"} == {"it is not installed as a package"}


def test_a_provider_whose_backend_takes_its_time_passes_when_it_is_waited_for(
    pytester: pytest.Pytester,
) -> None:
    program = """
        from broken import PATIENT, Late
        from notebook import NotebookContract

        TestLate = type("TestLate", (NotebookContract,), {"provider": Late, "__module__": __name__, **PATIENT})
    """
    lines = run(pytester, program)
    whys = {"it is not installed as a package", "received() is not overridden"}
    assert {(line.result, line.why) for line in lines if line.result != "passed"} == {
        ("not claimed", why) for why in whys
    }


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", GROUPS)
def test_a_broken_provider_is_caught_by_one_check_only(pytester: pytest.Pytester, group: str) -> None:
    """Each runs against the checks of its group and those of a start; with HERMES_PROOFS=all against every one.

    A fault that other groups can't but meet names their checks.
    """
    proofs = [proof for proof in SUITES if group_of(check_of(proof)) == group]
    program = ["from broken import SUITES"]
    program += [f"class TestBroken{n}(SUITES[{proof!r}]): pass" for n, proof in enumerate(proofs)]
    lines = run(pytester, "\n".join(program), *near(group))
    ran = {line.title for line in lines}
    assert {proof: red([line for line in lines if line.suite == proof]) for proof in proofs} == {
        proof: sorted({title_of(proof)} | ALSO[proof] & ran) for proof in proofs
    }
    assert [line for line in lines if line.result == "to fix" and not line.remedy] == []


def test_a_late_hook_is_caught_also_where_its_thread_began_late(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        worker, "MIN_RUN_SHARE", 100.0
    )  # as if each call had stood in line for a part of its deadline
    program = 'from broken import SUITES\nclass TestSlow(SUITES["test_hooks_keep_their_deadlines[sync_turn]"]): pass'
    assert red(run(pytester, program, "-k", "deadlines")) == ["hooks keep their deadlines[sync turn]"]


BESIDE_ANOTHER = """
    import os
    from notebook import NotebookContract

    class TestNotebook(NotebookContract): pass

    def test_of_others():
        os.environ["NOTES_OF_OTHERS"] = "1"
"""


OTHERS_BETWEEN = """
    import pytest

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items):
        items.insert(1, items.pop())
"""


def test_what_another_test_changes_between_two_checks_is_not_blamed_on_the_provider(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_OF_OTHERS", "")
    monkeypatch.delenv("NOTES_OF_OTHERS")
    pytester.makeconftest(OTHERS_BETWEEN)
    chosen = ("-k", "it_starts or left_as_it_was or of_others")
    assert red(run(pytester, BESIDE_ANOTHER, *chosen)) == []


HANGING = """
    from broken import NotebookContract, hanging

    class TestHanging(NotebookContract):
        provider = hanging({hook!r}, {calls!r})
        deadlines = {{**NotebookContract.deadlines, {hook!r}: 1.0}}
"""


@pytest.mark.parametrize("hook", ["is_available", "initialize", "prefetch", "sync_turn", "handle_tool_call"])
def test_a_hook_that_hangs_is_waited_for_once_and_the_other_checks_say_so(
    pytester: pytest.Pytester, tmp_path: Path, hook: str
) -> None:
    calls = tmp_path / "calls"
    lines = run(pytester, HANGING.format(hook=hook, calls=str(calls)))
    titles = {
        "is_available": "it is looked at in time",
        "initialize": "it starts in time",
        "handle_tool_call": "hooks keep their deadlines[handle tool call]",
    }
    assert titles.get(hook, f"hooks keep their deadlines[{hook.replace('_', ' ')}]") in red(lines)
    late = [line for line in lines if line.result == "to fix" and "1 s" in line.why]
    assert len(late) == 1
    skipped = [line for line in lines if line.result == "not run"]
    assert len(skipped) >= 5
    if hook != "is_available":  # which every start asks, with a short deadline
        assert calls.read_text().count("call") <= 12


def near(group: str) -> tuple[str, ...]:
    """The option that selects the checks of a group and the basic ones."""
    if os.environ.get("HERMES_PROOFS") == "all":
        return ()
    return "-k", " or ".join(name for name in checks() if name in BASIC or group_of(name) == group)


def check_of(proof: str) -> str:
    return re.split(r"[\[:]", proof)[0]


def title_of(proof: str) -> str:
    return proof.partition(":")[0].removeprefix("test_").replace("_", " ")


def group_of(check: str) -> str:
    return next(base.__name__.lower() for base in ProviderContract.__bases__ if check in vars(base))


def test_every_check_has_its_broken_provider() -> None:
    proven = {check_of(proof) for proof in SUITES}
    assert checks() - proven == {name for name in vars(PackagingChecks) if name.startswith("test_")}
