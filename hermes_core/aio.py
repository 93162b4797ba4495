"""The awaitable twin of `Memory`, `Conversation` and `OpenTurn`, for programs on asyncio.

Work is done on daemon threads of its own, never on asyncio's default executor, which DNS look-ups need too. No thread
waits for the recall of a provider. One memory may be used from several event loops.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from hermes_core.contract.values import Session
from hermes_core.conversation import (
    ChatMessages,
    Conversation,
    OpenTurn,
    ToolForm,
    ToolResult,
    person_message,
)
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, MemoryOptions, open_memory
from hermes_core.sessions.chat_forms import MessageInput
from hermes_core.sessions.open_turns import HostState
from hermes_core.sessions.past_sessions import PastSessions
from hermes_core.sessions.records import Content
from hermes_core.sessions.session_meta import SessionMeta
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA
from hermes_core.turn import MemoryTurns
from hermes_core.turn_recall import BegunTurn, RecallReport, TurnRecall

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Wrapped = TypeVar("Wrapped", covariant=True)

DEFAULT_THREADS = 32
"""Calls that run at once; further ones wait for a thread."""


class Threads:
    """Daemon threads for calls that block. A thread is started if all are busy, up to a limit.

    The threads of `concurrent.futures` would keep the process from ending while a call hangs.

    Args:
        limit: Largest number of threads.
    """

    def __init__(self, limit: int = DEFAULT_THREADS) -> None:
        if limit < 1:
            raise ValueError(f"threads is {limit!r}, give 1 or more")
        self._limit = limit
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._count = self._idle = 0
        self._closed = False
        self._process = os.getpid()
        # Guards all of the above; threads wait on it for calls.
        self._changed = threading.Condition()

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Run `function` on a thread, with the context variables of the caller.

        Raises:
            RuntimeError: The threads are closed, or the system has none left.
            DatabaseUnavailable: The process was forked.
        """
        if os.getpid() != self._process:
            raise DatabaseUnavailable("the memory was opened before this process was forked", "open it anew")
        future: Future[Result] = Future()
        context = contextvars.copy_context()
        with self._changed:
            if self._closed:
                raise RuntimeError("the memory is closed")
            self._calls.append((future, functools.partial(context.run, function)))
            if self._idle < len(self._calls) and self._count < self._limit:
                threading.Thread(target=self._run, name="hermes-aio", daemon=True).start()
                self._count += 1
            self._changed.notify()
        return future

    @property
    def closed(self) -> bool:
        """True if no more calls are accepted."""
        return self._closed

    def close(self) -> None:
        """Accept no more calls. Threads end after the calls that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._calls or self._closed)
                self._idle -= 1
                if not self._calls:
                    return
                future, function = self._calls.popleft()
            if not future.set_running_or_notify_cancel():  # the caller was cancelled before a thread was free
                continue
            try:
                future.set_result(function())
            except BaseException as exc:  # noqa: BLE001 - the task that awaits the call gets it
                future.set_exception(exc)
            del future, function

    async def read(
        self, function: Callable[[], Result], *, abandon: Callable[[Result], object] | None = None
    ) -> Result:
        """Await a call that stores nothing. If the task is cancelled, the call is withdrawn, or its result dropped.

        Args:
            abandon: Called with the result if it comes after the task was cancelled.
        """
        future = self.submit(function)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if not future.cancel() and abandon is not None:
                future.add_done_callback(lambda done: done.exception() is None and abandon(done.result()))
            raise

    async def write(self, function: Callable[[], Result]) -> Result:
        """Await a call that stores something. If the task is cancelled, the call completes first."""
        waiter = asyncio.wrap_future(self.submit(function))
        cancelled: asyncio.CancelledError | None = None
        while not waiter.done():
            try:
                await asyncio.wait({waiter})
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:
            if (failure := waiter.exception()) is not None:
                log.error("a write failed after its task was cancelled: %s", failure)
                raise cancelled from failure
            raise cancelled
        return waiter.result()


# A host makes a twin for each agent or request.
_threads_of_memory: weakref.WeakKeyDictionary[Memory, Threads] = weakref.WeakKeyDictionary()


def _threads_of(memory: Memory, threads: Threads | None) -> Threads:
    """Return the threads that all twins of a memory share. They end with the memory.

    Args:
        memory: The memory.
        threads: The threads, if the memory has none yet; default: new ones.
    """
    pool = threads or Threads()
    shared = _threads_of_memory.setdefault(memory, pool)
    if shared is pool:
        weakref.finalize(memory, shared.close)
    return threads or shared


class _Twin(Generic[Wrapped]):
    """An object whose methods are called on threads."""

    def __init__(self, wrapped: Wrapped, threads: Threads) -> None:
        self._wrapped = wrapped
        self._threads = threads


def _reading(
    method: Callable[Concatenate[Wrapped, Parameters], Result],
) -> Callable[Concatenate[_Twin[Wrapped], Parameters], Coroutine[Any, Any, Result]]:
    """Return the awaitable twin of a method that stores nothing."""

    @functools.wraps(method)
    async def call(self: _Twin[Wrapped], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await self._threads.read(functools.partial(method, self._wrapped, *args, **kwargs))

    return call


def _writing(
    method: Callable[Concatenate[Wrapped, Parameters], Result],
) -> Callable[Concatenate[_Twin[Wrapped], Parameters], Coroutine[Any, Any, Result]]:
    """Return the awaitable twin of a method that stores something."""

    @functools.wraps(method)
    async def call(self: _Twin[Wrapped], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await self._threads.write(functools.partial(method, self._wrapped, *args, **kwargs))

    return call


def _like(
    method: Callable[Concatenate[Any, Parameters], Any],
) -> Callable[
    [Callable[..., Coroutine[Any, Any, Result]]],
    Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]],
]:
    """Return a decorator that gives an awaitable method the parameters of `method`."""

    def decorate(
        twin: Callable[..., Coroutine[Any, Any, Result]],
    ) -> Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]:
        result = inspect.signature(twin).return_annotation
        twin.__signature__ = inspect.signature(method).replace(return_annotation=result)  # type: ignore[attr-defined]
        return twin

    return decorate


async def _recall_of(pending: BegunTurn) -> None:
    """Wait for the recall of providers without a thread. If the task is cancelled, withdraw the questions."""
    try:
        for future, until in pending.recall.waits() if pending.recall is not None else ():
            await asyncio.wait({asyncio.wrap_future(future)}, timeout=max(0.0, until - time.monotonic()))
    except asyncio.CancelledError:
        pending.withdraw()
        raise


async def _recall(memory: MemoryTurns, threads: Threads, text: Content, **options: Any) -> RecallReport:
    """Return the report of `Memory.recall`, without a thread that waits for the providers."""
    recaller = memory.internals.recaller
    ask = functools.partial(recaller.ask_report, text, **options)
    pending = await threads.read(ask, abandon=BegunTurn.withdraw)
    await _recall_of(pending)
    return await threads.read(functools.partial(recaller.report, pending))


class AsyncPastSessions(_Twin[PastSessions]):
    """The awaitable twin of `SessionStore.past`."""

    search = _reading(PastSessions.search)


class AsyncSessionMeta(_Twin[SessionMeta]):
    """The awaitable twin of `SessionStore.meta`."""

    set_title = _writing(SessionMeta.set_title)


class AsyncSessions(_Twin[SessionStore]):
    """The awaitable twin of `Memory.sessions`."""

    get_session = _reading(SessionStore.get_session)
    find_session = _reading(SessionStore.find_session)
    list_sessions = _reading(SessionStore.list_sessions)
    get_messages = _reading(SessionStore.get_messages)
    get_messages_as_conversation = _reading(SessionStore.get_messages_as_conversation)
    has_turn = _reading(SessionStore.has_turn)
    append_message = _writing(SessionStore.append_message)

    @property
    def past(self) -> AsyncPastSessions:
        """The search in past sessions."""
        return AsyncPastSessions(self._wrapped.past, self._threads)

    @property
    def meta(self) -> AsyncSessionMeta:
        """The titles of sessions."""
        return AsyncSessionMeta(self._wrapped.meta, self._threads)


class AsyncState(_Twin[HostState]):
    """The awaitable twin of `Conversation.state`: JSON values by key."""

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; `default` if there is none."""
        return await self._threads.read(functools.partial(self._wrapped.get, key, default))

    async def set(self, key: str, value: Any) -> None:
        """Store a JSON value under a key. It is durable on return."""
        await self._threads.write(functools.partial(self._wrapped.__setitem__, key, value))

    async def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        await self._threads.write(functools.partial(self._wrapped.pop, key, None))

    async def all(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return await self._threads.read(functools.partial(dict, self._wrapped))


class AsyncOpenTurn(_Twin[OpenTurn]):
    """The awaitable twin of `OpenTurn`."""

    add = _writing(OpenTurn.add)
    run_tools = _writing(OpenTurn.run_tools)
    finish = _writing(OpenTurn.finish)
    cancel = _writing(OpenTurn.cancel)
    note_history = _writing(OpenTurn.note_history)

    @property
    def id(self) -> str:
        """Id of the turn, by which another process may continue it."""
        return self._wrapped.id

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._wrapped.session

    @property
    def text(self) -> str:
        """The person's message as text, without recall."""
        return self._wrapped.text

    @property
    def noted(self) -> str:
        """The line to show the person that names notes that wait; see `OpenTurn.noted`."""
        return self._wrapped.noted

    @property
    def recall(self) -> TurnRecall:
        """Recall for the person's message."""
        return self._wrapped.recall

    @property
    def problems(self) -> list[str]:
        """A sentence for each part of the memory that did not work."""
        return self._wrapped.problems

    @property
    def natives(self) -> list[Any]:
        """The messages in the form of a framework; see `OpenTurn.natives`."""
        return self._wrapped.natives

    @property
    def messages(self) -> ChatMessages:
        """The request for the model; see `OpenTurn.messages`."""
        return self._wrapped.messages

    @property
    def request_message(self) -> dict[str, Any]:
        """The person's message with the recall; see `OpenTurn.request_message`."""
        return self._wrapped.request_message

    def tools(self, form: ToolForm = "openai") -> list[Any]:
        """Return the schemas of the tools of memory; see `OpenTurn.tools`."""
        return self._wrapped.tools(form)

    def scrub(self, chunk: str, *, end: bool = False) -> str:
        """Return what the person may see of a piece of the answer; see `OpenTurn.scrub`."""
        return self._wrapped.scrub(chunk, end=end)

    async def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called; see `Conversation.call_tool`."""
        call = functools.partial(self._wrapped.call_tool, name, arguments, call_id)
        run = self._threads.read if name == SESSION_SEARCH_SCHEMA["name"] else self._threads.write
        return await run(call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Cancel the turn if an exception leaves the `async with` block; see `OpenTurn`."""
        if kind is not None:
            await self.cancel()


class AsyncConversation(_Twin[Conversation]):
    """The awaitable twin of `Conversation`."""

    history = _reading(Conversation.history)
    search = _reading(Conversation.search)
    sessions = _reading(Conversation.sessions)
    change_memory = _writing(Conversation.change_memory)
    commit = _writing(Conversation.commit)
    end = _writing(Conversation.end)
    rewind = _writing(Conversation.rewind)
    delete = _writing(Conversation.delete)

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._wrapped.id

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._wrapped.session

    @property
    def state(self) -> AsyncState:
        """JSON values of this conversation."""
        return AsyncState(self._wrapped.state, self._threads)

    @property
    def user_state(self) -> AsyncState:
        """JSON values of the user, for all their conversations."""
        return AsyncState(self._wrapped.user_state, self._threads)

    @property
    def app_state(self) -> AsyncState:
        """JSON values of the platform, for all users."""
        return AsyncState(self._wrapped.app_state, self._threads)

    async def system_prompt(self) -> str:
        """Return the notes and the provider's block; see `Conversation.system_prompt`."""
        return await self._threads.read(lambda: self._wrapped.system_prompt)

    @_like(Conversation.turn)
    async def turn(
        self, text: MessageInput, *, history: int | None = None, turn_id: str = "", **options: Any
    ) -> AsyncOpenTurn:
        """Begin a turn with the person's message; see `Conversation.turn`. If the task is cancelled, so is the turn."""
        chat = self._wrapped
        prepare = functools.partial(chat.prepare_turn, text, turn_id=turn_id, **options)
        # A turn whose id the program gave stays: a retry may have continued it already.
        drop = functools.partial(chat.drop, stays=bool(turn_id))
        begun = await self._threads.read(prepare, abandon=drop)
        try:
            await _recall_of(begun)
            turn = await self._threads.read(functools.partial(chat.open_turn, begun, history=history))
        except asyncio.CancelledError:
            self._threads.submit(functools.partial(drop, begun))
            raise
        return AsyncOpenTurn(turn, self._threads)

    @_like(Conversation.resume)
    async def resume(self, turn_id: str, **options: Any) -> AsyncOpenTurn:
        """Continue an unfinished turn; see `Conversation.resume`."""
        resume = functools.partial(self._wrapped.resume, turn_id, **options)
        return AsyncOpenTurn(await self._threads.read(resume), self._threads)

    @_like(Conversation.recall)
    async def recall(self, text: MessageInput, **options: Any) -> RecallReport:
        """Return a report of the recall that a turn with this message would get; see `Memory.recall`."""
        chat, message = self._wrapped, person_message(text)[0]
        own = {"session": chat.session, "everybody": False}
        return await _recall(chat.memory, self._threads, message, **own, **options)

    async def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called; see `Conversation.call_tool`."""
        call = functools.partial(self._wrapped.call_tool, name, arguments, call_id)
        run = self._threads.read if name == SESSION_SEARCH_SCHEMA["name"] else self._threads.write
        return await run(call)


class AsyncMemory(_Twin[Memory]):
    """The awaitable twin of `Memory`: the same names. Use `open_memory_async`, or give it an open memory.

    Attributes:
        memory: The memory, for code that may block.
        sessions: The awaitable twin of the store of sessions.

    Args:
        memory: The memory. `close` closes it.
        threads: Threads for calls that block; default: those of the memory's other twins.
    """

    def __init__(self, memory: Memory, *, threads: Threads | None = None) -> None:
        super().__init__(memory, _threads_of(memory, threads))
        self.memory = memory
        self.sessions = AsyncSessions(memory.sessions, self._threads)

    session = _reading(Memory.session)
    tool_schemas = _reading(Memory.tool_schemas)
    problems = _reading(Memory.problems)
    flush = _reading(Memory.flush)
    start_session = _writing(Memory.start_session)
    system_prompt = _writing(Memory.system_prompt)
    end_turn = _writing(Memory.end_turn)
    end_session = _writing(Memory.end_session)
    end_idle = _writing(Memory.end_idle)
    rewind = _writing(Memory.rewind)
    delete_session = _writing(Memory.delete_session)
    change_memory = _writing(Memory.change_memory)

    @_like(Memory.conversation)
    async def conversation(self, session_id: str | Session = "", **options: Any) -> AsyncConversation:
        """Return a handle on a conversation; see `Memory.conversation`."""
        make = functools.partial(self.memory.conversation, session_id, **options)
        return AsyncConversation(await self._threads.read(make), self._threads)

    @_like(Memory.begin_turn)
    async def begin_turn(self, session: Session, text: Content, **options: Any) -> TurnRecall:
        """Return the recall for the person's message; see `Memory.begin_turn`. A cancelled task withdraws it."""
        recaller = self.memory.internals.recaller
        ask = functools.partial(recaller.ask, session, text, **options)
        pending = await self._threads.read(ask, abandon=BegunTurn.withdraw)
        await _recall_of(pending)
        return await self._threads.read(functools.partial(recaller.collect, pending))

    @_like(Memory.recall)
    async def recall(self, text: Content, **options: Any) -> RecallReport:
        """Return a report of the recall that a turn with this message would get; see `Memory.recall`."""
        return await _recall(self.memory, self._threads, text, **options)

    async def call_tool(
        self, session: Session, name: str, arguments: Any, call_id: str = "", *, turn_id: str = ""
    ) -> str:
        """Run a tool that the model called; see `Memory.call_tool`. A call that may store something completes."""
        call = functools.partial(self.memory.call_tool, session, name, arguments, call_id, turn_id=turn_id)
        run = self._threads.read if name == SESSION_SEARCH_SCHEMA["name"] else self._threads.write
        return await run(call)

    async def close(self, timeout: float = 15.0) -> None:
        """Shut the providers down and close the stores; see `Memory.close`."""
        if not self._threads.closed:
            await self._threads.write(functools.partial(self.memory.close, timeout))
            self._threads.close()

    def __copy__(self) -> AsyncMemory:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> AsyncMemory:
        return self


class _Opening:
    """A memory that is about to be opened: `await` opens it, `async with` closes it too."""

    def __init__(self, opened: Callable[[], Memory], threads: int) -> None:
        self._opened, self._threads = opened, threads

    async def _open(self) -> AsyncMemory:
        pool = Threads(self._threads)
        try:
            return AsyncMemory(await pool.read(self._opened, abandon=Memory.close), threads=pool)
        except BaseException:
            pool.close()
            raise

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncMemory:
        self._memory = await self
        return self._memory

    async def __aexit__(self, *_: object) -> None:
        await self._memory.close()


def open_memory_async(
    home: str | os.PathLike[str] | HermesHome | None = None,
    *,
    profile: str | None = None,
    config: Mapping[str, Any] | None = None,
    threads: int = DEFAULT_THREADS,
    **options: Unpack[MemoryOptions],
) -> _Opening:
    """Open the memory of a home: `async with` closes it at the end of the block, after `await` its `close` does.

    Args:
        home: Folder of the home; default: HERMES_HOME, else ~/.hermes.
        profile: Name of a profile of that home.
        config: Keys as in config.yaml; they replace those of the file.
        options: As in `open_memory`.
        threads: Largest number of calls that run at once. A wait for recall needs no thread.

    Raises:
        ConfigError: config.yaml or `config` is not valid.
    """
    opening = functools.partial(open_memory, home, profile=profile, config=config, **options)
    return _Opening(opening, threads)
