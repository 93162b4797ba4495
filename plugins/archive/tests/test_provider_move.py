"""A move between providers in plugin folders: planned, copied, verified, and only then chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome, open_memory
from hermes_core.cli import main
from hermes_core.config import load_config, set_value
from hermes_core.home import file_name_of
from hermes_memory_archive.memories import owners_of

Run = Callable[..., Result]

SHELF = '''
import json
from pathlib import Path
from hermes_core import MemoryProvider
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendRefused, BackendUnavailable
from hermes_core.kit import pack_record, page_of, unpack_record

class Shelf(MemoryProvider):
    """Rows of [owner, text, fields] in one file."""
    name = "NAME"

    def initialize(self, session):
        self.file = Path(session.home, "NAME.rows")

    def rows(self):
        return json.loads(self.file.read_text()) if self.file.exists() else []

    def export_memories(self, cursor, session):
        mine = [row for row in self.rows() if row[0] == session.owner]
        return page_of([unpack_record(row[2], MemoryRecord(row[1], str(n))) for n, row in enumerate(mine)], cursor, 3)

    def import_memory(self, record, session):
        if "poison" in record.text:
            raise BackendRefused("no poison")
        rows = self.rows()
        if len(rows) >= int(Path(session.home, "room").read_text() if Path(session.home, "room").exists() else 10**6):
            raise BackendUnavailable("it is full")
        rows.append([session.owner, record.text, pack_record(record)])
        self.file.write_text(json.dumps(rows))
'''
DIARY = '''
import json
from pathlib import Path
from hermes_core import MemoryProvider

class Diary(MemoryProvider):
    """Takes turns and notes as published providers do, and lists nothing."""
    name = "NAME"

    def sync_turn(self, turn, session):
        with Path(session.home, "NAME.lines").open("a") as file:
            file.write(json.dumps([session.owner, turn.user, turn.origin]) + "\\n")

    def on_memory_write(self, write, session):
        with Path(session.home, "NAME.lines").open("a") as file:
            file.write(json.dumps([session.owner, write.content, "note"]) + "\\n")
'''


def install(home: HermesHome, name: str, source: str) -> None:
    folder = home.plugins / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source.replace("NAME", name))


@pytest.fixture
def home(hermes_home: HermesHome) -> HermesHome:
    install(hermes_home, "shelf", SHELF)
    install(hermes_home, "box", SHELF)
    install(hermes_home, "diary", DIARY)
    rows = [["", f"Fact {number}.", '{"kind": "fact", "tags": ["a"]}'] for number in range(7)]
    rows.append(["telegram:42", "Bob sails.", ""])
    (hermes_home.path / "shelf.rows").write_text(json.dumps(rows))
    with open_memory(hermes_home, provider="") as memory:
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
        bob = memory.start_session("s2", platform="telegram", user_id="42")
        memory.end_turn(bob, "I am Bob.", "Hello.")
        memory.end_turn(memory.start_session("s3", agent_context="cron"), "Backup done.", "Fine.")
        memory.curated.add("memory", "Uses uv.")
    set_value(hermes_home, "memory.provider", "shelf")
    return hermes_home


@pytest.fixture
def run() -> Run:
    def invoke(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["migrate", *map(str, words)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.stdout, result.stderr)
        return result

    return invoke


def rows(home: HermesHome, name: str) -> list[Any]:
    path = home.path / f"{name}.rows"
    return json.loads(path.read_text()) if path.exists() else []


def receipt(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_all_users_are_moved_verified_and_the_target_is_chosen(home: HermesHome, run: Run) -> None:
    before = (home.path / "shelf.rows").read_bytes()
    plan = receipt(run("--from", "shelf", "--to", "box", "--dry-run", "--json"))
    assert [(one["user"], one["memories"], one["present"]) for one in plan["users"]] == [
        ("", 7, 0),
        ("telegram:42", 1, 0),
    ]
    assert rows(home, "box") == []
    assert load_config(home).memory.provider == "shelf"
    done = receipt(run("--from", "shelf", "--to", "box", "--yes", "--json"))
    assert (done["way"], done["memories"], done["copied"], done["altered"]) == ("memories", 8, 8, 0)
    assert done["source_hash"] == done["target_hash"]
    assert done["verified"]
    assert done["switched"]
    assert load_config(home).memory.provider == "box"
    assert sorted(map(str, rows(home, "box"))) == sorted(
        str([owner, text, fields.replace(": ", ":").replace(", ", ",") or "{}"])
        for owner, text, fields in rows(home, "shelf")
    )
    assert (home.path / "shelf.rows").read_bytes() == before
    (kept,) = (home.path / "migration").glob("*.json")
    assert json.loads(kept.read_text())["verified"] is True
    again = receipt(run("--from", "shelf", "--to", "box", "--yes", "--json"))
    assert (again["copied"], again["memories"]) == (0, 8)


def test_a_move_that_was_stopped_goes_on_and_switches_only_at_its_end(home: HermesHome, run: Run) -> None:
    (home.path / "room").write_text("3")
    error = run("--from", "shelf", "--to", "box", "--yes", code=1).stderr
    assert "it is full" in error
    assert "run the command again" in " ".join(error.split())
    assert load_config(home).memory.provider == "shelf"
    (home.path / "room").unlink()
    done = receipt(run("--from", "shelf", "--to", "box", "--yes", "--json"))
    assert (done["copied"], done["verified"]) == (5, True)
    assert len(rows(home, "box")) == 8


def test_what_the_target_refuses_is_listed_and_must_be_accepted(home: HermesHome, run: Run) -> None:
    more = [*rows(home, "shelf"), ["", "A poison.", ""], ["", "AKIAIOSFODNN7EXAMPLE", ""]]
    (home.path / "shelf.rows").write_text(json.dumps(more))
    failed = run("--from", "shelf", "--to", "box", "--yes", "--json", code=1)
    assert (receipt(failed)["verified"], receipt(failed)["switched"]) == (True, False)
    assert "'box' refused 1 memory" in " ".join(failed.stderr.split())
    assert "--accept-refused" in failed.stderr
    assert "no poison" in failed.stderr
    assert load_config(home).memory.provider == "shelf"
    run("--from", "shelf", "--to", "box", "--yes", "--no-switch", code=3)
    done = run("--from", "shelf", "--to", "box", "--yes", "--json", "--accept-refused", code=3)
    found = receipt(done)
    assert (found["verified"], len(found["refused"]), found["missing"]) == (True, 1, [])
    assert found["switched"]
    assert "no poison" in done.stderr
    assert "AKIAIOSFODNN7EXAMPLE" not in str(rows(home, "box"))
    assert load_config(home).memory.provider == "box"


@pytest.mark.parametrize("lists", [True, False])
def test_a_refused_memory_does_not_hide_a_lost_memory(
    home: HermesHome, run: Run, monkeypatch: pytest.MonkeyPatch, lists: bool
) -> None:
    more = [*rows(home, "shelf"), *[["", "A poison.", ""]] * 2]
    (home.path / "shelf.rows").write_text(json.dumps(more))
    box = home.plugins / "box/__init__.py"
    if lists:
        source = box.read_text().replace("rows.append(", 'if "Fact 3" not in record.text: rows.append(')
    else:
        source = box.read_text().replace("def export_memories", "def list_all")
    box.write_text(source)
    monkeypatch.setattr("hermes_memory_archive.provider_move.VISIBLE_TIMEOUT_S", 0.0)
    done = receipt(
        run("--from", "shelf", "--to", "box", "--yes", "--json", "--accept-refused", code=1 if lists else 3)
    )
    assert (done["missing"], len(done["refused"])) == (["Fact 3."] if lists else [], 1)
    assert done["verified"] is not lists
    assert done["switched"] is not lists


@pytest.mark.parametrize("lists", [True, False])
def test_a_target_that_refuses_everything_is_never_chosen(home: HermesHome, run: Run, lists: bool) -> None:
    box = home.plugins / "box/__init__.py"
    source = box.read_text().replace('"poison" in record.text', "True")
    box.write_text(source if lists else source.replace("def export_memories", "def list_all"))
    failed = run("--from", "shelf", "--to", "box", "--yes", "--json", "--accept-refused", code=1)
    done = receipt(failed)
    assert (done["verified"], done["switched"], len(done["refused"])) == (False, False, 8)
    assert "'box' took none of the 8 memories" in " ".join(failed.stderr.split())
    assert load_config(home).memory.provider == "shelf"


def test_what_the_target_does_not_keep_is_counted(home: HermesHome, run: Run) -> None:
    box = home.plugins / "box/__init__.py"
    box.write_text(box.read_text().replace("pack_record(record)])", '""])'))
    assert "7 of them without" in run("--from", "shelf", "--to", "box", "--yes", "--no-switch").stdout
    assert load_config(home).memory.provider == "shelf"


def test_a_target_that_loses_a_memory_is_not_chosen(
    home: HermesHome, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = home.plugins / "box/__init__.py"
    box.write_text(box.read_text().replace("rows.append(", 'if "Fact 3" not in record.text: rows.append('))
    monkeypatch.setattr("hermes_memory_archive.provider_move.VISIBLE_TIMEOUT_S", 0.0)
    error = run("--from", "shelf", "--to", "box", "--yes", code=1).stderr
    assert "1 memory of 'shelf' did not arrive" in " ".join(error.split())
    assert load_config(home).memory.provider == "shelf"
    (kept,) = (home.path / "migration").glob("*.json")
    assert json.loads(kept.read_text())["missing"] == ["Fact 3."]


@pytest.mark.parametrize(("source", "target"), [("diary", "box"), ("shelf", "diary")])
def test_without_the_hooks_turns_and_notes_are_sent_and_the_receipt_says_so(
    home: HermesHome, run: Run, source: str, target: str
) -> None:
    if target == "box":
        (home.plugins / "box/__init__.py").write_text(DIARY.replace("NAME", "box"))
        (home.plugins / "shelf/__init__.py").unlink()
    done = run("--from", source, "--to", target, "--yes", "--json")
    found = receipt(done)
    assert (found["way"], found["memories"], found["verified"], found["switched"]) == ("turns", 3, True, True)
    assert "the stored turns and notes are sent instead" in found["reason"]
    lines = [json.loads(line) for line in (home.path / f"{target}.lines").read_text().splitlines()]
    assert sorted(lines) == [
        ["", "I like tea.", "assistant"],
        ["", "Uses uv.", "note"],
        ["telegram:42", "I am Bob.", "user"],
    ]
    run("--from", source, "--to", target, "--yes")
    assert len((home.path / f"{target}.lines").read_text().splitlines()) == 3


def test_a_turn_that_the_target_does_not_take_is_missing(home: HermesHome, run: Run) -> None:
    text = DIARY.replace("NAME", "box").replace("def sync_turn", "def keep_turn")
    assert "keep_turn" in text
    (home.plugins / "box/__init__.py").write_text(text)
    done = run("--from", "diary", "--to", "box", "--yes", code=1)
    assert "2 turns and notes of 'diary' did not arrive" in " ".join(done.stderr.split())
    (file,) = (home.path / "migration").glob("*.json")
    found = json.loads(file.read_text())
    assert (found["memories"], found["acknowledged"], found["verified"]) == (3, 1, False)
    assert all("sync_turn" in sentence for sentence in found["missing"])
    assert load_config(home).memory.provider == "shelf"


def test_the_receipt_of_sent_turns_says_what_a_count_can_not_verify(home: HermesHome, run: Run) -> None:
    shown = " ".join(run("--from", "shelf", "--to", "diary", "--yes").stdout.split())
    assert "3 of 3: 'diary' acknowledged these" in shown
    assert "can't be verified" in shown


def test_users_of_whom_only_a_file_of_the_provider_knows_are_moved(home: HermesHome) -> None:
    folder = home.path / "memory_store.users"
    folder.mkdir()
    for owner in ("telegram:77", "signal/chat-1"):
        (folder / f"{file_name_of(owner)}.db").write_bytes(b"")
    (folder / "notes.txt").write_text("no user")
    with open_memory(home, provider="") as memory:
        assert {"telegram:77", "signal/chat-1"} <= set(owners_of(memory))


def test_two_accounts_of_one_provider_are_two_homes(home: HermesHome, run: Run, tmp_path: Path) -> None:
    error = run("--from", "shelf", "--to", "shelf", "--yes", code=1).stderr
    assert "moved into itself" in " ".join(error.split())
    other = HermesHome(tmp_path / "other")
    install(other, "shelf", SHELF)
    done = CliRunner().invoke(
        main,
        [
            "--home",
            str(other.path),
            "migrate",
            "--from",
            "shelf",
            "--from-home",
            str(home.path),
            "--to",
            "shelf",
            "--yes",
        ],
    )
    assert done.exit_code == 0, done.stderr
    assert len(rows(other, "shelf")) == 8
    assert load_config(other).memory.provider == "shelf"


def test_one_user_is_moved_alone(home: HermesHome, run: Run) -> None:
    run("--from", "shelf", "--to", "box", "--user", "telegram:42", "--yes", "--no-switch")
    assert [row[1] for row in rows(home, "box")] == ["Bob sails."]


def test_a_provider_that_is_not_there_or_does_not_start_is_one_line(home: HermesHome, run: Run) -> None:
    assert "error: " in run("--from", "shelf", "--to", "nothing", code=1).stderr
    box = home.plugins / "box/__init__.py"
    box.write_text(
        box.read_text().replace('self.file = Path(session.home, "box.rows")', 'raise ValueError("no")')
    )
    error = " ".join(run("--from", "shelf", "--to", "box", "--yes", code=1).stderr.split())
    assert "'box' does not start" in error
    assert load_config(home).memory.provider == "shelf"


def test_users_without_a_session_are_asked_for_and_others_are_mentioned(home: HermesHome, run: Run) -> None:
    owners = ["telegram:1", "telegram:2", "telegram:3", "telegram:4", "telegram:9"]
    more = [*rows(home, "shelf"), *([owner, f"{owner} sails.", ""] for owner in owners)]
    (home.path / "shelf.rows").write_text(json.dumps(more))
    home.folder_of("telegram:1").mkdir(parents=True)
    with open_memory(home, provider="diary") as memory:
        session = memory.start_session("s4", platform="telegram", user_id="2")
        memory.manager.outbox.held_back = "the test keeps it"
        memory.end_turn(session, "I sail.", "Fine.")
        with memory.sessions.transaction() as connection:
            connection.execute("INSERT INTO host_state VALUES ('user', 'telegram:3', 'key', '1')")
            connection.execute("UPDATE sessions SET \"user\" = '', identity = '' WHERE id = 's4'")
    set_value(home, "identity.owners", ["telegram:4"])
    with open_memory(home, provider="") as memory:
        memory.start_session("s5", platform="telegram", user_id="4")
    plan = run("--from", "shelf", "--to", "box", "--dry-run").stdout
    assert "users of whom only 'shelf' knows can't be seen" in " ".join(plan.split())
    done = receipt(run("--from", "shelf", "--to", "box", "--yes", "--json"))
    assert "'shelf' knows" in done["unseen"]
    moved = {row[0] for row in rows(home, "box")} - {"", "telegram:42"}
    assert moved == {"telegram:1", "telegram:2", "telegram:3", "telegram:4"}
    done = receipt(run("--from", "shelf", "--to", "box", "--user", "telegram:9", "--yes", "--json"))
    assert (done["copied"], done["unseen"]) == (1, "")


def test_an_export_mentions_users_of_whom_only_the_provider_knows(home: HermesHome) -> None:
    command = ["--home", str(home.path), "export", "--dry-run", "--json"]
    left_out = json.loads(CliRunner().invoke(main, command).stdout)["left_out"]
    assert any("users of whom only 'shelf' knows" in sentence for sentence in left_out)
    named = CliRunner().invoke(main, [*command, "--user", "home"]).stdout
    assert "users of whom" not in named


@pytest.mark.parametrize(
    ("user", "identity"),
    [
        ("nobody", ""),
        ("", '{"platform": "telegram", "user_id": "42"}'),
        ("telegram:9", '{"platform": "telegram", "user_id": "42"}'),
        ("", "[]"),
        ("", '{"platform": 5}'),
    ],
)
def test_a_session_whose_user_and_identity_disagree_is_named_and_not_moved(
    home: HermesHome, run: Run, user: str, identity: str
) -> None:
    with open_memory(home, provider="") as memory:
        memory.end_turn(memory.start_session("forged"), "My bank is Evil.", "Noted.")
        with memory.sessions.transaction() as connection:
            change = 'UPDATE sessions SET "user" = ?, identity = ? WHERE id = ?'
            connection.execute(change, (user, identity, "forged"))
    plan = run("--from", "shelf", "--to", "diary", "--dry-run").stdout
    assert "session 'forged' is not moved" in " ".join(plan.split())
    done = run("--from", "shelf", "--to", "diary", "--yes", "--json", code=3)
    assert "session 'forged' is not moved" in " ".join(done.stderr.split())
    assert receipt(done)["memories"] == 3
    assert "forged" in str(receipt(done)["disputed"])
    assert "Evil" not in (home.path / "diary.lines").read_text()


def test_a_session_without_an_identity_is_moved_as_its_stored_user(home: HermesHome, run: Run) -> None:
    with open_memory(home, provider="") as memory:
        memory.end_turn(memory.start_session("imported"), "I row.", "Noted.")
        with memory.sessions.transaction() as connection:
            change = "UPDATE sessions SET \"user\" = 'telegram:9', identity = '' WHERE id = 'imported'"
            connection.execute(change)
    run("--from", "shelf", "--to", "diary", "--yes")
    lines = [json.loads(line) for line in (home.path / "diary.lines").read_text().splitlines()]
    assert [owner for owner, text, _ in lines if text == "I row."] == ["telegram:9"]
