"""A fault in a provider's code is told with file and line, and never as an outage of its backend."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_core import open_memory
from hermes_core.home import HermesHome
from hermes_core.loader.guard import fault_place
from hermes_core.manager.breaker import MAX_FAILURES
from hermes_core.manager.call import attempt
from tests.table import table

FAULTS = {
    "KeyError": "{}['pond']",
    "IndexError": "[][1]",
    "AttributeError": "None.strip()",
    "TypeError": "len(5)",
    "NameError": "pond",
    "ZeroDivisionError": "1 / 0",
    "ValueError": "int('pond')",
    "RecursionError": "(lambda f: f(f))(lambda f: f(f))",
    "AssertionError": "exec('assert False')",
    "NotImplementedError": "(_ for _ in ()).throw(NotImplementedError('later'))",
}
OUTAGES = {
    "ConnectionRefusedError": "(_ for _ in ()).throw(ConnectionRefusedError('no server'))",
    "TimeoutError": "(_ for _ in ()).throw(TimeoutError('slow'))",
    "RuntimeError": "(_ for _ in ()).throw(RuntimeError('503'))",
    "JSONDecodeError": "__import__('json').loads('<html>')",
    "BackendUnavailable": "(_ for _ in ()).throw(__import__('hermes_core.errors').errors.BackendUnavailable('down'))",
}


def raised(expression: str, file: str = "/srv/pond/duck.py") -> BaseException:
    """Return the error of an expression in line 3 of a file, called as the manager calls it."""
    space: dict[str, Any] = {}
    source = compile(f"def recall():\n    helper = 1\n    return {expression}\n", file, "exec")
    exec(source, space)
    caller = compile("def call(f):\n    return f()\n", "/x/hermes_core/manager/worker.py", "exec")
    exec(caller, space)
    _, error = attempt(space["call"], space["recall"])
    assert error is not None, expression
    return error


@table("kind", FAULTS)
def test_a_fault_has_a_file_and_a_line(kind: str) -> None:
    error = raised(FAULTS[kind])
    assert type(error).__name__ == kind
    assert fault_place(error) == "/srv/pond/duck.py line 3"


@table("kind", OUTAGES)
def test_an_outage_is_no_fault(kind: str) -> None:
    error = raised(OUTAGES[kind])
    assert type(error).__name__ == kind
    assert fault_place(error) == ""


def test_a_fault_that_a_library_shows_is_that_of_the_line_that_called_it() -> None:
    assert fault_place(raised("__import__('json').dumps(object())")) == "/srv/pond/duck.py line 3"


def test_a_value_error_that_the_provider_raises_itself_is_its_word() -> None:
    space: dict[str, Any] = {}
    exec(compile("def recall():\n    raise ValueError('no page')\n", "/srv/pond/duck.py", "exec"), space)
    exec(compile("def call(f):\n    return f()\n", "/x/hermes_core/manager/worker.py", "exec"), space)
    _, error = attempt(space["call"], space["recall"])
    assert error is not None
    assert fault_place(error) == ""


def test_an_error_without_a_frame_of_foreign_code_has_no_place() -> None:
    assert fault_place(KeyError("pond")) == ""


SOURCE = """
from hermes_core import MemoryProvider, Recall


class Duck(MemoryProvider):
    name = "duck"
    def prefetch(self, query, session):
        return self.look(query)

    def look(self, query):
        return {}[query.text]

    def sync_turn(self, turn, session):
        return turn.pond


def register(ctx):
    ctx.register_memory_provider(Duck())
"""
HOSTED = """
class Duck:
    name = "duck"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): ...
    def get_tool_schemas(self): return []
    def prefetch(self, query, **kwargs):
        return self.look(query)

    def look(self, query):
        return {}[query]

    def sync_turn(self, user, assistant, **kwargs):
        return user.pond


def register(ctx):
    ctx.register_memory_provider(Duck())
"""


@pytest.mark.parametrize("source", [SOURCE, HOSTED], ids=["native", "hermes-agent"])
def test_the_person_is_told_of_the_line_and_the_backend_is_not_blamed(
    hermes_home: HermesHome, source: str
) -> None:
    file = hermes_home.plugins / "duck" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    line = source[: source.index("return {}")].count("\n") + 1
    with open_memory(hermes_home, provider="duck") as memory:
        session = memory.start_session()
        memory.manager.initialize_all(session, wait=10.0)
        for _ in range(MAX_FAILURES + 2):
            reasons = [part.reason for part in memory.begin_turn(session, "tea?").recall.parts]
        memory.end_turn(session, "tea?", "Tea.")
        memory.flush(2.0)
        (health,) = [one for one in memory.manager.health() if one.name == "duck"]
    fault = f"a fault in its code, {file} line {line}: KeyError: 'tea?'"
    assert reasons == [f"prefetch failed: {fault}"]
    assert fault in health.reason or "sync_turn" in health.last_error
    assert "a fault in its code" in health.last_error
    assert set(health.breakers.values()) == {"closed"}
    assert "report it to the provider's author" in health.remedy


def test_a_fault_while_a_provider_is_made_has_a_file_and_a_line_too(hermes_home: HermesHome) -> None:
    file = hermes_home.plugins / "duck" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        SOURCE.replace("def prefetch", "def __init__(self):\n        self.x = None + 1\n\n    def prefetch")
    )
    with open_memory(hermes_home, provider="duck") as memory:
        told = "; ".join(memory.problems())
    assert f"TypeError: unsupported operand type(s) for +: 'NoneType' and 'int', in {file} line 8" in told
