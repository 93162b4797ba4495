"""Several external providers as one: each member works by itself, and the model sees one memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import open_memory
from hermes_core.config import set_value
from hermes_core.config.keys import CompositeConfig
from hermes_core.contract.values import Delegation, MemoryWrite, Query, Recall, RecallItem, ToolCall
from hermes_core.errors import ConfigError
from hermes_core.health.status import status_of
from hermes_core.home import HermesHome
from hermes_core.manager.composite import ALL_KINDS, MAX_MEMBERS, MAX_TOOLS, routes_of
from hermes_core.manager.manager import MemoryManager, RecallPart
from hermes_core.manager.prefetch import fuse_recall
from hermes_memory_testing.fakes import SETUP, HangingProvider, RecordingProvider, make_session, make_turn
from tests.manager.conftest import Named, until

OpenManager = Callable[..., MemoryManager]

A = make_session("a")


def part_of(provider: str, *texts: str) -> RecallPart:
    return RecallPart(provider, Recall(tuple(RecallItem(text) for text in texts)), "fresh")


def composite(**lists: list[str]) -> CompositeConfig:
    return CompositeConfig(**{name: tuple(names) for name, names in lists.items()})


def texts(parts: list[RecallPart]) -> list[list[str]]:
    return [[item.text for item in part.recall.items] for part in parts]


def with_members(manager: MemoryManager, *members: RecordingProvider) -> MemoryManager:
    for member in members:
        assert manager.add_provider(member, kinds=ALL_KINDS), manager.health()
    manager.initialize_all(A)
    return manager


# ------------------------------------------------------------------------------------------------------------ members


def test_members_run_beside_each_other_and_a_provider_that_is_none_is_refused(
    open_manager: OpenManager,
) -> None:
    manager = with_members(open_manager(), Named("one"), Named("two"))
    assert not manager.add_provider(Named("three"))
    assert not manager.add_provider(Named("ONE"), kinds=ALL_KINDS)
    states = {health.name: health.reason for health in manager.health()}
    assert states["three"] == "only one external provider at a time, and 'one' is active"
    assert states["ONE"] == "'one' is a member of the composite already"


def test_a_composite_has_at_most_four_members(open_manager: OpenManager) -> None:
    manager = with_members(open_manager(), *(Named(f"p{number}") for number in range(MAX_MEMBERS)))
    assert not manager.add_provider(Named("fifth"), kinds=ALL_KINDS)
    assert manager.health()[-1].reason == "a composite has at most 4 members"


def test_a_member_that_hangs_costs_its_own_share_of_a_turn_and_only_once(open_manager: OpenManager) -> None:
    hanging, well = HangingProvider(SETUP | {"sync_turn"}), Named("well")
    manager = open_manager(deadlines={"prefetch": 2.0})
    manager.add_provider(hanging, kinds=ALL_KINDS)
    with_members(manager, well)
    try:
        waits = []
        for number in range(3):
            began = time.monotonic()
            result = manager.prefetch_all(Query(f"q{number}"), A)
            waits.append(time.monotonic() - began)
            assert ("well", f"- a: q{number}") in result.contexts
        assert [part.status for part in result.parts if part.provider == "hanging"] == ["skipped"]
        # The first turn waits one deadline. The last does not ask the member that hangs, as its status says.
        assert waits[0] >= 2.0
    finally:
        hanging.release()


def test_writes_reach_a_member_while_another_hangs(open_manager: OpenManager) -> None:
    hanging, well = HangingProvider(SETUP), Named("well")
    manager = open_manager()
    manager.add_provider(hanging, kinds=ALL_KINDS)
    with_members(manager, well)
    try:
        manager.sync_all(make_turn("t1"), A)
        manager.sync_all(make_turn("t2"), A)
        assert well.wait_for("sync_turn", 2)
        assert until(lambda: manager.outbox.backlog("well").depth == 0)
        assert manager.outbox.backlog("hanging").depth == 2
    finally:
        hanging.release()


# ------------------------------------------------------------------------------------------------------------- routes


def test_each_kind_of_write_reaches_the_members_that_take_it(open_manager: OpenManager) -> None:
    turns, notes = Named("turns"), Named("notes")
    manager = open_manager()
    manager.add_provider(turns, kinds=frozenset({"turns"}))
    manager.add_provider(notes, kinds=frozenset({"notes", "delegation"}))
    manager.initialize_all(A)
    manager.sync_all(make_turn(), A)
    manager.on_memory_write(MemoryWrite("add", "memory", "Tea."), A)
    manager.on_delegation(Delegation("look", "seen", "sub"), A)
    manager.on_session_end(A, "exit", messages=[])
    manager.on_pre_compress([{"role": "user", "content": "hello"}], 0, A)
    assert manager.flush()
    written = {"sync_turn", "on_memory_write", "on_delegation", "on_session_end", "on_pre_compress"}
    assert set(turns.hooks) & written == {"sync_turn", "on_session_end", "on_pre_compress"}
    assert set(notes.hooks) & written == {"on_memory_write", "on_delegation"}


def test_lists_of_config_become_routes() -> None:
    config = composite(members=["a", "b"], turns=["a"], facts=[])
    assert routes_of(config) == {
        "a": {"turns", "notes", "delegation"},
        "b": {"notes", "delegation"},
    }


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, "composite.members is []"),
        ({"members": ["a", "b", "c", "d", "e"]}, "composite.members is ['a', 'b', 'c', 'd', 'e']"),
        ({"members": ["composite"]}, "composite.members is ['composite']"),
        ({"members": ["a"], "notes": ["b"]}, "composite.notes names 'b', which is not in composite.members"),
    ],
)
def test_lists_that_make_no_sense_are_refused(fields: dict[str, list[str]], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        routes_of(composite(**fields))
    assert fault in str(refused.value)


# -------------------------------------------------------------------------------------------------------------- tools


def test_tools_carry_the_name_of_their_member_and_reach_it_under_their_own(open_manager: OpenManager) -> None:
    one, two = Named("one", ("search", "one_add")), Named("two", ("search",))
    manager = with_members(open_manager(), one, two)
    names = [schema["name"] for schema in manager.get_all_tool_schemas()]
    assert names == ["one_search", "one_add", "two_search"]
    for name in names:
        assert json.loads(manager.handle_tool_call(ToolCall(name, {}), A)) == {"ok": True}
    called = [
        [arguments["call"].name for arguments in member.of("handle_tool_call")] for member in (one, two)
    ]
    assert called == [["search", "one_add"], ["search"]]


def test_all_members_together_have_at_most_twelve_tools_and_status_names_the_rest(
    open_manager: OpenManager,
) -> None:
    many = [Named(name, tuple(f"tool{number}" for number in range(8))) for name in ("one", "two")]
    manager = with_members(open_manager(), *many)
    assert len(manager.get_all_tool_schemas()) == MAX_TOOLS
    sentence = "tool 'two_tool4' is left out: a composite has at most 12 tools; shorten composite.facts"
    assert any(sentence in problem for problem in manager.problems())


def test_a_member_that_takes_no_facts_offers_no_tools(open_manager: OpenManager) -> None:
    manager = open_manager()
    manager.add_provider(Named("one", ("search",)), kinds=ALL_KINDS - {"facts"})
    assert manager.get_all_tool_schemas() == []


# ------------------------------------------------------------------------------------------------------------- fusion


def test_recall_is_fused_by_reciprocal_rank_and_a_text_of_two_members_counts_once() -> None:
    fused = fuse_recall([part_of("one", "a", "b", "c"), part_of("two", "d", "B ", "e")], 100)
    assert texts(fused) == [["b", "a", "c"], ["d", "e"]]
    scores = [item.score for item in fused[0].recall.items]
    assert scores == pytest.approx([1 / 62 + 0.8 / 62, 1 / 61, 1 / 63])


def test_the_recall_of_all_members_has_one_budget() -> None:
    fused = fuse_recall([part_of("one", "a" * 40, "b" * 40), part_of("two", "c" * 40, "d" * 40)], 25)
    assert texts(fused) == [["a" * 40, "b" * 40], ["c" * 20]]
    (empty, _) = fuse_recall([part_of("one"), part_of("two", "c")], 25)
    assert (empty.recall, empty.origin) == (Recall(), "none")


def test_a_member_that_answers_with_a_text_counts_as_one_item() -> None:
    parts = [RecallPart("one", Recall(text="x" * 100), "fresh"), part_of("two", "c" * 15, "d" * 15)]
    fused = fuse_recall(parts, 10)
    assert fused[0].recall.text == "x" * 20
    assert texts(fused)[1] == ["c" * 15, "d" * 5]


# --------------------------------------------------------------------------------------------------------- whole home

MEMBER = """
from hermes_core import MemoryProvider, Recall, RecallItem


class Member(MemoryProvider):
    name = "{name}"
    turns = []

    def prefetch(self, query):
        return Recall(tuple(RecallItem(f"{name} heard {{turn}}") for turn in self.turns))

    def sync_turn(self, turn):
        self.turns.append(turn.user)


def register(ctx):
    ctx.register_memory_provider(Member())
"""


@pytest.fixture
def composite_home(hermes_home: HermesHome) -> HermesHome:
    for name in ("elm", "oak"):
        folder = Path(hermes_home.path, "plugins", name)
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(MEMBER.format(name=name), "utf-8")
    set_value(hermes_home, "composite.members", ["elm", "oak"])
    set_value(hermes_home, "memory.provider", "composite")
    return hermes_home


def test_a_home_uses_the_members_that_its_config_names(composite_home: HermesHome) -> None:
    with open_memory(composite_home) as memory:
        assert memory.problems() == []
        session = memory.start_session("s1")
        memory.end_turn(session, "I like tea.", "Noted.")
        assert memory.flush(10)
        context = memory.begin_turn(session, "What do I like?").context
        assert "elm heard I like tea." in context
        assert "oak heard I like tea." in context
    report = status_of(composite_home)
    assert [(member.name, member.state) for member in report.members] == [
        ("elm", "active"),
        ("oak", "active"),
    ]
    assert report.problems == ()


def test_writes_for_a_member_that_does_not_load_wait_for_it(composite_home: HermesHome) -> None:
    broken = composite_home.path / "plugins" / "oak" / "__init__.py"
    source = broken.read_text("utf-8")
    broken.write_text(
        source.replace("class Member", "raise RuntimeError('no key')\n\n\nclass Member"), "utf-8"
    )
    with open_memory(composite_home) as memory:
        assert any("oak" in problem and "no key" in problem for problem in memory.problems())
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
        assert until(lambda: memory.manager.outbox.backlog("elm").depth == 0)
        assert memory.manager.outbox.backlog("oak").depth == 1
    states = {member.name: member.state for member in status_of(composite_home).members}
    assert states == {"elm": "active", "oak": "failed"}


def test_a_composite_without_members_is_a_problem_and_no_turn_fails(hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.provider", "composite")
    with open_memory(hermes_home) as memory:
        assert any("composite.members is []" in problem for problem in memory.problems())
        memory.end_turn(memory.start_session("s1"), "I like tea.", "Noted.")
