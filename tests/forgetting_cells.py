"""The cells of the table "Forgetting" on the page of a provider, each held against a real server or a stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hermes_core import Memory, Query, Session
from hermes_core.actions.people import forget_person

ROWS = {
    "turn": "a turn that is taken back",
    "session": "a session that is deleted",
    "note": "a note that is removed",
    "person": "a person, by `hermes-memory forget`",
}
USER = {"platform": "telegram", "user_id": "ada"}
OWNER = "telegram:ada"
KEPT = "My tortoise is called Quillfeather and eats clover."
GOING = "The spare boathouse key hangs behind Ostrander in the hall."
NOTE = "Keeps a hedgehog called Merriweather in the garden shed."

Knows = Callable[[str, Session], bool]
"""Returns True if the provider or its server tells a made-up name to a session of the user."""


def cells(provider: str) -> Mapping[str, bool]:
    """Return the second column of the table on the provider's page: True for "yes"."""
    page = Path(__file__).parents[1] / "plugins" / provider / "README.md"
    lines = page.read_text(encoding="utf-8").split("## Forgetting\n")[1].split("\n## ")[0].splitlines()
    found = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1]
        for line in lines
        if line.startswith("| ")
    }
    return {name: found[row].startswith("yes") for name, row in ROWS.items()}


def hold(
    provider: str, row: str, memory: Memory, knows: Knows, *, patience: float = 1.0, learned: bool = True
) -> None:
    """Do what a row of the table says, and assert that the provider then tells it, or does not, as its cell says.

    Args:
        patience: Seconds that the server may take for what it does in the background.
        learned: False if the provider learns from notes and tools alone, and not from turns.
    """
    session = memory.start_session(f"of-{row}", **USER)
    other = memory.session("later", **USER)
    goes = cells(provider)[row]

    def seen(name: str, there: bool = True) -> None:
        until = time.monotonic() + patience
        while knows(name, other) != there:
            assert time.monotonic() < until, f"{name} is {'not ' * there}told after {row!r}"
            time.sleep(min(1.0, patience / 20))

    def sent() -> None:
        assert memory.flush(max(patience, 20.0)), [one.error for one in memory.manager.outbox.pending()]

    if row == "note":
        memory.change_memory("add", "user", NOTE, session=session)
        sent()
        seen("Merriweather")
        memory.change_memory("remove", "user", old_text="Merriweather", session=session)
        sent()
        seen("Merriweather", not goes)
        return
    for text in (KEPT, GOING):
        memory.end_turn(session, text, "Noted.", warm=False)
        sent()
    if learned:
        seen("Quillfeather")
        seen("Ostrander")
    if row == "turn":
        (*_, last) = [one for one in memory.sessions.get_messages(session.id) if one.role == "user"]
        memory.rewind(session, last.id)
        sent()
        seen("Ostrander", learned and not goes)
        seen("Quillfeather", learned)
    elif row == "session":
        memory.delete_session(session.id)
        sent()
        seen("Quillfeather", learned and not goes)
    else:
        memory.change_memory("add", "user", NOTE, session=session)
        sent()
        report, late = forget_person(memory, OWNER, timeout=max(patience, 20.0))
        assert not late
        (done,) = report.providers
        assert done.state in ("forgotten", "incomplete"), done
        for name in ("Quillfeather", "Ostrander", "Merriweather"):
            seen(name, not goes)
        found = [one for one in report.places if one.promised and (one.hits or one.error)]
        assert found == [], found


def exported(memory: Memory, provider: str, session: Session) -> str:
    """Return the texts of all memories that a provider exports for the user."""
    texts, cursor = list[str](), ""
    while True:
        page = memory.manager.ask(provider, "export_memories", cursor=cursor, session=session)
        assert page.ok, page
        texts += (record.text for record in page.value.records)
        if not (cursor := page.value.cursor):
            return "\n".join(texts)


def recalled(memory: Memory, provider: str, name: str, session: Session) -> str:
    """Return what a provider recalls for a turn about a name."""
    recall = memory.manager.ask(provider, "prefetch", query=Query(f"What is called {name}?"), session=session)
    return recall.value.render() if recall.ok else ""
