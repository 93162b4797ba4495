"""Files that a tool may send: those of the working folder and of folders that the person named, and no keys."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import socket
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, Session, open_memory
from hermes_core.cli import main
from hermes_core.errors import ToolInputInvalid
from hermes_core.kit import key_files, read_file_to_send, uploads
from hermes_core.kit.key_files import private_reason

LIMIT = 2**20
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


SESSION = '{"format": "hermes-memory-session", "version": 1, "session": {"id": "s1"}, "messages": []}'
GITHUB_KEY = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"


def archive_of(name: str, content: bytes, kind: str) -> bytes:
    """Return an archive with a file in it."""
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
    else:
        mode: Any = f"w:{kind}"
        with tarfile.open(fileobj=out, mode=mode) as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def database_of(folder: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(folder / "x")) as connection:
        connection.execute("CREATE TABLE a (b)")
        connection.commit()
    return (folder / "x").read_bytes()


def without_magic(tar: bytes) -> bytes:
    """Return a tar archive as programs before POSIX wrote it: without the magic number."""
    header = bytearray(tar[:512])
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + tar[512:]


KEY_TEXT, SETTINGS = f"The key is {GITHUB_KEY}.", "HOST=db\nDB_PASSWORD=correct-horse-9\n"
SECRET_TEXTS = {
    "a key": KEY_TEXT,
    "settings": SETTINGS,
    "a session": SESSION,
    "a private key": "-----BEGIN PRIVATE KEY-----",
}
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "latin-1")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", SECRET_TEXTS)
def test_no_encoding_of_text_hides_a_secret(work: Path, session: Session, encoding: str, kind: str) -> None:
    (work / "holiday.md").write_bytes(SECRET_TEXTS[kind].encode(encoding))
    assert "in it" in refusal("holiday.md", session) or "export of a memory" in refusal("holiday.md", session)


OTHER_SETTINGS = {
    "docker": '{"auths": {"https://index.docker.io/v1/": {"auth": "YW5uOmNvcnJlY3QtaG9yc2UtOQ=="}}}',
    "kubernetes": "kind: Config\nusers:\n- name: u\n  user:\n    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSB\n",
    "npm": "registry=https://r.example.com\n//r.example.com/:_auth=YW5uOmNvcnJlY3QtaG9yc2UtOQ==\n",
    "wifi": 'network={\n ssid="home"\n psk="correct horse battery"\n}\n',
    "jwk": '{"kty": "EC", "crv": "P-256", "d": "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"}',
    "cookies.txt": ".example.com\tTRUE\t/\tTRUE\t1893456000\tsession\tabcdef\n",
    "cookies as JSON": '[{"domain": ".example.com", "httpOnly": true, "name": "session", "value": "abcdef"}]',
    ".pgpass": "# of the team\ndb.example.com:5432:app:ann:correct-horse\n*:*:*:bob:other-horse",
    "table of passwords": "name,url,username,password\nexample.com,https://example.com/,ann,correct-horse\n",
}


@pytest.mark.parametrize("kind", OTHER_SETTINGS)
def test_files_of_passwords_that_name_no_password_are_refused(
    work: Path, session: Session, kind: str
) -> None:
    (work / "holiday.md").write_text(OTHER_SETTINGS[kind])
    assert "has passwords or keys in it" in refusal("holiday.md", session)


@pytest.mark.parametrize(
    "content",
    [
        b"# one\n# two\n",
        b"Name,Password policy\nann,strict\n",
        b"The username, the password, and the host are in the vault.\n",
        b"at 10:30: the train: leaves: now\n",
        b"psk = load_key()\n_auth = Auth()\n",
        b'[{"host": "db1", "value": "12"}]',
        b'{"pagination": {"ListJobs": {"input_token": "NextToken", "output_token": "nextToken"}}}',
        "Ключи меняются, пароль знает Анна.".encode("utf-16"),
    ],
)
def test_texts_that_look_like_files_of_passwords_are_sent(
    work: Path, session: Session, content: bytes
) -> None:
    (work / "holiday.md").write_bytes(content)
    assert read_file_to_send("holiday.md", session, LIMIT).content == content


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_key_is_seen_anywhere_in_a_large_file_also_beside_encoded_data(
    work: Path, session: Session, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The key stands at each place around the first cut; a picture in a page is no key and takes no time."""
    monkeypatch.setattr(key_files, "_PIECE_CHARS", 6000)
    for before in (11_950, 11_980, 11_999, 12_000):
        content = f"{'tea, ' * (before // 5)}{'tea, '[: before % 5]} {GITHUB_KEY} and {'aB3/' * 99_999}{end}"
        assert private_reason(content.encode()) == "has a key in it"
    assert private_reason(("src=" + "aB3/" * 99_999 + end).encode()) == ""


def test_archives_in_archives_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a small file would take minutes: thirty archives of 60 MB in one."""
    monkeypatch.setattr(key_files, "_MAX_UNPACKED_BYTES", 10_000)
    inner = archive_of("a.txt", b"tea\n" * 1000, "zip")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.zip", inner)
    assert private_reason(inner) == ""
    assert "can't be looked through" in private_reason(out.getvalue())
    monkeypatch.setattr(key_files, "_MAX_UNPACKED_BYTES", 100_000)
    assert private_reason(out.getvalue()) == ""
    monkeypatch.setattr(key_files, "_MAX_MEMBERS", 5)
    assert "can't be looked through" in private_reason(out.getvalue())


PRIVATE: dict[str, Callable[[Path], bytes]] = {
    "a session that was exported": lambda _: SESSION.encode(),
    "an export, compressed": lambda _: gzip.compress(SESSION.encode()),
    "the manifest of a backup": lambda _: archive_of("b.json", b'{"format":"hermes-memory-backup"}', "zip"),
    "a database": database_of,
    "a database in an archive": lambda folder: archive_of("notes.bin", database_of(folder), "gz"),
    "a write-ahead log": lambda _: b"\x37\x7f\x06\x82" + bytes(28),
    "a key of a known format": lambda _: f"The key is {GITHUB_KEY}.".encode(),
    "a key in UTF-16": lambda _: f"The key is {GITHUB_KEY}.".encode("utf-16"),
    "settings": lambda _: b"HOST=db\nDB_PASSWORD=correct-horse-9\n",
    "a file of a cloud": lambda _: (
        b"[default]\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzz9Xq2\n"
    ),
    "logins of machines": lambda _: b"machine api.example.com login ann password correct-horse-9\n",
    "JSON with a password": lambda _: b'{"user": "ann", "password": "correct-horse-9"}',
    "a key file in an archive": lambda _: archive_of("home/.ssh/id_rsa", b"x", "zip"),
    "a key in a tar archive": lambda _: archive_of("a.txt", GITHUB_KEY.encode(), "xz"),
    "an archive in an archive": lambda _: archive_of("a", archive_of("b", SESSION.encode(), ""), "zip"),
    "a compressed archive in a tar archive without magic": lambda _: without_magic(
        archive_of("b", gzip.compress(SESSION.encode()), "")
    ),
    "a database in an old tar archive": lambda folder: without_magic(
        archive_of("a.txt", database_of(folder), "")
    ),
    "an archive that begins with a program": lambda _: (
        b"MZ" + bytes(500) + archive_of("a.txt", KEY_TEXT.encode(), "zip")
    ),
    "an archive with a hidden end": lambda _: archive_of("a.txt", KEY_TEXT.encode(), "zip") + b"x" * 70_000,
    "7z": lambda _: b"7z\xbc\xaf\x27\x1c" + bytes(99),
    "RAR": lambda _: b"Rar!\x1a\x07\x01\0" + bytes(99),
    "Zstandard": lambda _: b"\x28\xb5\x2f\xfd" + bytes(99),
    "passwords of KeePass": lambda _: b"\x03\xd9\xa2\x9a\x67\xfb\x4b\xb5" + bytes(99),
    "keys of Java": lambda _: b"\xfe\xed\xfe\xed\0\0\0\2" + bytes(99),
    "a private key as DER": lambda _: bytes.fromhex("308204bd020100300d06092a864886f70d") + bytes(99),
    "a PKCS #12 file": lambda _: bytes.fromhex("308209b00201033082097606092a864886") + bytes(99),
    "a secret key of OpenPGP": lambda _: bytes.fromhex("9503c6045f000000") + bytes(99),
    "a document with a key": lambda _: archive_of("word/document.xml", f"<t>{KEY_TEXT}</t>".encode(), "zip"),
    "a torn archive": lambda _: archive_of("a.txt", b"tea" * 999, "gz")[:-9],
}


@pytest.mark.parametrize("kind", PRIVATE)
def test_keys_databases_and_memories_are_refused_under_any_name(
    work: Path, tmp_path: Path, session: Session, kind: str
) -> None:
    (work / "holiday.md").write_bytes(PRIVATE[kind](tmp_path))
    said = refusal("holiday.md", session, work)
    assert any(
        words in said for words in (" in it", "is a database", "is a backup or an export", "can't be looked")
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Keys are rotated each month; the password is known to Ann.",
        b"def login(password: str, token: str = '') -> None:\n    check(password == stored_password)\n" * 20,
        b"password = 'only-in-a-test-9'\n" + b"assert True\n" * 60,
        archive_of("a/readme.md", b"tea", "zip"),
        archive_of("a/readme.md", b"tea", "gz"),
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
    ],
)
def test_code_prose_pictures_and_archives_without_keys_are_sent(
    work: Path, session: Session, content: bytes
) -> None:
    (work / "holiday.md").write_bytes(content)
    assert read_file_to_send("holiday.md", session, LIMIT).content == content


def test_a_session_that_was_exported_is_refused(work: Path, session: Session) -> None:
    """The real file, so that a new form of it can't be forgotten."""
    with open_memory(HermesHome(work.parent / "home"), provider="") as memory:
        memory.conversation("s1").turn("I play chess").finish("Nice.")
    words = ["--home", str(work.parent / "home"), "sessions", "export", "--all", "-o", "holiday.md"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert "is a backup or an export of a memory" in refusal("holiday.md", session)


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
