"""A turn whose store can't be opened or written: it begins, says so, and does not look stored."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import Memory, open_memory, open_memory_async
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from tests.table import table

ADDRESS = "postgresql://nobody@127.0.0.1:1/none"  # nothing listens on this port


def damage(home: Path) -> None:
    (home / "state.db").write_bytes(b"no database" * 500)


def put_folder(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").mkdir()


def put_file(home: Path) -> None:
    shutil.rmtree(home)
    home.write_text("a file, not a folder")


def move_to_server(home: Path) -> None:
    (home / "config.yaml").write_text(f"storage:\n  url: {ADDRESS}\n")


KINDS: list[Callable[[Path], None]] = [damage, put_folder, put_file, move_to_server]


def with_past(home: Path) -> Path:
    with open_memory(home, config={"storage": {"url": ""}}) as memory:
        memory.conversation().turn("The billing service runs on the blue cluster.").finish("Noted.")
    return home


def assert_degraded(memory: Memory) -> None:
    turn = memory.conversation("c1").turn("Where does the billing service run?")
    assert turn.recall.context == ""
    assert turn.messages[-1] == {"role": "user", "content": "Where does the billing service run?"}
    assert any("this turn is not stored" in problem for problem in turn.problems)
    with pytest.raises(StorageError):
        turn.add({"role": "assistant", "content": "Let me see."})
    with pytest.raises(StorageError):
        turn.finish("On the blue cluster.")
    turn.cancel()


@pytest.mark.sqlite_only("files of a home")
@table("kind", KINDS)
def test_a_turn_without_its_store_begins_and_is_not_stored(
    tmp_path: Path, kind: Callable[[Path], None]
) -> None:
    home = with_past(tmp_path / kind.__name__)
    kind(home)
    with open_memory(home) as memory:
        assert_degraded(memory)


READ_ONLY = """
import os, sys
from pathlib import Path
from hermes_core import open_memory
from hermes_core.errors import StorageError
home, name = Path(sys.argv[1]), sys.argv[2]
with open_memory(home) as memory:
    memory.conversation().turn("The billing service runs on the blue cluster.").finish("Noted.")
os.chmod(home / name, 0 if name else 0o500)
if os.geteuid() == 0:  # root may write everywhere; what is imported by now, another user need not read
    for path in (home.parent, home, *home.rglob("*")):
        os.chown(path, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
with open_memory(home) as memory:
    turn = memory.conversation().turn("Where does the billing service run?")
    print(any("this turn is not stored" in problem for problem in turn.problems))
    try:
        turn.finish("On the blue cluster.")
    except StorageError as exc:
        print("refused", exc)
"""


@pytest.mark.posix_files("modes of POSIX")
@pytest.mark.sqlite_only("files of a home")
@pytest.mark.parametrize("name", ["", "state.db"], ids=["read-only home", "no rights on one file"])
def test_a_turn_in_a_home_that_this_user_may_not_write(name: str) -> None:
    folder = Path(tempfile.mkdtemp())  # another user may not look into `tmp_path`
    try:
        run = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(folder / "home"), name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        if (folder / "home").exists():
            (folder / "home").chmod(0o700)
        shutil.rmtree(folder)
    lines = run.stdout.splitlines()
    assert lines[:1] == ["True"], run.stderr
    assert lines[1].startswith("refused can't use ")
    assert "check" in lines[1]


@pytest.mark.sqlite_only("a lock of a file")
def test_a_turn_that_began_without_its_store_is_stored_when_the_store_is_back(
    hermes_home: HermesHome,
) -> None:
    with open_memory(hermes_home) as memory:
        memory.conversation().turn("One").finish("Two.")
        memory.sessions.database.shorten_waits()
        chat = memory.conversation("c1")
        holder = sqlite3.connect(hermes_home.state_db, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        turn = chat.turn("Hello", turn_id="t1")
        assert any("database is locked" in problem for problem in turn.problems)
        holder.execute("ROLLBACK")
        holder.close()
        turn.add({"role": "assistant", "content": "Let me see."})
        turn.finish("Hi.")
        assert [message.content for message in chat.history()] == ["Hello", "Let me see.", "Hi."]
        assert memory.sessions.has_turn("t1")


@pytest.mark.sqlite_only("a damaged file")
def test_the_awaitable_twin_begins_a_turn_without_its_store(tmp_path: Path) -> None:
    home = with_past(tmp_path / "home")
    damage(home)

    async def talk() -> None:
        async with open_memory_async(home) as memory:
            turn = await (await memory.conversation()).turn("Hello")
            assert any("this turn is not stored" in problem for problem in turn.problems)
            with pytest.raises(StorageError):
                await turn.finish("Hi.")

    asyncio.run(talk())
