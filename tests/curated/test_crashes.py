"""Processes that race, die and run out of disk; what they acknowledged over a pipe must be there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value
from hermes_core.curated.document import join_entries
from hermes_core.curated.store import Notes
from hermes_core.storage.engine import Engine
from tests.forked import python
from tests.rounds import rounds
from tests.storage.notes import posix

MakeStore = Callable[..., Notes]

OPEN = """
import os, signal, sys
from pathlib import Path
from hermes_core.config import load_config
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import NoteSettings
from hermes_core.home import HermesHome
from hermes_core.sessions.home_store import open_sessions

home = HermesHome(Path(sys.argv[1]))

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def open_store(on_write=None):
    settings = NoteSettings(limits={"memory": 10**6, "user": 10**6, "project": 10**6})
    database = open_sessions(home, load_config(home)).database
    return Notes(home, database, settings, NoteHooks(on_write=on_write), scan=lambda text: None)
"""

ADD_MANY = """
store = open_store()
for number in range(int(sys.argv[3])):
    assert store.add("memory", f"{sys.argv[2]} {number}")["success"]
"""

# Four steps: two adds, a replacement of one, a removal of the other. `expected` tells what they leave behind.
WORK = """
store, step = open_store(), int(sys.argv[2])
while True:
    done = [
        lambda: store.add("memory", f"fact {step}"),
        lambda: store.add("memory", f"fact {step}"),
        lambda: store.replace("memory", f"fact {step - 1}", f"fact {step}"),
        lambda: store.remove("memory", f"fact {step - 3}"),
    ][step % 4]()
    assert done["success"], done
    step += 1
    print(step, flush=True)
"""

DIE_BEFORE_THE_VIEW = """
def watch(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("MEMORY.md"):
        die()

store = open_store()
store.add("memory", "tea")
sys.addaudithook(watch)
store.replace("memory", "tea", "rye")
"""

DIE_AFTER_THE_VIEW = """
def watch(event, arguments):
    if event == "os.remove" and ".MEMORY.md." in str(arguments[0]):  # the temporary file, which was renamed
        die()

store = open_store()
store.add("memory", "tea")
sys.addaudithook(watch)
store.replace("memory", "tea", "rye")
"""

DIE_BEFORE_THE_COMMIT = """
open_store().add("memory", "tea")
open_store(die).replace("memory", "tea", "rye")
"""

SAVE_AT_THE_LAST_MOMENT = """
def save(event, arguments):
    if event == "os.chmod" and ".MEMORY.md." in str(arguments[0]):  # the new bytes are on the disk
        home.memory_md.write_text("saved by an editor")

store = open_store()
store.add("memory", "tea")
sys.addaudithook(save)
assert store.add("memory", "rye")["success"]
"""

FILL_THE_DISK = """
import resource
from hermes_core.errors import StorageError
store = open_store()
store.add("memory", "0 " + "x" * 500)
print(0, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for number in range(1, 500):
    try:
        store.add("memory", f"{number} " + "x" * 500)
    except StorageError as exc:
        sys.exit(f"refused: {exc}")
    print(number, flush=True)
"""


@pytest.fixture(autouse=True)
def same_database(engine: Engine, hermes_home: HermesHome, request: pytest.FixtureRequest) -> None:
    """Let the programs open the database of the test."""
    if engine.shared:
        set_value(hermes_home, "storage.url", request.getfixturevalue("postgres_url"))
        set_value(hermes_home, "storage.schema", request.getfixturevalue("postgres_schema"))


def start(
    code: str, home: HermesHome, *arguments: object, program: Sequence[str] = ()
) -> subprocess.Popen[str]:
    command = [*(program or python()), "-c", OPEN + code, str(home.path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    with process:
        return process.communicate(timeout=60)


def expected(steps: int) -> tuple[str, ...]:
    """The entries after so many steps of WORK."""
    entries: list[str] = []
    for step in range(steps):
        match step % 4:
            case 2:
                entries[entries.index(f"fact {step - 1}")] = f"fact {step}"
            case 3:
                entries.remove(f"fact {step - 3}")
            case _:
                entries.append(f"fact {step}")
    return tuple(entries)


@pytest.mark.shortened
@pytest.mark.slow
def test_two_processes_that_add_lose_nothing(make_store: MakeStore, hermes_home: HermesHome) -> None:
    adds = rounds(200)
    processes = [start(ADD_MANY, hermes_home, name, adds) for name in ("left", "right")]
    for process in processes:
        assert finish(process) == ("", "")
    store = make_store(memory_char_limit=10**6)
    assert len(store.entries("memory")) == 2 * adds
    versions = store.history(limit=1000)
    assert len({version.id for version in versions}) == 2 * adds
    assert {version.action for version in versions} == {"add"}


@pytest.mark.shortened
@pytest.mark.slow
def test_killed_at_any_moment_no_acknowledged_change_is_lost(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    chance = random.Random(20)
    store = make_store(memory_char_limit=10**6)
    reached = 0
    for _ in range(rounds(30)):
        done = killed_while_working(hermes_home, reached, chance)
        entries = store.entries("memory")
        assert entries in (expected(done), expected(done + 1))
        reached = done if entries == expected(done) else done + 1
    assert len(store.history(limit=10_000)) == reached
    assert hermes_home.memory_md.read_text() == join_entries(expected(reached))
    undone = min(reached, 20)
    for _ in range(undone):
        assert store.undo()["success"]
    assert store.entries("memory") == expected(reached - undone)


def killed_while_working(home: HermesHome, reached: int, chance: random.Random) -> int:
    """How many steps WORK acknowledged before it was killed, wherever it was."""
    process = start(WORK, home, reached, program=[sys.executable])
    with process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(chance.randint(1, 12))]
        time.sleep(chance.random() / 200)
        process.kill()
        lines += process.stdout.readlines()
        assert process.stderr
        assert process.stderr.read() == ""
    return int(lines[-1])


@posix
@pytest.mark.parametrize(
    ("code", "entries", "actions"),
    [
        (DIE_BEFORE_THE_COMMIT, ("tea",), ["add"]),
        (DIE_BEFORE_THE_VIEW, ("rye",), ["replace", "add"]),
        (DIE_AFTER_THE_VIEW, ("rye",), ["replace", "add"]),
    ],
    ids=["before the commit", "after the commit, before the view", "after the view, before it is recorded"],
)
def test_killed_at_a_named_point_rows_and_view_agree(
    make_store: MakeStore, hermes_home: HermesHome, code: str, entries: tuple[str, ...], actions: list[str]
) -> None:
    process = start(code, hermes_home)
    assert finish(process) == ("", "")
    assert process.returncode == -signal.SIGKILL
    store = make_store()
    assert store.entries("memory") == entries
    assert hermes_home.memory_md.read_text() == join_entries(entries)
    assert "notice" not in store.add("memory", "oats")
    assert [version.action for version in store.history()] == ["add", *actions]
    store.undo()
    store.undo()
    assert store.entries("memory") == (("tea",) if actions[0] == "replace" else ())


def test_an_edit_that_is_saved_while_the_new_view_goes_to_the_disk_is_not_overwritten(
    store: Notes, hermes_home: HermesHome
) -> None:
    assert finish(start(SAVE_AT_THE_LAST_MOMENT, hermes_home)) == ("", "")
    assert hermes_home.memory_md.read_text() == "saved by an editor"
    assert store.entries("memory") == ("saved by an editor", "rye")
    assert hermes_home.memory_md.read_text() == join_entries(("saved by an editor", "rye"))
    assert [path.name for path in hermes_home.memories.glob(".*.tmp")] == []
    assert [version.action for version in store.history()] == ["edit", "add", "add"]


def test_a_hand_edit_after_a_crash_is_joined_with_the_change_that_no_view_showed(
    make_store: MakeStore, hermes_home: HermesHome
) -> None:
    finish(start(DIE_BEFORE_THE_VIEW, hermes_home))
    hermes_home.memory_md.write_text("tea\n§\noats\n")
    store = make_store()
    store.add("memory", "milk")
    assert [(version.action, version.before) for version in store.history()] == [
        ("add", ("rye", "oats")),
        ("edit", ("rye",)),
        ("replace", ("tea",)),
        ("add", ()),
    ]


@pytest.mark.sqlite_only("a full disk under the file")
@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize("size", [2_000, 40_000, 150_000])
def test_a_full_disk_leaves_the_file_whole(make_store: MakeStore, hermes_home: HermesHome, size: int) -> None:
    process = start(FILL_THE_DISK, hermes_home, size)
    out, err = finish(process)
    assert err.startswith("refused: ")
    store = make_store(memory_char_limit=10**6)
    numbers = [int(entry.split()[0]) for entry in store.entries("memory")]
    assert numbers == [int(line) for line in out.split()]
    assert store.add("memory", "room again")["success"]
    assert len(store.history(limit=1000)) == len(numbers) + 1


def test_a_change_whose_view_can_not_be_written_is_stored_and_says_so(
    store: Notes, hermes_home: HermesHome
) -> None:
    hermes_home.memories.mkdir(parents=True)
    # There is room for this name and for its lock, and none for the longer name of a temporary file.
    hermes_home.memory_md.symlink_to("x" * 246)
    assert "Saved, but MEMORY.md can't be written" in store.add("memory", "tea")["warning"]
    hermes_home.memory_md.unlink()
    assert "notice" not in store.add("memory", "rye")
    assert hermes_home.memory_md.read_text() == join_entries(("tea", "rye"))
