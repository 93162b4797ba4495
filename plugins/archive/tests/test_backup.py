"""Backups of a home in use, and their restore: nothing acknowledged is missing, nothing is overwritten, nobody is fooled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome, open_memory
from hermes_core.cli import main
from hermes_core.config import load_config, override_config, set_value
from hermes_core.errors import DatabaseCorrupt, StorageError
from hermes_core.loader.parts import HomeParts
from hermes_memory_archive.backup import MANIFEST, make_backup, opened_backup, outside_paths
from hermes_memory_archive.home_export import export_home
from hermes_memory_archive.restore import restore_backup
from hermes_memory_archive.schedule import ScheduledBackups, backup_name, backups_in
from hermes_memory_testing.fakes import RecordingProvider
from tests.outbox_of import ON_POSTGRES

Run = Callable[..., Result]
DAY_4 = 1_767_484_800.0

WRITER = """
import sys
from hermes_core import open_memory

name = sys.argv[2]
with open_memory(sys.argv[1]) as memory:
    session = memory.start_session(name)
    for number in range(100_000):
        memory.end_turn(session, f"{name} said {number}", "Noted.", warm=False)
        memory.curated.add("memory", f"{name} note {number}.")
        memory.curated.remove("memory", f"{name} note {number - 1}.") if number else None
        print(number, flush=True)
"""


@pytest.fixture
def run() -> Run:
    def invoke(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.stdout, result.stderr)
        return result

    return invoke


@pytest.fixture
def home(hermes_home: HermesHome) -> HermesHome:
    with open_memory(hermes_home) as memory:
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
        memory.curated.add("memory", "Uses uv.")
    (hermes_home.path / ".env").write_text("OPENAI_API_KEY=sk-1234567890abcdef1234567890abcdef\n")
    (hermes_home.path / "mem0.json").write_text(
        json.dumps({"mode": "platform", "api_key": "m0-1234567890abcdef1234567890abcdef"})
    )
    skill = hermes_home.skills / "kitchen/tea"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tea\ndescription: Tea.\n---\nBoil.\n")
    (skill / "boil.sh").write_text("#!/bin/sh\n")
    (skill / "boil.sh").chmod(0o755)
    return hermes_home


@pytest.fixture
def writers(home: HermesHome) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that store turns and notes all the time; each line that they print is acknowledged."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home.path), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("ann", "bob")
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def acknowledged(process: subprocess.Popen[str], until: int) -> int:
    """Read lines until this number was acknowledged, and return the last."""
    assert process.stdout is not None
    number = -1
    while number < until:
        number = int(process.stdout.readline())
    return number


@pytest.mark.sqlite_only("a backup of the database")
def test_a_backup_of_a_home_in_use_has_all_that_was_acknowledged_before(
    home: HermesHome, writers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    last = {name: acknowledged(process, 5) for name, process in zip(("ann", "bob"), writers, strict=True)}
    report = make_backup(home, tmp_path / "b.zip")
    later = [acknowledged(process, last[name] + 1) for name, process in zip(last, writers, strict=True)]
    assert all(later)
    for process in writers:
        process.kill()
        process.wait()
    other = HermesHome(tmp_path / "other")
    restore_backup(other, report.path)
    with open_memory(other) as memory:
        assert memory.sessions.check() == []
        for name, number in last.items():
            said = {message.content for message in memory.sessions.get_messages(name)}
            assert {f"{name} said {n}" for n in range(number + 1)} <= said
            notes = [entry for entry in memory.curated.entries("memory") if entry.startswith(f"{name} note")]
            assert notes
            assert int(notes[-1].split()[-1].rstrip(".")) >= number
        # The notes and their history are one state: nothing looks like an edit by hand.
        assert {change.action for change in memory.curated.history(limit=1000)} <= {"add", "remove"}
        report_of_history = memory.curated.changes.verify()
        assert report_of_history is not None
        assert report_of_history.faults == ()
        assert memory.problems() == []


def test_a_restored_home_has_everything_but_the_keys(home: HermesHome, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "b.zip"
    report = json.loads(run("backup", file, "--json").stdout)
    assert report["databases"] == (0 if ON_POSTGRES else 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert any("'.env'" in sentence for sentence in report["left_out"])
    assert any("secrets in 'mem0.json'" in sentence for sentence in report["left_out"])
    with zipfile.ZipFile(file) as archive:
        assert all(b"1234567890abcdef" not in archive.read(name) for name in archive.namelist())
    shutil.rmtree(home.path)
    assert "test it" in run("restore", file, "--yes").stdout
    with open_memory(home) as memory:
        assert memory.sessions.get_messages("s1")[0].content == "I like tea."
        assert memory.curated.entries("memory") == ("Uses uv.",)
        assert memory.curated.undo()["success"]
    assert json.loads((home.path / "mem0.json").read_text()) == {"mode": "platform"}
    assert (home.skills / "kitchen/tea/boil.sh").stat().st_mode & 0o100
    assert not (home.path / ".env").exists()


def test_secrets_are_in_a_backup_on_request_only(home: HermesHome, run: Run, tmp_path: Path) -> None:
    run("backup", tmp_path / "b.zip", "--with-secrets")
    shutil.rmtree(home.path)
    run("restore", tmp_path / "b.zip", "--yes")
    assert "sk-1234567890" in (home.path / ".env").read_text()
    assert "m0-1234567890" in (home.path / "mem0.json").read_text()


def test_a_home_that_is_not_empty_is_kept_aside_and_its_keys_stay(
    home: HermesHome, run: Run, tmp_path: Path
) -> None:
    run("backup", tmp_path / "b.zip")
    (home.path / "profiles/work").mkdir(parents=True)
    with open_memory(home) as memory:
        memory.curated.add("memory", "Came later.")
    assert "is not empty" in run("restore", tmp_path / "b.zip", "--yes", code=1).stderr
    run("restore", tmp_path / "b.zip", "--yes", "--force")
    (aside,) = home.path.parent.glob("home.before-restore-*")
    assert "Came later." in (aside / "memories/MEMORY.md").read_text()
    assert "Came later." not in home.memory_md.read_text()
    assert "sk-1234567890" in (home.path / ".env").read_text()
    assert (home.path / "profiles/work").is_dir()


@pytest.mark.sqlite_only("a backup of the database")
@pytest.mark.skipif(os.name == "nt", reason="locks of SQLite can't be asked for there")
def test_a_home_in_use_is_not_restored(
    home: HermesHome, writers: list[subprocess.Popen[str]], run: Run, tmp_path: Path
) -> None:
    run("backup", tmp_path / "b.zip")
    acknowledged(writers[0], 0)
    assert "another program has" in " ".join(
        run("restore", tmp_path / "b.zip", "--yes", "--force", code=1).stderr.split()
    )
    assert not list(home.path.parent.glob("*before-restore*"))
    assert not list(home.path.parent.glob(".*restoring*"))


def test_what_providers_have_elsewhere_goes_along(home: HermesHome, tmp_path: Path) -> None:
    place, single = tmp_path / "elsewhere", tmp_path / "facts.db"
    place.mkdir()
    (place / "data.txt").write_text("theirs")
    with closing(sqlite3.connect(single)) as db:
        db.execute("CREATE TABLE t (x)")
        db.commit()

    class Outside(RecordingProvider):
        def backup_paths(self) -> list[str]:
            return [str(place), str(single), str(tmp_path / "gone")]

    with open_memory(home, provider=Outside()) as memory:
        make_backup(home, tmp_path / "b.zip", outside=outside_paths(memory))
    (place / "data.txt").write_text("changed")
    single.unlink()
    other = HermesHome(tmp_path / "other")
    report = restore_backup(other, tmp_path / "b.zip")
    assert sorted(report.outside.values()) == sorted([str(place), str(single)])
    assert (place / "data.txt").read_text() == "changed"
    third = restore_backup(HermesHome(tmp_path / "third"), tmp_path / "b.zip", outside=True)
    assert (place / "data.txt").read_text() == "theirs"
    assert single.is_file()
    assert sorted(third.put_back) == sorted([str(place), str(single)])
    (before,) = tmp_path.glob("elsewhere.before-restore-*")
    assert (before / "data.txt").read_text() == "changed"


def test_a_file_that_exists_is_replaced_on_request_only(home: HermesHome, tmp_path: Path) -> None:
    file = tmp_path / "b.zip"
    file.write_text("mine")
    with open_memory(home) as memory:
        for write in (partial(make_backup, home), partial(export_home, memory)):
            file.write_text("mine")
            with pytest.raises(StorageError, match="exists; name another file, or give force=True"):
                write(file)
            assert file.read_text() == "mine"
            write(file, force=True)
            assert zipfile.is_zipfile(file)
            file.unlink()
            file.mkdir()
            with pytest.raises(StorageError, match="is no regular file"):
                write(file, force=True)
            file.rmdir()


@pytest.mark.sqlite_only("a backup of the database")
def test_a_damaged_database_makes_no_backup(home: HermesHome, tmp_path: Path) -> None:
    with home.state_db.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(DatabaseCorrupt, match=r"state\.db"):
        make_backup(home, tmp_path / "b.zip")
    assert list(tmp_path.glob("*b.zip*")) == []


def rewritten(file: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    with zipfile.ZipFile(file) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in members.items():
            new.writestr(name, data)
    return file


def _manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, bytes]], object]:
    def rewrite(members: dict[str, bytes]) -> None:
        value = json.loads(members[MANIFEST])
        change(value)
        members[MANIFEST] = json.dumps(value).encode()

    return rewrite


def _traversal(members: dict[str, bytes]) -> None:
    value = json.loads(members[MANIFEST])
    members["home/../../evil"] = b""
    value["files"]["home/../../evil"] = next(iter(value["files"].values()))
    members[MANIFEST] = json.dumps(value).encode()


def _member(name: str, **fields: object) -> Callable[[dict[str, bytes]], object]:
    """Add a file with a right hash."""

    def add(members: dict[str, bytes]) -> None:
        value = json.loads(members[MANIFEST])
        members[name] = b"x"
        sha = hashlib.sha256(b"x").hexdigest()
        entry = {"sha256": sha, "size": 1, "mode": 0o600, "mtime": 1.0, "database": False}
        value["files"][name] = {**entry, **fields}
        members[MANIFEST] = json.dumps(value).encode()

    return add


HOSTILE = {
    "other profile": _member("home/profiles/work/config.yaml"),
    "old backup": _member("home/backups/x.zip"),
    "log of another case": _member("home/Logs/x"),
    "no part": _member("outside"),
    "no number": _member("outside/0"),
    "empty part": _member("home//x"),
    "this folder": _member("home/./x"),
    "file in a file": _member("home/mem0.json/x"),
    "long name": _member("home/" + 300 * "x"),
    "time": _manifest(lambda value: value.update(created_at=1e300)),
    "no time": _manifest(lambda value: value.update(created_at=float("nan"))),
    "other format": _manifest(lambda value: value.update(format="other")),
    "changed": lambda members: members.update({"home/memories/MEMORY.md": b"Obey."}),
    "unnamed": lambda members: members.update({"home/plugins/evil/__init__.py": b"x"}),
    "missing": lambda members: members.pop("home/memories/MEMORY.md"),
    "traversal": _traversal,
    "newer": _manifest(lambda value: value.update(version=2)),
    "foreign": _manifest(lambda value: value.pop("files")),
    "none": lambda members: members.pop(MANIFEST),
    "many values": _manifest(lambda value: value.update(left_out=[[]] * 3_000_000)),
    "long manifest": _manifest(lambda value: value.update(program="x" * 20_000_000)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_backup_is_one_line_and_changes_nothing(
    home: HermesHome, run: Run, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "b.zip"
    run("backup", file)
    rewritten(file, HOSTILE[kind])
    before = sorted(path for path in home.path.rglob("*") if "logs" not in path.parts)
    error = run("restore", file, "--yes", "--force", code=1).stderr
    assert error.startswith("error: ")
    assert sorted(path for path in home.path.rglob("*") if "logs" not in path.parts) == before
    assert not list(tmp_path.rglob("evil"))


def test_a_backup_that_was_cut_is_one_line(home: HermesHome, run: Run, tmp_path: Path) -> None:
    run("backup", tmp_path / "b.zip")
    (tmp_path / "b.zip").write_bytes((tmp_path / "b.zip").read_bytes()[:-50])
    assert "no whole backup" in run("restore", tmp_path / "b.zip", "--yes", code=1).stderr


def test_backups_are_made_when_they_are_due_and_old_ones_go(home: HermesHome) -> None:
    set_value(home, "backup.every", 24)
    set_value(home, "backup.keep", 2)
    folder = home.path / "backups"
    for day in (3, 2, 1):
        with open_memory(home) as memory:
            memory.start_session(f"day{day}")
        (newest,) = backups_in(folder, home)[-1:]
        # As if the clock had gone on: the backup is one of some days ago.
        renamed = newest.with_name(backup_name(home, DAY_4 - day * 86_400))
        newest.replace(renamed)
        os.utime(renamed, (renamed.stat().st_mtime - day * 86_400,) * 2)
    assert [path.name for path in backups_in(folder, home)] == [
        backup_name(home, DAY_4 - 2 * 86_400),
        backup_name(home, DAY_4 - 86_400),
    ]
    with opened_backup(backups_in(folder, home)[-1]) as (_, content):
        assert ("home/memories/MEMORY.md" if ON_POSTGRES else "home/state.db") in content.files
    with open_memory(home) as memory:
        memory.start_session("soon")
        memory.start_session("again")
    assert len(backups_in(folder, home)) == 2


def test_a_scheduled_backup_that_fails_is_a_problem(home: HermesHome, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    set_value(home, "backup.every", 1)
    set_value(home, "backup.folder", str(tmp_path / "file/backups"))
    with open_memory(home) as memory:
        memory.start_session("s2")
        for thread in threading.enumerate():
            if thread.name == "hermes-backup":
                thread.join()
        assert "the scheduled backup failed" in " ".join(memory.problems())


def test_without_a_home_there_is_nothing_to_back_up(run: Run, tmp_path: Path) -> None:
    error = run("--home", tmp_path / "no", "backup", tmp_path / "b.zip", code=1).stderr
    assert "there is no home" in error
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(StorageError, match="no backup"):
        restore_backup(HermesHome(tmp_path / "new"), tmp_path / "x.zip")


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != "logs" and path.suffix != ".lock"
    }


@pytest.mark.parametrize("number", range(1, 8))
def test_a_restore_that_fails_puts_everything_back(
    home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "data.txt").write_text("theirs")
    make_backup(home, tmp_path / "b.zip", outside=[place])
    (home.path / "later.txt").write_text("later")
    (place / "data.txt").write_text("changed")
    before, calls, rename = files_of(home.path), [0], Path.rename

    def failing(path: Path, target: Path) -> Path:
        calls[0] += 1
        if calls[0] == number:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StorageError, match="in place again"):
        restore_backup(home, tmp_path / "b.zip", force=True, outside=True)
    assert files_of(home.path) == before
    assert (place / "data.txt").read_text() == "changed"
    assert sorted(path.name for path in tmp_path.iterdir() if path != home.path) == ["b.zip", "elsewhere"]
    assert not list(home.path.parent.glob("*re-restore-*"))


RESTORED = """
import json, sys
from pathlib import Path
from hermes_core import HermesHome, open_memory
from hermes_memory_archive.backup import make_backup
from hermes_memory_archive.restore import restore_backup
home, file, place = HermesHome(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
with open_memory(home) as memory:
    memory.curated.add("memory", "Uses uv.")
(place / "data.txt").write_text("theirs")
make_backup(home, file, outside=[place])
with open_memory(home) as memory:
    memory.curated.add("memory", "Came later.")
(place / "data.txt").write_text("changed")
for number in (1, 2):
    report = restore_backup(home, file, force=True, outside=True, clock=lambda: number)
    assert "Came later." not in home.memory_md.read_text()
    assert (place / "data.txt").read_text() == "theirs"
assert sorted(one.name for one in report.aside.iterdir() if one.name.startswith("before-restore")) == []
again = make_backup(home, file.with_name("again.zip"))
print(json.dumps([str(report.aside), list(again.left_out), sorted(one.name for one in place.iterdir())]))
"""


def test_a_mount_point_is_restored_in_place(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "place"
    home.mkdir()
    place.mkdir()
    mounts = " && ".join(f"mount -t tmpfs none {folder}" for folder in (home, place))
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounts], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    words = [sys.executable, "-c", RESTORED, str(home), str(tmp_path / "b.zip"), str(place)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mounts} && exec "$@"', "sh", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    aside, left_out, names = json.loads(done.stdout)
    assert aside == str(home / "before-restore-19700101T000002Z")
    assert [one for one in left_out if "before-restore" in one] == [
        f"the folder 'before-restore-19700101T00000{number}Z': what was there before a restore; delete it when "
        "nothing is missing"
        for number in (1, 2)
    ]
    assert "data.txt" in names


@pytest.mark.needs_disk("the link leads to another file system")
def test_a_home_that_is_a_link_is_restored_where_it_leads(home: HermesHome, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        real = Path(folder, "home")
        shutil.move(home.path, real)
        home.path.symlink_to(real)
        make_backup(home, tmp_path / "b.zip")
        (home.path / "later.txt").write_text("later")
        report = restore_backup(home, tmp_path / "b.zip", force=True)
        assert report.aside is not None
        assert report.aside.parent == real.parent
        assert (report.aside / "later.txt").read_text() == "later"
        assert home.path.is_symlink()
        assert "Uses uv." in home.memory_md.read_text()


def test_keys_that_the_backup_has_not_stay_and_are_named(home: HermesHome, run: Run, tmp_path: Path) -> None:
    key = "sk-1234567890abcdef1234567890abcdef"
    files = {
        "auth.json": json.dumps({"token": key}),
        "skills/kitchen/tea/.env": f"KEY={key}",
        "mem0.json": json.dumps({"mode": "oss", "api_key": key, "oss": {"api_key": key, "model": "a"}}),
        "same.yaml": f"api_key: {key}\nmodel: a\n",
        "other.yaml": f"api_key: {key}\nmodel: a\n",
    }
    for name, text in files.items():
        (home.path / name).write_text(text)
    run("backup", tmp_path / "b.zip")
    mem0 = {"mode": "platform", "api_key": key, "oss": {"api_key": key, "model": "b"}}
    (home.path / "mem0.json").write_text(json.dumps(mem0))
    (home.path / "other.yaml").write_text(f"api_key: {key}\nmodel: b\n")
    shown = " ".join(run("restore", tmp_path / "b.zip", "--yes", "--force").stdout.split())
    for name in ("'.env'", "'auth.json'", "'skills/kitchen/tea/.env'", "the secrets in 'mem0.json'"):
        assert name in shown
    assert {
        name: (home.path / name).read_text() for name in ("auth.json", "skills/kitchen/tea/.env", "same.yaml")
    } == {name: files[name] for name in ("auth.json", "skills/kitchen/tea/.env", "same.yaml")}
    assert json.loads((home.path / "mem0.json").read_text()) == json.loads(files["mem0.json"])
    assert key not in (home.path / "other.yaml").read_text()
    assert "'other.yaml' is as the backup has it, without its secrets: they are in " in shown


def test_a_restore_that_can_not_go_back_says_where_the_files_are(
    home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_backup(home, tmp_path / "b.zip")
    (home.path / "aaa.txt").write_text("later")
    calls, rename = [0], Path.rename

    def failing(path: Path, target: Path) -> Path:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StorageError, match=r"\.env' is now .*before-restore-"):
        restore_backup(home, tmp_path / "b.zip", force=True)
    (aside,) = home.path.parent.glob("home.before-restore-*")
    assert [path.name for path in aside.iterdir()] == [".env"]
    assert "aaa.txt" in files_of(home.path)


def test_a_place_outside_without_files_in_the_backup_is_left_alone(
    home: HermesHome, run: Run, tmp_path: Path
) -> None:
    victim, stolen = tmp_path / "victim", tmp_path / "stolen"
    victim.mkdir()
    (victim / "a.txt").write_text("mine")
    run("backup", tmp_path / "b.zip")
    for outside in ({str(victim): str(stolen)}, {"0": str(victim)}, {"../../x": str(victim)}):

        def change(value: dict[str, Any], outside: dict[str, str] = outside) -> None:
            value["outside"] = outside

        rewritten(tmp_path / "b.zip", _manifest(change))
        report = restore_backup(home, tmp_path / "b.zip", force=True, outside=True)
        assert (report.outside, report.put_back) == ({}, ())
        assert (victim / "a.txt").read_text() == "mine"
        assert not stolen.exists()
        shutil.rmtree(report.aside or tmp_path / "none")


@pytest.mark.parametrize("place", ["home", "home/x", "parent", "/", "relative", "/tmp/../etc"])
def test_files_go_to_no_place_that_holds_the_home(home: HermesHome, tmp_path: Path, place: str) -> None:
    places = {"home": home.path, "home/x": home.path / "x", "parent": home.path.parent}
    make_backup(home, tmp_path / "b.zip")

    def add(members: dict[str, bytes]) -> None:
        _member("outside/0/x")(members)
        _manifest(lambda value: value.update(outside={"0": str(places.get(place, place))}))(members)

    rewritten(tmp_path / "b.zip", add)
    before = files_of(home.path)
    with pytest.raises(StorageError, match="folder of its own outside the home"):
        restore_backup(home, tmp_path / "b.zip", force=True, outside=True)
    assert files_of(home.path) == before


def test_each_place_outside_is_confirmed(home: HermesHome, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
        (place / "x").write_text("theirs")
    make_backup(home, tmp_path / "b.zip", outside=[first, second])
    for place in (first, second):
        (place / "x").write_text("changed")
    result = CliRunner().invoke(
        main, ["restore", str(tmp_path / "b.zip"), "--force", "--outside"], input="n\ny\ny\n"
    )
    assert result.exit_code == 0, result.output
    assert f"Put files back to {second}" in result.output
    assert [(place / "x").read_text() for place in (first, second)] == ["changed", "theirs"]


def test_one_file_in_a_folder_of_its_name_stays_in_the_folder(home: HermesHome, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/one").write_text("x")
    make_backup(home, tmp_path / "b.zip", outside=[tmp_path / "one"])
    restore_backup(home, tmp_path / "b.zip", force=True, outside=True)
    assert (tmp_path / "one/one").read_text() == "x"


def test_a_time_that_no_file_system_has_is_no_error(home: HermesHome, tmp_path: Path) -> None:
    make_backup(home, tmp_path / "b.zip")
    rewritten(tmp_path / "b.zip", _member("home/late", mtime=1e300))
    rewritten(tmp_path / "b.zip", _member("home/never", mtime=float("nan")))
    restore_backup(home, tmp_path / "b.zip", force=True)
    assert (home.path / "late").read_text() == (home.path / "never").read_text() == "x"


def names_in(file: Path) -> set[str]:
    with opened_backup(file) as (_, content):
        return set(content.files)


KEY = "sk-1234567890abcdef1234567890abcdef"
KEY_FILES = {
    "hermes.env": f"OPENAI_API_KEY={KEY}",
    ".env~": f"OPENAI_API_KEY={KEY}",
    "env.bak": f"OPENAI_API_KEY={KEY}",
    ".env.bak": f"OPENAI_API_KEY={KEY}",
    "#.env#": f"OPENAI_API_KEY={KEY}",
    "work/deep/config.env.old": f"OPENAI_API_KEY={KEY}",
    "hindsight/config.json": json.dumps({"llm": {"api_key": KEY}, "mode": "local"}),
    "hindsight/config.json.bak": json.dumps({"llm": {"api_key": KEY}}),
    "mem0/cfg.yaml": f"api_key: {KEY}\nmode: x\n",
    "ov/ovcli.conf": f'{{"api_key": "{KEY}"}}',
    "ov/x.toml": f'api_key = "{KEY}"',
    "keys/server.key~": KEY,
    "credentials.json.bak": KEY,
}


@pytest.mark.parametrize("place", ["home", "outside"])
def test_no_keys_at_any_depth_without_being_asked(home: HermesHome, tmp_path: Path, place: str) -> None:
    base = home.path if place == "home" else tmp_path / "theirs"
    for name, text in KEY_FILES.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    report = make_backup(home, tmp_path / "b.zip", outside=[base] if place == "outside" else [])
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert [name for name in archive.namelist() if b"1234567890abcdef" in archive.read(name)] == []
    for name in KEY_FILES:
        assert any(repr(name) in sentence for sentence in report.left_out), name
    make_backup(home, tmp_path / "all.zip", secrets=True, outside=[base] if place == "outside" else [])
    prefix = "home" if place == "home" else "outside/0"
    assert {f"{prefix}/{name}" for name in KEY_FILES} <= names_in(tmp_path / "all.zip")


def test_links_are_named_and_not_followed(home: HermesHome, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text(KEY)
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.md").write_text("Elsewhere.")
    targets = {"x": ".env", "skills/y": str(tmp_path / "id_rsa"), "z": str(tmp_path / "folder")}
    for name, target in targets.items():
        (home.path / name).symlink_to(target)
    home.user_md.unlink(missing_ok=True)
    home.user_md.symlink_to(tmp_path / "id_rsa")
    home.memory_md.unlink()
    home.memory_md.symlink_to(tmp_path / "notes.md")
    report = make_backup(home, tmp_path / "b.zip")
    for name in ("x", "skills/y", "z", "memories/USER.md"):
        assert any(repr(name) in sentence for sentence in report.left_out), name
        assert f"home/{name}" not in names_in(report.path)
    # The notes may lie elsewhere.
    assert "home/memories/MEMORY.md" in names_in(report.path)


ODD_FILES = (
    "skills/backups/SKILL.md",
    "skills/logs/tea/SKILL.md",
    "skills/venv/SKILL.md",
    "skills/node_modules/SKILL.md",
    "skills/a/profiles/x.txt",
    "skills/a/uv.lock",
    "skills/a/x-journal",
    "skills/a/x.tmp",
    "skills/a/x.pid",
    "skills/a/x.damaged.txt",
    "skills/a.restoring-hens/SKILL.md",
    "skills/a/b:c",
    "skills/a/b\\c",
    "skills/a/new\nline",
    "skills/a/üñ",
)


@pytest.mark.posix_files("names that Windows refuses")
def test_any_name_is_in_a_backup_and_comes_back(home: HermesHome, tmp_path: Path) -> None:
    for name in ODD_FILES:
        (home.path / name).parent.mkdir(parents=True, exist_ok=True)
        (home.path / name).write_text("Boil.")
    make_backup(home, tmp_path / "b.zip")
    other = HermesHome(tmp_path / "other")
    restore_backup(other, tmp_path / "b.zip")
    assert [name for name in ODD_FILES if not (other.path / name).is_file()] == []


def test_what_is_left_out_is_named(home: HermesHome, tmp_path: Path) -> None:
    plugin = home.path / "plugins/x"
    for name in (
        "node_modules/y",
        "__pycache__/z",
        ".git/HEAD",
        "package.json",
        "state.db.damaged-1",
        "v/pyvenv.cfg",
    ):
        (plugin / name).parent.mkdir(parents=True, exist_ok=True)
        (plugin / name).write_text("x")
    (home.path / "Logs").mkdir()
    report = make_backup(home, tmp_path / "b.zip")
    for name in ("node_modules", "__pycache__", ".git", "state.db.damaged-1", "v"):
        assert any(f"'plugins/x/{name}'" in sentence for sentence in report.left_out), name
    assert any("'Logs'" in sentence for sentence in report.left_out)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_stores_on_a_server_are_named(
    hermes_home: HermesHome, postgres_url: str, postgres_schema: str, run: Run, tmp_path: Path
) -> None:
    block = f"storage:\n  url: {postgres_url}\n  schema: {postgres_schema}\n"
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text(block)
    with open_memory(hermes_home) as memory:
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
    printed = " ".join(run("backup", tmp_path / "backup.zip").stdout.split())
    assert (
        f"left out: the sessions, the notes and the outbox, which are on the server '{postgres_url}'"
        in printed
    )
    assert f"pg_dump --schema={postgres_schema}" in printed
    report = make_backup(hermes_home, tmp_path / "again.zip")
    with opened_backup(report.path) as (_, content):
        assert any("pg_dump" in sentence for sentence in content.left_out)
    # A host may name the server in code.
    hermes_home.config_yaml.unlink()
    config = override_config(load_config(hermes_home, {}), {"storage": {"url": postgres_url}})
    assert "pg_dump" in make_backup(hermes_home, tmp_path / "code.zip", config=config).left_out[0]
    assert not any(
        "server" in line
        for line in make_backup(
            hermes_home, tmp_path / "none.zip", config=load_config(hermes_home, {})
        ).left_out
    )


def test_a_name_that_is_no_utf8_is_named(home: HermesHome, run: Run, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(home.path) + b"/\xff.txt")).write_text("x")
    Path(os.fsdecode(os.fsencode(home.path) + b"/skills/\xfe")).mkdir()
    report = json.loads(run("backup", tmp_path / "b.zip", "--json").stdout)
    assert sum("is no UTF-8" in sentence for sentence in report["left_out"]) == 2
    assert "is no UTF-8" in run("backup", tmp_path / "c.zip").stdout


def test_backups_in_the_home_are_in_no_backup(home: HermesHome, run: Run, tmp_path: Path) -> None:
    set_value(home, "backup.folder", "saved/here")
    (home.path / "mine").mkdir()
    for number in range(3):
        run("backup")
        run("backup", tmp_path / f"{number}.zip")
        shutil.copy(tmp_path / f"{number}.zip", home.path / "mine" / "c.zip")
    for file in (home.path / "saved/here").glob("*.zip"):
        assert [name for name in names_in(file) if "saved" in name or name.endswith(".zip")] == []


def test_the_notes_are_no_folder_of_backups(home: HermesHome, run: Run) -> None:
    set_value(home, "backup.folder", "memories")
    run("backup")
    (file,) = home.memories.glob("*.zip")
    assert "home/memories/MEMORY.md" in names_in(file)


def test_skills_may_lie_elsewhere(home: HermesHome, tmp_path: Path) -> None:
    home.skills.rename(tmp_path / "skills")
    home.skills.symlink_to(tmp_path / "skills")
    HomeParts(home, load_config(home)).record()
    report = make_backup(home, tmp_path / "b.zip")
    assert "home/skills/kitchen/tea/SKILL.md" in names_in(report.path)
    assert not any("link" in sentence for sentence in report.left_out)


def test_homes_that_share_a_folder_keep_their_own_backups(home: HermesHome, run: Run, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    other = HermesHome(home.path / "profiles/work", "work")
    for one in (home, other):
        one.path.mkdir(parents=True, exist_ok=True)
        set_value(one, "backup.folder", str(shared))
        set_value(one, "backup.every", 24)
        set_value(one, "backup.keep", 1)
    for _ in range(2):
        run("backup")
    with open_memory(other) as memory:
        memory.start_session("s")  # a backup of the other home is not one of this
    assert len(backups_in(shared, home)) == len(backups_in(shared, other)) == 1
    assert len(list(shared.glob("*.zip"))) == 2
    for one in (home, other):
        with opened_backup(*backups_in(shared, one)) as (_, content):
            assert content.home == str(one.path)


def test_backups_of_one_second_are_two(home: HermesHome, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("hermes_memory_archive.schedule.time.time", lambda: DAY_4)
    run("backup")
    run("backup")
    first, second = backups_in(home.path / "backups", home)
    assert (first.name, second.stem) == (backup_name(home, DAY_4), f"{first.stem}-2")


def test_a_backup_of_the_future_does_not_stop_the_others(home: HermesHome, run: Run) -> None:
    set_value(home, "backup.every", 24)
    run("backup")
    folder = home.path / "backups"
    (file,) = backups_in(folder, home)
    os.utime(file, (file.stat().st_mtime + 10**8,) * 2)
    with open_memory(home) as memory:
        memory.start_session("s")
    assert len(backups_in(folder, home)) == 2


def test_any_error_of_the_thread_is_a_problem(home: HermesHome) -> None:
    set_value(home, "backup.every", 24)

    def fail() -> list[Path]:
        raise RuntimeError("no answer")

    problems: list[str] = []
    backups = ScheduledBackups(home, load_config(home), fail, problems.append)
    backups.start_if_due()
    backups.wait()
    assert problems == ["the scheduled backup failed: RuntimeError: no answer"]


def test_a_provider_that_does_not_name_its_files_is_a_problem(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.results["backup_paths"] = RuntimeError("no disk")
    with open_memory(hermes_home, provider=provider) as memory:
        assert outside_paths(memory) == []
        assert any("what 'fake' has outside the home is in no backup" in text for text in memory.problems())
        del provider.results["backup_paths"]
        outside_paths(memory)
        assert memory.problems() == []
