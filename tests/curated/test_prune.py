"""What was removed can be made to be gone: from the journal, from the copies, from the pages of the file."""

from __future__ import annotations

from collections.abc import Callable

from hermes_core import HermesHome
from hermes_core.curated.edits import Operation
from hermes_core.curated.store import Notes

MakeStore = Callable[..., Notes]
SECRET = "hunter22-correct-horse"


def holding(home: HermesHome, text: str) -> list[str]:
    """Files below the memory folder whose bytes hold the text."""
    files = (path for path in home.memories.rglob("*") if path.is_file())
    return sorted(path.name for path in files if text.encode() in path.read_bytes())


def test_after_a_prune_a_removed_entry_is_nowhere(store: Notes, hermes_home: HermesHome) -> None:
    store.add("memory", "Uses ruff")
    store.add("memory", f"The password is {SECRET}")
    hermes_home.memory_md.write_text(f"- Uses ruff\r\n- The password is {SECRET}\r\n")
    store.replace("memory", SECRET, "The password is in the vault")
    store.add("user", "Mel")
    assert holding(hermes_home, SECRET)
    assert store.files.prune() > 0
    assert holding(hermes_home, SECRET) == []
    assert "vault" in " ".join(store.entries("memory"))
    assert not store.undo()["success"]
    assert store.entries("user") == ("Mel",)


def test_after_a_prune_an_entry_removed_in_an_editor_is_nowhere(
    store: Notes, hermes_home: HermesHome
) -> None:
    store.add("memory", "Uses ruff")
    store.add("memory", f"The password is {SECRET}")
    hermes_home.memory_md.write_text("Uses ruff")
    store.files.prune()
    assert holding(hermes_home, SECRET) == []
    assert "notice" not in store.add("memory", "Uses mypy")
    assert not [version for version in store.history() if SECRET in " ".join(version.before)]


def test_a_prune_deletes_the_remains_of_a_killed_write(store: Notes, hermes_home: HermesHome) -> None:
    store.add("memory", "Uses ruff")
    left = [".MEMORY.md.x1y2z3.tmp", ".MEMORY.md.bak.20260101T000000000000-0123456789abcdef.x1y2z3.tmp"]
    for name in left:
        (hermes_home.memories / name).write_text(SECRET)
    (hermes_home.memories / ".MEMORY.md.swp").write_text("an editor's")
    store.files.prune()
    assert holding(hermes_home, SECRET) == []
    assert holding(hermes_home, "an editor's") == [".MEMORY.md.swp"]


def test_after_a_prune_the_file_is_still_known_and_goes_on(store: Notes) -> None:
    store.add("memory", "Uses ruff")
    store.remove("memory", "ruff")
    store.files.prune()
    assert "notice" not in store.add("memory", "Uses mypy"), (
        "no edit from outside is seen where there was none"
    )
    assert store.undo()["success"]
    assert store.entries("memory") == ()


def test_pruning_nothing_is_fine(store: Notes) -> None:
    assert store.files.prune() == 0


KEY = "sk-" + "proj-" + "a1B2c3D4" * 5


def test_a_secret_is_refused_and_left_nowhere(store: Notes, hermes_home: HermesHome) -> None:
    store.add("memory", "Uses the vault")
    batch = [Operation("add", "Likes tea"), Operation("add", "token: 'abcd1234efgh5678'")]
    for result in (
        store.add("user", f"The key of the shop is {KEY}"),
        store.replace("memory", "Uses", f"Uses {KEY}"),
        store.write("memory", batch, batch=True),
    ):
        assert not result["success"]
        assert "what looks like a secret (" in result["error"]
        assert "`hermes-memory keys set NAME`" in result["remediation"]
        assert KEY not in str(result)
    assert store.entries("memory") == ("Uses the vault",)
    assert holding(hermes_home, KEY) == holding(hermes_home, "abcd1234efgh5678") == []


def test_a_secret_that_a_person_wrote_into_the_file_can_be_removed_and_is_not_brought_back(
    store: Notes, hermes_home: HermesHome
) -> None:
    hermes_home.memory_md.parent.mkdir(parents=True, exist_ok=True)
    hermes_home.memory_md.write_text(f"Uses {KEY}\n")
    gone = store.remove("memory", "Uses")
    assert "the history keeps it" in gone["caution"]
    assert "`hermes-memory memory prune`" in gone["caution"]
    assert KEY not in str(gone["caution"])
    undone = store.undo()
    assert not undone["success"]
    assert "what looks like a secret (openai)" in undone["error"]
    assert store.entries("memory") == ()
    store.files.prune()
    assert holding(hermes_home, KEY) == []


def test_an_entry_without_a_secret_needs_no_caution(store: Notes) -> None:
    assert store.add("memory", "Rotates API keys monthly; [redacted:openai] is in .env")["success"]
    assert "caution" not in store.remove("memory", "Rotates")
