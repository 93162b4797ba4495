"""Files that a tool may send: those of the working folder and of folders that the person named, and no keys."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import Session
from hermes_core.errors import ToolInputInvalid
from hermes_core.kit import read_file_to_send, uploads

LIMIT = 100
pytestmark = pytest.mark.needs_disk("no file below /dev is sent")
posix = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in a folder with other files."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "note.txt").write_text("tea")
    (tmp_path / "outside.txt").write_text("secret")
    return folder


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session("s1", home=str(tmp_path / "home"))


def refusal(path: object, session: Session, *folders: object) -> str:
    with pytest.raises(ToolInputInvalid) as caught:
        read_file_to_send(str(path), session, LIMIT, [str(folder) for folder in folders])
    return str(caught.value)


@pytest.mark.parametrize("spelling", ["{0}/note.txt", "note.txt", "./sub/../note.txt", "link", "file://{0}/note.txt",
                                      "file://localhost{0}/note.txt", "FILE:{0}/no%74e.txt", " note.txt "])  # fmt: skip
def test_a_file_of_the_working_folder_is_read_however_it_is_named(
    work: Path, session: Session, spelling: str
) -> None:
    (work / "sub").mkdir()
    (work / "link").symlink_to(work / "note.txt")
    file = read_file_to_send(spelling.format(work), session, LIMIT)
    assert (file.name, file.content, file.path) == ("note.txt", b"tea", (work / "note.txt").resolve())


def test_a_folder_that_the_person_named_allows_its_files_also_if_it_is_hidden(
    work: Path, tmp_path: Path, session: Session
) -> None:
    folder = tmp_path / ".papers" / "2026"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("A")
    assert "hidden" in refusal(folder / "a.md", session)
    for named in (tmp_path / ".papers", folder, f" {folder} "):
        assert read_file_to_send(str(folder / "a.md"), session, LIMIT, [str(named)]).content == b"A"
    (folder / ".b").write_text("B")
    assert "hidden" in refusal(folder / ".b", session, folder)
    assert "hidden" in refusal(folder / "a.md", session, "", tmp_path / "none", "~nobody-of-this-name")


def test_a_named_folder_may_begin_with_a_tilde(
    work: Path, tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.md").write_text("A")
    assert read_file_to_send("~/papers/a.md", session, LIMIT, ["~/papers"]).content == b"A"
    assert "is not below" in refusal("~/outside.txt", session, "~/papers")


@pytest.mark.parametrize("spelling", ["{0}/outside.txt", "../outside.txt", "./sub/../../outside.txt", "link", "folder/outside.txt",
                                      "file://{0}/outside.txt", "file:../outside.txt", "file://{0}/work/%2e%2e/outside.txt"])  # fmt: skip
def test_a_file_outside_is_refused_however_it_is_named(
    work: Path, tmp_path: Path, session: Session, spelling: str
) -> None:
    (work / "sub").mkdir()
    (work / "link").symlink_to(tmp_path / "outside.txt")
    (work / "folder").symlink_to(tmp_path)
    assert "is not below" in refusal(spelling.format(tmp_path), session)


def test_a_folder_whose_name_only_begins_alike_is_outside(
    work: Path, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "work2").mkdir()
    (tmp_path / "work2" / "a.md").write_text("A")
    assert "is not below" in refusal(tmp_path / "work2" / "a.md", session)


@posix
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/../self/environ", "/sys/kernel/uevent_seqnum",
                                  "/dev/zero", "/dev/stdin", "file:///proc/self/environ", "link"])  # fmt: skip
@pytest.mark.parametrize("folders", [(), ("/",), ("/proc", "/sys", "/dev")])
def test_what_the_system_shows_as_files_is_never_sent(
    work: Path, session: Session, path: str, folders: tuple[str, ...]
) -> None:
    (work / "link").symlink_to("/proc/self/environ")
    assert refusal(path, session, *folders)


def test_the_root_is_no_working_folder(session: Session, work: Path, tmp_path: Path) -> None:
    os.chdir(work.anchor)
    assert "is not below" in refusal(tmp_path / "outside.txt", session)


KEYS = [
    ".env",
    ".env.local",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".aws/credentials",
    ".ssh/config",
    ".ssh/id_rsa",
    "id_rsa",
    "id_ed25519",
    "ID_RSA",
    "id_rsa.bak",
    "id_rsa~",
    "id_rsa.bak.1",
    "server.pem",
    "SERVER.PEM",
    "server.key",
    "site.p12",
    "site.pfx",
    "prod.env",
    "prod.env.old",
    "release.jks",
    "vault.kdbx",
    "key.ppk",
    "credentials",
    "credentials.json",
    "aws_credentials.csv",
    "client_secret_12.json",
    "service-account.json",
    "serviceAccountKey.json",
    "secrets.yaml",
    "secrets.yaml.bak",
    "api_keys.txt",
    "my-passwords.txt",
    "token.json",
    "auth.json",
    "kubeconfig",
    "prod.tfvars",
    "terraform.tfstate",
    "key4.db",
    "cookies.sqlite",
    "htpasswd",
    ".git/config",
    ".docker/config.json",
    "gcloud/access.db",
    "secrets/db.txt",
    "a/.hidden/b.txt",
]


@pytest.mark.parametrize("name", KEYS)
def test_a_file_that_is_named_like_one_of_keys_is_refused_in_any_folder(
    work: Path, session: Session, name: str
) -> None:
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    (work / name).write_text("x")
    (work / "innocent.md").symlink_to(work / name)
    for path in (name, "innocent.md"):
        for folders in ((), (work,)):
            said = refusal(path, session, *folders)
            assert "is hidden" in said or "named like" in said


@pytest.mark.parametrize(
    "name", ["credentials.md", "token.py", "id_rsa.pub", "keys.md", "secret_santa.txt", "environment.yml"]
)
def test_a_file_about_keys_is_sent(work: Path, session: Session, name: str) -> None:
    (work / name).write_text("x")
    assert read_file_to_send(name, session, LIMIT).content == b"x"


@pytest.mark.parametrize(
    "begin", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_a_private_key_is_refused_under_any_name(work: Path, session: Session, begin: str) -> None:
    (work / "holiday.md").write_text(f"Sun.\n-----BEGIN {begin}-----\nabc")
    assert "has a private key in it" in refusal("holiday.md", session)


@pytest.mark.parametrize(
    "name", ["config.yaml", "state.db", "profiles/other/config.yaml", "memories/MEMORY.md"]
)
@pytest.mark.parametrize("profile", ["", "profiles/work"])
def test_the_agents_homes_are_refused_also_below_the_working_folder(
    work: Path, name: str, profile: str
) -> None:
    home = work / "home"
    (home / "profiles" / "work").mkdir(parents=True)
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text("x")
    (work / "link").symlink_to(home)
    session = Session("s1", home=str(home / profile))
    for path in (f"home/{name}", f"link/{name}"):
        for folders in ((), (home,)):
            assert "of the agent's own home" in refusal(path, session, *folders)


def test_the_home_that_the_environment_names_is_refused_too(
    work: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "other").mkdir()
    (work / "other" / "a.txt").write_text("x")
    monkeypatch.setenv("HERMES_HOME", str(work / "other"))
    assert "of the agent's own home" in refusal("other/a.txt", session)


@pytest.mark.parametrize("of", [{"user_id": "1"}, {"chat_id": "1"}])
def test_a_user_of_a_gateway_sends_no_file_of_its_owner(work: Path, of: dict[str, str]) -> None:
    guest = Session("s1", platform="telegram", home=str(work / "home"), **of)  # type: ignore[arg-type]
    assert "somebody else" in refusal("note.txt", guest)


def test_what_is_no_file_or_too_large_is_refused(work: Path, session: Session) -> None:
    (work / "large").write_text("x" * (LIMIT + 1))
    (work / "folder").mkdir()
    (work / "dangling").symlink_to(work / "none")
    (work / "loop").symlink_to(work / "loop")
    for path in (
        "large",
        "none",
        "folder",
        "dangling",
        "loop",
        ".",
        "",
        "nul\0",
        "x" * 5000,
        "~nobody-of-this-name/x",
    ):
        assert any(said in refusal(path, session) for said in ("is no file", "names no file", "is not below"))
    assert "of another machine" in refusal("file://server/share/a.txt", session)


@posix
def test_pipes_and_sockets_are_refused_at_once(work: Path, session: Session) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("pipe", "socket"):
            assert "is no file" in refusal(path, session)


@posix
def test_a_file_with_a_second_name_elsewhere_is_refused(work: Path, tmp_path: Path, session: Session) -> None:
    os.link(tmp_path / "outside.txt", work / "inside.txt")
    assert "hard links" in refusal("inside.txt", session)


def swap_file(work: Path, outside: Path) -> None:
    (work / "sub" / "a.txt").unlink()
    (work / "sub" / "a.txt").symlink_to(outside / "a.txt")


def swap_folder(work: Path, outside: Path) -> None:
    (work / "sub").rename(work / "before")
    (work / "sub").symlink_to(outside)


@pytest.mark.parametrize("swap", [swap_file, swap_folder])
@pytest.mark.parametrize("by_folders", [True, False])
def test_a_path_that_changes_between_check_and_read_sends_nothing_else(
    work: Path,
    tmp_path: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    swap: Callable[[Path, Path], None],
    by_folders: bool,
) -> None:
    """The swap comes right after the check of the names; the second way is that of a system without `dir_fd`."""
    (work / "sub").mkdir()
    (work / "sub" / "a.txt").write_text("tea")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("secret")
    check_names = uploads._check_names

    def check_and_swap(*arguments: object) -> None:
        check_names(*arguments)  # type: ignore[arg-type]
        swap(work, tmp_path / "outside")

    monkeypatch.setattr(uploads, "_check_names", check_and_swap)
    if not by_folders:
        monkeypatch.setattr(os, "supports_dir_fd", frozenset())
    assert "is no file" in refusal("sub/a.txt", session)
