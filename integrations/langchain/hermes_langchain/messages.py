"""Requests with memory, and answers without recall that the model repeats."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AIMessageChunk, SystemMessage

from hermes_core import AsyncOpenTurn, OpenTurn, StreamingContextScrubber, TurnRecall
from hermes_langchain.runs import OWN_ANSWER, recall_of


def with_memory(request: ModelRequest[Any], turn: OpenTurn | AsyncOpenTurn, asked: str) -> ModelRequest[Any]:
    """Return a request with the notes after the system prompt, and recall in the person's message.

    Args:
        request: The request.
        turn: The turn.
        asked: Id of the person's message; "" for an agent that another agent asks.
    """
    notes = next((m["content"] for m in turn.messages if m["role"] == "system"), "")
    messages = [
        message.model_copy(update={"content": turn.recall.inject(message.content)})
        if asked and message.id == asked
        else message
        for message in request.messages
    ]
    own = request.system_message
    if not notes or own is None or not own.content:
        system = SystemMessage(notes) if notes else own
    elif isinstance(own.content, str):
        system = own.model_copy(update={"content": f"{own.content}\n\n{notes}"})
    else:  # blocks may have marks, such as that of a cache
        system = own.model_copy(update={"content": [*own.content, {"type": "text", "text": notes}]})
    return request.override(messages=messages, system_message=system)


def scrubbed(response: ModelResponse[Any], recall: TurnRecall | None) -> ModelResponse[Any]:
    """Return a response without the recall of its request in its answers, which are marked as answers of the turn."""
    for at, message in enumerate(response.result):
        if isinstance(message, AIMessage) and recall is not None:
            content = _scrubbed_content(message.content, recall.scrubber(), end=True)
            metadata = {**message.response_metadata, OWN_ANSWER: True}
            clean = message.model_copy(update={"content": content, "response_metadata": metadata})
            response.result[at] = clean
    return response


class _Tokens:
    """The scrubbers of a stream of tokens, one for each message."""

    def __init__(self) -> None:
        self._open: dict[str | None, tuple[StreamingContextScrubber, tuple[Any, Any]]] = {}

    def feed(self, item: Any) -> Any:
        """Return an item of a stream without recall."""
        if isinstance(item, dict):  # the second version of streams
            return {**item, "data": self.feed(item["data"])} if item.get("type") == "messages" else item
        if not isinstance(item, tuple) or not item:
            return item
        if len(item) == 2 and isinstance(item[0], AIMessage):
            chunk, metadata = item
            recall = recall_of(metadata)
            if recall is None:  # an agent without memory
                return item
            scrubber = self._open.setdefault(chunk.id, (recall.scrubber(), item))[0]
            self._open[chunk.id] = scrubber, item
            end = not isinstance(chunk, AIMessageChunk) or getattr(chunk, "chunk_position", None) == "last"
            if end:
                del self._open[chunk.id]
            content = _scrubbed_content(chunk.content, scrubber, end=end)
            return chunk.model_copy(update={"content": content}), metadata
        # With several modes or subgraphs, the mode stands before the pair.
        return (*item[:-1], self.feed(item[-1])) if len(item) > 1 and item[-2] == "messages" else item

    def rest(self) -> Iterator[Any]:
        """Yield the text that was held back in messages without an end."""
        for scrubber, (chunk, metadata) in self._open.values():
            if text := scrubber.flush():
                yield chunk.model_copy(update={"content": text}), metadata


def scrub_messages(stream: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of `agent.stream(..., stream_mode="messages")` without recall that the model repeats.

    Items of other modes pass as they are.
    """
    tokens = _Tokens()
    for item in stream:
        yield tokens.feed(item)
    yield from tokens.rest()


async def ascrub_messages(stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Yield the items of `agent.astream(..., stream_mode="messages")`; see `scrub_messages`."""
    tokens = _Tokens()
    async for item in stream:
        yield tokens.feed(item)
    for item in tokens.rest():
        yield item


def _scrubbed_content(content: Any, scrubber: StreamingContextScrubber, *, end: bool) -> Any:
    """Return the content of a message or chunk without recall, which may begin in one block and end in another."""
    if isinstance(content, str):
        return scrubber.feed(content) + (scrubber.flush() if end else "")
    blocks: list[Any] = []
    for block in content:
        if isinstance(block, str):
            blocks.append({"type": "text", "text": scrubber.feed(block)})
        elif block.get("type") == "text" and isinstance(block.get("text"), str):
            blocks.append({**block, "text": scrubber.feed(block["text"])})
        else:
            blocks.append(block)
    if end and (rest := scrubber.flush()):
        blocks.append({"type": "text", "text": rest})
    return [block for block in blocks if block.get("type") != "text" or block.get("text")]
