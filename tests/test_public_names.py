from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
from pathlib import Path

import pytest

import hermes_core
import hermes_memory_agent as agent
from hermes_core import HermesHome, Memory, errors, open_memory
from tests.table import table

SOURCE = ast.parse(Path(hermes_core.__file__).read_text(encoding="utf-8"))
PROMISED = [
    "MemoryProvider",
    "hookimpl",
    "Session",
    "Turn",
    "Recall",
    "Availability",
    "MemoryManager",
    "Notes",
    "load_provider",
    "discover_providers",
    "HermesHome",
]
ERRORS = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
]


def test_public_names_are_sorted_and_hold_what_was_promised() -> None:
    assert hermes_core.__all__ == sorted(hermes_core.__all__)
    assert set(PROMISED) <= set(hermes_core.__all__)
    assert dir(hermes_core) == hermes_core.__all__


def test_the_three_lists_of_public_names_agree() -> None:
    block = next(node for node in SOURCE.body if isinstance(node, ast.If))
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(typed) == hermes_core.__all__ == sorted(hermes_core._HOMES)


def test_each_name_is_for_hosts_or_for_authors_or_said_to_be_for_both() -> None:
    hosts, authors, both = set(hermes_core.HOSTS), set(hermes_core.AUTHORS), set(hermes_core._BOTH)
    assert hosts | authors | both == set(hermes_core.__all__)
    assert len(hosts) + len(authors) + len(both) == len(hermes_core.__all__)


def test_a_memory_has_at_most_25_names_and_its_docstring_has_its_attributes(
    hermes_home: HermesHome,
) -> None:
    with open_memory(hermes_home) as memory:
        names = {name for name in dir(memory) if not name.startswith("_")}
        attributes = {name for name in vars(memory) if not name.startswith("_")}
    assert len(names) <= 25
    described = str(inspect.getdoc(Memory)).partition("Attributes:")[2]
    assert attributes == set(re.findall(r"^ {4}(\w+): ", described, re.MULTILINE))


def test_the_agent_exports_its_names_and_loads_each_of_them() -> None:
    block = next(
        node for node in ast.parse(Path(agent.__file__).read_text("utf-8")).body if isinstance(node, ast.If)
    )
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(typed) == dir(agent) == agent.__all__ == sorted(agent._MODULES)
    assert all(getattr(agent, name).__doc__ for name in agent.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        _ = agent.Agnet


@table("name", hermes_core.__all__)
def test_a_public_name_is_there_and_has_a_docstring(name: str) -> None:
    value = getattr(hermes_core, name)
    assert value is getattr(importlib.import_module(f"hermes_core.{hermes_core._HOMES[name]}"), name)
    assert name == "hookimpl" or value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'hermes_core' has no attribute 'Memori'"):
        _ = hermes_core.Memori


@table("error", ERRORS)
def test_an_error_says_what_and_what_to_do_and_survives_pickling(error: type[errors.HermesError]) -> None:
    original = error("'x' is wrong", "write 'y'")
    copy = pickle.loads(pickle.dumps(original))
    assert (str(copy), copy.message, copy.remedy) == ("'x' is wrong; write 'y'", "'x' is wrong", "write 'y'")
    assert type(copy) is error
    assert str(error("'x' is wrong")) == "'x' is wrong"


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        name = next((e.__name__ for e in ERRORS if e.__name__ == line.strip(" │├└─").split(" ")[0]), None)
        if name:
            depth = line.index(name)
            stack = [entry for entry in stack if entry[0] < depth]
            drawn[name] = stack[-1][1] if stack else "Exception"
            stack.append((depth, name))
    assert drawn == {error.__name__: error.__bases__[0].__name__ for error in ERRORS}
