"""The notes of a home as people and programs see them: the commands, the `memory` tool, and the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.cli import main

DELIMITER = "\n§\n"


def run(*words: str) -> Result:
    """Run a command of the terminal on the home of the environment."""
    result = CliRunner().invoke(main, list(words), prog_name="hermes-memory")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def shown(target: str = "memory") -> list[tuple[str, str]]:
    """Return each entry of a file with its origin, as `memory show` prints them."""
    result = run("memory", "show", "--origin", "--json")
    assert result.exit_code == 0, result.stderr
    return [(item["entry"], item["origin"]) for item in json.loads(result.stdout)[target]]


def history() -> list[dict[str, Any]]:
    """Return the changes of all notes, the latest first."""
    result = run("memory", "history", "--json", "--limit", "10000")
    assert result.exit_code == 0, result.stderr
    changes: list[dict[str, Any]] = json.loads(result.stdout)
    return changes


def write(home: HermesHome, content: str, action: str = "add", **arguments: str) -> dict[str, Any]:
    """Change MEMORY.md with the `memory` tool in a memory of its own, and return the result."""
    with open_memory(home) as memory:
        return call_in_turn(memory, {"action": action, "target": "memory", "content": content, **arguments})


def call_in_turn(memory: Memory, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the `memory` tool in a turn that ends well, and return the result."""
    turn = memory.conversation("s").turn("Note it.")
    function = {"name": "memory", "arguments": json.dumps(arguments)}
    calls = [{"id": "c", "type": "function", "function": function}]
    turn.add({"role": "assistant", "content": "", "tool_calls": calls})
    answer = turn.call_tool("memory", arguments, "c")
    turn.add({"role": "tool", "tool_call_id": "c", "content": answer.text})
    turn.finish("Done.")
    result: dict[str, Any] = json.loads(answer.text)
    return result


def copies(home: HermesHome, data: bytes) -> list[Path]:
    """Return the files of the home with these bytes, except MEMORY.md itself."""
    files = (path for path in home.path.rglob("*") if path.is_file() and path != home.memory_md)
    return [path for path in files if path.read_bytes() == data]
