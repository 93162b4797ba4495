"""`hermes-memory claw`: every layout, every option, twice, and against hostile folders."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from hermes_core import HermesHome, MemoryWrite, Session, open_memory
from hermes_core.config import Credentials
from hermes_core.contract.values import Refused
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.store import TARGETS, Notes
from hermes_memory_agent.skills.store import open_skills
from hermes_memory_openclaw.migration import MigrationOptions
from hermes_memory_openclaw.plan import make_plan
from hermes_memory_openclaw.source import plan_cleanup, read_tree, running_warnings
from hermes_memory_openclaw.target_home import apply_plan, read_home
from plugins.openclaw.tests.openclaw_command import claw, entries, item, migrate
from plugins.openclaw.tests.openclaw_trees import (
    BOT,
    KEY,
    SKILL_MD,
    USER_MD,
    WORKSPACE,
    snapshot,
    write,
    write_tree,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


# ------------------------------------------------------------------------------- layouts

LAYOUTS = ["workspace", "workspace.default", "workspace-main", "workspace-assistant", "workspace-coder"]


@pytest.mark.parametrize("folder", [".openclaw", ".clawdbot", ".moltbot"])
@pytest.mark.parametrize("workspace", LAYOUTS)
def test_every_layout_migrates_with_the_counts_that_the_report_states(
    person: Path, hermes_home: HermesHome, folder: str, workspace: str
) -> None:
    source = write_tree(person / folder, workspace)
    before = snapshot(source)
    report = migrate()

    assert report["entries"] == {
        "found": 8, "added": 8, "known": 0, "overflow": 0, "refused": 0, "left_out": 1,
    }  # fmt: skip
    assert len(entries(hermes_home)) == 6
    assert entries(hermes_home, "user") == ("Name: Ann", "Context: Prefers short answers")
    assert hermes_home.soul_md.read_text() == WORKSPACE["SOUL.md"]
    assert (hermes_home.skills / "openclaw-imports/tea/scripts/boil.sh").exists()
    assert report["summary"]["error"] == 0
    assert snapshot(source) == before


@pytest.mark.parametrize("name", ["openclaw.json", "clawdbot.json", "moltbot.json"])
def test_the_workspace_that_the_settings_name_comes_first(
    person: Path, hermes_home: HermesHome, name: str
) -> None:
    source = write_tree(person / ".openclaw")
    write(person / "clawd", {"MEMORY.md": "- From the old place\n"})
    (source / "openclaw.json").unlink()
    settings = "{ agents: { defaults: { workspace: '~/clawd', }, }, } // mine"
    write(source, {name: settings})
    migrate()
    assert "From the old place" in entries(hermes_home)
    assert "People: Ilona is the product owner" not in entries(hermes_home)


def test_a_workspace_alone_can_be_the_source(tmp_path: Path, hermes_home: HermesHome) -> None:
    migrate("--source", write(tmp_path / "anything", WORKSPACE))
    assert len(entries(hermes_home)) == 6


def test_what_one_workspace_lacks_another_has(person: Path, hermes_home: HermesHome) -> None:
    write(person / ".openclaw/workspace", {"AGENTS.md": "x"})
    write(person / ".openclaw/workspace-main", {"memory.md": "- Likes tea\n", "USER.md": USER_MD})
    migrate()
    assert entries(hermes_home) == ("Likes tea",)
    assert len(entries(hermes_home, "user")) == 2


def test_another_agents_memory_is_archived_and_named(source: Path, hermes_home: HermesHome) -> None:
    write(source / "workspace-coder", {"MEMORY.md": "- Writes Rust\n"})
    report = migrate()
    assert "Writes Rust" not in entries(hermes_home)
    assert item(report, "archive", "workspace-coder")["status"] == "archived"
    assert "hermes-memory --profile NAME claw migrate" in report["warnings"][0]


def test_without_a_source_nothing_is_written_and_it_is_said_where_to_look(
    person: Path, hermes_home: HermesHome
) -> None:
    done = claw("migrate", "--yes")
    assert done.exit_code == 1
    assert ".moltbot" in done.output
    assert "--source" in done.output
    assert not hermes_home.path.exists()
    empty = person / "empty"
    empty.mkdir()
    assert claw("migrate", "--source", empty).exit_code == 1
    assert claw("migrate", "--source", person / "nowhere").exit_code == 1


# ---------------------------------------------------------------------- preview and apply


def test_a_second_run_changes_nothing(source: Path, hermes_home: HermesHome) -> None:
    write(source, {"workspace/MEMORY.md": "\n".join(f"- {'fact ' * 20}{n}" for n in range(60))})
    migrate("--migrate-secrets")
    before = snapshot(hermes_home.path)
    done = claw("migrate", "--yes", "--migrate-secrets")
    assert "nothing to migrate" in done.output
    assert snapshot(hermes_home.path) == before


def test_years_of_notes_migrate_once(source: Path, hermes_home: HermesHome) -> None:
    for part in range(3):
        text = "".join(f"- {number} {part} {'word ' * 100}\n" for number in range(1000))
        write(source, {f"workspace/memory/2024-0{part + 1}-01.md": text})
    with open_memory(hermes_home) as memory:
        plan = make_plan(
            read_tree(source),
            read_home(memory, MigrationOptions()),
            MigrationOptions(),
            scan=lambda text: None,
        )
        report = apply_plan(plan, memory, NOW, backup=False)
        assert report.entries()["overflow"] > 2900
        again = make_plan(
            read_tree(source),
            read_home(memory, MigrationOptions()),
            MigrationOptions(),
            scan=lambda text: None,
        )
        assert not again.changes


def test_past_conversations_are_counted_and_said_to_stay(source: Path, hermes_home: HermesHome) -> None:
    for agent, name in (("main", "one"), ("main", "two"), ("coder", "three")):
        file = source / "agents" / agent / "sessions" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"type": "session"}\n')
    report = migrate()
    reasons = {one["source"]: one["reason"] for one in report["items"] if one["kind"] == "conversations"}
    assert reasons.keys() == {"agents/coder/sessions", "agents/main/sessions"}
    assert reasons["agents/main/sessions"].startswith(
        "3 past conversations stay there: they are not migrated"
    )
    assert any("Past conversations stay" in step for step in report["next_steps"])
    with open_memory(hermes_home) as memory:
        assert memory.sessions.counts()["sessions"] == 0


@pytest.mark.parametrize("arguments", [("--dry-run",), ("--dry-run", "--yes", "--migrate-secrets")])
def test_a_preview_writes_nothing(source: Path, hermes_home: HermesHome, arguments: tuple[str]) -> None:
    done = claw("migrate", *arguments)
    assert done.exit_code == 0
    assert "8 added" in done.output
    assert not hermes_home.path.exists()


def test_a_no_writes_nothing(source: Path, hermes_home: HermesHome) -> None:
    for answer in ("n\n", ""):
        assert claw("migrate", answer=answer).exit_code == 1
        assert not hermes_home.memories.exists()


def test_a_yes_does_what_the_preview_said(source: Path, hermes_home: HermesHome) -> None:
    preview = json.loads(claw("migrate", "--dry-run", "--json").stdout)
    report = migrate()
    assert preview["items"] == report["items"]
    assert claw("migrate", answer="y\n").exit_code == 0


def test_the_consent_confirms_the_entries_that_were_shown(source: Path, hermes_home: HermesHome) -> None:
    shown = claw("migrate", answer="y\n").stdout
    with open_memory(hermes_home) as memory:
        entries = [entry for target in TARGETS for entry in memory.curated.entries(target)]
        assert entries
        assert all(entry.split("\n")[0] in shown for entry in entries)
        stored = memory.curated.read()
        assert {(stored.origin_of(entry).origin, stored.origin_of(entry).confirmed) for entry in entries} == {
            ("person", "import")
        }
        assert memory.curated.read().waiting_notes() == []


def test_entries_without_consent_wait(source: Path, hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        plan = make_plan(
            read_tree(source),
            read_home(memory, MigrationOptions()),
            MigrationOptions(),
            scan=lambda text: None,
        )
        apply_plan(plan, memory, NOW, backup=False)
        entries = [entry for target in TARGETS for entry in memory.curated.entries(target)]
        assert entries
        assert [note.entry for note in memory.curated.read().waiting_notes()] == entries
        assert {note.origin.origin for note in memory.curated.read().waiting_notes()} == {"import"}


def test_an_entry_with_a_secret_is_shown_without_it_and_waits(source: Path, hermes_home: HermesHome) -> None:
    write(
        source,
        {"workspace/MEMORY.md": "- The key is sk-proj-aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z\n- Uses uv\n"},
    )
    assert "aB3dE5fG7hJ9" not in claw("migrate", answer="y\n").output
    with open_memory(hermes_home) as memory:
        assert all("sk-proj" in note.entry for note in memory.curated.read().waiting_notes())
        assert "Uses uv" in memory.curated.read().snapshot().render()


def test_one_undo_takes_a_files_entries_back(source: Path, hermes_home: HermesHome) -> None:
    migrate()
    with open_memory(hermes_home) as memory:
        memory.curated.undo(target="user")
        assert memory.curated.entries("user") == ()


def test_the_report_is_written_for_people_and_programs(source: Path, hermes_home: HermesHome) -> None:
    report = migrate()
    folder = Path(report["output_dir"])
    assert folder.parent == hermes_home.path / "migration/openclaw"
    assert json.loads((folder / "report.json").read_text()) == report
    summary = (folder / "summary.md").read_text()
    assert "workspace/memory/2026-01-30.md" in summary
    assert "## Migrated" in summary


def test_originals_and_everything_else_are_archived(source: Path, hermes_home: HermesHome) -> None:
    folder = Path(migrate()["output_dir"]) / "archive"
    assert (folder / "workspace/MEMORY.md").read_text() == WORKSPACE["MEMORY.md"]
    assert (folder / "workspace/TOOLS.md").exists()
    assert json.loads((folder / "config/memory.json").read_text()) == {"memory": {"backend": "qmd"}}


def test_what_was_here_stays_and_duplicates_are_known(source: Path, hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", "user", "context:  PREFERS short answers")
        memory.change_memory("add", "user", "Likes tea")
    report = migrate()
    assert item(report, "user-profile")["details"]["known"] == 1
    assert entries(hermes_home, "user") == ("context:  PREFERS short answers", "Likes tea", "Name: Ann")


def test_entries_without_room_are_kept_beside_the_store_newest_first(
    source: Path, hermes_home: HermesHome
) -> None:
    (source / "workspace/MEMORY.md").unlink()
    for month in range(1, 10):
        write(source, {f"workspace/memory/2025-0{month}-01.md": f"- {'x' * 400} {month}\n"})
    report = migrate()
    kept = entries(hermes_home)
    overflow = (Path(report["output_dir"]) / "overflow/memory_overflow.txt").read_text().split("\n§\n")
    assert report["entries"]["found"] == 13
    assert report["entries"]["added"] == len(kept) + len(entries(hermes_home, "user"))
    assert report["entries"]["overflow"] == len(overflow)
    assert kept[0].startswith("2026-02-01")
    assert overflow[-1].startswith("2025-01-01")


def test_entries_without_room_are_found_by_a_search(source: Path, hermes_home: HermesHome) -> None:
    facts = [f"The pump of house {number} stands in {'the far garden ' * 20}{number}" for number in range(30)]
    write(source, {"workspace/memory/2025-03-01.md": "".join(f"- {fact}\n" for fact in facts)})
    report = migrate()
    assert report["entries"]["overflow"] > 20
    with open_memory(hermes_home) as memory:
        found = memory.sessions.past.search("pump house 29")
        assert found[0].text == f"2025-03-01: {facts[29]}"
        (entry,) = memory.sessions.list_sessions(source="openclaw")
        assert entry.session.title == "OpenClaw: workspace/memory/2025-03-01.md"
        assert len(memory.sessions.get_messages(entry.session.id)) == report["entries"]["overflow"]
        assert datetime.fromtimestamp(found[0].timestamp, UTC).date() == date(2025, 3, 1)
        answer = memory.call_tool(memory.local_session, "session_search", {"query": "pump house 29"})
        assert facts[29][:40] in answer


def test_entries_without_room_are_found_once_also_after_a_kill(source: Path, hermes_home: HermesHome) -> None:
    write(source, {"workspace/memory/2025-03-01.md": "".join(f"- {'fact ' * 90}{n}\n" for n in range(30))})
    report = migrate()
    (
        Path(report["output_dir"]) / "overflow/memory_overflow.txt"
    ).unlink()  # as a kill before it leaves the home
    migrate()
    with open_memory(hermes_home) as memory:
        (entry,) = memory.sessions.list_sessions(source="openclaw")
        assert len(memory.sessions.get_messages(entry.session.id)) == report["entries"]["overflow"]


def test_notes_in_sub_folders_are_read_and_the_rest_is_named(source: Path, hermes_home: HermesHome) -> None:
    write(
        source / "workspace",
        {
            "memory/projects/billing.md": "- Billing has its own queue\n",
            "memory/2026/02/2026-02-05.md": "- Chose Postgres\n",
            "memory/index.sqlite": b"x",
            "canvas/drawing.md": "- a picture\n",
        },
    )
    report = migrate()
    assert {"Billing has its own queue", "2026-02-05: Chose Postgres"} <= set(entries(hermes_home))
    left = {one["source"]: one["reason"] for one in report["items"] if one["status"] == "skipped"}
    assert left["workspace/memory/index.sqlite"] == "it is no Markdown"
    assert left["workspace/canvas"] == "it is no folder of notes"


@pytest.mark.sqlite_only("a backup of files")
def test_the_home_is_zipped_first_unless_told_otherwise(source: Path, hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", "user", "Likes tea")
        memory.end_turn(memory.start_session(), "hello", "hi")
    Credentials(hermes_home).set("A_KEY", "secret")
    backup = Path(migrate()["output_dir"]) / "home.zip"
    assert backup.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(backup) as archive:
        assert archive.read("memories/USER.md") == b"Likes tea"
        assert {".env", "state.db"} <= set(archive.namelist())
        assert not [name for name in archive.namelist() if name.startswith("migration")]
    write(source, {"workspace/memory/2026-03-01.md": "- New\n"})
    assert not (Path(migrate("--no-backup")["output_dir"]) / "home.zip").exists()


def test_a_backup_that_fails_stops_everything(source: Path, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    (hermes_home.path / "old.db").write_bytes(b"SQLite format 3\0 and then nothing of the kind" + b"x" * 4096)
    done = claw("migrate", "--yes")
    assert done.exit_code == 1
    assert "--no-backup" in done.output
    assert not hermes_home.memory_md.exists()


def test_without_an_extension_that_has_skills_they_are_archived_with_the_reason(
    source: Path, hermes_home: HermesHome
) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("extensions:\n  block: [agent]\n")
    with open_memory(hermes_home) as memory:
        plan = make_plan(read_tree(source), read_home(memory, MigrationOptions()), MigrationOptions())
    skills = [item for item in plan.items if item.kind in ("skills", "shared-skills")]
    assert {item.status for item in skills} == {"archived"}
    assert {item.reason for item in skills} == {
        "it can't be used as it is: no active extension has skills: see hermes-memory extensions"
    }


def refuse_ilona(write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
    """An observer that lets no entry about Ilona pass."""
    return Refused("not about Ilona") if "Ilona" in write.content else write


def test_an_entry_that_an_observer_refuses_is_in_the_report_and_the_others_are_added(
    source: Path, hermes_home: HermesHome
) -> None:
    with open_memory(hermes_home) as memory:
        memory.curated = Notes(
            hermes_home, memory.sessions.database, hooks=NoteHooks(filter_write=refuse_ilona)
        )
        plan = make_plan(read_tree(source), read_home(memory, MigrationOptions()), MigrationOptions())
        report = apply_plan(plan, memory, NOW).to_dict()
        assert item(report, "memory")["details"] == {
            "found": 4, "added": 3, "known": 0, "overflow": 0, "refused": 1, "left_out": 1,
        }  # fmt: skip
        assert "not about Ilona" in item(report, "memory")["reason"]
        assert len(memory.curated.entries("memory")) == 5


def test_a_store_that_is_switched_off_loses_nothing(source: Path, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  user_profile_enabled: false\n")
    report = migrate()
    assert item(report, "user-profile")["details"]["overflow"] == 2
    assert "switched off" in item(report, "user-profile")["reason"]
    assert "Name: Ann" in (Path(report["output_dir"]) / "overflow/user_overflow.txt").read_text()


# ------------------------------------------------------------------------------- options


def test_another_soul_is_a_conflict_until_it_may_be_overwritten(
    source: Path, hermes_home: HermesHome
) -> None:
    write(hermes_home.path, {"SOUL.md": "You are mine."})
    assert item(migrate(), "soul")["status"] == "conflict"
    assert hermes_home.soul_md.read_text() == "You are mine."
    report = migrate("--overwrite")
    assert item(report, "soul")["status"] == "migrated"
    assert hermes_home.soul_md.read_text() == WORKSPACE["SOUL.md"]
    assert (Path(report["output_dir"]) / "backups/SOUL.md").read_text() == "You are mine."


def test_instructions_go_to_the_workspace_target(
    source: Path, hermes_home: HermesHome, tmp_path: Path
) -> None:
    assert item(migrate(), "workspace-agents")["status"] == "archived"
    target = tmp_path / "project"
    assert item(migrate("--workspace-target", target), "workspace-agents")["status"] == "migrated"
    assert (target / "AGENTS.md").read_text() == WORKSPACE["AGENTS.md"]
    write(target, {"AGENTS.md": "mine"})
    report = json.loads(claw("migrate", "--json", "--workspace-target", target).stdout)
    assert item(report, "workspace-agents")["status"] == "conflict"
    assert claw("migrate", "--workspace-target", "relative").exit_code == 2


@pytest.mark.parametrize(
    ("mode", "status", "folders"),
    [("skip", "conflict", {"tea": "mine"}), ("overwrite", "migrated", {"tea": "new"}),
     ("rename", "migrated", {"tea": "mine", "tea-2": "renamed"})],
)  # fmt: skip
def test_a_skill_of_the_same_name_is_handled_as_asked(
    source: Path, hermes_home: HermesHome, mode: str, status: str, folders: dict[str, str]
) -> None:
    imports = hermes_home.skills / "openclaw-imports"
    texts = {"mine": "mine", "new": SKILL_MD, "renamed": SKILL_MD.replace("name: tea", "name: tea-2")}
    write(imports, {"tea/SKILL.md": texts["mine"]})
    report = migrate("--skill-conflict", mode)
    assert item(report, "skills")["status"] == status
    assert {path.name: (path / "SKILL.md").read_text() for path in imports.iterdir()} == {
        name: texts[which] for name, which in folders.items()
    }
    assert "nothing to migrate" in claw("migrate", "--yes", "--skill-conflict", mode).output


def skills_of(home: HermesHome) -> tuple[list[str], list[str]]:
    """Return the names of the skills of a home, and their problems."""
    with open_memory(home, provider="") as memory:
        store = open_skills(home, memory.config, memory.sessions.database)
        return [skill.name for skill in store.skills()], store.problems()


@pytest.mark.parametrize(
    ("mode", "kept"), [("skip", ["mine"]), ("overwrite", ["tea"]), ("rename", ["mine", "tea-2", "tea-3"])]
)
def test_skills_of_one_name_in_the_source_do_not_overwrite_each_other_in_turn(
    source: Path, hermes_home: HermesHome, mode: str, kept: list[str]
) -> None:
    imports = hermes_home.skills / "openclaw-imports"
    write(source, {"skills/tea/SKILL.md": SKILL_MD + "Another.\n"})
    write(imports, {"tea/SKILL.md": SKILL_MD.replace("name: tea", "name: mine")})
    assert migrate("--skill-conflict", mode)["summary"]["error"] == 0
    after = snapshot(imports)
    assert skills_of(hermes_home) == (kept, [])
    assert "nothing to migrate" in claw("migrate", "--yes", "--skill-conflict", mode).output
    assert snapshot(imports) == after


def test_a_skill_that_is_a_link_is_replaced_and_what_it_leads_to_stays(
    source: Path, hermes_home: HermesHome, tmp_path: Path
) -> None:
    mine = write(tmp_path / "mine", {"SKILL.md": SKILL_MD + "Mine.\n"})
    link = hermes_home.skills / "openclaw-imports/tea"
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    assert item(migrate("--skill-conflict", "overwrite"), "skills")["status"] == "migrated"
    assert (link.is_symlink(), (link / "SKILL.md").read_text()) == (False, SKILL_MD)
    assert "Mine." in (mine / "SKILL.md").read_text()


def test_a_skill_of_which_the_copying_was_killed_hides_none(source: Path, hermes_home: HermesHome) -> None:
    migrate()
    write(hermes_home.skills / "openclaw-imports/.tea.partial", {"SKILL.md": SKILL_MD + "Half.\n"})
    assert skills_of(hermes_home) == (["tea"], [])


def test_shared_skills_come_too_and_scripts_stay_executable(source: Path, hermes_home: HermesHome) -> None:
    write(source, {"skills/Coffee Time/SKILL.md": SKILL_MD})
    (source / "workspace/skills/tea/scripts/boil.sh").chmod(0o755)
    report = migrate()
    assert item(report, "shared-skills")["destination"] == "skills/openclaw-imports/coffee-time"
    script = hermes_home.skills / "openclaw-imports/tea/scripts/boil.sh"
    assert script.stat().st_mode & 0o777 == 0o700


def test_a_migrated_skill_is_one_of_the_agents_and_a_faulty_one_is_archived(
    source: Path, hermes_home: HermesHome
) -> None:
    write(source / "workspace/skills", {"faulty/SKILL.md": "---\nname: faulty\n---\n"})
    report = migrate()
    assert "no text after its front matter" in item(report, "skills", "faulty")["reason"]
    assert skills_of(hermes_home) == (["tea"], [])
    assert (hermes_home.skills / "openclaw-imports/tea").is_dir()


def test_secrets_stay_unless_they_are_asked_for(source: Path, hermes_home: HermesHome) -> None:
    write(source, {".env": "ELEVENLABS_API_KEY=el-1234567890\nAWS_SECRET_ACCESS_KEY=nope\n"})
    migrate()
    assert Credentials(hermes_home, environ={}).names() == []
    report = migrate("--migrate-secrets")
    credentials = Credentials(hermes_home, environ={})
    assert credentials.names() == ["ANTHROPIC_API_KEY", "ELEVENLABS_API_KEY", "TELEGRAM_BOT_TOKEN"]
    assert credentials.get("TELEGRAM_BOT_TOKEN") == BOT
    assert hermes_home.env_file.stat().st_mode & 0o777 == 0o600
    assert item(report, "provider-keys", ".env")["sensitive"]
    assert claw("migrate", "--preset", "user-data", "--migrate-secrets").exit_code == 2


def test_keys_of_logins_and_a_secret_that_differs(source: Path, hermes_home: HermesHome) -> None:
    profiles = {
        "profiles": {"openrouter:default": {"type": "api_key", "provider": "openrouter", "key": "or-1"}}
    }
    write(source, {"agents/main/agent/auth-profiles.json": json.dumps(profiles)})
    Credentials(hermes_home).set("ANTHROPIC_API_KEY", "another")
    report = migrate("--migrate-secrets")
    assert [i["status"] for i in report["items"] if "ANTHROPIC" in i["destination"]] == ["conflict"]
    assert Credentials(hermes_home, environ={}).get("OPENROUTER_API_KEY") == "or-1"
    migrate("--migrate-secrets", "--overwrite")
    assert Credentials(hermes_home, environ={}).get("ANTHROPIC_API_KEY") == KEY


def test_no_secret_is_in_archive_report_or_output(source: Path, hermes_home: HermesHome) -> None:
    done = claw("migrate", "--yes", "--migrate-secrets")
    written = b"".join(data for data, _ in snapshot(hermes_home.path / "migration").values())
    for secret in (KEY, BOT, "own-secret-1"):
        assert secret not in done.output
        assert secret.encode() not in written


# ---------------------------------------------------------------- processes and cleanup


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("openclaw gateway --port 1", 1),
        ("/usr/bin/node /opt/openclaw/dist/index.js", 1),
        ("/usr/local/bin/clawdbot", 1),
        ("moltbot-gateway", 1),
        ("python -m hermes gateway", 1),
        ("/usr/bin/hermes gateway run", 1),
        ("vim /home/ann/.openclaw/openclaw.json", 0),
        ("hermes claw migrate --source /x/.openclaw", 0),
        ("", 0),
    ],
)
def test_programs_that_still_run_are_warned_of(line: str, count: int) -> None:
    assert len(running_warnings(lambda: [line, "bash"])) == count


def test_cleanup_moves_the_folders_aside_once(source: Path, person: Path, hermes_home: HermesHome) -> None:
    write(person / ".moltbot", {"moltbot.json": "{}"})
    before = snapshot(source)
    assert "nothing was migrated" in claw("cleanup", "--dry-run").output
    assert source.exists()
    assert claw("cleanup", answer="n\n").exit_code == 1
    migrate()
    assert "nothing was migrated" not in (done := claw("cleanup", "--yes")).output
    assert "2 renamed" in done.output
    assert snapshot(person / ".openclaw.pre-migration") == before
    assert "Nothing to clean up" in claw("cleanup", "--yes").output


def test_cleanup_finds_a_free_name_and_refuses_a_strangers_folder(person: Path, source: Path) -> None:
    names = []
    for _ in range(3):
        (move,) = plan_cleanup(person, source, date(2026, 3, 1))
        move.target.mkdir()
        names.append(move.target.name.removeprefix(".openclaw.pre-migration"))
    assert names == ["", "-20260301", "-20260301-2"]
    (person / "photos").mkdir()
    assert claw("cleanup", "--source", person / "photos", "--yes").exit_code == 1
    assert (person / "photos").exists()


@pytest.mark.posix_files("renames the folder in which it runs")
def test_cleanup_takes_the_folder_that_a_person_stands_in(
    source: Path, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source)
    assert claw("cleanup", "--source", ".", "--yes").exit_code == 0
    assert (person / ".openclaw.pre-migration").is_dir()


@pytest.mark.parametrize("command", ["migrate", "cleanup"])
def test_a_home_folder_that_nobody_has_is_refused_in_one_line(command: str, person: Path) -> None:
    done = claw(command, "--source", "~nobody-has-this-name/x", "--yes")
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True)
    assert "is unknown here" in done.stderr
