from __future__ import annotations

from typing import Any

from hermes_memory_agent import Answer
from hermes_memory_agent.cancel import Cancel
from hermes_memory_agent.configured import summariser


class Reader:
    name = "reader"
    context_length = 1000

    def complete(self, messages: Any, tools: Any, *, on_text: Any, cancel: Cancel) -> Answer:
        assert list(tools) == []
        return Answer(f"Hm, which?\n</think>\n\n  asked: {messages[-1]['content']}  ")


def test_a_passage_is_summarised_for_the_question_by_the_model_without_tools() -> None:
    summary = summariser(Reader())("Mel: the key hangs behind Ostrander", "Where is the key?")
    assert summary.startswith("asked:")
    assert "Where is the key?" in summary
    assert "behind Ostrander" in summary
