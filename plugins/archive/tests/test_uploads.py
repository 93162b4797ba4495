"""A tool of a provider sends no archive of a memory, whatever name it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, Session, open_memory
from hermes_core.cli import main
from hermes_core.errors import ToolInputInvalid
from hermes_core.kit import read_file_to_send

pytestmark = pytest.mark.needs_disk("no file below /dev is sent")


@pytest.mark.parametrize("command", ["export", "backup"])
def test_no_tool_sends_an_archive_of_a_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    home = HermesHome(tmp_path / "home")
    with open_memory(home, provider="") as memory:
        memory.conversation("s1").turn("I play chess").finish("Nice.")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    result = CliRunner().invoke(main, ["--home", str(home.path), command, "holiday.docx"])
    assert result.exit_code == 0, result.output
    with pytest.raises(ToolInputInvalid, match=r"is a (backup or an export|database)"):
        read_file_to_send("holiday.docx", Session("s2", home=str(home.path)), 2**24)
