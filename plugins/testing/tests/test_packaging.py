"""The checks of a package, each on an installed distribution that is broken in its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes_memory_testing.contract.configuration import PackagingChecks
from hermes_memory_testing.pytest_plugin import Line, lines_of

pytest_plugins = ["pytester"]

CODE = """
from hermes_core import MemoryProvider

class Leaflet(MemoryProvider):
    name = "leaflet"

    def sync_turn(self, turn): ...
"""

SUITE = """
from leaflet_memory import Leaflet
from hermes_memory_testing import ProviderContract

class TestLeaflet(ProviderContract):
    def make_provider(self):
        return Leaflet()
"""


@dataclass
class Package:
    """A distribution as an installer would leave it in site-packages."""

    name: str = "leaflet"
    value: str = "leaflet_memory:Leaflet"
    code: str = CODE
    metadata: dict[str, str] = field(
        default_factory=lambda: {
            "Summary": "Leaflets.",
            "Requires-Python": ">=3.11",
            "License-Expression": "MIT",
            "Requires-Dist": "hermes-memory-core>=0.1",
        }
    )
    files: tuple[str, ...] = ("leaflet_memory/__init__.py", "leaflet_memory/py.typed")
    others: str = ""

    def install(self, site: Path) -> None:
        info = site / "leaflet_memory-1.0.dist-info"
        info.mkdir(parents=True)
        head = {"Metadata-Version": "2.4", "Name": "leaflet-memory", "Version": "1.0", **self.metadata}
        (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in head.items()))
        points = f"[hermes_core.providers]\n{self.others}{self.name} = {self.value}\n"
        (info / "entry_points.txt").write_text(points)
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in self.files))
        for file in self.files:
            (site / file).parent.mkdir(exist_ok=True)
            (site / file).write_text(self.code if file == "leaflet_memory/__init__.py" else "")


def without(package: Package, *keys: str) -> Package:
    package.metadata = {key: value for key, value in package.metadata.items() if key not in keys}
    return package


SECOND = "\nclass Other(Leaflet): ...\n"
THREAD = "\nimport threading\nthreading.Thread(target=threading.Event().wait, args=(0.5,)).start()\n"
SIGNAL = "\nimport signal\nsignal.signal(signal.SIGINT, lambda *now: signal.default_int_handler(*now))\n"
LOGGING = "\nimport logging\nlogging.basicConfig()\n"
MODULES = "\nimport sys\nsys.path.insert(0, '/leaflets')\n"
HOOK = "\nimport sys\nsys.excepthook = lambda *error: print(error)\n"
THREADS = "\nimport threading\nthreading.excepthook = print\n"

BROKEN: dict[str, Callable[[], Package]] = {
    "the entry point loads as installed": lambda: Package(value="leaflet_memory:Missing"),
    "the entry point loads as installed:another": lambda: Package(
        value="leaflet_memory:Other", code=CODE + SECOND
    ),
    "the entry point has the name of the provider": lambda: Package(name="flyer"),
    "the metadata helps to find it": lambda: without(Package(), "Summary"),
    "it asks for the core": lambda: without(Package(), "Requires-Dist"),
    "its types are shipped": lambda: Package(files=("leaflet_memory/__init__.py",)),
    "its modules have names of their own": lambda: Package(
        files=("leaflet_memory/__init__.py", "leaflet_memory/py.typed", "utils/__init__.py")
    ),
    "its import starts nothing": lambda: Package(code=CODE + THREAD),
    "its import starts nothing:prints": lambda: Package(code="print('Leaflets!')\n" + CODE),
    "its import starts nothing:signals": lambda: Package(code=CODE + SIGNAL),
    "its import starts nothing:logging": lambda: Package(code=CODE + LOGGING),
    "its import starts nothing:modules": lambda: Package(code=CODE + MODULES),
    "its import starts nothing:excepthook": lambda: Package(code=CODE + HOOK),
    "its import starts nothing:threads": lambda: Package(code=CODE + THREADS),
}


@pytest.fixture
def told(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[Package], list[Line]]:
    """Install a package and run its suite: what the checks of packaging say."""

    def run(package: Package) -> list[Line]:
        site = pytester.path / "site"
        package.install(site)
        monkeypatch.setenv("PYTHONPATH", str(site))
        pytester.syspathinsert(site)
        pytester.makepyfile(test_it=SUITE)
        options = ("-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", KEYS)
        done = pytester.inline_run(*options)
        return lines_of(done.getreports("pytest_runtest_logreport"))

    return run


@pytest.fixture
def red(told: Callable[[Package], list[Line]]) -> Callable[[Package], list[str]]:
    """The checks that are red; all must have run."""

    def run(package: Package) -> list[str]:
        lines = told(package)
        assert [line for line in lines if line.result in ("not claimed", "not run")] == []
        return [line.title for line in lines if line.result == "to fix"]

    return run


KEYS = " or ".join(f"test_{title.partition(':')[0].replace(' ', '_')}" for title in BROKEN)


def test_a_package_without_fault_passes(red: Callable[[Package], list[str]]) -> None:
    assert red(Package()) == []


def test_a_package_of_several_providers_passes_for_each(red: Callable[[Package], list[str]]) -> None:
    others = "another = leaflet_memory:Other\nin-vain = no-module:Other\n"
    assert red(Package(code=CODE + SECOND, others=others)) == []


def test_a_hook_that_is_none_is_not_said_to_be_a_fault_of_pyproject(
    told: Callable[[Package], list[Line]],
) -> None:
    lines = told(Package(code=CODE.replace("sync_turn", "sync_turns")))
    assert [line.why for line in lines if line.result != "passed"] == ["its form is not accepted"]


@pytest.mark.parametrize("proof", BROKEN)
def test_a_broken_package_is_caught_by_one_check_only(
    red: Callable[[Package], list[str]], proof: str
) -> None:
    assert red(BROKEN[proof]()) == [proof.partition(":")[0]]


def test_every_check_of_packages_has_its_broken_one() -> None:
    names = {
        name.removeprefix("test_").replace("_", " ") for name in vars(PackagingChecks) if name[:5] == "test_"
    }
    assert names == {proof.partition(":")[0] for proof in BROKEN}
