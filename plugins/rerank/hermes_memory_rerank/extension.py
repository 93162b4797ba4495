"""Entry module of the extension `rerank`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import hookimpl


@hookimpl
def on_home_opened(memory: Any) -> None:
    """Let the server of `recall.rerank` order what the searches of this memory find."""
    if memory.config.recall.rerank == "http":
        # Imported here: most homes have no such server.
        from hermes_memory_rerank.reranker import make_reranker

        memory.sessions.past.reranker = reranker = make_reranker(memory.config.recall, memory.home)
        memory.internals.at_close.callback(reranker.close)


@hookimpl
def examine(home: Path, config: Any, trial: bool) -> Iterable[Any]:
    """Return findings about the server; with `trial`, send it a test."""
    from hermes_memory_rerank.doctor import examine_server

    return examine_server(home, config.recall, trial=trial)
