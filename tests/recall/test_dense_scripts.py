"""Questions in Chinese and Japanese, each asked in other words than it was answered in."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.sessions.db import SessionDB

DATA = Path(__file__).with_name("data")
EXCHANGES_OF_A_SESSION = 10


def exchanges(name: str) -> list[list[str]]:
    """Each is what one says, what the other answers, and a question whose evidence is the answer."""
    return [line.split("|") for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["chinese.txt", "japanese.txt"])
def test_thirty_questions_find_their_evidence(name: str, tmp_path: Path) -> None:
    asked = exchanges(name)
    db = SessionDB(tmp_path / "state.db")
    for number, (said, answer, _) in enumerate(asked):
        session = f"s{number // EXCHANGES_OF_A_SESSION}"
        db.create_session(session)
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
        db.append_turn(session, messages, f"t{number}", number + 1)

    found = [answer in [hit.text for hit in db.search(question)] for _, answer, question in asked]
    db.close()

    assert len(found) == 30
    assert sum(found) >= 0.75 * 30
