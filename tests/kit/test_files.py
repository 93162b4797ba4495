"""Which files of this machine a tool may hand to a backend."""

from pathlib import Path

import pytest

from hermes_core import Session
from hermes_core.kit import ToolInputInvalid, file_to_send


def test_a_file_of_the_person_at_the_terminal_is_sent_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "note.txt")
    session = Session("s1", home=str(tmp_path / "home"))
    assert file_to_send(str(tmp_path / "link"), session, 10) == (tmp_path / "note.txt").resolve()


@pytest.mark.parametrize(
    ("path", "session", "why"),
    [
        ("note.txt", {"platform": "telegram", "user_id": "1"}, "somebody else"),
        ("note.txt", {"platform": "telegram", "chat_id": "1"}, "somebody else"),
        (".ssh/id_rsa", {}, "hidden"),
        ("to_the_key", {}, "hidden"),
        ("profiles/work/config.yaml", {}, "own home"),
        ("profiles/other/config.yaml", {}, "own home"),
        ("large", {}, "no file of up to"),
        ("none", {}, "no file of up to"),
        ("profiles", {}, "no file of up to"),
        ("nul\0", {}, "no file of up to"),
        ("x" * 5000, {}, "no file of up to"),
    ],
)
def test_what_is_not_the_persons_to_send_stays(
    tmp_path: Path, path: str, session: dict[str, str], why: str
) -> None:
    for name in ("note.txt", ".ssh/id_rsa", "profiles/work/config.yaml", "profiles/other/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "large").write_text("x" * 11)
    (tmp_path / "to_the_key").symlink_to(tmp_path / ".ssh" / "id_rsa")
    asking = Session("s1", home=str(tmp_path / "profiles" / "work"), **session)
    with pytest.raises(ToolInputInvalid, match=why):
        file_to_send(f"{tmp_path}/{path}", asking, 10)
