"""Programs that write to a home, each as steps. A kill or a broken disk may end any step.

A step that returned is acknowledged. The state of a home is a set of facts, read back by a new process. After a fault in
step n it must be the state before or after that step. For writers of several files (`whole = False`) it may lie between the
two: no fact of both states is missing, and no fact is there that is in neither. In each case the steps from n on must then
lead to the same last state as without the fault.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import hermes_core.sessions.schema
from hermes_core import HermesHome, Memory, open_memory
from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.edits import Operation
from hermes_core.errors import HermesError, StorageError
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.records import Mark
from hermes_core.sessions.schema import MIGRATIONS
from hermes_core.storage.sqlite import Migration
from hermes_memory_agent.skills.store import SkillStore, open_skills
from hermes_memory_foreign.plugin_folders import plugin_records, recover
from plugins.openclaw.tests.openclaw_trees import WORKSPACE
from tests.conftest import LOCKBOX
from tests.e2e.conftest import FILER
from tests.outbox_of import sessions_of

Facts = frozenset[str]
Step = Callable[[Any], object]

TARGETS: tuple[MemoryTarget, ...] = ("memory", "user")
MARKS: tuple[Mark, ...] = ("pinned", "archived")

FAST = 100.0
"""So many times as fast as the time of day passes the time of pauses before a provider is called again."""


class Refused(Exception):
    """A command or a tool that reports a failure with what to do, as an error does."""


class Writer:
    """A program that writes to a home. `steps` get what `open` yields."""

    name = ""
    whole = True
    steps: tuple[Step, ...] = ()

    def prepare(self, home: HermesHome) -> None:
        """Make the home in which the steps begin."""

    def open(self, home: HermesHome) -> contextlib.AbstractContextManager[Any]:
        """Open what the steps need, as one program would."""
        return contextlib.nullcontext(home)

    def state(self, home: HermesHome) -> Facts:
        """Read the facts, as a new process would."""
        raise NotImplementedError

    def verify(self, home: HermesHome) -> None:
        """Assert what must hold after the last step beside the facts."""


def require(result: dict[str, Any]) -> dict[str, Any]:
    """Raise `Refused` for the result of the `memory` tool that reports a failure."""
    if not result["success"] or "warning" in result:
        raise Refused(f"{result.get('error') or result.get('warning')}; {result.get('remediation', '')}")
    return result


def command(*words: str, typed: str | None = None) -> Callable[[Any], None]:
    """Return a step that runs a command of the terminal."""

    def run(_: Any) -> None:
        result = CliRunner().invoke(main, list(words), input=typed, prog_name="hermes-memory")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:
            raise Refused(result.stderr or result.stdout)

    return run


def doctor(home: HermesHome) -> None:
    """Run the doctor, whose report has a line for each check. The first that failed is the refusal."""
    try:
        command("doctor", "--fix")(home)
    except Refused as exc:
        failed = next(line for line in str(exc).splitlines() if line.startswith("FAILED"))
        raise Refused(failed.replace("  -> ", "; ")) from exc


# ------------------------------------------------------------------------------------------------------- conversations


def add_filer(home: HermesHome) -> None:
    """Give the home room for notes, and a provider that stores each call as a line of a file."""
    folder = home.plugins / "filer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(FILER)
    set_value(home, "memory.memory_char_limit", 1_000_000)
    set_value(home, "memory.provider", "filer")


def conversation_facts(memory: Memory) -> Iterator[str]:
    """Yield the notes, the sessions with their messages, and the open turns."""
    for target in TARGETS:
        yield from (f"note {target} {entry}" for entry in memory.curated.entries(target))
    query = "SELECT id, title, ended_at IS NOT NULL FROM sessions"
    for session, title, ended in memory.sessions.database.execute(query).fetchall():
        yield f"session {session} {title} {ended}"
        messages = memory.sessions.get_messages(session)
        counted = Counter((message.role, message.content) for message in messages)
        yield from (f"message {session} {role} {text} {n}" for (role, text), n in counted.items())
    rows = memory.sessions.database.execute("SELECT id FROM open_turns").fetchall()
    for row in rows:
        turn = OpenTurnStore(memory.sessions).get(row[0])
        assert turn is not None
        yield f"open {turn.id} {turn.user['content']} {[one['content'] for one in turn.messages]}"


def deliver(home: HermesHome) -> tuple[set[str], set[str]]:
    """Deliver what waits; the texts of turns and of notes that the provider got."""
    clock = lambda: time.monotonic() * FAST  # noqa: E731
    with open_memory(home, clock=clock) as memory:
        memory.start_session("a")
        assert memory.flush(60)
        assert memory.manager.outbox.pending() == memory.manager.outbox.dead_letters() == []
    path = home.path / "taken.jsonl"
    # A kill in the middle of the provider's own write leaves the beginning of a line before the next one.
    whole = [line[line.rindex('{"kind"') :] for line in path.read_text().splitlines() if line.endswith("}")]
    calls = [json.loads(line) for line in whole]
    # A repeat is the same call again.
    ids = {(call["kind"], call["id"]) for call in calls}
    assert len(ids) == len({json.dumps(call) for call in calls})
    taken = {kind: {call["text"] for call in calls if call["kind"] == kind} for kind in ("turn", "write")}
    return taken["turn"], taken["write"]


class Conversations(Writer):
    """A host that talks: messages, turns, an open turn, notes, a rewind, an end, a deletion, and a provider."""

    name = "conversations"

    def prepare(self, home: HermesHome) -> None:
        add_filer(home)

    def open(self, home: HermesHome) -> contextlib.AbstractContextManager[Memory]:
        return open_memory(home)

    def state(self, home: HermesHome) -> Facts:
        with open_memory(home, provider="") as memory:
            assert memory.sessions.check() == []
            return frozenset(conversation_facts(memory))

    def verify(self, home: HermesHome) -> None:
        turns, notes = deliver(home)
        with open_memory(home, provider="") as memory:
            assert {turn.turn.user for turn in memory.sessions.turns.complete(everybody=True)} <= turns
            assert set(memory.curated.entries("memory")) <= notes
            assert memory.sessions.past.search("harbour", everybody=True)


def begin(name: str) -> Step:
    return lambda memory: memory.start_session(name, source="test")


def note(*arguments: str) -> Step:
    return lambda memory: require(memory.change_memory(*arguments, session=memory.start_session("a")))


def turn(session: str, text: str) -> Step:
    def run(memory: Memory) -> None:
        # A host gives a turn its id, so that it can end it again after a kill.
        memory.end_turn(memory.start_session(session, source="test"), text, "ok", turn_id=f"turn-{text}")

    return run


def open_turn(memory: Memory) -> None:
    turn = memory.conversation("a").turn("Open question about the harbour", turn_id="t-open")
    unstored = [problem for problem in turn.problems if problem.startswith("this turn is not stored: ")]
    if unstored:  # told, not raised: the person gets an answer, and another process can't resume the turn
        raise Refused(unstored[0])


def add_to_open_turn(memory: Memory) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    memory.conversation("a").resume("t-open").add(
        {"role": "assistant", "content": "let me look", "tool_calls": [call]},
        {"role": "tool", "content": "the sea", "tool_call_id": "c1"},
    )


def finish_open_turn(memory: Memory) -> None:
    memory.conversation("a").resume("t-open").finish("It is near.")


def rewind(memory: Memory) -> None:
    memory.conversation("a").rewind(1)


def end(memory: Memory) -> None:
    memory.end_session(memory.start_session("b"))


Conversations.steps = (
    begin("a"),
    note("add", "memory", "Likes green tea"),
    lambda memory: memory.sessions.append_message("a", "user", "A loose word"),
    turn("a", "The harbour is foggy"),
    note("replace", "memory", "Likes black tea", "green"),
    open_turn,
    add_to_open_turn,
    finish_open_turn,
    begin("b"),
    turn("b", "Buy figs"),
    lambda memory: memory.sessions.meta.set_title("b", "Groceries"),
    end,
    turn("a", "This is a mistake"),
    rewind,
    begin("c"),
    turn("c", "This goes away"),
    lambda memory: memory.delete_session("c"),
    note("remove", "memory", "", "black"),
    note("add", "user", "Has a boat"),
)


# --------------------------------------------------------------------------------------------------------------- notes


class Notes(Writer):
    """Changes of the notes: a file that was edited by hand, every action, batches, and undo."""

    name = "notes"

    def prepare(self, home: HermesHome) -> None:
        home.memories.mkdir(parents=True)
        home.memory_md.write_bytes("# By hand\r\n\r\nThe café is closed\r\n§\r\nRye bread".encode())

    @contextlib.contextmanager
    def open(self, home: HermesHome) -> Iterator[Any]:
        with open_memory(home) as memory:
            yield memory.curated

    def state(self, home: HermesHome) -> Facts:
        with open_memory(home) as memory:
            assert memory.curated.read().problems == {}
            memory.curated.history()
            # The hand edit is adopted by the first change.
            return frozenset(
                f"{target} {entry}" for target in TARGETS for entry in memory.curated.entries(target)
            )

    def verify(self, home: HermesHome) -> None:
        with open_memory(home) as memory:
            history = memory.curated.history(limit=1000)
            assert len({version.id for version in history}) == len(history) >= len(self.steps)
            # The history leads from what the person wrote to what is there now.
            versions = memory.curated.history("memory")
            assert versions[-1].before == ("# By hand\n\nThe café is closed", "Rye bread")
            assert all(later.before == earlier.after for later, earlier in pairwise(versions))
            assert versions[0].after == memory.curated.entries("memory")

    steps = (
        lambda store: require(store.add("memory", "Green tea")),
        lambda store: require(store.add("user", "Is called Ann")),
        lambda store: require(store.replace("memory", "Green", "Black tea")),
        lambda store: require(
            store.write(
                "memory",
                [Operation("add", "Figs"), Operation("remove", "", "Rye"), Operation("add", "Oats")],
                batch=True,
            )
        ),
        lambda store: require(store.undo()),
        lambda store: require(store.remove("memory", "Black")),
        lambda store: require(store.reset("user")),
        lambda store: require(store.undo()),
        lambda store: require(store.add("memory", "Last")),
    )


# -------------------------------------------------------------------------------------------------------------- skills


def skill_text(name: str, body: str = "1. Run it.") -> str:
    return f"---\nname: {name}\ndescription: Do {name} well.\n---\n{body}\n"


class Skills(Writer):
    """Skills that an agent writes, changes, deletes and takes back."""

    name = "skills"

    @contextlib.contextmanager
    def open(self, home: HermesHome) -> Iterator[SkillStore]:
        with contextlib.closing(sessions_of(home)) as sessions:
            yield open_skills(home, load_config(home), sessions.database)

    def state(self, home: HermesHome) -> Facts:
        with self.open(home) as store:
            store.history()
            assert store.problems() == []
            return frozenset(f"{skill.name} {store.view(skill.name)}" for skill in store.skills())

    def verify(self, home: HermesHome) -> None:
        with self.open(home) as store:
            assert [change.action for change in store.history()] == [
                "undo", "delete", "create", "undo", "patch", "patch", "create",
            ]  # fmt: skip

    steps = (
        lambda store: store.create("deploy", "work", skill_text("deploy")),
        lambda store: store.patch("deploy", "Run it.", "Run the tests."),
        lambda store: store.patch("deploy", "Run the tests.", "Run nothing."),
        lambda store: store.undo(),
        lambda store: store.create("tea", "home", skill_text("tea", "Boil " * 3000)),
        lambda store: store.delete("deploy"),
        lambda store: store.undo(),
    )


# ------------------------------------------------------------------------------------------------------------ settings

COMMENT = "# a comment of the person"


class Settings(Writer):
    """The commands that write config.yaml and .env."""

    name = "settings"

    def prepare(self, home: HermesHome) -> None:
        home.path.mkdir(parents=True)
        home.config_yaml.write_text(
            f"{COMMENT}\nmemory:\n  nudge_interval: 7\n  user_char_limit: 777  # seven\n"
        )
        home.env_file.write_text("# keys\nOTHER_KEY=other-value-1234\n")
        home.env_file.chmod(0o600)

    def state(self, home: HermesHome) -> Facts:
        config = load_config(home)
        text = home.config_yaml.read_text()
        assert COMMENT in text
        assert "# seven" in text
        assert "# keys" in home.env_file.read_text()
        assert home.env_file.stat().st_mode & 0o777 == 0o600
        keys = Credentials(home, {})
        return frozenset(
            [
                f"nudge {config.memory.nudge_interval}",
                f"limit {config.memory.memory_char_limit}",
                f"owners {sorted(config.identity.owners)}",
                *(f"{name} {keys.get(name)}" for name in ("OTHER_KEY", "NEW_KEY")),
            ]
        )

    steps = (
        command("config", "set", "memory.nudge_interval", "9"),
        command("config", "set", "memory.memory_char_limit", "4000"),
        command("keys", "set", "NEW_KEY", typed="new-value-1234\n"),
        command("keys", "set", "OTHER_KEY", typed="changed-value-1234\n"),
        command("identity", "add", "telegram:42"),
        command("config", "unset", "memory.nudge_interval"),
        command("keys", "remove", "NEW_KEY"),
        command("identity", "remove", "telegram:42"),
    )


class Setup(Writer):
    """The setup of a provider: its settings, its secret, and then the choice."""

    name = "setup"
    whole = False
    KEY = "lockbox-key-0123456789"

    def prepare(self, home: HermesHome) -> None:
        folder = home.plugins / "lockbox"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(LOCKBOX)

    def state(self, home: HermesHome) -> Facts:
        path = home.provider_json("lockbox")
        settings = json.loads(path.read_text()) if path.exists() else {}
        provider = load_config(home).memory.provider
        facts = {f"setting {name} {value}" for name, value in settings.items()}
        facts.add(f"key {Credentials(home, {}).get('LOCKBOX_API_KEY')}")
        facts.add(f"provider {provider}")
        assert provider != "lockbox" or {"setting limit 7", f"key {self.KEY}"} <= facts
        return frozenset(facts)

    steps = (
        command("memory", "setup", "lockbox", "--set", f"api_key={KEY}", "--set", "limit=7", "--yes"),
        command("memory", "off"),
        command("memory", "use", "lockbox"),
    )


# ------------------------------------------------------------------------------------------------------------- imports


def chat_lines(session: str, turns: int) -> str:
    lines = []
    for n in range(turns):
        lines.append(
            {"session": session, "role": "user", "content": f"{session} question {n}", "ref": f"{n}"}
        )
        lines.append({"session": session, "role": "assistant", "content": f"{session} answer {n}"})
    return "".join(json.dumps(line) + "\n" for line in lines)


class Imports(Writer):
    """Imports of conversations from files. An import that is interrupted brings the rest when it is run again."""

    name = "imports"
    whole = False

    def prepare(self, home: HermesHome) -> None:
        add_filer(home)
        (home.path / "chat.jsonl").write_text(chat_lines("first", 4) + chat_lines("second", 3))
        message = [{"role": "user", "content": "I play chess"}, {"role": "assistant", "content": "Nice."}]
        (home.path / "openai.json").write_text(json.dumps({"messages": message}))
        with open_memory(home, provider="") as memory:
            memory.end_turn(memory.start_session("away", source="test"), "Far away", "ok")
            memory.end_turn(memory.start_session("away-2", source="test"), "Still away", "ok")
        command("sessions", "export", "--all", "--output", str(home.path / "backups/export.jsonl"))(home)
        for name in ("away", "away-2"):
            command("sessions", "delete", name, "--yes")(home)

    def state(self, home: HermesHome) -> Facts:
        with open_memory(home, provider="") as memory:
            assert memory.sessions.check() == []
            facts = list(conversation_facts(memory))
        # A session gets its row before its messages.
        return frozenset(fact for fact in facts if not fact.startswith("session "))

    def verify(self, home: HermesHome) -> None:
        turns, _ = deliver(home)
        imported = {f"first question {n}" for n in range(4)} | {f"second question {n}" for n in range(3)}
        assert imported | {"I play chess"} <= turns

    def open(self, home: HermesHome) -> contextlib.AbstractContextManager[Any]:
        return contextlib.chdir(home.path)

    steps = (
        command("import", "chat.jsonl"),
        command("sessions", "import", "backups/export.jsonl"),
        command("import", "openai.json"),
    )


class Move(Writer):
    """The move from OpenClaw: notes, files, skills and a backup of the home."""

    name = "openclaw"
    whole = False

    def prepare(self, home: HermesHome) -> None:
        home.path.mkdir(parents=True)
        for name, text in WORKSPACE.items():
            path = home.path.with_name("openclaw") / "workspace" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def state(self, home: HermesHome) -> Facts:
        with open_memory(home) as memory:
            facts = {fact for fact in conversation_facts(memory) if fact.startswith("note ")}
            assert memory.curated.read().problems == {}
        for path in (home.path / "SOUL.md", *home.path.glob("skills/**/*")):
            if path.is_file() and path.suffix in (".md", ".sh") and "/." not in path.as_posix():
                facts.add(f"file {path.relative_to(home.path)} {path.read_text()}")
        return frozenset(facts)

    steps = (lambda home: command(
        "claw", "migrate", "--yes", "--source", str(home.path.with_name("openclaw"))
    )(home),)  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- upkeep


class Upkeep(Writer):
    """Marks, deletions, `vacuum`, `rebuild`, `prune` and `forget` on stores that hold something."""

    name = "upkeep"
    whole = False

    def prepare(self, home: HermesHome) -> None:
        with open_memory(home) as memory:
            for number in range(6):
                session = memory.start_session(f"s{number}", source="old" if number < 3 else "new")
                for n in range(3):
                    memory.end_turn(session, f"harbour {number} {n} " + "word " * 200, "ok")
            user = memory.start_session("t1", platform="telegram", user_id="42")
            memory.end_turn(user, "I am Bob", "ok")
            require(memory.change_memory("add", "user", "Bob has a dog", session=user))
            session = memory.start_session("s5")
            for text in ("tea", "rye", "figs"):
                require(memory.change_memory("add", "memory", text, session=session))
            require(memory.change_memory("remove", "memory", old_text="rye", session=session))

    def state(self, home: HermesHome) -> Facts:
        with open_memory(home, provider="") as memory:
            # A rebuild that was killed goes on with later writes, and the check names it until then.
            assert [fault for fault in memory.sessions.check() if "made anew up to" not in fault] == []
            # A doctor that was killed leaves its test session, which a later doctor deletes.
            facts = {fact for fact in conversation_facts(memory) if " doctor-" not in fact}
            for mark in MARKS:
                facts |= {f"{mark} {session}" for session in memory.sessions.meta.marked(mark)}
            facts |= {f"history {len(memory.curated.history())}"}
        return frozenset(facts)

    def verify(self, home: HermesHome) -> None:
        with open_memory(home, provider="") as memory:
            assert memory.sessions.check() == []
            kept = [message for name in ("s3", "s5") for message in memory.sessions.get_messages(name)]
            assert len(kept) == 12
            assert memory.sessions.past.search("harbour", everybody=True)

    steps = (
        command("sessions", "rename", "s3", "Three"),
        command("sessions", "pin", "s3"),
        command("sessions", "archive", "s5"),
        command("sessions", "delete", "s4", "--yes"),
        command("sessions", "prune", "--before", "2090-01-01", "--source", "old", "--yes"),
        command("sessions", "vacuum"),
        command("sessions", "rebuild"),
        command("memory", "prune", "--yes"),
        command("forget", "telegram:42", "--yes"),
        doctor,
    )


class Repair(Writer):
    """The repair of a damaged state.db."""

    name = "repair"

    def prepare(self, home: HermesHome) -> None:
        with open_memory(home, provider="") as memory:
            for number in range(3):
                session = memory.start_session(f"s{number}")
                for n in range(4):
                    memory.end_turn(session, f"harbour {number} {n} " + "word " * 200, "ok")
            connection = memory.sessions.database.connection
            root = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'sessions'"
            ).fetchone()[0]
        with home.state_db.open("r+b") as file:
            file.seek(4096 * (root - 1))
            file.write(b"\xff" * 100)

    def state(self, home: HermesHome) -> Facts:
        try:
            with open_memory(home, provider="") as memory:
                assert memory.sessions.check() == []
                rows = memory.sessions.database.execute("SELECT content FROM messages").fetchall()
                return frozenset(row[0] for row in rows)
        except (StorageError, AssertionError):
            return frozenset(["damaged"])

    steps = (command("sessions", "repair", "--yes"),)


# ------------------------------------------------------------------------------------------------------------- plugins

DUCK = """
from hermes_core import MemoryProvider

class Duck(MemoryProvider):
    name = "duck"
"""


class Plugins(Writer):
    """Installs, updates and removals of plugin folders."""

    name = "plugins"
    whole = False

    def prepare(self, home: HermesHome) -> None:
        home.path.mkdir(parents=True)
        for version in ("1", "2"):
            folder = home.path.with_name(f"source-{version}")
            (folder / "duck" / "data").mkdir(parents=True)
            (folder / "duck" / "__init__.py").write_text(DUCK)
            (folder / "duck" / "plugin.yaml").write_text(f"name: duck\nversion: {version}.0\n")
            (folder / "duck" / "data" / f"words-{version}.txt").write_text("quack " * 5000)
        with zipfile.ZipFile(home.path.with_name("duck.zip"), "w") as archive:
            for path in (home.path.with_name("source-2") / "duck").rglob("*.*"):
                archive.write(path, f"duck/{path.relative_to(home.path.with_name('source-2') / 'duck')}")

    def state(self, home: HermesHome) -> Facts:
        assert CliRunner().invoke(main, ["plugins", "list"]).exit_code == 0
        recover(home)  # as each operation begins
        folder = home.plugins / "duck"
        if not folder.exists():
            return frozenset()
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        version = (folder / "plugin.yaml").read_text()
        # The record of its source, which `plugins update` needs.
        record = Path(plugin_records(home).get("duck", {}).get("source", "")).name
        facts = {f"{version} {[name for name in files if 'cache' not in name]}"}
        return frozenset(facts | ({f"record {record}"} if record else set()))

    def verify(self, home: HermesHome) -> None:
        # What a kill left is hidden, and the next operation takes it away.
        assert [path.name for path in home.plugins.glob("[!.]*") if path.is_dir()] == ["duck"]

    steps = (
        lambda home: command("plugins", "install", str(home.path.with_name("source-1") / "duck"))(home),
        lambda home: command("plugins", "install", "--force", str(home.path.with_name("duck.zip")))(home),
        command("plugins", "remove", "duck", "--yes"),
        lambda home: command("plugins", "install", str(home.path.with_name("duck.zip")))(home),
    )


# -------------------------------------------------------------------------------------------------------------- schema


class Schema(Writer):
    """A migration that a later version may bring: it changes each row of a table and makes another one."""

    name = "schema"

    def prepare(self, home: HermesHome) -> None:
        with open_memory(home, provider="") as memory:
            for n in range(30):
                memory.end_turn(memory.start_session("s"), f"turn {n} " + "word " * 100, "ok")

    def open(self, home: HermesHome) -> contextlib.AbstractContextManager[Any]:
        hermes_core.sessions.schema.MIGRATIONS = (*MIGRATIONS, NEXT)  # type: ignore[attr-defined]
        return contextlib.nullcontext(home)

    def state(self, home: HermesHome) -> Facts:
        with contextlib.closing(sqlite3.connect(home.state_db)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            facts = {row[0] for row in connection.execute("SELECT content FROM messages")}
            for table in ("next_table",):
                query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
                facts.add(f"{table} {connection.execute(query, (table,)).fetchone()[0]}")
            query = "SELECT name FROM schema_migrations"
            return frozenset(facts | {row[0] for row in connection.execute(query)})

    def verify(self, home: HermesHome) -> None:
        with self.open(home), open_memory(home, provider="") as memory:
            assert memory.sessions.check() == []

    steps = (lambda home: _open_sessions(home),)


def _next(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE next_table (text TEXT) STRICT")
    connection.execute("INSERT INTO next_table SELECT content FROM messages")
    connection.execute(
        "UPDATE messages SET native = content || ' changed'"
    )  # the index has the terms of `content`


NEXT: Migration = ("next version", _next)


def _open_sessions(home: HermesHome) -> None:
    with open_memory(home, provider="") as memory:
        memory.sessions.counts()


WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        Conversations(), Notes(), Skills(), Settings(), Setup(), Imports(), Move(), Upkeep(), Repair(),
        Plugins(), Schema(),
    )
}  # fmt: skip
ERRORS = (HermesError, Refused)
