"""What a provider or its SDK writes in the home is for the owner alone."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core import MemoryManager, MemoryProvider, Session, Turn
from hermes_core.home import HermesHome
from hermes_core.kit import process
from hermes_core.manager import providers
from hermes_memory_testing.fakes import make_turn

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


class Careless(MemoryProvider):
    """Writes as most SDKs do: with the modes of the umask."""

    name = "careless"

    def _write(self, name: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    def initialize(self, session: Session) -> None:
        self.home = Path(session.home)
        self._write("store/collection/points.sqlite")
        self._write("top.db")
        program = self.home / "store" / "tool.sh"
        program.write_text("true")
        program.chmod(0o755)

    def sync_turn(self, turn: Turn) -> None:
        self._write("turns.json")
        self._write("late/index.faiss")

    def shutdown(self) -> None:
        self._write("store/collection/closed.sqlite")


@pytest.fixture(autouse=True)
def everybodys_umask() -> Iterator[None]:
    """The umask of most systems."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(home: HermesHome) -> list[str]:
    found = (path for path in home.path.rglob("*") if path.stat().st_mode & 0o077)
    return sorted(path.relative_to(home.path).as_posix() for path in found)


def test_files_of_a_start_of_writes_and_of_the_end_are_private(hermes_home: HermesHome) -> None:
    manager = MemoryManager(hermes_home)
    manager.add_provider(Careless)
    session = Session("s1", home=str(hermes_home.path))
    manager.initialize_all(session)
    assert open_to_others(hermes_home) == []
    assert stat.S_IMODE((hermes_home.path / "store" / "tool.sh").stat().st_mode) == 0o700
    manager.sync_all(make_turn(), session)
    assert manager.flush()
    assert [name for name in open_to_others(hermes_home) if "/" not in name] == [], "its folder is closed"
    manager.shutdown_all()
    assert open_to_others(hermes_home) == []
    assert Path(hermes_home.path, "store/collection/closed.sqlite").exists()


def test_what_was_there_before_keeps_the_modes_that_somebody_gave_it(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "CLOCK_STEP_S", 0.05)
    hermes_home.path.mkdir(exist_ok=True)
    mine = hermes_home.path / "SOUL.md"
    mine.write_text("calm")
    mine.chmod(0o644)
    while time.time() < mine.stat().st_ctime + 0.1:
        pass
    manager = MemoryManager(hermes_home)
    manager.add_provider(Careless)
    manager.initialize_all(Session("s1", home=str(hermes_home.path)))
    manager.shutdown_all()
    assert open_to_others(hermes_home) == ["SOUL.md"]


def test_a_program_of_a_provider_writes_for_the_owner_alone(tmp_path: Path) -> None:
    code = "import pathlib; pathlib.Path('made').mkdir(); pathlib.Path('made/file').write_text('x')"
    process.run([sys.executable, "-c", code], timeout=30, cwd=tmp_path)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("made", "made/file")] == [
        0o700,
        0o600,
    ]
