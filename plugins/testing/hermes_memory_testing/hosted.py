"""Parts of the conformance tests of hosts: the script of a model, an agent of a framework, and a provider that records."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hermes_core import MemoryProvider, Recall, RecallItem, Turn

FENCE = "<memory-context>"


@dataclass(frozen=True, slots=True)
class Say:
    """An answer of the scripted model that ends the run."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the scripted model."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Break:
    """A failure of the scripted model: its request raises."""

    message: str = "the model is away"


@dataclass(frozen=True, slots=True)
class Hang:
    """A request of the scripted model that gets no answer until the run is cancelled.

    Attributes:
        reached: Event that is set when the model gets the request.
    """

    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self) -> NoReturn:
        """Wait until the run is cancelled. The scripted model of a framework calls this."""
        self.reached.set()
        await asyncio.Event().wait()
        raise AssertionError("the run was not cancelled")

    def cancel(self, run: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in an event loop of its own, and cancel it at this request."""

        async def start_and_cancel() -> None:
            task = asyncio.ensure_future(run)
            reached = asyncio.ensure_future(self.reached.wait())
            await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(start_and_cancel())
        assert self.reached.is_set(), "the run ended before this request"


Step = Say | Call | Break | Hang


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that the scripted model got.

    Attributes:
        system: The system prompt.
        messages: (role, text) of each message after the system prompt; the role of a tool result is "tool".
        tools: Names of the tools that were offered.
    """

    system: str
    messages: tuple[tuple[str, str], ...]
    tools: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All texts of the request."""
        return "\n".join((self.system, *(text for _, text in self.messages)))


def example_of(readme: Path) -> str:
    """Return the only block of Python in a README, as people copy it."""
    (example,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    return str(example)


class HostedAgent(abc.ABC):
    """An agent of a framework with the adapter under test and a scripted model.

    Attributes:
        requests: What the model got, the latest last.
        failed_tools: Texts of tool results that the framework marks as failed; None if it has no such mark.
        absent: Reasons why the framework has no such thing, by the name of the method.
    """

    absent: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.failed_tools: list[str] | None = None

    @abc.abstractmethod
    def run(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        """Run the agent on the person's message and return its answer. Raise if the model fails.

        Args:
            text: The person's message.
            session: Id of the conversation.
            user: Id of the user.
            script: What the model answers, request by request.
        """

    # What follows is of some frameworks only. `absent` names the others.

    def stream(self, text: str, *, session: str, user: str, answer: Sequence[str]) -> str:
        """Run the agent with a streamed answer in these pieces, and return what the person saw."""
        raise NotImplementedError

    def run_with_image(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> str:
        """Run the agent on a message with a text and a picture."""
        raise NotImplementedError

    def pause(self, text: str, *, session: str, user: str, call: Call, before: Sequence[Step] = ()) -> Any:
        """Run the agent until it asks a person to approve `call`, and return what `resume` needs, as JSON data.

        Args:
            before: What the model answers before that. It needs no approval.
        """
        raise NotImplementedError

    def run_cancelled(self, text: str, *, session: str, user: str, script: Sequence[Step]) -> None:
        """Run the agent on the script, and cancel the run in the request after it, which `Hang` plays."""
        raise NotImplementedError

    def resume(self, paused: Any, *, session: str, user: str, script: Sequence[Step]) -> str:
        """Approve the call of a paused run, in another process perhaps, and return the answer."""
        raise NotImplementedError

    def run_structured(self, text: str, *, session: str, user: str, city: str) -> Any:
        """Run an agent whose output is an object with the key `city`, which the model gives as the framework asks for it."""
        raise NotImplementedError

    def run_blocks(self, text: str, *, session: str, user: str, blocks: Sequence[str]) -> str:
        """Run the agent with an answer in text blocks, as the models of some vendors give it. Return the shown text."""
        raise NotImplementedError

    def run_retried(self, text: str, *, session: str, user: str, answer: str) -> str:
        """Run the agent on a model that fails first, and let the framework or its host repeat that. Return the answer."""
        raise NotImplementedError

    def run_blocked(self, text: str, *, session: str, user: str) -> None:
        """Run the agent with a guardrail that refuses the person's message. Return or raise as the framework does."""
        raise NotImplementedError

    def run_two_agents(self, text: str, *, session: str, user: str, answer: str) -> str:
        """Run two agents with memory, one after the other, as one run. The second one gives the answer, which is returned."""
        raise NotImplementedError

    def run_nested(
        self,
        text: str,
        *,
        session: str,
        user: str,
        question: str,
        answer: str,
        inner: Sequence[Step] = (Say("Oslo."),),
    ) -> str:
        """Run an agent that asks another agent with memory `question` through a tool, and then gives its answer.

        Args:
            inner: What the model of the other agent answers, request by request.
        """
        raise NotImplementedError

    def run_with_colleague(
        self, message: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        """Run the agent on a text for which another agent wrote `message`, and return the answer.

        The message comes as the framework passes the words of one agent to another.
        """
        raise NotImplementedError

    def run_late_result(
        self, result: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        """Run the agent after the tool of an earlier, answered run has given its result. Return the answer."""
        raise NotImplementedError

    def regenerate(self, *, session: str, user: str, answer: str) -> str:
        """Let the model answer the last message of the conversation again, and return this answer."""
        raise NotImplementedError

    def run_summarised(
        self, text: str, *, session: str, user: str, summary: str, script: Sequence[Step]
    ) -> str:
        """Run the agent while the framework puts `summary` in place of all earlier messages. Return the answer."""
        raise NotImplementedError

    def run_searched(
        self, text: str, *, session: str, user: str, script: Sequence[Step], cites: bool = False
    ) -> str:
        """Run the agent on a model whose own server searches the web before the first answer. Return the answer.

        Args:
            cites: True if the citations of the last answer alone show it, and no item of a search.
        """
        raise NotImplementedError

    def run_with_history(
        self, history: str, text: str, *, session: str, user: str, script: Sequence[Step]
    ) -> str:
        """Run the agent with an earlier message of the role user that the program passes. Return the answer."""
        raise NotImplementedError

    def session_id(self, session: str, user: str) -> str:
        """Return the id under which the adapter stores a conversation; default: the id of the conversation."""
        del user
        return session

    def close(self) -> None:
        """Stop what the agent started. The memory is closed by the test."""
        return


@dataclass
class Ledger(MemoryProvider):
    """A provider that recalls what was said, and records the turns it got."""

    turns: list[Turn] = field(default_factory=list)

    name = "ledger"

    def prefetch(self) -> Recall:
        """Return the person's messages of all turns."""
        return Recall(tuple(RecallItem(f"They said: {turn.user}") for turn in self.turns))

    def sync_turn(self, turn: Turn) -> None:
        """Record a turn, once."""
        if all(known.id != turn.id for known in self.turns):
            self.turns.append(turn)
