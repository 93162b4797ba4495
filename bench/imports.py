"""Peak memory of reading a large file of each format that other programs write.

    python bench/imports.py [--megabytes 100] [--json] [FORMAT...]

Each file is made anew in a temporary folder and read by a process of its own, which holds one turn at a time. The figure is the
growth of that process from before the reading to its peak. Each conversation of a file has 40 messages of 5 KB.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import ormsgpack

MESSAGES, WORDS = 40, "A sentence about the garden and the shed. " * 120
AT = "2026-09-01T10:00:00+00:00"

READ = """
import resource, sys
from pathlib import Path
from hermes_memory_importers import ImportedRecord, SkipLog, stream_file
def peak():
    # In kilobytes. On Linux the usage of a process begins with the peak of the one that started it.
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
small, large = sys.argv[1:]
def read(path):
    skips = SkipLog()
    for item in stream_file(Path(path), skips=skips):
        for turn in () if isinstance(item, ImportedRecord) else item[1]:
            pass
    assert skips.stored
    return skips.stored
read(small)
before = peak()
stored = read(large)
print(peak() - before, stored)
"""


def text(conversation: int, message: int) -> str:
    """Return the words of a message, which no other one has."""
    return f"{conversation} {message} {WORDS}"


def role(message: int) -> str:
    """Return the role of a message."""
    return ("user", "assistant")[message % 2]


def lines(path: Path, size: int, values: Callable[[int], Iterator[Any]]) -> None:
    """Write a value a line, those of one conversation after the other, until the file has the size."""
    with path.open("w", encoding="utf-8") as file:
        for conversation in count():
            for value in values(conversation):
                file.write(f"{json.dumps(value)}\n")
            if file.tell() >= size:
                return


def elements(path: Path, size: int, values: Callable[[int], Iterator[Any]]) -> None:
    """Write the values as one list."""
    with path.open("w", encoding="utf-8") as file:
        for conversation in count():
            for number, value in enumerate(values(conversation)):
                file.write(f"{'[' if conversation == number == 0 else ','}{json.dumps(value)}\n")
            if file.tell() >= size:
                file.write("]")
                return


def database(
    path: Path, size: int, script: str, rows: Callable[[int], Iterator[tuple[str, tuple[Any, ...]]]]
) -> None:
    """Make a database, and insert the rows of one conversation after the other, as a table and its values."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA synchronous = OFF; {script}")
        for conversation in count():
            for table, values in rows(conversation):
                marks = ", ".join("?" * len(values))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608  (ours)
            connection.commit()
            if path.stat().st_size >= size:
                return


def mem0(path: Path, size: int) -> None:
    """Write memories of Mem0, one a line."""
    lines(
        path,
        size,
        lambda c: ({"id": f"{c}-{m}", "memory": text(c, m), "user_id": "a"} for m in range(MESSAGES)),
    )


def mem0_answer(path: Path, size: int) -> None:
    """Write memories of Mem0 as one answer, which is read as a whole."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for memory in count():
            value = {"id": f"{memory}", "memory": text(memory, 0), "user_id": "a"}
            file.write(f"{',' if memory else ''}{json.dumps(value)}\n")
            if file.tell() >= size:
                file.write("]}")
                return


def mem0_history(path: Path, size: int) -> None:
    """Make the history of Mem0's open-source version."""
    script = "CREATE TABLE history (id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted)"
    database(
        path,
        size,
        script,
        lambda c: (
            ("history", (f"{c}-{m}", f"{c}-{m}", None, text(c, m), "ADD", AT, None, 0))
            for m in range(MESSAGES)
        ),
    )


def supermemory(path: Path, size: int) -> None:
    """Write answers of Supermemory as one list."""
    elements(
        path,
        size,
        lambda c: iter(
            [
                {
                    "memoryEntries": [
                        {"id": f"{c}-{m}", "memory": text(c, m), "isLatest": True} for m in range(MESSAGES)
                    ]
                }
            ]
        ),
    )


def zep(path: Path, size: int) -> None:
    """Write threads of Zep as one list."""
    elements(
        path,
        size,
        lambda c: iter(
            [
                {
                    "thread_id": f"t{c}",
                    "messages": [
                        {"uuid": f"{c}-{m}", "role": role(m), "content": text(c, m), "created_at": AT}
                        for m in range(MESSAGES)
                    ],
                }
            ]
        ),
    )


def letta(path: Path, size: int) -> None:
    """Make the database of Letta's server, with an agent for each conversation."""
    script = (
        "CREATE TABLE agents (id, name, created_at); CREATE TABLE messages (id, role, text, content, tool_calls,"
        " tool_call_id, agent_id, created_at, sequence_id); CREATE INDEX of_agent ON messages (agent_id)"
    )

    def rows(c: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "agents", (f"a{c}", "Sam", AT)
        for m in range(MESSAGES):
            content = json.dumps([{"type": "text", "text": text(c, m)}])
            yield "messages", (f"{c}-{m}", role(m), None, content, "[]", None, f"a{c}", AT, m)

    database(path, size, script, rows)


def langgraph(path: Path, size: int) -> None:
    """Make checkpoints of LangGraph, with a thread for each conversation, and eight states for each thread."""
    script = (
        "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,"
        " PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"
    )

    def rows(c: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        said = [
            {"type": ("human", "ai")[m % 2], "content": text(c, m), "id": f"{c}-{m}"} for m in range(MESSAGES)
        ]
        for step in range(8):
            value = ormsgpack.packb(
                {"ts": AT, "channel_values": {"messages": said[: (step + 1) * MESSAGES // 8]}}
            )
            yield "checkpoints", (f"t{c}", "", f"{step}", f"{step - 1}" if step else None, "msgpack", value)

    database(path, size, script, rows)


def langgraph_dump(path: Path, size: int) -> None:
    """Write a dump of PostgreSQL with a store of LangGraph."""
    with path.open("w", encoding="utf-8") as file:
        file.write("--\n-- PostgreSQL database dump\n--\n\n")
        file.write("COPY public.store (prefix, key, value, created_at, updated_at) FROM stdin;\n")
        for item in count():
            file.write(f"a\t{item}\t{json.dumps({'text': text(item, 0)})}\t{AT}\t{AT}\n")
            if file.tell() >= size:
                file.write("\\.\n")
                return


def llm(path: Path, size: int) -> None:
    """Make a database of llm, with a conversation for each."""
    script = (
        "CREATE TABLE conversations (id, name, model); CREATE TABLE responses (id, model, prompt, response,"
        " conversation_id, datetime_utc); CREATE INDEX of_one ON responses (coalesce(conversation_id, id))"
    )
    database(
        path,
        size,
        script,
        lambda c: (
            ("responses", (f"{c:09}-{m:03}", "gpt", text(c, m), text(c, m + 1), f"{c}", AT))
            for m in range(0, MESSAGES, 2)
        ),
    )


def openai_agents(path: Path, size: int) -> None:
    """Make a database of the OpenAI Agents SDK."""
    script = (
        "CREATE TABLE agent_sessions (session_id, created_at, updated_at); CREATE TABLE agent_messages (id INTEGER"
        " PRIMARY KEY, session_id, message_data, created_at); CREATE INDEX of_one ON agent_messages (session_id)"
    )

    def rows(c: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "agent_sessions", (f"{c}", AT, AT)
        for m in range(MESSAGES):
            yield "agent_messages", (None, f"{c}", json.dumps({"role": role(m), "content": text(c, m)}), AT)

    database(path, size, script, rows)


def cursor(path: Path, size: int) -> None:
    """Make a database of Cursor."""
    script = "CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)"

    def rows(c: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        headers = [{"bubbleId": f"{m}"} for m in range(MESSAGES)]
        value = {"composerId": f"{c}", "createdAt": 1788256800000, "fullConversationHeadersOnly": headers}
        yield "cursorDiskKV", (f"composerData:{c}", json.dumps(value))
        for m in range(MESSAGES):
            bubble = {"type": 1 + m % 2, "bubbleId": f"{m}", "text": text(c, m)}
            yield "cursorDiskKV", (f"bubbleId:{c}:{m}", json.dumps(bubble))

    database(path, size, script, rows)


def mcp_memory(path: Path, size: int) -> None:
    """Write a graph of the memory server of MCP."""
    lines(
        path,
        size,
        lambda c: iter(
            [{"type": "entity", "name": f"e{c}", "entityType": "x", "observations": [text(c, 0)]}]
        ),
    )


FORMATS: dict[str, Callable[[Path, int], None]] = {
    "cursor": cursor,
    "langgraph": langgraph,
    "langgraph, dump of PostgreSQL": langgraph_dump,
    "letta, server": letta,
    "llm": llm,
    "mcp-memory": mcp_memory,
    "mem0": mem0,
    "mem0, one answer": mem0_answer,
    "mem0, history.db": mem0_history,
    "openai-agents": openai_agents,
    "supermemory": supermemory,
    "zep": zep,
}


def growth(name: str, size: int) -> tuple[float, int]:
    """Return by how many megabytes reading a file of this size grows a process, and the number of parts that it read."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small"), Path(folder, "large")
        FORMATS[name](small, 1)
        FORMATS[name](large, size)
        command = [sys.executable, "-c", READ, str(small), str(large)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, stored = done.stdout.split()
    return int(grown) / 1024, int(stored)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "formats", nargs="*", metavar="FORMAT", help=f"one of {', '.join(FORMATS)}; default: all"
    )
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: growth(name, options.megabytes * 2**20) for name in options.formats or FORMATS}
    if options.json:
        print(
            json.dumps({name: {"grown_mb": grown, "parts": parts} for name, (grown, parts) in found.items()})
        )
        return
    print(f"| format, {options.megabytes} MB | grows by, MB | parts |\n|---|---|---|")
    for name, (grown, parts) in found.items():
        print(f"| {name} | {grown:.1f} | {parts:,} |")


if __name__ == "__main__":
    main()
