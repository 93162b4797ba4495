"""What the agent needs of a model, of ours or of the host's, and how it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from hermes_core.agent.answer import Answer, Chat, behind_thoughts
from hermes_core.agent.cancel import Cancel, Cancelled
from hermes_core.agent.given import refused
from hermes_core.errors import ModelError
from hermes_core.manager.call import attempt, ends_program

log = logging.getLogger(__name__)

Hear = Callable[[str], None]


def unheard(text: str) -> None:
    """For those who want the answer only when it is whole."""
    del text


class ChatModel(Protocol):
    """What the agent needs of a model, ours or a host's own. It is asked from several threads: a look back runs beside the
    conversation.
    """

    @property
    def name(self) -> str:
        """Name of the model, as stored with a session."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens that a request and its answer may have together."""
        ...

    def complete(
        self, messages: Sequence[Chat], tools: Sequence[dict[str, Any]], *, hear: Hear, cancel: Cancel
    ) -> Answer:
        """Answer a conversation; `hear` gets the text as it comes, on the calling thread.

        Raises `ModelError`; what else it raises is logged, and told as one. When `cancel` is thrown it ends soon, and whatever
        it raises then is taken for that.
        """
        ...


def require_model(name: str, value: object) -> None:
    """Raises `ConfigError` for what is no `ChatModel`, as the name of one and its settings are."""
    known = isinstance(getattr(value, "name", None), str) and callable(getattr(value, "complete", None))
    if not known or not isinstance(getattr(value, "context_length", None), int):
        raise refused(name, value, "OpenAIModel(ModelSettings(base_url, name)), or a ChatModel of your own")


def say(model: ChatModel, messages: Sequence[Chat], cancel: Cancel) -> Answer:
    """Ask without tools and without anyone listening."""
    answer = answer_of(model, messages, (), hear=unheard, cancel=cancel)
    return replace(answer, text=behind_thoughts(answer.text))


def answer_of(
    model: ChatModel, messages: Sequence[Chat], tools: Sequence[dict[str, Any]], *, hear: Hear, cancel: Cancel
) -> Answer:
    """What a model answers, who may be the host's own: a failure of another kind, and an answer that is none, is a
    `ModelError` too, and what it raises once `cancel` is thrown a `Cancelled`. What `hear` raises comes back as it is.
    """
    raised: list[BaseException] = []

    def note(text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text for `hear`")
        _, fault = attempt(hear, text)
        if fault is not None:
            raised.append(fault)
            raise fault

    given = [{**message} for message in messages]  # a host's model may write into it
    answer, fault = attempt(lambda: model.complete(given, tools, hear=note, cancel=cancel))
    if isinstance(answer, Answer):
        return answer
    told = f"the model {model.name!r}"
    if fault is None:
        raise ModelError(
            f"{told} gave a {type(answer).__name__}, not an Answer", "return hermes_core.Answer(text, calls)"
        )
    if fault in raised or isinstance(fault, Cancelled) or ends_program(fault):
        raise fault
    if cancel.is_set():
        raise Cancelled from fault  # it hung up, and its client calls that a failure
    if isinstance(fault, ModelError):
        raise fault
    log.warning("%s failed", told, exc_info=fault)
    raise ModelError(f"{told} failed: {type(fault).__name__}: {fault}", "the log says where") from fault
