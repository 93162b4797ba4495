"""The ten lines of the README, run in several processes over one home without any setting."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.forked import python

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Where do we deploy the billing service?"


def run_ten_lines(home: Path, text: str) -> str:
    """Run the lines in a new process, with another message of the person; return the last message of the request."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"## Embed it in ten lines\n\n```python\n(.*?)```", readme, re.DOTALL)
    assert QUESTION in code
    program = f"{code}    print(turn.messages[-1]['content'])\n".replace(QUESTION, text)
    return subprocess.run(
        [*python(), "-c", program],
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_ten_lines_recall_in_a_second_process_what_the_first_stored(tmp_path: Path) -> None:
    requests = [run_ten_lines(tmp_path, QUESTION) for _ in range(2)]

    assert not (tmp_path / "config.yaml").exists()
    assert "<memory-context>" not in requests[0]
    assert "assistant: 1 messages" in requests[1]


def test_the_ten_lines_answer_a_question_with_what_was_said_in_another_process(tmp_path: Path) -> None:
    run_ten_lines(tmp_path, "We deploy the billing service from the blue cluster.")
    run_ten_lines(tmp_path, "My daughter starts school in September.")

    request = run_ten_lines(tmp_path, QUESTION)

    assert request.startswith(QUESTION)
    assert "blue cluster" in request.split("<memory-context>")[1]


def test_the_ten_lines_recall_nothing_for_a_task(tmp_path: Path) -> None:
    run_ten_lines(tmp_path, "We deploy the billing service from the blue cluster.")

    assert "<memory-context>" not in run_ten_lines(tmp_path, "Write a haiku about the sea.")
