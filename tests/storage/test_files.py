from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from hermes_core.errors import LockTimeout, StorageError
from hermes_core.storage import files
from hermes_core.storage.files import (
    FileSystem,
    FileValue,
    delete_path,
    drive_kind,
    ensure_folder,
    file_system,
    locked,
    mounted_kind,
    mounts,
    write_atomic,
    write_checked,
)
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
    [("ext4", True), ("apfs", True), ("", False), ("nfs4", False), ("cifs", False), ("fuse.sshfs", False)],
)
def test_network_file_systems_and_unknown_ones_carry_no_write_ahead_log(kind: str, carries: bool) -> None:
    assert FileSystem(kind).carries_wal is carries


MOUNTS_OF_MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//ann@nas._smb._tcp.local/home on /Volumes/Ann's home (smbfs, nodev, nosuid, mounted by ann)
nas:/export on /Volumes/Export (on nas) (nfs, nodev)
/dev/disk5 on /Volumes/Stick (exfat, local)
"""


def test_on_macos_the_type_is_that_of_the_innermost_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.sys, "platform", "darwin")
    run: list[list[str]] = []

    def mount(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        run.append(command)
        return subprocess.CompletedProcess(command, 0, MOUNTS_OF_MACOS.encode(), b"")

    monkeypatch.setattr(files.subprocess, "run", mount)
    kinds = {
        "/Users/ann/.hermes": "apfs",
        "/Volumes/Ann's home/hermes": "smbfs",
        "/volumes/ANN'S HOME/hermes": "smbfs",  # the same folder there
        "/Volumes/Export (on nas)/x": "nfs",
        "/Volumes/Stick": "exfat",
    }
    assert {path: mounted_kind(Path(path), mounts()) for path in kinds} == kinds
    assert set(map(tuple, run)) == {("/sbin/mount",)}


def test_a_system_that_names_no_mounts_has_files_of_an_unknown_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.sys, "platform", "freebsd14")

    def fail(command: list[str], **options: object) -> None:
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(files.subprocess, "run", fail)
    assert mounts() == []
    assert mounted_kind(Path("/home"), mounts()) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the table of mounts of Linux")
def test_on_linux_a_mount_is_found_by_a_name_with_blanks_and_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "/dev/sda1 / ext4 rw 0 0\nnas:/x /mnt/my\\040\xfcber\\134x nfs4 rw 0 0\n".encode("latin-1")
    monkeypatch.setattr(Path, "read_bytes", lambda path: table)
    assert mounted_kind(Path(os.fsdecode(b"/mnt/my \xfcber\\x/home")), mounts()) == "nfs4"
    assert mounted_kind(Path("/mnt/other"), mounts()) == "ext4"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (r"C:\Users\ann\hermes", "fixed"),
        ("c:/Users/ann/hermes", "fixed"),
        (r"\\?\C:\Users\ann", "fixed"),
        (r"\\nas\home\hermes", "remote"),
        ("//nas/home/hermes", "remote"),
        (r"\\?\UNC\nas\home\hermes", "remote"),
        (r"\\wsl.localhost\Ubuntu\home", "remote"),
        (r"Z:\hermes", "remote"),
        (r"Q:\hermes", ""),
    ],
)
def test_on_windows_shares_are_remote_with_and_without_a_letter(path: str, kind: str) -> None:
    types = {"c:\\": 3, "\\\\?\\c:\\": 3, "z:\\": 4}
    assert drive_kind(path, lambda root: types.get(root.lower(), 1)) == kind
    assert FileSystem(kind).carries_wal is (kind == "fixed")


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


def test_on_windows_a_replacement_waits_for_a_reader_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal of Windows has a number of its own; a folder without rights is refused at once."""
    replace, left = Path.replace, [3]

    def refuse(path: Path, target: Path) -> Path:
        if left[0]:
            left[0] -= 1
            refusal = PermissionError(13, "in use")
            refusal.winerror = 32  # type: ignore[attr-defined,unused-ignore]
            raise refusal
        return replace(path, target)

    monkeypatch.setattr(files, "_WINDOWS_RENAME_PAUSE_S", 0)
    monkeypatch.setattr(Path, "replace", refuse)
    write_atomic(tmp_path / "file", b"new")
    assert ((tmp_path / "file").read_bytes(), left) == (b"new", [0])
    left[0] = 1000
    with pytest.raises(StorageError, match="in use"):
        write_atomic(tmp_path / "file", b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_file_is_replaced_by_one_and_leaves_no_litter(tmp_path: Path) -> None:
    """Under the rules of Windows, where such a file is neither replaced nor deleted."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    write_atomic(path, b"new", 0o444)
    with pytest.raises(StorageError):
        write_checked(path, b"newer", 0o444, lambda: os.link(path, path))
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o444)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_read_only_files_are_deleted_with_their_folder_and_alone(tmp_path: Path) -> None:
    for path in (tmp_path / "folder" / "below" / "object", tmp_path / "file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o444)
    delete_path(tmp_path / "folder")
    delete_path(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_too_long_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="File name too long; use a home whose path is shorter"):
        write_atomic(tmp_path / ("n" * 300), b"x")
