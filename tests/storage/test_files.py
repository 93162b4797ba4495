from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from hermes_core.errors import LockTimeout, StorageError
from hermes_core.storage.files import FileSystem, FileValue, ensure_folder, file_system, locked, write_atomic
from tests.storage.notes import posix, run


def test_a_lock_is_exclusive_between_processes_and_ends_with_its_holder(tmp_path: Path) -> None:
    code = """
import signal, sys
from pathlib import Path
from hermes_core.storage.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""
    holder = run(code, tmp_path / "file")
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockTimeout, match="has held"), locked(tmp_path / "file", timeout=0.05):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path / "file", timeout=5):
        pass


def test_a_lock_is_exclusive_between_threads(tmp_path: Path) -> None:
    refused = []

    def try_it() -> None:
        try:
            with locked(tmp_path / "file", timeout=0.05):
                pass
        except LockTimeout as exc:
            refused.append(exc)

    with locked(tmp_path / "file"):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_no_increment_is_lost_between_two_processes(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from hermes_core.storage.files import locked, write_atomic
path = Path(sys.argv[1])
for _ in range(100):
    with locked(path):
        write_atomic(path, str(int(path.read_text()) + 1).encode())
"""
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = [run(code, counter) for _ in range(2)]
    assert [child.communicate()[1] for child in children] == ["", ""]
    assert counter.read_text() == "200"


@posix
def test_a_killed_writer_leaves_the_old_bytes_or_the_new(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from hermes_core.storage.files import write_atomic
print("go", flush=True)
n = 0
while True:
    n += 1
    write_atomic(Path(sys.argv[1]), (str(n % 10) * 200_000).encode())
"""
    path = tmp_path / "file"
    for _ in range(8):
        child = run(code, path)
        assert child.stdout
        assert child.stdout.readline() == "go\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(random.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        if path.exists():
            text = path.read_text()
            assert (len(text), len(set(text))) == (200_000, 1)


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_written_file_has_its_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "new" / "file", b"x")
        write_atomic(tmp_path / "shared", b"x", 0o644)
        with locked(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    assert modes == {"new": 0o700, "file": 0o600, "shared": 0o644, "file.lock": 0o600}


@posix
def test_a_file_that_root_replaces_stays_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, *ids: given.append((Path(path).suffix, *ids)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    file = tmp_path / "USER.md"
    write_atomic(file, b"old")
    assert given == []
    write_atomic(file, b"new")
    assert given == [(".tmp", file.stat().st_uid, file.stat().st_gid)]


@posix
def test_a_symbolic_link_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real"
    target.parent.mkdir()
    target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [p.name for p in target.parent.iterdir()] == ["real"]


@posix
def test_links_that_lead_in_a_circle_are_an_error_of_ours(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.symlink_to(home)
    with pytest.raises(StorageError, match="home"):
        write_atomic(home / "f", b"x")
    assert file_system(home / "f") == file_system(tmp_path)


@posix
def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from hermes_core.errors import StorageError
from hermes_core.storage.files import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path(sys.argv[1]), b"x" * 5000)
except StorageError as exc:
    print(exc)
"""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    out, err = run(code, path).communicate()
    assert (err, path.read_bytes()) == ("", b"old")
    assert "can't write" in out
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@posix
def test_a_folder_that_may_not_be_written_is_named_with_what_to_do() -> None:
    code = """
import os, sys
from pathlib import Path
from hermes_core.errors import StorageError
from hermes_core.storage.files import write_atomic

if os.geteuid() == 0:
    os.seteuid(65534)  # nobody: root may write anywhere
try:
    write_atomic(Path(sys.argv[1], "file"), b"x")
except StorageError as exc:
    print(exc)
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        out, err = run(code, Path(folder)).communicate()
    assert err == ""
    assert "check who owns the folder" in out


def test_a_file_where_a_folder_should_be_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="can't make folder"):
        ensure_folder(tmp_path / "file" / "below")
    with pytest.raises(StorageError):
        write_atomic(tmp_path / "file" / "below", b"x")


@pytest.mark.parametrize(
    ("kind", "carries"),
    [("ext4", True), ("apfs", True), ("", True), ("nfs4", False), ("cifs", False), ("fuse.sshfs", False)],
)
def test_network_file_systems_carry_no_write_ahead_log(kind: str, carries: bool) -> None:
    assert FileSystem(kind).carries_wal is carries


def test_the_kind_of_a_path_that_is_not_there_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    assert file_system(tmp_path / "not" / "there") == file_system(tmp_path)


@posix
def test_parents_that_are_made_are_private_too(tmp_path: Path) -> None:
    ensure_folder(tmp_path / "home" / "memories" / "deep")
    made = [tmp_path / "home", tmp_path / "home" / "memories", tmp_path / "home" / "memories" / "deep"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path, value, reads = tmp_path / "file", FileValue[bytes](), 0

    def read() -> bytes:
        nonlocal reads
        reads += 1
        return path.read_bytes()

    path.write_bytes(b"one")
    time.sleep(0.05)
    assert [value.get(path, read) for _ in range(3)] == [b"one"] * 3
    assert reads == 1
    write_atomic(path, b"two")
    assert value.get(path, read) == b"two"
    path.unlink()
    assert value.get(path, read, missing=b"") == b""
    with pytest.raises(FileNotFoundError):
        value.get(path, read)


def test_a_file_written_again_within_a_tick_is_read_again(tmp_path: Path) -> None:
    path, value = tmp_path / "file", FileValue[bytes]()
    path.write_bytes(b"0000")
    for number in range(200):
        with path.open("r+b") as file:  # same inode, same size
            file.write(b"%04d" % number)
        assert value.get(path, path.read_bytes) == b"%04d" % number


def test_a_file_is_read_again_after_forget(tmp_path: Path) -> None:
    path, value = tmp_path / "file", FileValue[object]()
    path.write_bytes(b"one")
    time.sleep(0.05)
    first = value.get(path, object)
    assert value.get(path, object) is first
    value.forget()
    assert value.get(path, object) is not first


@posix
def test_a_write_through_a_link_replaces_its_target(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link-of-folder").symlink_to(tmp_path / "folder")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    write_atomic(tmp_path / "link-of-folder" / "file", b"one")
    write_atomic(tmp_path / "link", b"two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]
