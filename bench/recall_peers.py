"""Systems of others, asked the same as ours: each runs in a process of the environment where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from recall_scores import Ask, Conversation
from recall_systems import System, line_of

from hermes_memory_eval.baseline import any_of

SERVER = Path(__file__).with_name("recall_peer_server.py")

ASKED: dict[str, tuple[str, Callable[[str], str]]] = {
    "hermes-session-search": ("hermes-session-search", str),
    "hermes-session-search-or": ("hermes-session-search", lambda question: any_of(question) or question),
    "hermes-holographic": ("hermes-holographic", str),
    "mem0": ("mem0", str),
}
"""What stands in the tables: the peer's system, and what is made of the question before it is asked. Session search is
asked the question as it stands, and, as a model might that knows FTS5, its content words joined by OR.
"""


class Peer:
    """The systems that are installed in the environment at `environment`; `home` is a folder of theirs."""

    def __init__(self, environment: Path, home: Path) -> None:
        home.mkdir()
        self._process = subprocess.Popen(
            [environment / "bin" / "python", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(home / "stderr").open("w"),
            text=True,
            # One thread of arithmetic: the same sums each time, and no threads that wait for one another.
            env={**os.environ, "HERMES_HOME": str(home), "HOME": str(home), "OMP_NUM_THREADS": "1"},
            cwd=home,
        )
        self._home = home
        installed = self._ask("systems", None)
        if not installed:
            raise SystemExit(
                f"{str(environment)!r} holds none of the peers: install hermes-agent or mem0ai there"
            )
        self.systems: dict[str, System] = {
            name: partial(self._answering, kind, form)
            for name, (kind, form) in ASKED.items()
            if kind in installed
        }

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    @contextmanager
    def _answering(
        self, kind: str, form: Callable[[str], str], conversation: Conversation, folder: Path, **_: object
    ) -> Iterator[Ask]:
        self._ask("open", [kind, str(folder)])
        self._ask(
            "add",
            [
                {
                    "session": session,
                    "role": m.role,
                    "text": line_of(m),
                    "ref": m.ref,
                    "timestamp": m.timestamp,
                }
                for session, m in conversation.messages()
            ],
        )
        yield lambda question, k: list(self._ask("ask", [form(question), k]))

    def _ask(self, name: str, argument: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([name, argument]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            said = (self._home / "stderr").read_text().strip().splitlines()
            raise SystemExit(
                f"a peer ended ({self._process.wait()}): {said[-1] if said else 'no reason given'}"
            )
        return json.loads(answer)
