from __future__ import annotations

import functools
from typing import Any

import pluggy
import pytest

from hermes_core.contract.hooks import PROJECT, ProviderHooks, hookimpl
from hermes_core.contract.provider import MemoryProvider, contract_faults, validate_provider
from hermes_core.contract.values import CONTRACT_VERSION, Field, Query, Recall, Session
from hermes_core.errors import ProviderInvalid
from tests.table import table


class Sound(MemoryProvider):
    name = "sound"

    def prefetch(self, query: Query) -> Recall:
        return Recall(text=query.text)

    async def sync_turn(self, turn: Any, session: Session) -> None: ...

    def helper(self, *anything: Any, more: int = 3) -> None: ...

    @property
    def broken(self) -> str:
        raise RuntimeError("a property is not run to look for faults")


class Plain:
    name = "plain"

    @hookimpl
    def prefetch(self, query: Query) -> str:
        return query.text


def provider(**members: Any) -> object:
    return type("Written", (MemoryProvider,), {"name": "written", **members})()


@pytest.mark.parametrize("sound", [Sound(), Plain()])
def test_a_sound_provider_has_no_faults_and_pluggy_takes_it(sound: object) -> None:
    assert contract_faults(sound) == []
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ProviderHooks)
    manager.register(sound)
    manager.check_pending()
    assert len(manager.hook.prefetch.get_hookimpls()) == 1


def test_a_hook_that_is_not_overridden_is_not_implemented() -> None:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ProviderHooks)
    manager.register(Sound())
    assert manager.hook.initialize.get_hookimpls() == []


def test_an_override_in_a_subclass_of_a_provider_counts() -> None:
    class Child(Sound):
        name = "child"

        def shutdown(self) -> None: ...

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ProviderHooks)
    manager.register(Child())
    assert len(manager.hook.shutdown.get_hookimpls()) == len(manager.hook.prefetch.get_hookimpls()) == 1


def test_a_hook_may_come_from_a_mixin() -> None:
    class Recalling:
        def prefetch(self, query: Query) -> str:
            return query.text

    class Mixed(Recalling, MemoryProvider):
        name = "mixed"

    assert contract_faults(Mixed()) == []
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ProviderHooks)
    manager.register(Mixed())
    assert len(manager.hook.prefetch.get_hookimpls()) == 1


def keyword_only(self: Any, *, query: Query) -> None: ...
def with_default(self: Any, query: Query, session: object = None) -> None: ...
def with_rest(self: Any, **kwargs: Any) -> None: ...
def takes_turn(self: Any, turn: Any) -> None: ...
def yields(self: Any, turn: Any) -> Any:
    yield turn


async def yields_at_times(self: Any, turn: Any) -> Any:
    yield turn


def of_hermes_agent(self: Any, user_content: str, assistant_content: str) -> None: ...


@table(
    ("faulty", "fault"),
    [
        (provider(name=""), "it has no name: set name = '...' on the class"),
        (provider(name=3), "it has no name"),
        (provider(contract_version=CONTRACT_VERSION + 1), "upgrade hermes-memory-core"),
        (provider(prefetch=keyword_only), "prefetch() takes 'query' by keyword only: remove the *"),
        (provider(prefetch=with_default), "prefetch() gives 'session' a default: remove it"),
        (provider(prefetch=with_rest), "receives nothing: name the parameters you want"),
        (
            provider(sync_turn=of_hermes_agent),
            "sync_turn() takes 'user_content', 'assistant_content': the host gives turn, session; name those",
        ),
        (
            provider(sync_turn=yields),
            "sync_turn() yields, so that nothing of it runs: write return, or nothing",
        ),
        (provider(sync_turn=yields_at_times), "sync_turn() yields"),
        (provider(shutdown=takes_turn), "shutdown() takes 'turn': the host gives nothing"),
        (
            provider(prefetch=functools.cache(lambda self: None)),
            "prefetch is a _lru_cache_wrapper, not a method",
        ),
        (provider(prefetch=property(takes_turn)), "prefetch is a property, not a method"),
        (provider(prefetch=staticmethod(lambda query: None)), "prefetch is a staticmethod, not a method"),
        (provider(settings={"url": "http://x"}), "settings is a dict: write a tuple of Field(...)"),
        (provider(settings=[("url", str)]), "settings holds a tuple: write a tuple of Field(...)"),
        *(
            (provider(settings=(field,)), f"{fault}")
            for field, fault in (
                (Field(3), "name of setting 3 is 3: write a str"),  # type: ignore[arg-type]
                (
                    Field("wait", "float"),
                    "type of setting 'wait' is 'float': write str, int, float, bool, dict or list",
                ),  # type: ignore[arg-type]
                (Field("wait", list[str]), "type of setting 'wait' is list[str]"),
                (Field("wait", str | None), "type of setting 'wait' is str | None"),  # type: ignore[arg-type]
                (Field("wait", float, minimum="1"), "minimum of setting 'wait' is '1': write a number"),  # type: ignore[arg-type]
                (Field("key", env=["A", "B"]), "env of setting 'key' is ['A', 'B']: write a str"),  # type: ignore[arg-type]
                (Field("kind", choices="abc"), "choices of setting 'kind' is 'abc': write a tuple of str"),
                (Field("kind", aliases="old"), "aliases of setting 'kind' is 'old': write a tuple of str"),
                (
                    Field("kind", when="mode"),
                    "when of setting 'kind' is 'mode': write {another setting: value}",
                ),  # type: ignore[arg-type]
            )
        ),
        (provider(sync_turns=takes_turn), "sync_turns() is no hook: did you mean sync_turn()?"),
        (provider(on_sesion_end=takes_turn), "did you mean on_session_end()?"),
        (
            provider(wholly_else=hookimpl(lambda self: None)),
            "is marked as a hook and there is none of that name",
        ),
        (
            type("Plain", (), {"name": "plain", "settings": (Field("wait", "float"), "no field")})(),  # type: ignore[arg-type]
            "type of setting 'wait' is 'float'",
        ),
        (
            type("Bare", (), {"name": "bare", "sync_turn": lambda self, turn: None})(),
            "sync_turn() is not marked: write @hookimpl",
        ),
    ],
)
def test_a_fault_is_found_and_told_with_what_to_write(faulty: object, fault: str) -> None:
    faults = contract_faults(faulty)
    assert len(faults) == 1
    assert fault in faults[0]
    with pytest.raises(ProviderInvalid, match="breaks the contract"):
        validate_provider(faulty)


def test_all_faults_are_told_at_once() -> None:
    faulty = provider(name="", prefetch=with_default, sync_turns=takes_turn)
    assert len(contract_faults(faulty)) == 3
