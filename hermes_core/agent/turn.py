"""One turn: what the agent knows of it while it is under way, and what came of it."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from hermes_core.agent.answer import ECHO, KEPT_BACK, Chat, Usage
from hermes_core.contract.values import Message
from hermes_core.errors import SessionError
from hermes_core.manager.manager import RecallResult
from hermes_core.recalled import TurnRecall
from hermes_core.safety.fence import sanitize_context
from hermes_core.sessions.records import text_of, turn_ref

MAX_TITLE = 60

Said = str | Sequence[Mapping[str, Any]]
"""What a person says: text, or OpenAI content parts, text and pictures."""

TurnOutcome = Literal["answered", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of a turn. `text` is what the person saw; `problems` say what of memory or model did not work; `usage` is of
    the turn's own requests, a subagent's is counted with the session of the subagent. `recall` tells of each provider,
    `contexts` are (label, text) of all that was recalled, of past sessions too.
    """

    text: str
    outcome: TurnOutcome
    session_id: str
    turn_id: str
    recall: RecallResult = field(default_factory=RecallResult)
    problems: tuple[str, ...] = ()
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    contexts: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Turn:
    """A turn under way: its messages so far, the person's first, stored as `message_id`. `text` is what recall, titles
    and providers see of `content`.
    """

    text: str
    author: str
    content: Any = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    messages: list[Chat] = field(default_factory=list)
    message_id: int = 0
    recall: TurnRecall | None = None
    answer: str = ""
    outcome: TurnOutcome = "failed"
    used_memory: bool = False

    @classmethod
    def of(cls, said: Said, author: str = "") -> Turn:
        """The turn that begins with this, free of fences."""
        content: Any
        if isinstance(said, str):
            content = sanitize_context(said)
        elif isinstance(said, Sequence) and all(isinstance(part, Mapping) for part in said):
            content = [_checked(part) for part in said if isinstance(part, Mapping)]
        else:
            raise SessionError(
                f"a turn is a text or a list of content parts, not {said!r}", "write a message"
            )
        return cls(text_of(content), author, content)

    def keep(self, message: Chat) -> str:
        """Take note of a message; returns the reference under which it is stored once, however often that is tried."""
        ref = turn_ref(self.id, len(self.messages))
        self.messages.append({**message, "ref": ref})
        calls = message.get("tool_calls", ())
        self.used_memory = self.used_memory or any(call["function"]["name"] == "memory" for call in calls)
        return ref

    def speaker_of(self, message: Chat) -> str:
        """Who said a message of it: the person's are the author's."""
        return self.author if message["role"] == "user" else ""

    def chat(self) -> list[Chat]:
        """Its messages as the next request carries them."""
        return [{key: value for key, value in message.items() if key != "ref"} for message in self.messages]

    def kept_back(self) -> list[Chat]:
        """As `chat`, of a turn that no provider is to be told of."""
        both = zip(self.chat(), self.messages, strict=True)
        return [{**message, KEPT_BACK: stored["ref"]} for message, stored in both]

    def stored(self) -> list[Message]:
        """Its messages as they are stored and as providers get them: text, without the model's thoughts."""
        return [_plain(message) for message in self.messages]

    def result(self, session_id: str, problems: Sequence[str], tool_calls: int, usage: Usage) -> TurnResult:
        """What came of it, with what its recall and the agent say of `problems`."""
        recall = self.recall or TurnRecall(RecallResult(), ())
        told = tuple(dict.fromkeys((*recall.problems, *problems)))
        return TurnResult(
            self.seen(),
            self.outcome,
            session_id,
            self.id,
            recall.recall,
            told,
            tool_calls,
            usage,
            recall.contexts,
        )

    def seen(self) -> str:
        """What the person saw of it."""
        said = [text_of(m.get("content")) for m in self.messages if m["role"] == "assistant"]
        return self.answer or "".join(said)


def _checked(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part without a fence. Raises `SessionError` for one that would fail every later request too."""
    text = part.get("text")
    kept = {**part, "text": sanitize_context(text)} if isinstance(text, str) else dict(part)
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        json.dumps(kept, allow_nan=False)
        if isinstance(kept.get("type"), str):
            return kept
    raise SessionError(
        f"no content part is {str(kept)[:200]}",
        "give its type, and what can be written as JSON: bytes as a data URL",
    )


def title_of(text: str) -> str:
    """The beginning of a conversation as its title."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1].rsplit(" ", 1)[0] + "…"


def _plain(message: Chat) -> Message:
    kept: dict[str, Any] = {key: value for key, value in message.items() if key not in ("reasoning", ECHO)}
    return cast(Message, {**kept, "content": text_of(message.get("content"))})
