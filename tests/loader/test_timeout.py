"""A provider whose code hangs when it is loaded: bounded, named, and never in the way of others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hermes_core.errors import ProviderError, ProviderUnavailable
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.guard import StillRunning, call_with_timeout
from hermes_core.loader.load import load_provider
from tests.loader.conftest import DUCK, NATIVE, REGISTER, Site
from tests.manager.conftest import until

HANGS = "import threading\nGATE = threading.Event()\nimport builtins\nbuiltins.gates.append(GATE)\nGATE.wait(30)\n"


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Event]]:
    """What the hanging modules wait for; opened at the end, so that no thread is left."""
    opened: list[threading.Event] = []
    monkeypatch.setattr("builtins.gates", opened, raising=False)
    yield opened
    for gate in opened:
        gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("hermes-load-"):
            thread.join(5)


def test_an_import_that_hangs_is_left_behind_with_its_name(site: Site, gates: list[threading.Event]) -> None:
    site.plugin("slow", HANGS + NATIVE)
    began = time.monotonic()
    with pytest.raises(
        ProviderUnavailable, match=r"'slow' from .* has not ended after 0 s and is left behind"
    ):
        load_provider("slow", site.home, timeout=0.2)
    assert time.monotonic() - began < 15
    (left,) = [thread for thread in threading.enumerate() if thread.name.startswith("hermes-load-slow")]
    assert left.daemon


def test_it_is_not_begun_a_second_time_while_it_hangs(site: Site, gates: list[threading.Event]) -> None:
    site.plugin("slow", HANGS + NATIVE)
    for _ in range(3):
        with pytest.raises(ProviderUnavailable):
            load_provider("slow", site.home, timeout=0.2)
        assert until(lambda: gates)
    assert len(gates) == 1


def test_one_that_ends_after_all_can_be_loaded(site: Site, gates: list[threading.Event]) -> None:
    site.plugin("slow", HANGS + NATIVE.replace('"notes"', '"slow"'))
    with pytest.raises(ProviderUnavailable):
        load_provider("slow", site.home, timeout=0.2)
    assert until(lambda: gates)
    gates[0].set()
    for thread in threading.enumerate():
        if thread.name.startswith("hermes-load-slow"):
            thread.join(60)
    assert load_provider("slow", site.home).entry.name == "slow"


def test_others_load_meanwhile(site: Site, gates: list[threading.Event]) -> None:
    site.plugin("slow", HANGS + DUCK + REGISTER)
    site.plugin("notes", NATIVE)
    with pytest.raises(ProviderUnavailable):
        load_provider("slow", site.home, timeout=0.2)
    assert load_provider("notes", site.home).entry.name == "notes"
    assert {entry.name for entry in discover_providers(site.home, entry_points=[])} > {"slow", "notes"}


def test_a_constructor_that_hangs_is_bounded_too(site: Site, gates: list[threading.Event]) -> None:
    source = (
        NATIVE + "    def __init__(self):\n" + "".join(f"        {line}\n" for line in HANGS.splitlines())
    )
    site.plugin("slow", source)
    with pytest.raises(ProviderUnavailable, match="left behind"):
        load_provider("slow", site.home, timeout=0.2)


def test_a_provider_may_load_another_while_it_is_loaded(site: Site) -> None:
    site.plugin("notes", NATIVE)
    outer = f"from hermes_core import HermesHome, load_provider\nINNER = load_provider('notes', HermesHome.resolve({str(site.home.path)!r}), timeout=60)\n"
    site.plugin("outer", outer + NATIVE.replace('"notes"', '"outer"'))
    assert load_provider("outer", site.home, timeout=60).entry.name == "outer"


def test_one_that_loads_itself_is_refused_at_once(site: Site) -> None:
    again = f"from hermes_core import HermesHome, load_provider\nload_provider('outer', HermesHome.resolve({str(site.home.path)!r}))\n"
    site.plugin("outer", again + NATIVE.replace('"notes"', '"outer"'))
    began = time.monotonic()
    with pytest.raises(ProviderError, match="has not ended"):
        load_provider("outer", site.home)
    assert time.monotonic() - began < 20


def test_it_does_not_hold_the_process_at_its_end(site: Site) -> None:
    site.plugin("slow", "import threading\nthreading.Event().wait(60)\n" + NATIVE)
    program = (
        "import sys\nfrom hermes_core import HermesHome, load_provider\n"
        f"try: load_provider('slow', HermesHome.resolve({str(site.home.path)!r}), timeout=0.3)\n"
        "except Exception as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "left behind" in done.stdout
    assert done.returncode == 0


def test_the_result_is_given_and_no_thread_stays() -> None:
    assert call_with_timeout("sum", lambda: 1 + 1, 5.0) == 2
    assert not [thread for thread in threading.enumerate() if thread.name == "hermes-load-sum"]


def test_a_call_that_lasts_is_reported_as_running() -> None:
    gate = threading.Event()
    assert isinstance(call_with_timeout("wait", lambda: gate.wait(30), 0.01), StillRunning)
    gate.set()
