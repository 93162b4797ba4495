"""The tutorial on agents does what it prints: its program is written, its commands run, its answers are compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from hermes_memory_testing.model_server import ModelServer, Reply
from tests.docs.test_docs import FENCE, ROOT
from tests.forked import python

# What makes the environment, in which this test is already, and the model of the last step.
PREPARATIONS = ("git", "python3", ".", "pip", "cd", "export")
STEP = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def run(words: list[str], folder: Path, *, typed: str = "", **variables: str) -> str:
    programs = {"python": [*python(), "-c", SCRIPT], "hermes-memory": [*python(), "-m", "hermes_core"]}
    environment = {**os.environ, "HERMES_HOME": str(folder / "home"), **variables}
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stderr}"
    return done.stdout


def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "agent.md").read_text(encoding="utf-8")
    compared = 0
    for _, language, block in FENCE.findall(text):
        if language == "python":
            (tmp_path / "agent.py").write_text(block, encoding="utf-8")
            continue
        for line, printed in STEP.findall(block):
            words = shlex.split(line)
            if words[0] not in PREPARATIONS and words != ["python", "agent.py"]:
                assert run(words, tmp_path) == printed, line
                compared += 1
    assert compared == 10

    save = ("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with ModelServer([Reply(calls=[save]), Reply("Noted."), Reply("In Oslo.")]) as server:
        model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none", "MODEL": "scripted"}
        assert run(["python", "agent.py"], tmp_path, typed="I live in Oslo.\n\n", **model) == "> Noted.\n> "
        again = run(["python", "agent.py"], tmp_path, typed="Where do I live?\n\n", **model)
        assert again == "> In Oslo.\n> "
    assert "Lives in Oslo." in server.requests[-1]["messages"][0]["content"]
    assert "Lives in Oslo." in run(["hermes-memory", "memory", "show"], tmp_path)
