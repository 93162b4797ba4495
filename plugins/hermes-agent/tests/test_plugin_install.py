"""`hermes-memory plugins`: folders of the home, from real archives over loopback HTTP, with real interruptions."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config import Credentials, set_value
from hermes_core.loader.discover import discover
from hermes_memory_foreign import archives, plugin_check
from tests.cli.conftest import Hermes
from tests.forked import python

DUCK = """
class Duck:
    name = "duck"

    def is_available(self): return True
    def initialize(self, session_id, **kwargs): ...
    def get_tool_schemas(self): return []


def register(ctx):
    ctx.register_memory_provider(Duck())
"""
FIRST, SECOND = "a" * 40, "b" * 40


def plugin(folder: Path, source: str = DUCK, manifest: str = "name: duck\nversion: 1.0\n") -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source)
    (folder / "plugin.yaml").write_text(manifest)
    return folder


def tarball(files: dict[str, str], commit: str = "", *more: tarfile.TarInfo) -> bytes:
    """An archive as GitHub sends it: all in one folder, the commit in its header."""
    buffer = io.BytesIO()
    headers = {"comment": commit} if commit else {}
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"repo-{commit}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
        for info in more:
            archive.addfile(info)
    return buffer.getvalue()


class Host:
    """A server with repositories and a catalog. `asked` are the paths of all requests, `moved` old names and new."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[str] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.asked.append(self.path)
                for old, new in host.moved.items():
                    if self.path.startswith(f"/{old}/"):
                        self.send_response(301)
                        self.send_header("Location", self.path.replace(old, new, 1))
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                if self.path in host.files and not self.path.startswith("/sent"):
                    # As GitHub does, which sends archives from another host.
                    self.send_response(302 if "/archive/" in self.path else 200)
                    body = b"" if "/archive/" in self.path else host.files[self.path]
                    self.send_header("Location", f"/sent{self.path}")
                else:
                    body = host.files.get(self.path.removeprefix("/sent"), b"not here")
                    self.send_response(200 if self.path.removeprefix("/sent") in host.files else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def repository(self, name: str, files: dict[str, str], commit: str, ref: str = "HEAD") -> None:
        self.files[f"/{name}/archive/{ref}.tar.gz"] = tarball(files, commit)


@pytest.fixture(scope="module")
def forking_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program in place of Python's that forks what `plugin_check` starts. Its first option, `-P`, changes nothing there."""
    if len(python()) == 1:
        return sys.executable
    program = tmp_path_factory.mktemp("bin") / "python"
    program.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(python())} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)


@pytest.fixture(autouse=True)
def fast_check(forking_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check plugins in forks. Installations that are interrupted start the program as it is."""
    monkeypatch.setattr(plugin_check, "sys", SimpleNamespace(executable=forking_python))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host()
    monkeypatch.setenv("HERMES_PLUGIN_HOST", host.url)
    monkeypatch.setenv("HERMES_PLUGIN_CATALOG", f"{host.url}/catalog")
    yield host
    host.server.shutdown()
    host.server.server_close()


def installed(home: HermesHome) -> list[str]:
    """What is in plugins/, hidden folders of an installation too."""
    names = [path.name for path in home.plugins.iterdir()] if home.plugins.is_dir() else []
    return sorted(name for name in names if name not in (".install.lock", ".install-metadata.json"))


def record(home: HermesHome, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home.plugins / ".install-metadata.json").read_text())[name]
    return found


# ------------------------------------------------------------------------------------------------------- what is taken


def test_a_folder_is_copied_and_loaded_once_in_a_process_of_its_own(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    note = "import os\nfrom pathlib import Path\n"
    note += (
        "with Path(os.environ['HERMES_HOME'], 'loads').open('a') as file: file.write(f'{os.getpid()}\\n')\n"
    )
    source = plugin(tmp_path / "work", note + DUCK)
    (source / ".git").mkdir()
    (source / "__pycache__").mkdir()
    done = hermes("plugins", "install", source)
    assert "next: hermes-memory memory setup duck" in done.stdout
    assert installed(hermes_home) == ["duck"]
    assert {path.name for path in (hermes_home.plugins / "duck").iterdir()} == {"__init__.py", "plugin.yaml"}
    loads = (hermes_home.path / "loads").read_text().split()
    assert len(loads) == 1
    assert loads[0] != str(os.getpid())
    (place,) = discover(hermes_home, [])
    assert (place.name, place.version) == ("duck", "1.0")


@pytest.mark.parametrize("packed", [False, True])
def test_a_plugin_below_the_top_of_a_folder_has_its_own_name(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, packed: bool
) -> None:
    source = tmp_path / "drake+duck-memory"
    plugin(source / "pond_memory", manifest="version: 1.0")
    (source / "README.md").write_text("# Ducks")
    given = Path(shutil.make_archive(str(tmp_path / "drake+1"), "gztar", source)) if packed else source
    hermes("plugins", "install", given)
    assert installed(hermes_home) == ["pond_memory"]


@pytest.mark.parametrize("form", ["tar.gz", "zip", "tar"])
def test_an_archive_is_unpacked(hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, form: str) -> None:
    source = plugin(tmp_path / "work" / "duck-1.0")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    made = shutil.make_archive(
        str(tmp_path / "duck-1.0"), {"tar.gz": "gztar"}.get(form, form), tmp_path / "work"
    )
    hermes("plugins", "install", made)
    assert installed(hermes_home) == ["duck"]
    assert (hermes_home.plugins / "duck" / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (hermes_home.plugins / "duck" / "__init__.py").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("words", ["drake/duck-memory", "https://github.com/drake/duck-memory.git"])
def test_a_repository_is_fetched_at_its_newest_commit_and_updated(
    hermes: Hermes, hermes_home: HermesHome, host: Host, words: str
) -> None:
    files = {"__init__.py": DUCK, "plugin.yaml": "name: duck\nversion: 1.0"}
    host.repository("drake/duck-memory", files, FIRST)
    done = hermes("plugins", "install", words)
    assert "not reviewed" in done.stderr
    assert record(hermes_home, "duck") == {
        "pinned": False,
        "revision": FIRST,
        "source": "https://github.com/drake/duck-memory.git",
    }
    assert "up to date" in hermes("plugins", "update", "duck").stdout
    (hermes_home.plugins / "duck" / "notes.db").write_text("what it stored")
    host.repository("drake/duck-memory", {**files, "plugin.yaml": "name: duck\nversion: 2.0"}, SECOND)
    assert SECOND[:12] in hermes("plugins", "update").stdout
    (entry,) = [
        one for one in json.loads(hermes("plugins", "list", "--json").stdout) if one["name"] == "duck"
    ]
    assert entry["version"] == "2.0"
    assert (hermes_home.plugins / "duck" / "notes.db").read_text() == "what it stored"
    assert "duck-memory" in hermes("plugins", "list").stdout


def test_a_repository_that_moved_twice_is_fetched(
    hermes: Hermes, hermes_home: HermesHome, host: Host
) -> None:
    host.moved = {"drake/old": "drake/newer", "drake/newer": "pond/duck"}
    host.repository("pond/duck", {"__init__.py": DUCK, "plugin.yaml": "name: duck"}, FIRST)
    hermes("plugins", "install", "drake/old")
    assert installed(hermes_home) == ["duck"]
    assert record(hermes_home, "duck")["revision"] == FIRST
    host.moved = {f"drake/{n}": f"drake/{n + 1}" for n in range(6)}
    done = hermes("plugins", "install", "drake/0", "--name", "other", code=1)
    assert "more than 5 times" in done.stderr
    assert installed(hermes_home) == ["duck"]


def test_a_folder_of_a_repository_and_a_commit_can_be_named(
    hermes: Hermes, hermes_home: HermesHome, host: Host
) -> None:
    files = {"README.md": "", "integrations/hermes/__init__.py": DUCK, "other/__init__.py": DUCK}
    host.repository("drake/pond", files, FIRST, ref=FIRST)
    hermes("plugins", "install", "drake/pond/integrations/hermes", "--ref", FIRST)
    assert installed(hermes_home) == ["hermes"]
    assert record(hermes_home, "hermes")["pinned"] is True
    assert "is pinned" in hermes("plugins", "update", "hermes", code=1).stderr
    assert hermes("plugins", "update").stdout == "No plugin folder can be updated.\n"


def test_a_plugin_below_the_top_of_its_repository_is_looked_for(
    hermes: Hermes, hermes_home: HermesHome, host: Host
) -> None:
    host.repository("drake/one", {"src/duck/__init__.py": DUCK, "src/duck/plugin.yaml": "name: duck"}, FIRST)
    hermes("plugins", "install", "drake/one")
    assert installed(hermes_home) == ["duck"]
    tools = "def register(ctx): ctx.register_tool('t', {}, print)"
    files = {"tools/__init__.py": tools, "tools/plugin.yaml": "name: tools", "lib/__init__.py": ""}
    host.repository("drake/mixed", {**files, "src/drake/__init__.py": DUCK}, FIRST)
    hermes("plugins", "install", "drake/mixed")
    assert installed(hermes_home) == ["drake", "duck"]
    two = {f"{name}/{file}": DUCK if file.endswith("py") else f"name: {name}" for name in ("a", "b")
           for file in ("__init__.py", "plugin.yaml")}  # fmt: skip
    host.repository("drake/two", two, FIRST)
    assert "name one: drake/two/a" in hermes("plugins", "install", "drake/two", code=1).stderr
    host.repository("drake/none", files, FIRST)
    assert "holds no folder" in hermes("plugins", "install", "drake/none", code=1).stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_any_git_server_is_asked_with_git(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path
) -> None:
    source = plugin(tmp_path / "work")
    git = [
        "git",
        "-C",
        str(source),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    hermes("plugins", "install", source.as_uri())
    assert record(hermes_home, "duck")["revision"] == commit
    assert installed(hermes_home) == ["duck"]  # objects of git are read-only
    assert "can't fetch" in hermes("plugins", "install", (tmp_path / "none").as_uri(), code=1).stderr


# -------------------------------------------------------------------------------------------------------- the catalog

ENTRY = """
name: duck-memory
repo: https://github.com/drake/pond
sha: {commit}
subdir: hermes
maintainer: drake
tier: community
"""


def test_a_name_of_the_catalog_is_installed_at_the_commit_that_it_names(
    hermes: Hermes, hermes_home: HermesHome, host: Host
) -> None:
    host.files["/catalog/duck-memory.yaml"] = ENTRY.format(commit=FIRST).encode()
    host.repository(
        "drake/pond", {"hermes/__init__.py": DUCK, "hermes/plugin.yaml": "name: duck"}, FIRST, ref=FIRST
    )
    assert "of drake, commit aaaaaaaaaaaa" in hermes("plugins", "install", "duck-memory").stderr
    assert record(hermes_home, "duck")["catalog_name"] == "duck-memory"
    assert "up to date" in hermes("plugins", "update", "duck").stdout
    host.files["/catalog/duck-memory.yaml"] = ENTRY.format(commit=SECOND).encode()
    host.repository(
        "drake/pond", {"hermes/__init__.py": DUCK + "#", "hermes/plugin.yaml": ""}, SECOND, ref=SECOND
    )
    hermes("plugins", "update")
    assert record(hermes_home, "duck")["revision"] == SECOND


def test_another_commit_than_the_catalog_s_is_refused(
    hermes: Hermes, hermes_home: HermesHome, host: Host
) -> None:
    host.files["/catalog/duck-memory.yaml"] = ENTRY.format(commit=FIRST).encode()
    for commit in (SECOND, ""):
        host.repository("drake/pond", {"hermes/__init__.py": DUCK}, commit, ref=FIRST)
        assert f"not the commit {FIRST}" in hermes("plugins", "install", "duck-memory", code=1).stderr
    assert installed(hermes_home) == []


def test_what_the_catalog_removed_is_refused(hermes: Hermes, hermes_home: HermesHome, host: Host) -> None:
    host.repository("drake/pond", {"__init__.py": DUCK}, FIRST)
    removed = "removed:\n  - {name: duck-memory, repo: https://github.com/Drake/pond.git, reason: it steals, date: 2026-01-01}"
    host.files["/catalog/removed.yaml"] = removed.encode()
    assert "it steals" in hermes("plugins", "install", "drake/pond", code=1).stderr
    hermes("plugins", "install", "drake/pond", "--allow-removed")
    assert "it steals" in hermes("plugins", "update", "pond", code=1).stderr


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (None, "the catalog has no plugin 'duck-memory'"),
        ("name: duck-memory\nrepo: https://github.com/drake/pond\nsha: main", "names no https:// repository"),
        ("name: duck-memory\nrepo: file:///etc\nsha: " + FIRST, "names no https:// repository"),
        (
            "name: duck-memory\nplatforms: [plan9]\nrepo: https://github.com/d/p\nsha: " + FIRST,
            "runs on plan9",
        ),
        ("{", "can't be read"),
    ],
)
def test_an_entry_of_the_catalog_that_is_not_sound_installs_nothing(
    hermes: Hermes, hermes_home: HermesHome, host: Host, entry: str | None, said: str
) -> None:
    if entry is not None:
        host.files["/catalog/duck-memory.yaml"] = entry.encode()
    assert said in hermes("plugins", "install", "duck-memory", code=1).stderr
    assert installed(hermes_home) == []


CATALOGS = {
    "c.yaml": "plugins:\n  - {{name: duck-memory, repo: {repo}, sha: {sha}, subdir: hermes, maintainer: drake, {more}}}\n"
    "removed:\n  - {{name: goose, repo: https://github.com/gander/goose, reason: it steals}}\n",
    "c.json": '{{"entries": {{"duck-memory": {{"repo": "{repo}", "sha": "{sha}", "subdir": "hermes", {json}}}}}, '
    '"removed": {{"goose": "it steals"}}}}',
    "list.yml": "- {{name: duck-memory, repo: {repo}, sha: {sha}, subdir: hermes, {more}}}\n",
    "one.yaml": "name: duck-memory\nrepo: {repo}\nsha: {sha}\nsubdir: hermes\n",
}


@pytest.mark.parametrize("file", CATALOGS)
def test_a_catalog_in_one_file_is_read_and_remembered(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path, file: str
) -> None:
    facts = {
        "repo": "https://github.com/drake/pond",
        "more": "tier: community",
        "json": '"tier": "community"',
    }
    path = tmp_path / file
    path.write_text(CATALOGS[file].format(sha=FIRST, **facts))
    source = {"hermes/__init__.py": DUCK, "hermes/plugin.yaml": "name: duck"}
    host.repository("drake/pond", source, FIRST, ref=FIRST)
    assert "commit aaaaaaaaaaaa" in hermes("plugins", "install", "duck-memory", "--catalog", path).stderr
    assert record(hermes_home, "duck")["catalog"] == str(path)
    path.write_text(CATALOGS[file].format(sha=SECOND, **facts))
    host.repository("drake/pond", {**source, "hermes/__init__.py": DUCK + "#"}, SECOND, ref=SECOND)
    hermes("plugins", "update", "duck")
    assert record(hermes_home, "duck")["revision"] == SECOND
    assert not any(asked.startswith("/catalog") for asked in host.asked)
    said = hermes("plugins", "install", "goose", "--catalog", path, code=1).stderr
    assert ("it steals" if file in ("c.yaml", "c.json") else "the catalog has no plugin 'goose'") in said


def test_a_removed_repository_of_a_catalog_file_is_refused(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "plugins: []\nremoved:\n  - {repo: https://github.com/Gander/goose.git, reason: it steals}\n"
    )
    host.repository("gander/goose", {"__init__.py": DUCK}, FIRST)
    assert "it steals" in hermes("plugins", "install", "gander/goose", "--catalog", path, code=1).stderr
    hermes("plugins", "install", "gander/goose", "--catalog", path, "--allow-removed")
    assert installed(hermes_home) == ["goose"]


@pytest.mark.parametrize(
    ("mark", "reason"), [("removed: true", "no reason is given"), ("removed: it steals", "it steals")]
)
def test_an_entry_that_is_marked_as_removed_is_refused(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path, mark: str, reason: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"- {{name: goose, repo: https://github.com/gander/goose, commit: {FIRST}, {mark}}}\n"
        f"- {{name: duck, repo: https://github.com/drake/pond, commit: {FIRST}}}\n"
    )
    host.repository("drake/pond", {"__init__.py": DUCK}, FIRST, ref=FIRST)
    assert reason in hermes("plugins", "install", "goose", "--catalog", path, code=1).stderr
    hermes("plugins", "install", "duck", "--catalog", path)
    assert installed(hermes_home) == ["pond"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not there"), ("{", "can't be read"), ("7", "holds no entries"), ("plugins: []", "has no plugin"),
        ("plugins: [{name: duck-memory, repo: 'https://github.com/d/p', sha: main}]", "names no https:// repository"),
        ("plugins: [{name: duck-memory, requires_hermes: '>=99', repo: 'https://github.com/d/p', sha: " + FIRST + "}]",
         "needs Hermes Agent >=99"),
    ],
)  # fmt: skip
def test_a_catalog_file_that_is_not_sound_installs_nothing(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    assert said in hermes("plugins", "install", "duck-memory", "--catalog", path, code=1).stderr
    assert (installed(hermes_home), host.asked) == ([], [])


def test_the_catalog_says_what_a_plugin_declares(hermes: Hermes, hermes_home: HermesHome, host: Host) -> None:
    declares = "capabilities:\n  provides_tools: [dig]\n  provides_hooks: [pre_llm_call]\n  requires_env: [DUCK_KEY]\n"
    host.files["/catalog/duck-memory.yaml"] = (ENTRY.format(commit=FIRST) + declares).encode()
    host.repository("drake/pond", {"hermes/__init__.py": DUCK, "hermes/plugin.yaml": ""}, FIRST, ref=FIRST)
    said = hermes("plugins", "install", "duck-memory").stderr
    assert "it declares tools dig; hooks pre_llm_call; variables DUCK_KEY" in said


def test_a_folder_and_an_archive_ask_no_server(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path
) -> None:
    source = plugin(tmp_path / "duck")
    hermes("plugins", "install", source)
    hermes("plugins", "update", "duck")
    hermes("plugins", "list")
    hermes("providers")
    hermes("plugins", "remove", "duck", "--yes")
    assert host.asked == []


# -------------------------------------------------------------------------------------------------------- a first load


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("raise RuntimeError('no such luck')\n" + DUCK, "no such luck"),
        ("import os; os._exit(3)\n" + DUCK, "ended the process with code 3"),
        ("import not_installed_at_all\n" + DUCK, "'not_installed_at_all', which is not installed"),
        ("from .missing import Duck\n" + DUCK, "which is not in its folder"),
        ("def register(ctx): ctx.register_tool('t', {}, print)\n", "registers no memory provider"),
        (DUCK.replace("self, session_id", "self, a, b"), ""),
    ],
)
def test_a_plugin_that_does_not_load_is_not_installed(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, source: str, said: str
) -> None:
    broken = plugin(tmp_path / "broken", source)
    done = hermes("plugins", "install", broken, code=1 if said else 0)
    assert said in done.stderr
    assert ".staged-" not in done.stderr
    assert installed(hermes_home) == ([] if said else ["duck"])


def test_a_plugin_that_needs_a_setting_first_stays(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    source = DUCK.replace("Duck())", "Duck() if os.environ['POND_KEY'] else None)").replace(
        "class Duck:", "class _Duck:"
    )
    source = "import os\n" + source.replace("(Duck()", "(_Duck()").replace(
        "    def is_available", "    def __init__(self): os.environ['POND_KEY']\n    def is_available"
    )
    done = hermes(
        "plugins", "install", plugin(tmp_path / "duck", source, "name: duck\nrequires_env: [POND_KEY]")
    )
    assert "unavailable: provider 'duck' from" in done.stdout
    assert "KeyError: 'POND_KEY'" in done.stdout
    assert "first: run: hermes-memory keys set POND_KEY\nnext: hermes-memory memory setup duck" in done.stdout
    assert ".staged-" not in done.stdout
    assert installed(hermes_home) == ["duck"]
    assert "hermes-memory keys set POND_KEY" in hermes("memory", "setup", "duck", "--yes", code=1).stderr
    hermes("keys", "set", "POND_KEY", typed="k\n")
    assert "memory provider: duck" in hermes("memory", "setup", "duck", "--yes").stdout
    (entry,) = [one for one in json.loads(hermes("providers", "--json").stdout) if one["name"] == "duck"]
    assert entry["state"] == "active"


NATIVE = """
import os
from hermes_core import MemoryProvider

class Duck(MemoryProvider):
    name = "duck"
    def __init__(self):
        {line}
"""
NEEDS_A_KEY = {
    "native": NATIVE.format(line="self.key = os.environ['POND_KEY']"),
    "native, of a name without a shape": NATIVE.format(line="self.key = os.environ['POND_KEY']").replace(
        "POND_KEY", "POND"
    ),
    "native, in words": NATIVE.format(
        line="if not os.environ.get('POND_KEY'): raise ValueError('POND_KEY is not set')"
    ),
    "native, at its import": NATIVE.format(line="pass").replace(
        "class Duck", "KEY = os.environ['POND_KEY']\n\nclass Duck", 1
    ),
    "published": "import os\n"
    + DUCK.replace(
        "    def is_available", "    def __init__(self): os.environ['POND_KEY']\n    def is_available"
    ),
}


@pytest.mark.parametrize("how", ["asked", "--set"])
@pytest.mark.parametrize("source", NEEDS_A_KEY.values(), ids=NEEDS_A_KEY)
def test_setup_asks_for_the_key_without_which_a_plugin_can_not_be_made(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, source: str, how: str
) -> None:
    key = "POND" if "'POND'" in source else "POND_KEY"
    done = hermes("plugins", "install", plugin(tmp_path / "duck", source, "name: duck\n"))
    assert "unavailable: " in done.stdout
    assert f"hermes-memory keys set {key}" in done.stdout
    assert installed(hermes_home) == ["duck"]
    refused = hermes("memory", "setup", "duck", "--yes", code=1)
    assert f"hermes-memory keys set {key}" in refused.stderr
    assert not hermes_home.env_file.exists()
    if how == "asked":
        done = hermes("memory", "setup", "duck", typed="k-1\n\nn\n")
        assert f"{key}: " in done.stdout
    else:
        done = hermes("memory", "setup", "duck", "--yes", "--set", f"{key}=k-1")
    assert f"saved {key} in .env" in done.stdout
    assert "memory provider: duck" in done.stdout
    assert "k-1" not in done.stdout
    assert Credentials(hermes_home, {}).get(key) == "k-1"
    assert key not in os.environ
    (entry,) = [one for one in json.loads(hermes("providers", "--json").stdout) if one["name"] == "duck"]
    assert entry["state"] == "active"
    with open_memory(hermes_home) as memory:
        for session in ("a", "b"):  # each gets an object of its own
            memory.conversation(session).turn("Hello.").finish("Hello.")
        assert memory.problems() == []
    hermes_home.env_file.unlink()
    for module in [name for name in sys.modules if name.startswith("_hermes_user_memory")]:
        del sys.modules[module]
    with open_memory(hermes_home) as memory:
        assert any(f"hermes-memory keys set {key}" in problem for problem in memory.problems())


def test_a_native_plugin_with_a_fault_in_its_constructor_is_not_installed(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    source = NATIVE.format(line="self.key = {}['pond']")
    assert (
        "KeyError: 'pond'" in hermes("plugins", "install", plugin(tmp_path / "duck", source), code=1).stderr
    )
    assert installed(hermes_home) == []


def test_a_version_that_does_not_load_replaces_nothing(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    hermes("plugins", "install", source := plugin(tmp_path / "duck"))
    before = record(hermes_home, "duck")
    assert "is there already" in hermes("plugins", "install", source, code=1).stderr
    (source / "__init__.py").write_text("raise RuntimeError('version 2')")
    hermes("plugins", "install", source, "--force", code=1)
    hermes("plugins", "update", "duck", code=1)
    assert (hermes_home.plugins / "duck" / "__init__.py").read_text() == DUCK
    assert (installed(hermes_home), record(hermes_home, "duck")) == (["duck"], before)
    (source / "__init__.py").write_text(DUCK + "# 3")
    hermes("plugins", "install", source, "--force")
    assert (hermes_home.plugins / "duck" / "__init__.py").read_text() == DUCK + "# 3"


PYPROJECT = '[project]\nname = "duck"\nversion = "1"\ndependencies = ["not-on-any-index>=3"]\n'


@pytest.mark.parametrize("where", ["plugin.yaml", "pyproject.toml"])
@pytest.mark.parametrize("code", ["import not_on_any_index\n", ""])
def test_a_plugin_whose_packages_are_missing_stays_and_pip_does_not_run(
    hermes: Hermes,
    hermes_home: HermesHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    code: str,
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("pip", "pip3", "uv"):
        (tools / name).write_text(f'#!/bin/sh\ntouch "{tmp_path}/installer-ran"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    manifest = (
        "name: duck\npip_dependencies: ['not-on-any-index>=3']" if where == "plugin.yaml" else "name: duck"
    )
    source = plugin(tmp_path / "work", code + DUCK, manifest)
    if where == "pyproject.toml":
        (source / "pyproject.toml").write_text(PYPROJECT)
    done = hermes("plugins", "install", source)
    assert "unavailable: packages that it needs are not installed: not-on-any-index>=3" in done.stdout
    (entry,) = [one for one in json.loads(hermes("providers", "--json").stdout) if one["name"] == "duck"]
    assert (entry["state"], entry["remedy"]) == ("unavailable", "run: hermes-memory memory setup duck")
    assert not (tmp_path / "installer-ran").exists()
    asked = hermes("memory", "setup", "duck", typed="n\n", code=1)
    assert "duck needs not-on-any-index>=3. Install it now?" in asked.stdout
    assert not (tmp_path / "installer-ran").exists()


def test_a_plugin_of_a_bundled_name_says_how_to_choose_it(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    source = plugin(tmp_path / "work", DUCK.replace('"duck"', '"supermemory"'), "name: supermemory")
    done = hermes("plugins", "install", source)
    assert "folder:supermemory chooses this folder" in done.stdout
    hermes("memory", "use", "folder:supermemory")


@pytest.mark.parametrize("name", ["/etc", "../x", "memory", "builtin", "con", "nul.d", "work.", "a:b", "x\n"])
def test_a_name_that_no_folder_can_have_is_refused_before_anything_is_fetched(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("hermes_memory_foreign.plugin_folders.fetch", None)
    refused = hermes("plugins", "install", "somebody/plugin", "--name", name, code=1)
    assert "can't be the name of a plugin; choose another one with --name" in refused.stderr


@pytest.mark.parametrize("name", ["/etc", "../x", "memory", "builtin", ".hidden", "a/b", "x" * 65, ""])
def test_a_name_that_no_folder_can_have_is_refused(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, name: str
) -> None:
    source = plugin(tmp_path / "work", manifest=f"name: {json.dumps(name or '../../x')}")
    assert "can't be the name of a plugin" in hermes("plugins", "install", source, code=1).stderr
    assert installed(hermes_home) == []
    hermes("plugins", "install", source, "--name", "duck-2")
    assert installed(hermes_home) == ["duck-2"]


# --------------------------------------------------------------------------------------------------------- hostile ones


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


HOSTILE: dict[str, tarfile.TarInfo] = {
    "a path upwards": tarfile.TarInfo("repo-/../../escaped"),
    "an absolute path": tarfile.TarInfo("/tmp/escaped"),
    "a path of Windows": tarfile.TarInfo("repo-\\..\\..\\escaped"),
    "a drive": tarfile.TarInfo("C:escaped"),
    "a link upwards": link("repo-/data", "../../.."),
    "an absolute link": link("repo-/data", "/etc"),
    "a hard link out": link("repo-/data", "../../../.env", tarfile.LNKTYPE),
    "a pipe": link("repo-/pipe", "", tarfile.FIFOTYPE),
    "a device": link("repo-/null", "", tarfile.CHRTYPE),
    "a file twice": tarfile.TarInfo("repo-/__init__.py"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_writes_nothing(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, case: str
) -> None:
    path = tmp_path / "duck.tar.gz"
    path.write_bytes(tarball({"__init__.py": DUCK}, "", HOSTILE[case]))
    hermes("plugins", "install", path, code=1)
    assert installed(hermes_home) == []
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a\\..\\..\\escaped", "data"])
def test_a_hostile_zip_writes_nothing(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "duck.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__init__.py", DUCK)
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o120777 << 16 if name == "data" else 0
        info.filename = name  # ZipInfo would correct a backslash
        archive.writestr(info, "../../..")
    hermes("plugins", "install", path, code=1)
    assert installed(hermes_home) == []
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("form", ["tar.gz", "zip", "folder", "many"])
def test_an_archive_that_unpacks_to_too_much_is_refused(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 50)
    source = plugin(tmp_path / "work" / "duck")
    if form == "many":
        for number in range(60):
            (source / f"{number}.py").touch()
    else:
        (source / "zeros").write_bytes(bytes(20 << 20))
    place = source
    if form in ("tar.gz", "zip"):
        kind = "gztar" if form == "tar.gz" else form
        place = Path(shutil.make_archive(str(tmp_path / "duck"), kind, tmp_path / "work"))
    assert "unpacks to more than" in hermes("plugins", "install", place, code=1).stderr
    assert installed(hermes_home) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", tarball({"__init__.py": DUCK})[:60], b"PK\x03\x04 half"],
    ids=["empty", "text", "half a tar", "half a zip"],
)
def test_a_damaged_archive_is_one_line(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "duck.tar.gz").write_bytes(content)
    done = hermes("plugins", "install", tmp_path / "duck.tar.gz", code=1)
    assert done.stderr.count("\n") == 1
    assert installed(hermes_home) == []


def test_a_link_inside_a_plugin_becomes_a_copy(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    source = plugin(tmp_path / "work")
    (source / "docs").mkdir()
    (source / "docs" / "a.md").write_text("text")
    (source / "AGENTS.md").symlink_to("docs/a.md")
    (source / "more").symlink_to(source / "docs")
    (source / "nowhere").symlink_to("absent")
    hermes("plugins", "install", source)
    folder = hermes_home.plugins / "duck"
    assert (folder / "AGENTS.md").read_text() == (folder / "more" / "a.md").read_text() == "text"
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    (source / "out").symlink_to(tmp_path)
    assert "leads out" in hermes("plugins", "install", source, "--name", "drake", code=1).stderr


# -------------------------------------------------------------------------------------------------------- interruptions

SLOW = """
import os, time
from pathlib import Path
Path(os.environ["HERMES_HOME"], "began").write_text(str(os.getpid()))
time.sleep(600)
"""


def begin(home: HermesHome, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from hermes_core.cli import main; main()", "--home", str(home.path)]
    process = subprocess.Popen([*command, *map(str, words)], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (home.path / "began").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    return process


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_installation_leaves_the_old_state(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path, how: signal.Signals, replaces: bool
) -> None:
    if replaces:
        hermes("plugins", "install", plugin(tmp_path / "first"))
    slow = plugin(tmp_path / "slow", SLOW + DUCK)
    process = begin(hermes_home, "plugins", "install", slow, "--force")
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    before = ["duck"] if replaces else []
    assert [name for name in installed(hermes_home) if not name.startswith(".staged-")] == before
    if how is not signal.SIGKILL:
        assert installed(hermes_home) == before
        assert not is_running(int((hermes_home.path / "began").read_text()))
    # The next command clears what a kill left.
    hermes("plugins", "install", plugin(tmp_path / "other"), "--name", "other")
    assert installed(hermes_home) == sorted([*before, "other"])
    if replaces:
        assert (hermes_home.plugins / "duck" / "__init__.py").read_text() == DUCK
    if how is signal.SIGKILL:
        os.killpg(int((hermes_home.path / "began").read_text()), signal.SIGKILL)


def test_a_plugin_that_a_kill_left_aside_is_put_back(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    plugin(hermes_home.plugins / ".staged-x" / "old" / "duck", DUCK + "# old")
    hermes("plugins", "install", plugin(tmp_path / "other"), "--name", "other")
    assert installed(hermes_home) == ["duck", "other"]


def test_a_record_that_can_not_be_written_undoes_the_installation(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    hermes("plugins", "install", plugin(tmp_path / "first"))
    file = hermes_home.plugins / ".install-metadata.json"
    file.unlink()
    file.mkdir()
    hermes("plugins", "install", plugin(tmp_path / "second", DUCK + "# 2"), "--force", code=1)
    assert (hermes_home.plugins / "duck" / "__init__.py").read_text() == DUCK
    assert installed(hermes_home) == ["duck"]


# ------------------------------------------------------------------------------------------------------------- removal


def test_a_plugin_is_removed_with_its_record_and_not_while_it_is_active(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    hermes("plugins", "install", plugin(tmp_path / "work"))
    set_value(hermes_home, "memory.provider", "duck")
    assert "memory off" in hermes("plugins", "remove", "duck", "--yes", code=1).stderr
    set_value(hermes_home, "memory.provider", "")
    hermes("plugins", "remove", "duck", typed="n\n", code=1)
    assert installed(hermes_home) == ["duck"]
    hermes("plugins", "remove", "duck", "--yes")
    assert (installed(hermes_home), discover(hermes_home, [])) == ([], [])
    assert json.loads((hermes_home.plugins / ".install-metadata.json").read_text()) == {}
    for name in ("duck", "../plugins", "memory", ""):
        assert "no plugin folder" in hermes("plugins", "remove", name, "--yes", code=1).stderr


def test_a_link_to_a_plugin_is_removed_and_its_folder_stays(
    hermes: Hermes, hermes_home: HermesHome, tmp_path: Path
) -> None:
    source = plugin(tmp_path / "work")
    hermes_home.plugins.mkdir(parents=True)
    (hermes_home.plugins / "duck").symlink_to(source)
    assert "is a link" in hermes("plugins", "update", "duck", code=1).stderr
    hermes("plugins", "remove", "duck", "--yes")
    assert installed(hermes_home) == []
    assert (source / "__init__.py").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("./nowhere", "'./nowhere' is not there"),
        ("some-package==1.2", "providers install"),
        ("UPPER", "is no plugin"),
        ("-x", "No such option"),
    ],
)
def test_what_is_no_plugin_is_refused(
    hermes: Hermes, hermes_home: HermesHome, host: Host, source: str, said: str
) -> None:
    assert said in hermes("plugins", "install", source, code=None).stderr
    assert host.asked == []


def test_an_update_of_all_leaves_alone_what_is_no_business_of_ours(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path
) -> None:
    """Hermes Agent records its plugins in the same file."""
    hermes("plugins", "install", plugin(tmp_path / "duck"))
    file = hermes_home.plugins / ".install-metadata.json"
    others = {
        "gone": {"source": "https://github.com/a/b.git"},
        "chat": {"source": "https://github.com/c/d.git"},
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **others}))
    plugin(hermes_home.plugins / "chat", "def register(ctx): ctx.register_platform(1)", "kind: platform")
    hermes("plugins", "update")
    assert host.asked == []
    assert json.loads(file.read_text()).keys() == {"duck", "gone", "chat"}
    (hermes_home.plugins / "duck" / ".git").mkdir()
    assert "pull" in hermes("plugins", "update", "duck", code=1).stderr


def test_the_lines_of_a_plugin_s_own_page_work(
    hermes: Hermes, hermes_home: HermesHome, host: Host, tmp_path: Path
) -> None:
    source = DUCK.replace('"duck"', '"supermemory"')
    host.repository(
        "supermemoryai/hermes-supermemory", {"__init__.py": source, "plugin.yaml": "name: supermemory"}, FIRST
    )
    hermes("plugins", "install", "supermemoryai/hermes-supermemory", "--enable", "--force")
    assert "memory setup folder:supermemory" in hermes("plugins", "enable", "supermemory").stdout
    hermes("memory", "setup", "folder:supermemory", "--yes")
    assert "no plugin folder" in hermes("plugins", "enable", "nothing", code=1).stderr
