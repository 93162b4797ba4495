"""The awaitable twin of the memory, as a server on asyncio uses it."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from hermes_core import MemoryProvider, Query, Session, Turn, open_memory, open_memory_async
from hermes_core.aio import AsyncMemory, Threads
from hermes_core.errors import ConfigError, SessionError
from hermes_core.home import HermesHome

TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")


class Gate(MemoryProvider):
    """A provider whose recall and writes wait for the test."""

    name = "gate"

    def __init__(self) -> None:
        self.open, self.asked = threading.Event(), threading.Event()
        self.turns: list[Turn] = []
        self.traces: list[str] = []
        self.queries: list[str] = []

    def prefetch(self, query: Query) -> str:
        self.traces.append(TRACE.get())
        self.queries.append(query.text)
        self.asked.set()
        self.open.wait(20)
        return f"recalled for {query.text}"

    def sync_turn(self, turn: Turn) -> None:
        self.turns.append(turn)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; the limit of the test ends a wait for something that never comes."""
    while not condition():
        await asyncio.sleep(0.005)


def run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


def test_a_turn_is_begun_and_finished_without_blocking_the_loop(hermes_home: HermesHome) -> None:
    async def test() -> None:
        async with open_memory_async(config={"recall": {"sessions": "auto"}}) as memory:
            first = await memory.conversation(platform="app", user_id="ann")
            turn = await first.turn("The key is under the pot.")
            await turn.add({"role": "assistant", "content": "Let me note that."})
            saved = await turn.call_tool("memory", {"action": "add", "content": "Has a pot"})
            assert saved.ok
            await turn.finish("Noted.")
            await first.state.set("step", 1)
            assert await first.state.all() == {"step": 1}

            second = await memory.conversation(platform="app", user_id="ann")
            turn = await second.turn("Where is the key?")
            assert "under the pot" in turn.messages[-1]["content"]
            assert turn.tools()[0]["type"] == "function"
            await turn.finish("Under the pot.")
            assert len(await second.history()) == 2
            assert (await memory.sessions.past.search("pot", everybody=True))[0].text
            assert (await memory.recall("Where is the key?", session=second.session)).results
            await second.end()
            assert await memory.problems() == []

    async def watched() -> None:
        with blockbuster_ctx():
            await test()

    run(watched)


def test_a_wait_for_recall_takes_no_thread(hermes_home: HermesHome, gate: Gate) -> None:
    async def test() -> None:
        async with open_memory_async(provider=gate, threads=1, deadlines={"prefetch": 30}) as memory:
            session = await memory.start_session()
            turn = asyncio.create_task(memory.begin_turn(session, "tea"))
            await until(gate.asked.is_set)
            # The only thread is free for others, and so is asyncio's own executor.
            assert await memory.sessions.get_session(session.id) is not None
            await asyncio.get_running_loop().getaddrinfo("localhost", 80)
            gate.open.set()
            assert "recalled for tea" in (await turn).context

    run(test)


def test_context_variables_reach_the_provider(hermes_home: HermesHome, gate: Gate) -> None:
    async def test() -> None:
        gate.open.set()
        async with open_memory_async(provider=gate) as memory:
            TRACE.set("span-1")
            await (await memory.conversation()).turn("tea")

    run(test)
    assert gate.traces == ["span-1"]


def test_a_cancelled_recall_is_withdrawn(hermes_home: HermesHome, gate: Gate) -> None:
    async def test() -> None:
        async with open_memory_async(provider=gate, deadlines={"prefetch": 30}) as memory:
            chat = await memory.conversation()
            running = asyncio.create_task(chat.turn("first"))
            await until(gate.asked.is_set)
            session = await memory.start_session()
            waiting = asyncio.create_task(memory.begin_turn(session, "second"))
            await asyncio.sleep(0.2)
            for task in (waiting, running):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            gate.open.set()
            assert (await memory.begin_turn(session, "third")).context

            # The turn that was cancelled while it began is not open any more.
            def open_turns() -> int:
                rows = memory.memory.sessions.database.execute("SELECT count(*) FROM open_turns")
                return int(rows.fetchone()[0])

            await until(lambda: open_turns() == 0)

    run(test)
    assert "second" not in gate.queries


@pytest.mark.parametrize("cancels", [1, 3])
def test_a_cancelled_write_is_completed_first(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, cancels: int
) -> None:
    began, go_on = threading.Event(), threading.Event()

    async def test() -> None:
        async with open_memory_async() as memory:
            chat = await memory.conversation("c")
            turn = await chat.turn("The key is under the pot.")
            store = memory.memory.sessions.append_turn

            def slow(*arguments: Any, **keywords: Any) -> Any:
                began.set()
                go_on.wait(20)
                return store(*arguments, **keywords)

            monkeypatch.setattr(memory.memory.sessions, "append_turn", slow)
            task = asyncio.create_task(turn.finish("Noted."))
            await until(began.is_set)
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0.02)
                assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [message.content for message in await chat.history()] == [
                "The key is under the pot.",
                "Noted.",
            ]

    run(test)


def test_an_error_reaches_the_task(hermes_home: HermesHome) -> None:
    async def test() -> None:
        async with open_memory_async() as memory:
            chat = await memory.conversation()
            with pytest.raises(SessionError, match="is not open"):
                await chat.resume("none")
            turn = await chat.turn("hello")
            await turn.cancel()
            with pytest.raises(SessionError, match="is not open"):
                await turn.finish("hi")

    run(test)


def test_one_memory_serves_several_event_loops(hermes_home: HermesHome) -> None:
    texts: list[str] = []
    with open_memory() as memory:
        twin = AsyncMemory(memory)

        async def one_turn(number: int) -> None:
            turn = await (await twin.conversation(f"c{number}")).turn(f"question {number}")
            await turn.finish("answer")
            texts.extend(message.content for message in await twin.sessions.get_messages(f"c{number}"))

        threads = [threading.Thread(target=asyncio.run, args=(one_turn(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(one_turn(9))
    assert sorted(texts) == sorted([*(f"question {number}" for number in (0, 1, 2, 3, 9)), *["answer"] * 5])


def test_many_people_at_once_get_their_own_recall(hermes_home: HermesHome) -> None:
    class Echo(MemoryProvider):
        name = "echo"

        async def prefetch(self, query: Query, session: Session) -> str:
            await asyncio.sleep(0.01)
            return f"{session.user_id} asked {query.text}"

    async def test() -> None:
        async with open_memory_async(provider=Echo(), deadlines={"prefetch": 30}) as memory:

            async def ask(user: str) -> str:
                chat = await memory.conversation(platform="app", user_id=user)
                turn = await chat.turn(f"question of {user}")
                await turn.finish("ok")
                return turn.recall.context

            users = [f"user-{number}" for number in range(20)]
            for user, context in zip(users, await asyncio.gather(*map(ask, users)), strict=True):
                assert f"{user} asked question of {user}" in context
                assert context.count("asked") == 1

    run(test)


def test_a_deep_copy_is_the_same_memory(hermes_home: HermesHome) -> None:
    async def test() -> None:
        async with open_memory_async() as memory:
            assert copy.deepcopy({"memory": memory})["memory"] is memory

    run(test)


def test_threads_are_bounded_and_refuse_calls_after_they_are_closed() -> None:
    threads, go_on = Threads(2), threading.Event()
    before = threading.active_count()
    futures = [threads.submit(lambda: go_on.wait(20)) for _ in range(5)]
    assert threading.active_count() <= before + 2
    go_on.set()
    assert all(future.result(20) for future in futures)
    threads.close()
    with pytest.raises(RuntimeError, match="is closed"):
        threads.submit(lambda: True)


def test_closing_twice_is_no_error_and_no_thread_stays(hermes_home: HermesHome) -> None:
    async def test() -> None:
        async with open_memory_async() as memory:
            await memory.close()
        with pytest.raises(ConfigError):
            async with open_memory_async(config={"recall": {"budget": "x"}}):
                pass
        await until(lambda: not any(t.name == "hermes-aio" for t in set(threading.enumerate()) - before))

    before = set(threading.enumerate())
    run(test)
    with pytest.raises(ValueError, match="give 1 or more"):
        Threads(0)


def test_a_cancelled_turn_whose_id_a_retry_continues_stays_open(hermes_home: HermesHome, gate: Gate) -> None:
    async def test() -> None:
        async with open_memory_async(provider=gate, deadlines={"prefetch": 30}) as memory:
            chat = await memory.conversation("c")
            first = asyncio.create_task(chat.turn("q", turn_id="T"))
            await until(gate.asked.is_set)
            retry = asyncio.create_task(chat.turn("q", turn_id="T"))
            await asyncio.sleep(0.1)
            first.cancel()
            gate.open.set()
            turn = await retry
            await turn.finish("A")
            assert len(await chat.history()) == 2

    run(test)


def test_all_twins_of_a_memory_share_threads(hermes_home: HermesHome) -> None:
    async def talk(number: int) -> None:
        chat = await AsyncMemory(memory).conversation(f"c{number}")
        await (await chat.turn("Hello")).finish("Hi.")

    # Threads of earlier tests may end meanwhile.
    others = set(threading.enumerate())
    with open_memory(hermes_home.path, provider="") as memory:
        AsyncMemory(memory, threads=Threads(1))
        for number in range(4):
            asyncio.run(talk(number))
        threads = set(threading.enumerate()) - others
        assert [thread.name for thread in threads].count("hermes-aio") == 1
