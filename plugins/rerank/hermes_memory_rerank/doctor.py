"""Findings about the server of `recall.rerank`."""

from __future__ import annotations

import time
from pathlib import Path

from hermes_core import HermesHome
from hermes_core.config import RecallConfig
from hermes_core.errors import HermesError
from hermes_core.health.finding import Finding, failed
from hermes_memory_rerank.server import RerankServer

WHAT = "reranking"

# A question and texts that a model must tell apart.
QUESTION = "What colour is the sky?"
TEXTS = ("The sky is blue.", "The train leaves at nine.")


def examine_server(home: Path, recall: RecallConfig, *, trial: bool) -> list[Finding]:
    """Return the findings about the server; with `trial`, after a question to it."""
    if recall.rerank != "http":
        unused = next((name for name in ("url", "model") if getattr(recall, f"rerank_{name}")), "")
        if not unused:
            return []
        detail = f"recall.rerank_{unused} is set without effect, because recall.rerank is {recall.rerank!r}"
        return [
            Finding(
                WHAT,
                "warning",
                detail,
                f"hermes-memory config set recall.rerank http, or unset recall.rerank_{unused}",
            )
        ]
    began = time.monotonic()
    try:
        server = RerankServer(recall, HermesHome(home))
        try:
            if not trial:
                return [Finding(WHAT, "ok", f"by {server.label}")]
            best, other = server.scores(QUESTION, TEXTS, recall.deadline)
        finally:
            server.close()
    except HermesError as exc:
        return [failed(WHAT, exc.message, exc.remedy or "or set recall.rerank to off")]
    seconds = time.monotonic() - began
    if best <= other:
        detail = f"{server.label} finds {TEXTS[1]!r} the better answer to {QUESTION!r}"
        return [Finding(WHAT, "warning", detail, "see that its model is a reranking model")]
    return [Finding(WHAT, "ok", f"by {server.label}, which answered in {seconds:.2f} s")]
